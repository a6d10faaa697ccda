//! `nearmetal fleet watch`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use nearmetal_change::now;
use nearmetal_run::reservation::{DIRECTORY, Desk};

use crate::exit_status::ExitStatus;
use crate::fleet::file::read_file;
use crate::fleet::now::{HostNow, Places};
use crate::fleet::targets::{Target, targets_of, this_machine};
use crate::fleet::watch::{Board, Document, Frame, Question, Seen, picture, vms};
use crate::image::store_of;
use crate::printer::Printer;
use crate::signals::heard;
use crate::state::StateArgs;
use crate::style::{self, Format};

/// How often is looked whether the first answers are there, or somebody wants to stop.
const STEP: Duration = Duration::from_millis(50);
/// A picture on a terminal is not waited for longer: who has not answered by then is drawn as asked. What comes later is drawn
/// as often at most.
const SOON: Duration = Duration::from_secs(1);

/// Draw the hosts of a fleet: what is taken of each, its guests, its images, and images on their way
///
/// Asks each host's own nearmetal over ssh, again and again, and draws the answers in place until Ctrl-C. Each host has a
/// line with its PUs and memory, a bar for each image on its way, and below it guests and images where there is room. A host
/// that does not answer is drawn as such, with the reason, and holds up nobody. Without a file it is about this machine.
///
/// Reads only. It needs no root here; on hosts, only root sees runs and plans, and what a host's user may not see is said.
/// Guests do not notice: their pages are not read. ssh asks for no password: use keys, or an agent.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The fleet file; hosts without an `ssh` key in it are drawn and not asked
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// A host, as ssh takes it; may be repeated, and adds to those of the file
    #[arg(long = "host", value_name = "[USER@]NAME")]
    hosts: Vec<String>,
    /// Print one picture when all hosts have answered, or did not, and end; the exit code is 3 if one did not
    #[arg(long)]
    once: bool,
    /// Ask each host again so long after its last answer, and print a document as often: 1 to 3600. A picture changes as
    /// answers come
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Wait for an answer so long at most: 1 to 600
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// Output format: a picture, or a JSON document on each line, one for each look (docs/reference/fleet-watch.md)
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where images are on each host
    #[arg(long, value_name = "DIR", default_value = nearmetal_image::DIRECTORY)]
    directory: PathBuf,
    /// Directory of reservations, for tests
    #[arg(long, hide = true, value_name = "DIR", default_value = DIRECTORY)]
    reservations: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal fleet watch fleet.toml                     all hosts of the file, and where each of its VMs runs
  nearmetal fleet watch --host root@web7 --host root@web8
  nearmetal fleet watch fleet.toml --once              one picture, of all hosts with all they have
  nearmetal fleet watch                                this machine
  nearmetal fleet watch fleet.toml --once --format json | jq -r '.hosts[] | select(.problem) | .host'";

/// Runs the command.
pub(crate) fn watch(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let file = match &args.file {
        Some(path) => match read_file(path, printer) {
            Some(file) => Some(file),
            None => return Ok(ExitStatus::WrongUse),
        },
        None => None,
    };
    let mut targets = targets_of(file.as_ref(), &args.hosts)?;
    if file.is_none() && targets.is_empty() {
        targets.push(this_machine());
    }
    let wanted: Vec<String> = file.iter().flat_map(|file| &file.vms).map(|entry| entry.vm.name.clone()).collect();
    let title = match &args.file {
        Some(path) => path.display().to_string(),
        None => "nearmetal fleet watch".to_owned(),
    };
    let ended = heard()?;
    let stop = AtomicBool::new(false);
    let question = Question {
        arguments: question(args),
        here: Places {
            store: store_of(&args.directory),
            desk: Desk::at(&args.reservations),
            journal: StateArgs::of(None).journal(),
        },
        limit: Duration::from_secs(args.timeout),
        stop: &stop,
    };
    let board = Board::of(targets.len(), Duration::from_secs(args.every));
    let ask = |at: usize| question.ask(&targets[at]);
    let shown = Shown { args, targets: &targets, wanted: &wanted, title: &title };
    thread::scope(|scope| {
        board.keep_asking(scope, &ask, &now);
        let status = look_after(&shown, &board, &ended, printer);
        stop.store(true, Ordering::Relaxed);
        board.stop();
        status
    })
}

