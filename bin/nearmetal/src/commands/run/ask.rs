//! A user's side of a run in system mode: the service does it, and this program passes on what comes of it.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nearmetal_host::files;
use nearmetal_run::console::Passer;
use nearmetal_run::service::{Frames, FromService, FromUser, Request, SCHEMA, SOCKET, WrongFrame, receive};
use nearmetal_run::{RunError, accounts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::fs::MetadataExt;

use super::Args;
use super::caller::Caller;
use super::events::{End, Events};
use super::signals::Signals;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Between two looks whether a signal has come.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Has the run done. The code is the command's, or tells what is told of any run.
pub(super) fn run(args: &Args, mut events: Events, printer: &mut Printer) -> ExitStatus {
    match asked(args, &mut events, printer) {
        // Said already, and told.
        Ok(code) if printer.lost().is_none() => ExitStatus::Program(code),
        Ok(_) => {
            let end = End::output_lost();
            if let Some(reason) = &end.reason {
                printer.important(&end.sentence(reason));
            }
            events.ended(&end);
            end.status
        }
        Err(error) => super::end(&Err(error), &mut events, printer).status,
    }
}

fn asked(args: &Args, events: &mut Events, printer: &mut Printer) -> Result<u8, RunError> {
    args.places.are_usual()?;
    // Root would read for whoever asks, as often as he asks.
    if args.verify_image {
        return Err(RunError::ServiceDecides { option: "--verify-image" });
    }
    let mut caller = Caller::own(args)?;
    // A sink that takes nothing would keep the service from being heard.
    let console = caller.console.take().map(Passer::to).transpose()?;
    let connection = connect(Path::new(SOCKET))?;
    // Up to here a signal ends this program, and nobody has been asked for anything.
    let mut signals = Signals::listen()?;
    // It may have refused before it has read all of it: what it says comes first.
    let asked = ask(&connection, args, &caller, (console.is_some(), printer.is_quiet()));
    let mut heard = false;
    loop {
        if let Some(signal) = signals.seen() {
            let signal = u8::try_from(signal).unwrap_or_default();
            // One that is gone is told by what comes next from there.
            let _ = FromUser::Signal(signal).send(&connection);
        }
        match poll(&mut [PollFd::new(&connection, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(lost(errno.into())),
        }
        let frame = receive::<FromService>(&connection);
        heard |= frame.is_ok();
        match frame {
            Ok(FromService::Stdout(bytes)) => printer.bytes(&bytes),
            Ok(FromService::Stderr(bytes)) => printer.error_bytes(&bytes),
            Ok(FromService::Console(bytes)) => {
                if let Some(console) = &console {
                    console.pass(bytes);
                }
            }
            // How it ended, this side says then.
            Ok(FromService::Event(_)) if printer.lost().is_some() => {}
            Ok(FromService::Event(line)) => events.pass_on(&line),
            Ok(FromService::End(code)) => {
                if let Some(missing) = console.and_then(Passer::end) {
                    printer.important(&format!("run: {missing}"));
                }
                return Ok(code);
            }
            Err(WrongFrame::Closed) if heard => return Err(lost(ErrorKind::UnexpectedEof.into())),
            Err(WrongFrame::Io(error)) if heard => return Err(lost(error)),
            Err(WrongFrame::Closed | WrongFrame::Io(_)) => {
                let why = asked.err().map_or_else(String::new, |error| format!(" ({error})"));
                return Err(RunError::Service(format!(
                    "it closed the connection without an answer{why}: it has too many, or failed; `journalctl -u \"nearmetal-run*\"`, as \
                     root, says which"
                )));
            }
            Err(error @ WrongFrame::Unknown { .. }) => {
                return Err(RunError::Service(format!("it sends {error}: install the same version of both")));
            }
        }
    }
}

fn connect(socket: &Path) -> Result<UnixStream, RunError> {
    UnixStream::connect(socket).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => RunError::NotRoot { socket: socket.to_owned() },
        ErrorKind::PermissionDenied => RunError::Closed {
            path: socket.to_owned(),
            group: files::metadata(socket).map_or_else(|_| "kvm".to_owned(), |about| accounts::group(about.gid())),
            user: accounts::user(rustix::process::geteuid().as_raw()),
        },
        _ => RunError::Service(format!("cannot connect to `{}`: {error}", socket.display())),
    })
}

/// The whole of the wish.
fn ask(
    mut connection: &UnixStream,
    args: &Args,
    caller: &Caller,
    (console, quiet): (bool, bool),
) -> std::io::Result<()> {
    let data = caller.user_data.as_ref().map(|data| data.parts());
    let meta_data = data.and_then(|(_, meta_data)| meta_data);
    let request = Request {
        schema: SCHEMA.to_owned(),
        flavour: args.flavour.clone().unwrap_or_default(),
        image: args.image.clone(),
        user_data: data.is_some(),
        meta_data: meta_data.map(|(path, _)| path.display().to_string()),
        time_limit: args.time_limit.map(|limit| limit.as_secs()),
        console,
        quiet,
        command: args.command.clone(),
    };
    FromUser::Request(serde_json::to_vec(&request)?).send(&mut connection)?;
    if let Some((user_data, _)) = data {
        FromUser::UserData(user_data.to_vec()).send(&mut connection)?;
    }
    if let Some((_, meta_data)) = meta_data {
        FromUser::MetaData(meta_data.to_vec()).send(&mut connection)?;
    }
    Ok(())
}

fn lost(error: std::io::Error) -> RunError {
    RunError::Service(format!(
        "it ended without a word ({error}), and the guest with it; `journalctl -u \"nearmetal-run@*\"`, as root, has its last"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_is_not_there_is_told_with_what_root_can_do() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let said = connect(&socket).unwrap_err().to_string();
        assert!(said.contains("systemctl enable --now nearmetal-run.socket"), "{said}");
        // Somebody's socket that nobody listens at any more.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(matches!(connect(&socket), Err(RunError::NotRoot { .. })));
    }
}
