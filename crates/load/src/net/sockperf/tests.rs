//! Outputs are sockperf 3.7's (Debian 12), as recorded; where the loss was made, a relay between client and server made it.

use proptest::prelude::*;

use super::*;

const UDP: &str = include_str!("udp.txt");

const TCP: &str =
    "sockperf: [Total Run] RunTime=2.001 sec; Warm up time=400 msec; SentMessages=94170; ReceivedMessages=94169
sockperf: ========= Printing statistics for Server No: 0
sockperf: [Valid Duration] RunTime=1.549 sec; SentMessages=76059; ReceivedMessages=76059
sockperf: \x1b[2;35m====> avg-rtt=20.335 (std-dev=74.102)\x1b[0m
sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0
sockperf: Summary: Round trip is 20.335 usec
sockperf: \x1b[2;35mTotal 76059 observations\x1b[0m; each percentile contains 760.59 observations
sockperf: ---> <MAX> observation = 6222.484
sockperf: ---> percentile 99.999 = 5782.025
sockperf: ---> percentile 99.990 = 2538.818
sockperf: ---> percentile 99.900 =  989.767
sockperf: ---> percentile 99.000 =   66.107
sockperf: ---> percentile 90.000 =   19.608
sockperf: ---> percentile 75.000 =   17.726
sockperf: ---> percentile 50.000 =   15.372
sockperf: ---> percentile 25.000 =   14.701
sockperf: ---> <MIN> observation =   13.740
";

/// The 5000th answer was held back: it counts none as dropped.
const LOST: &str =
    "sockperf: [Total Run] RunTime=3.001 sec; Warm up time=400 msec; SentMessages=5000; ReceivedMessages=4999
sockperf: ========= Printing statistics for Server No: 0
sockperf: [Valid Duration] RunTime=0.630 sec; SentMessages=1678; ReceivedMessages=1678
sockperf: \x1b[2;35m====> avg-rtt=375.377 (std-dev=867.917)\x1b[0m
sockperf: # dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0
sockperf: Summary: Round trip is 375.377 usec
sockperf: \x1b[2;35mTotal 1678 observations\x1b[0m; each percentile contains 16.78 observations
sockperf: ---> <MAX> observation = 12281.047
sockperf: ---> percentile 99.999 = 12281.047
sockperf: ---> percentile 99.990 = 12281.047
sockperf: ---> percentile 99.900 = 7378.513
sockperf: ---> percentile 99.000 = 4570.303
sockperf: ---> percentile 90.000 =  994.609
sockperf: ---> percentile 75.000 =  173.105
sockperf: ---> percentile 50.000 =   97.984
sockperf: ---> percentile 25.000 =   80.508
sockperf: ---> <MIN> observation =   53.609
";

/// Some answers came twice: the line is red then.
const TWICE: &str =
    "sockperf: [Total Run] RunTime=3.001 sec; Warm up time=400 msec; SentMessages=46931; ReceivedMessages=46921
sockperf: [Valid Duration] RunTime=2.550 sec; SentMessages=41178; ReceivedMessages=41178
sockperf: \x1b[2;35m====> avg-rtt=292.266 (std-dev=565.772)\x1b[0m
sockperf: \x1b[0;31m# dropped messages = 0; # duplicated messages = 9; # out-of-order messages = 0\x1b[0m
sockperf: ---> <MAX> observation = 10251.160
sockperf: ---> <MIN> observation =   32.818
";

fn udp(text: &str) -> Result<Vec<Metric>, LoadError> {
    read(NetTest::SockperfUdp, Protocol::Udp, text)
}

fn why(protocol: Protocol, text: &str) -> String {
    let test = if protocol == Protocol::Tcp { NetTest::SockperfTcp } else { NetTest::SockperfUdp };
    read(test, protocol, text).unwrap_err().to_string()
}

fn value(moved: &[Metric], name: &str) -> Option<f64> {
    moved.iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

#[test]
fn rate_and_percentiles_are_of_the_valid_part() {
    let moved = udp(UDP).unwrap();
    assert_eq!(value(&moved, "sockperf-udp.rate"), Some(111_689.0 / 1.55));
    let expected = [("p50", 12_748.0), ("p90", 14_861.0), ("p99", 41_801.0), ("p99.9", 108_149.0)];
    for (name, nanoseconds) in expected {
        let found = value(&moved, &format!("sockperf-udp.{name}")).unwrap();
        assert!((found - nanoseconds).abs() < 1e-6, "{name}: {found}");
    }
    let moved = read(NetTest::SockperfTcp, Protocol::Tcp, TCP).unwrap();
    assert_eq!(moved.len(), 5);
    assert_eq!(value(&moved, "sockperf-tcp.p50"), Some(15_372.0));
}

#[test]
fn newer_versions_say_more_of_the_average() {
    // As the source of 3.10 prints it.
    let newer = UDP.replace(
        "(std-dev=20.080)",
        "(std-dev=20.080, mean-ad=1.1, median-ad=0.6, siqr=0.6, cv=1.4, std-error=0.06, 99.0% ci=[13.698, 14.006])",
    );
    assert_ne!(newer, UDP);
    assert_eq!(udp(&newer).unwrap(), udp(UDP).unwrap());
}

#[test]
fn a_message_that_was_lost_is_found_though_it_counts_none() {
    let why = why(Protocol::Udp, LOST);
    assert!(why.contains("after 4999") && why.contains("last 1.92 s"), "{why}");
    // A run whose own answers take long, as over a slow link, is no loss.
    let slow = LOST.replace("12281.047", "1400000.000");
    assert!(udp(&slow).is_ok(), "{:?}", udp(&slow));
}

#[test]
fn answers_that_came_twice_fail_the_run() {
    let why = why(Protocol::Udp, TWICE);
    assert!(why.contains("9 duplicated") && !why.contains("dropped"), "{why}");
}

#[test]
fn a_server_that_is_missing_is_named_as_the_peer_must_start_it() {
    // It ends with 0 in both cases.
    let silent = "sockperf: Test ended\nsockperf: No messages were received from the server. Is the server down?\n";
    let said = why(Protocol::Udp, silent);
    assert!(said.contains("start `sockperf server -p 11111 --daemonize` on the peer (package `sockperf`)"), "{said}");
    let refused = "sockperf: \x1b[2;35m== version #3.7-no.git == \x1b[0m\nsockperf: ERROR: Can`t connect socket (errno=111 Connection refused)\n";
    let said = why(Protocol::Tcp, refused);
    assert!(
        said.contains("Connection refused") && said.contains("`sockperf server --tcp -p 11111 --daemonize`"),
        "{said}"
    );
}

#[test]
fn what_it_does_not_take_is_told_in_its_words() {
    // 3.7 knows no IPv6.
    let text = "sockperf: '-i' Invalid address: ::1\nping-pong (pp): Run sockperf client for latency test in ping pong mode.\n";
    assert_eq!(why(Protocol::Udp, text), "sockperf failed: '-i' Invalid address: ::1");
    let text = "sockperf: [Total Run] RunTime=0.400 sec; Warm up time=400 msec; SentMessages=9; ReceivedMessages=8\nsockperf: No valid observations found. Try tune parameters: --time/--mps/--reply-every\n";
    assert!(why(Protocol::Udp, text).contains("--seconds"));
}

#[test]
fn a_percentile_with_nothing_beyond_it_is_left_out() {
    let few = UDP.replace("ReceivedMessages=111689", "ReceivedMessages=999");
    let moved = udp(&few).unwrap();
    assert!(value(&moved, "sockperf-udp.p99").is_some() && value(&moved, "sockperf-udp.p99.9").is_none());
}

#[test]
fn what_is_no_result_is_refused() {
    for (from, to) in [
        ("avg-rtt=", "avg-latency="),
        ("[Valid Duration] RunTime=1.550", "[Valid Duration] RunTime=0.000"),
        ("[Valid Duration] RunTime=1.550", "[Valid Duration] RunTime=9.000"),
        ("SentMessages=111689; ReceivedMessages=111689", "SentMessages=0; ReceivedMessages=0"),
        ("SentMessages=111689; ReceivedMessages=111689", "SentMessages=1; ReceivedMessages=99999999"),
        ("SentMessages=111689; ReceivedMessages=111689", "SentMessages=1; ReceivedMessages=-5"),
        ("RunTime=2.000", "RunTime=nan"),
        ("99.900 =  108.149", "99.900 = -108.149"),
        ("99.900 =  108.149", "99.900 = 1.2.3"),
        ("99.900 =  108.149", "99.900 =   12.000"),
        ("99.900 =  108.149", "99.900 = 9999.999"),
        ("# dropped messages = 0", "# dropped messages = "),
        ("---> percentile 50.000", "---> percentile 55.000"),
        ("<MIN> observation =   11.917", "<MIN> observation =   12.917"),
    ] {
        let text = UDP.replace(from, to);
        assert_ne!(text, UDP, "{from}");
        assert!(udp(&text).is_err(), "{to}");
    }
    assert!(udp("").is_err());
}

#[test]
fn what_is_shown_of_it_steers_no_terminal() {
    let why = why(Protocol::Udp, "\x1b]0;title\x07\x1b[2J\x1b[31msockperf: what is this\x08\n");
    assert!(!why.chars().any(|next| next.is_control() && next != '\n'), "{why:?}");
}

/// Whatever is read is a figure: finite, above zero, percentiles in order.
fn sound(moved: &[Metric]) -> bool {
    let far = ["p50", "p90", "p99", "p99.9"].map(|name| value(moved, &format!("sockperf-udp.{name}")));
    let far: Vec<f64> = far.into_iter().flatten().collect();
    moved.iter().all(|metric| metric.value.is_finite() && metric.value > 0.0)
        && value(moved, "sockperf-udp.rate").is_some()
        && far.is_sorted()
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>(), words in "(sockperf: |\\[Total Run\\] |RunTime=|# dropped messages =|percentile 50.000 =|\x1b\\[|[0-9.\n]){0,60}") {
        let _ = udp(&text);
        prop_assert!(udp(&words).is_err());
    }

    #[test]
    fn an_output_that_was_cut_is_refused_or_says_the_same(end in 0..UDP.len()) {
        prop_assume!(UDP.is_char_boundary(end));
        if let Ok(moved) = udp(&UDP[..end]) {
            prop_assert_eq!(moved, udp(UDP).unwrap());
        }
    }

    #[test]
    fn an_output_with_other_characters_is_refused_or_sound(
        changes in proptest::collection::vec((0..UDP.len(), any::<char>()), 0..3),
        digits in proptest::collection::vec((0..UDP.len(), "[0-9.e-]"), 0..20),
    ) {
        let mut text: Vec<String> = UDP.chars().map(String::from).collect();
        let digits = digits.into_iter().filter(|(place, _)| UDP.as_bytes()[*place].is_ascii_digit());
        for (place, change) in changes.into_iter().map(|(place, change)| (place, change.to_string())).chain(digits) {
            text[place] = change;
        }
        if let Ok(moved) = udp(&text.concat()) {
            prop_assert!(sound(&moved), "{moved:?}");
        }
    }
}
