//! Helper process of nearmetal: the only program of it that links libvirt. Requests come on stdin and replies go to
//! stdout, one JSON object per line (`nearmetal_hypervisor::protocol`); it ends when its input ends. Once asked for events,
//! it says only those.

mod agent;
mod connection;
mod dispatch;
mod domains;
mod events;
mod failure;
mod pins;
mod tied;

use std::io::{self, BufReader, Write};
use std::process::ExitCode;
use std::sync::Arc;

use connection::Connection;
use nearmetal_hypervisor::Served;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

const USAGE: &str = "usage: nearmetal-libvirt URI
nearmetal starts this program itself. By hand: write {\"protocol\":1} and then requests such as
{\"id\":1,\"request\":\"domains\"} to its stdin, one on each line.";

/// Outlives the signals that batch systems, systemd and terminals send to all processes at once: nearmetal needs this one to shut
/// its guest down, and closes our input once it is done. A handler that does nothing, since nobody else here starts programs
/// that would inherit more.
fn outlive_signals() -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    if let Err(error) = outlive_signals() {
        let _ = writeln!(io::stderr(), "nearmetal-libvirt: signals will end this program: {error}");
    }
    let mut arguments = std::env::args().skip(1);
    let (Some(uri), None) = (arguments.next().filter(|uri| !uri.starts_with('-')), arguments.next()) else {
        let _ = writeln!(io::stderr(), "{USAGE}");
        return ExitCode::from(2);
    };
    // libvirt prints each error to stderr by itself; here they are part of the replies.
    virt::error::clear_error_callback();
    let mut connection = Connection::new(uri);
    // Large enough to read a file chunk in a few system calls.
    let input = BufReader::with_capacity(256 << 10, io::stdin());
    let served =
        nearmetal_hypervisor::serve(input, io::stdout().lock(), &mut connection).and_then(|served| match served {
            Served::All => Ok(()),
            Served::UntilEvents => connection.say_events(io::stdout().lock()),
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // nearmetal is gone, and nobody reads the reply: nothing to complain about.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "nearmetal-libvirt: the requests cannot be read or answered: {error}");
            ExitCode::FAILURE
        }
    }
}
