//! `nearmetal lab console`.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;

use anyhow::Context;
use nearmetal_lab::Places;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::open;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Show a lab's serial console, or attach to it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    #[arg(default_value = "quad")]
    name: String,
    /// Attach until Ctrl-]
    #[arg(long, short)]
    attach: bool,
}

/// Ctrl-], as telnet and virsh have it.
const DETACH: u8 = 0x1d;

/// Shows the console, and attaches to it if asked.
pub fn console(args: Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let lab = open(places, &args.name)?;
    printer.data(&lab.console_text()?);
    if args.attach {
        if !std::io::stdin().is_terminal() {
            printer.important("error: --attach needs a terminal on standard input");
            return Ok(ExitStatus::WrongUse);
        }
        printer.say("attached: Enter shows a prompt, Ctrl-] detaches");
        attach(lab.console()?).context("the connection to the console broke")?;
    }
    Ok(ExitStatus::Done)
}

fn attach(console: UnixStream) -> anyhow::Result<()> {
    let _raw = Raw::enter()?;
    let mut shown = console.try_clone()?;
    std::thread::spawn(move || {
        let mut buffer = [0u8; 4096];
        while let Ok(count) = shown.read(&mut buffer) {
            let mut stdout = std::io::stdout().lock();
            if count == 0 || stdout.write_all(&buffer[..count]).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    let mut typed = console;
    let mut buffer = [0u8; 256];
    loop {
        let count = std::io::stdin().read(&mut buffer)?;
        let keys = &buffer[..count];
        let end = keys.iter().position(|&key| key == DETACH);
        typed.write_all(&keys[..end.unwrap_or(count)])?;
        if count == 0 || end.is_some() {
            return Ok(());
        }
    }
}

/// The terminal without line editing and signals; as before when dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
