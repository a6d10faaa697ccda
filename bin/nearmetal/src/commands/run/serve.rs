//! `nearmetal run-service`: root's side of a user's run in system mode. nearmetal-run.socket starts one for each connection.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nearmetal_host::HostFs;
use nearmetal_run::console::Sink;
use nearmetal_run::seed::UserData;
use nearmetal_run::service::{Frames, FromService, FromUser, PIECE, Peer, Request, WrongFrame, receive};
use nearmetal_run::{RunError, accounts};

use super::caller::{Caller, User};
use super::events::Events;
use super::mode::Mode;
use super::places::Places;
use super::{course, end};
use crate::exit_status::ExitStatus;
use crate::printer::{Outlet, Printer};
use crate::style::Format;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a user may take to say what he wants.
const ASKING: Duration = Duration::from_secs(10);
/// How long he may leave what is sent to him unread: of a run that is in progress nothing waits for him longer, nor does a slice.
pub(super) const READING: Duration = Duration::from_secs(30);
/// The same of his output, which comes when everything is given back.
const READING_OUTPUT: Duration = Duration::from_secs(600);

/// Do a user's run as root (run by nearmetal-run.socket, with the connection as stdin)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    places: Places,
}

/// Runs the command.
pub(crate) fn serve(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let connection = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if rustix::net::sockopt::socket_domain(&connection) != Ok(rustix::net::AddressFamily::UNIX) {
        anyhow::bail!("stdin is not a connection of nearmetal-run.socket, which starts this program");
    }
    let fs = HostFs::live();
    let lines = Lines(Arc::new(Mutex::new(Line { connection: connection.try_clone()?, output_until: None })));
    let outcome = match wish(&fs, &connection) {
        Ok((peer, request, user_data)) => {
            connection.set_read_timeout(None)?;
            // For whoever reads the journal; the words of the run are the user's.
            printer.say(&format!(
                "`{}` for user {} (process {})",
                request.flavour.escape_default(),
                accounts::user(peer.uid),
                peer.pid
            ));
            done(args.places, peer, request, user_data, connection, &lines)
        }
        Err(error) => {
            // A part of it may be the user's.
            printer.important(&format!("error: {}", error.to_string().escape_debug()));
            let (mut words, mut events) =
                (Printer::to(false, Box::new(lines.clone())), Events::into(Box::new(lines.clone())));
            end(&Err(error), &mut events, &mut words).code()
        }
    };
    printer.say(&format!("exit code {outcome}"));
    let _ = lines.send(FromService::End(outcome));
    Ok(ExitStatus::Done)
}

/// Who asks, and for what.
fn wish(fs: &HostFs, connection: &UnixStream) -> Result<(Peer, Request, Option<UserData>), RunError> {
    let peer = Peer::of(fs, connection)?;
    let wrong = |what: &str, error: WrongFrame| RunError::Service(format!("{what} did not arrive: {error}"));
    let connection = &mut Until { connection, end: Instant::now() + ASKING };
    let other = |what: &str| RunError::Service(format!("something else came instead of {what}"));
    let request = match receive(&mut *connection).map_err(|error| wrong("the request", error))? {
        FromUser::Request(bytes) => {
            Request::parse(&bytes).map_err(|why| RunError::Service(format!("the request is not understood: {why}")))?
        }
        _ => return Err(other("the request")),
    };
    let user_data = match request.user_data {
        false => None,
        true => match receive(&mut *connection).map_err(|error| wrong("the user data", error))? {
            FromUser::UserData(bytes) => Some(bytes),
            _ => return Err(other("the user data")),
        },
    };
    let meta_data = match &request.meta_data {
        None => None,
        Some(path) => match receive(&mut *connection).map_err(|error| wrong("the meta-data", error))? {
            FromUser::MetaData(bytes) => Some((PathBuf::from(path), bytes)),
            _ => return Err(other("the meta-data")),
        },
    };
    let user_data = user_data.map(|user_data| UserData::of(user_data, meta_data)).transpose()?;
    Ok((peer, request, user_data))
}