/// What a host is asked: about itself, once, as a document.
fn question(args: &Args) -> Vec<String> {
    let mut words: Vec<String> = ["fleet", "watch", "--once", "--format=json"].map(str::to_owned).to_vec();
    words.push(format!("--directory={}", args.directory.display()));
    if args.reservations.as_os_str() != DIRECTORY {
        words.push(format!("--reservations={}", args.reservations.display()));
    }
    words
}

/// What is shown of a board.
struct Shown<'a> {
    args: &'a Args,
    targets: &'a [Target],
    wanted: &'a [String],
    title: &'a str,
}

/// Shows what is known until somebody stops it, or once.
fn look_after(
    shown: &Shown<'_>,
    board: &Board<HostNow>,
    ended: &Receiver<()>,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let args = shown.args;
    let in_place = !args.once && args.format == Format::Text && printer.stdout_is_terminal();
    let mut waited = Duration::ZERO;
    // Each answer comes within the time limit: this ends.
    while !(board.wait(STEP) || in_place && waited >= SOON) {
        waited += STEP;
        if !matches!(ended.try_recv(), Err(TryRecvError::Empty)) {
            printer.important("stopped before all hosts had answered: nothing was shown");
            return Ok(ExitStatus::Refused);
        }
    }
    let mut frame = Frame::default();
    loop {
        let silent = shown.show(board, in_place.then_some(&mut frame), printer)?;
        if args.once {
            return Ok(if silent { ExitStatus::Refused } else { ExitStatus::Done });
        }
        // A reader that went away, or a full disk: nobody sees what would come.
        if printer.is_closed() {
            return Ok(ExitStatus::Done);
        }
        if has_ended(board, ended, in_place, Duration::from_secs(args.every)) {
            return Ok(ExitStatus::Done);
        }
    }
}

/// Waits so long at most, or for a picture until there is something new to draw; whether somebody stops it.
fn has_ended(board: &Board<HostNow>, ended: &Receiver<()>, in_place: bool, most: Duration) -> bool {
    let (began, drawn) = (Instant::now(), board.answers());
    loop {
        match ended.recv_timeout(STEP) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return true,
        }
        let waited = began.elapsed();
        if waited >= most || in_place && waited >= SOON && board.answers() != drawn {
            return false;
        }
    }
}

impl Shown<'_> {
    /// Shows what is known now; whether a host does not answer.
    fn show(&self, board: &Board<HostNow>, frame: Option<&mut Frame>, printer: &mut Printer) -> anyhow::Result<bool> {
        let names = self.targets.iter().map(|target| target.name.as_str());
        let look: Vec<(&str, Option<Seen<HostNow>>)> = names.zip(board.look()).collect();
        let silent = look.iter().any(|(_, seen)| seen.as_ref().is_none_or(|seen| seen.answer.is_err()));
        let (time, vms) = (now(), vms(self.wanted, &look));
        if self.args.format == Format::Json {
            printer.data(&serde_json::to_string(&Document::of(&time, &look, vms))?);
            return Ok(silent);
        }
        let style = style::style(printer);
        match frame {
            Some(frame) => {
                let rows = style::rows();
                // The cursor rests below the picture.
                let text = picture(self.title, &time, &look, &vms, &style, rows.map(|rows| rows.saturating_sub(1)));
                printer.bytes(frame.next(&text, (style.width, rows.unwrap_or(0))).as_bytes());
            }
            None => printer.data(&picture(self.title, &time, &look, &vms, &style, None)),
        }
        Ok(silent)
    }
}
