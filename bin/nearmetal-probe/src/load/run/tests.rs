//! Against servers of our own making, on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use super::*;
use crate::load::failure::Kind;

const NOWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn settings(address: SocketAddr, target: Target) -> Settings {
    Settings {
        address,
        target,
        rate: Some(200.0),
        seconds: 1,
        ramp: 0,
        connections: 8,
        threads: 2,
        timeout: 5_000,
        patience: 5,
        within: vec![100, 5_000],
        // Whatever else this machine does while tests run.
        most_lag: 60_000,
        ceiling: None,
        seed: 1,
    }
}

fn paths() -> Target {
    Target::Http { host: "x".into(), pages: Pages::Paths(vec!["/".into()]), weights: vec![1] }
}

/// A server that does with each connection what `serve` does.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from(NOWHERE)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = std::sync::Arc::new(serve);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = std::sync::Arc::clone(&serve);
            std::thread::spawn(move || serve(client));
        }
    });
    address
}

/// Answers every request with `answer`, until the client leaves.
fn says(answer: &'static [u8]) -> SocketAddr {
    server(move |mut client| {
        let mut buffer = [0; 4096];
        while client.read(&mut buffer).is_ok_and(|came| came > 0) {
            if client.write_all(answer).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_site_is_asked_for_and_every_answer_is_the_right_one() {
    let site = Site { seed: 9, directories: 2 };
    let responder = Responder::start(SocketAddr::from(NOWHERE), Served::Site(site)).unwrap();
    let load = measure(&settings(responder.address(), Target::site("x", site))).unwrap();
    assert_eq!((load.all.answered, load.all.failed, load.all.dropped), (load.all.offered, 0, 0), "{load:?}");
    assert!((100..320).contains(&load.all.offered), "200 a second: {}", load.all.offered);
    assert_eq!(load.classes.iter().map(|class| class.figures.offered).sum::<u64>(), load.all.offered);
    assert!(load.bytes_per_second > 0.0 && load.failures.is_empty() && load.reconnects == 0, "{load:?}");
    assert_eq!(load.all.within[1].count, load.all.offered, "all within 5 s");
    // The server of another seed has other files.
    let other = Site { seed: 10, ..site };
    let load = measure(&settings(responder.address(), Target::site("x", other))).unwrap();
    assert_eq!((load.all.answered, load.all.failed), (0, load.all.offered));
    assert_eq!(load.failures[0].kind, Kind::WrongAnswer);
}

#[test]
fn mail_is_read_written_and_logged_into() {
    let mail = Mail { seed: 2, users: 3, messages: 5 };
    let responder = Responder::start(SocketAddr::from(NOWHERE), Served::Mail(mail)).unwrap();
    let load = measure(&settings(responder.address(), Target::Imap(mail))).unwrap();
    assert_eq!((load.all.answered, load.all.failed), (load.all.offered, 0), "{load:?}");
    for class in &load.classes {
        assert!(class.figures.answered > 0, "{} never came", class.name);
    }
    assert_eq!(load.reconnects, 0, "logins are no lost connections");
}

#[test]
fn the_same_seed_asks_for_the_same() {
    let responder = Responder::start(SocketAddr::from(NOWHERE), Served::Page(10)).unwrap();
    let offered = |seed| {
        let load = measure(&Settings { seed, ..settings(responder.address(), paths()) }).unwrap();
        load.all.offered
    };
    assert_eq!(offered(5), offered(5));
}

#[test]
fn a_closed_loop_says_what_the_server_does_and_no_times() {
    let responder = Responder::start(SocketAddr::from(NOWHERE), Served::Page(10)).unwrap();
    let load = measure(&Settings { rate: None, ..settings(responder.address(), paths()) }).unwrap();
    assert_eq!((load.pace, load.all.latency.is_none(), load.generator.lag.is_none()), ("closed", true, true));
    assert!(load.finished_per_second > 100.0 && load.all.offered == load.all.answered, "{load:?}");
}

#[test]
fn a_server_that_stands_still_shows_in_the_times_of_all_it_delayed() {
    let began = Instant::now();
    // It answers at once, but for 0.6 s in the middle of the run, in which it answers nobody.
    let address = server(move |mut client| {
        let mut buffer = [0; 4096];
        while client.read(&mut buffer).is_ok_and(|came| came > 0) {
            let now = began.elapsed().as_millis();
            if (400..1_000).contains(&now) {
                std::thread::sleep(Duration::from_millis((1_000 - now) as u64));
            }
            if client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let load = measure(&Settings { seconds: 2, connections: 4, ..settings(address, paths()) }).unwrap();
    let times = load.all.latency.clone().unwrap();
    assert_eq!((load.all.answered, load.all.failed), (load.all.offered, 0), "{load:?}");
    // 0.6 s of 2 s: three in ten were due in it, and a third of these waited longer than 0.4 s. A closed loop of four
    // connections would have seen four slow requests of 280, or 1.4 %.
    assert!(times.p95.is_some_and(|p95| p95 > 300_000_000), "{times:?}");
    assert!(load.all.within[0].share < 0.9, "{:?}", load.all.within);
    assert!(load.all.late > 30, "no connection was free: {}", load.all.late);
}

#[test]
fn what_a_hostile_server_does_is_counted_by_kind_and_ends_in_time() {
    let endless: &[u8] =
        Box::leak([b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'a'; 80 << 10]].concat().into_boxed_slice());
    for (answer, kind) in [
        (&b"SSH-2.0-OpenSSH\r\n"[..], Kind::Malformed),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", Kind::Refused),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", Kind::Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", Kind::TooLarge),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Kind::Malformed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nslow", Kind::Timeout),
        (endless, Kind::TooLarge),
    ] {
        let load = measure(&Settings { timeout: 1_000, rate: Some(30.0), ..settings(says(answer), paths()) }).unwrap();
        assert_eq!(load.all.answered, 0, "{kind:?}: {load:?}");
        // On a busy machine a request may run out of time before its connection is there.
        let kinds: Vec<Kind> = load.failures.iter().map(|failure| failure.kind).collect();
        assert!(kinds.contains(&kind) && kinds.iter().all(|one| [kind, Kind::Timeout].contains(one)), "{load:?}");
        assert_eq!(load.all.failed + load.all.dropped, load.all.offered, "{kind:?}: {load:?}");
        assert_eq!(load.all.latency.clone().unwrap().p50, None, "nothing was answered");
    }
}

#[test]
fn a_server_that_closes_after_each_answer_is_met_again() {
    let address = server(|mut client| {
        let mut buffer = [0; 4096];
        if client.read(&mut buffer).is_ok_and(|came| came > 0) {
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok");
        }
    });
    let load = measure(&settings(address, paths())).unwrap();
    assert_eq!((load.all.answered, load.all.failed), (load.all.offered, 0), "{load:?}");
    assert!(load.reconnects > 20, "{}", load.reconnects);
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_reason() {
    let address = TcpListener::bind(SocketAddr::from(NOWHERE)).unwrap().local_addr().unwrap();
    let error = measure(&Settings { patience: 1, ..settings(address, paths()) }).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("took 0 of 4 connections") && text.contains("refused"), "{text}");
    assert_eq!(error.exit_code(), 3);
}

#[test]
fn a_generator_that_would_be_busy_with_itself_refuses() {
    let fast = Settings {
        rate: Some(9_999_999.0),
        ceiling: Some(1),
        ..settings(SocketAddr::from(([127, 0, 0, 1], 1)), paths())
    };
    let text = measure(&fast).unwrap_err().to_string();
    assert!(text.contains("requests a second against itself"), "{text}");
}

#[test]
fn a_late_generator_gives_no_figures() {
    let mut lag = Histogram::default();
    (0..980).for_each(|_| lag.record(10_000));
    (0..20).for_each(|_| lag.record(7_000_000));
    assert!(punctual(&lag, 8).is_ok());
    let error = punctual(&lag, 6).unwrap_err();
    assert!(error.to_string().contains("more than 7 ms late, and 6 ms is the most"), "{error}");
    (0..1_000).for_each(|_| lag.record(10_000));
    assert!(punctual(&lag, 6).is_ok(), "1 in 100 may be late");
    assert!(punctual(&Histogram::default(), 1).is_ok(), "a closed loop has no moments");
}

#[test]
fn bounds_are_named() {
    let sound = settings(SocketAddr::from(([127, 0, 0, 1], 1)), paths());
    for (wrong, named) in [
        (Settings { connections: 0, ..sound.clone() }, "--connections is 0"),
        (Settings { threads: 9, ..sound.clone() }, "--threads is 9, and must be from 1 to 8"),
        (Settings { rate: Some(f64::NAN), ..sound.clone() }, "--rate is NaN"),
        (Settings { seconds: 0, ..sound.clone() }, "--seconds is 0"),
        (Settings { within: vec![0], ..sound.clone() }, "--within is 0"),
        (
            Settings {
                target: Target::Http { host: "x".into(), pages: Pages::Paths(vec![]), weights: vec![] },
                ..sound
            },
            "the sum of all weights is 0",
        ),
    ] {
        let error = measure(&wrong).unwrap_err();
        assert!(error.to_string().starts_with(named) && error.exit_code() == 2, "{error}");
    }
}

#[test]
fn a_server_that_goes_away_loses_connections_and_says_why() {
    let listener = TcpListener::bind(SocketAddr::from(NOWHERE)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        // It takes all connections, and is gone.
        let clients: Vec<_> = (0..8).map(|_| listener.accept().unwrap()).collect();
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop((clients, listener));
    });
    let load = measure(&Settings { timeout: 300, ..settings(address, paths()) }).unwrap();
    assert_eq!(load.all.answered, 0);
    let refused = load.lost.iter().find(|lost| lost.kind == Kind::Connect).unwrap();
    assert!(refused.count > 0 && refused.first.contains("refused"), "{refused:?}");
}