/// Does it: the exit code.
fn done(
    places: Places,
    peer: Peer,
    request: Request,
    user_data: Option<UserData>,
    connection: UnixStream,
    lines: &Lines,
) -> u8 {
    let mut printer = Printer::to(request.quiet, Box::new(lines.clone()));
    let mut events = Events::into(Box::new(lines.clone()));
    let args = super::Args {
        flavour: Some(request.flavour),
        image: request.image,
        verify_image: false,
        user_data: None,
        meta_data: None,
        places,
        mode: Some(Mode::System),
        time_limit: request.time_limit.map(Duration::from_secs),
        dry_run: false,
        list: false,
        events: None,
        console: None,
        format: Format::Text,
        command: request.command,
    };
    let console = request.console.then(|| Box::new(ConsoleLines(lines.clone())) as Sink);
    let caller = Caller { user_data, console, user: Some(User { peer, connection }) };
    let ended = course::run(&args, caller, &mut events, &mut printer);
    end(&ended, &mut events, &mut printer).code()
}

/// A connection, until a time has come. The kernel's own limits hold for one call: who takes a byte now and then would never be late.
struct Until<'a> {
    connection: &'a UnixStream,
    end: Instant,
}

impl Until<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.connection.set_read_timeout(self.left()?)?;
        let mut connection = self.connection;
        connection.read(bytes)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.set_write_timeout(self.left()?)?;
        let mut connection = self.connection;
        connection.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The way to the user: whole frames, from the run's output and from its events.
#[derive(Clone)]
struct Lines(Arc<Mutex<Line>>);

struct Line {
    connection: UnixStream,
    /// When all of the output has to be read, once there is some.
    output_until: Option<Instant>,
}

impl Lines {
    fn send(&self, frame: FromService) -> io::Result<()> {
        let line = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if matches!(frame, FromService::Stdout(_)) {
            line.output_until.get_or_insert(now + READING_OUTPUT);
        }
        let connection = &line.connection;
        let sent = frame.send(Until { connection, end: line.output_until.unwrap_or(now + READING) });
        if sent.is_err() {
            // A part of a frame may be on its way: nothing that comes after it would be understood. The user is gone, or stopped.
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        sent
    }

    /// In pieces: while he does not read, there is no second copy of all of it.
    fn output(&self, bytes: &[u8], frame: fn(Vec<u8>) -> FromService) -> io::Result<()> {
        let mut pieces = bytes.chunks(PIECE);
        // Empty output is a frame, too: the time to read begins with it.
        let first = pieces.next().unwrap_or_default();
        std::iter::once(first).chain(pieces).try_for_each(|piece| self.send(frame(piece.to_vec())))
    }
}

impl Outlet for Lines {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output(bytes, FromService::Stdout)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output(bytes, FromService::Stderr)
    }
}

/// The guest's console: the user has it if he reads, and neither his run nor his events wait for it.
struct ConsoleLines(Lines);

impl Write for ConsoleLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = &*self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A Unix socket that can be written to has three quarters of its room (unix_writable): a frame does not wait.
        let mut ready = [PollFd::new(&line.connection, PollFlags::OUT)];
        if poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        FromService::Console(bytes.to_vec())
            .send(Until { connection: &line.connection, end: Instant::now() + READING })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines of events.
impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send(FromService::Event(bytes.to_vec()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_run::service::SCHEMA;

    fn asked(send: impl FnOnce(&UnixStream)) -> Result<(Peer, Request, Option<UserData>), String> {
        let (user, service) = UnixStream::pair().unwrap();
        send(&user);
        drop(user);
        wish(&HostFs::live(), &service).map_err(|error| error.to_string())
    }

    #[test]
    fn a_console_that_nobody_reads_costs_itself_and_nothing_else() {
        let (user, service) = UnixStream::pair().unwrap();
        let lines = Lines(Arc::new(Mutex::new(Line { connection: service, output_until: None })));
        let mut console = ConsoleLines(lines.clone());
        let mut taken = 0;
        let full = loop {
            match console.write_all(&[b'x'; 4096]) {
                Ok(()) => taken += 1,
                Err(error) => break error,
            }
        };
        assert!(full.kind() == io::ErrorKind::WouldBlock && taken > 0);
        // There is still room for what matters, whole and in its order.
        lines.send(FromService::End(7)).unwrap();
        for _ in 0..taken {
            assert!(matches!(receive(&user), Ok(FromService::Console(bytes)) if bytes.len() == 4096));
        }
        assert!(matches!(receive(&user), Ok(FromService::End(7))));
    }

    #[test]
    fn output_arrives_whole_and_empty_output_begins_the_time_to_read_the_rest() {
        let (user, service) = UnixStream::pair().unwrap();
        let mut lines = Lines(Arc::new(Mutex::new(Line { connection: service, output_until: None })));
        let sent = std::thread::spawn(move || {
            lines.stdout(&[]).unwrap();
            lines.stderr(&vec![b'x'; PIECE + 1]).unwrap();
            lines.0.lock().unwrap().output_until.is_some()
        });
        assert!(matches!(receive(&user), Ok(FromService::Stdout(bytes)) if bytes.is_empty()));
        for length in [PIECE, 1] {
            assert!(matches!(receive(&user), Ok(FromService::Stderr(bytes)) if bytes.len() == length));
        }
        assert!(sent.join().unwrap());
    }

    fn request(user_data: bool) -> FromUser {
        let request = Request {
            schema: SCHEMA.to_owned(),
            flavour: "tiny".to_owned(),
            image: None,
            user_data,
            meta_data: user_data.then(|| "meta".to_owned()),
            time_limit: None,
            console: false,
            quiet: true,
            command: vec!["true".to_owned()],
        };
        FromUser::Request(serde_json::to_vec(&request).unwrap())
    }

    #[test]
    fn a_wish_comes_with_its_files_and_what_is_missing_of_it_is_named() {
        let (peer, wish, none) = asked(|user| request(false).send(user).unwrap()).unwrap();
        assert_eq!((peer.pid, wish.flavour.as_str(), none), (std::process::id(), "tiny", None));
        let (_, _, data) = asked(|user| {
            request(true).send(user).unwrap();
            FromUser::UserData(vec![0xff]).send(user).unwrap();
            FromUser::MetaData(b"a: b\n".to_vec()).send(user).unwrap();
        })
        .unwrap();
        let data = data.unwrap();
        assert_eq!((data.parts().0, data.parts().1.unwrap().1), ([0xff].as_slice(), b"a: b\n".as_slice()));
        let sent: [(&[FromUser], &str); 4] = [
            (&[], "the request did not arrive: the other side has closed"),
            (&[FromUser::Signal(15)], "something else came instead of the request"),
            (&[request(true)], "the user data did not arrive"),
            (
                &[request(true), FromUser::UserData(vec![]), FromUser::Signal(1)],
                "something else came instead of the meta-data",
            ),
        ];
        for (frames, says) in sent {
            let refused = asked(|user| frames.iter().for_each(|frame| frame.send(user).unwrap())).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn a_user_who_is_gone_or_does_not_read_is_left() {
        let (user, service) = UnixStream::pair().unwrap();
        let until = Instant::now() + Duration::from_millis(200);
        let lines = Lines(Arc::new(Mutex::new(Line { connection: service, output_until: Some(until) })));
        // He takes a little now and then, for longer than he has; what is left then is read at once.
        let reads = std::thread::spawn({
            let mut user = user.try_clone().unwrap();
            move || {
                for _ in 0..50 {
                    if !user.read(&mut [0; 64]).is_ok_and(|read| read > 0) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                while user.read(&mut [0; 1 << 16]).is_ok_and(|read| read > 0) {}
            }
        });
        let mut sent = 0;
        while lines.send(FromService::Stderr(vec![b'x'; 1 << 16])).is_ok() {
            sent += 1;
            assert!(sent < 10_000);
        }
        // What follows would be read as the rest of the frame that was cut.
        assert!(lines.send(FromService::End(0)).is_err());
        drop((user, lines));
        reads.join().unwrap();
    }
}
