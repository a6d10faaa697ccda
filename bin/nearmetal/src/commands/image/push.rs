//! `nearmetal image push`.

use std::path::PathBuf;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use nearmetal_change::Reach;
use nearmetal_image::{Event, EventKind, HostToPush, Push, PushError, Pushed, is_name};
use nearmetal_units::Bytes;

use crate::exit_status::{ExitStatus, WrongUse};
use crate::fleet::there;
use crate::image::{HostArgs, Target};
use crate::printer::Printer;
use crate::style::Format;

/// Less than this per second, and a piece would take longer than a host may be silent.
const LEAST_BANDWIDTH: u64 = 64_000;

/// Bring a base image to all hosts, from host to host
///
/// Each host fetches the image from the one before it in the fleet's order and checks every 256 KiB before it keeps or
/// passes it on, so that all hosts together take little longer than one. A host that dies or falls silent is left out and
/// the others close up; a slow one steps aside. Run it again to resume: only what a host lacks is sent, not what it has
/// already or what is in its other images. The image appears under its final name when it is whole and on the disk.
///
/// Without --fleet and --host, the image goes into the store of this machine.
///
/// Needs nearmetal on each host, ssh to each, and from each host a TCP connection to the one before it (choose the port
/// with `--port`). A host that gets no connection is sent its image through ssh.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The image: a file of any format
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    hosts: HostArgs,
    /// Its readable name [default: the file's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Send at most so much per second from each machine: a number of MB/s (10^6 bytes)
    #[arg(long, value_name = "MB/S")]
    bandwidth: Option<f64>,
    /// Send all of it from here through ssh: for hosts that may not connect to each other
    #[arg(long)]
    star: bool,
    /// The TCP port for data on every machine [default: any that is free]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Output format: lines for people, or a JSON document on each line as things happen
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
pub(crate) fn push(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let Some(targets) = args.hosts.targets_or_here(printer)? else { return Ok(ExitStatus::WrongUse) };
    if targets.is_empty() {
        return Err(WrongUse(
            "no host of the fleet file can be sent an image: give one `ssh`, or name hosts with --host".to_owned(),
        )
        .into());
    }
    let options = options(args, &targets)?;
    let mut shown = Shown::new(args.format, &options, printer);
    let mut reading = {
        let bar = shown.reading.clone();
        move |bytes| bar.set_position(bytes)
    };
    let pushed = nearmetal_image::push(&options, &mut reading, &mut |event| shown.event(event, printer));
    shown.clear();
    match pushed {
        Ok(pushed) => Ok(end(&pushed, args.format, printer)),
        Err(error @ (PushError::File(_) | PushError::NotAnImage { .. })) => {
            Err(WrongUse(format!("{:#}", anyhow::Error::from(error))).into())
        }
        Err(error) => Err(error.into()),
    }
}

fn options(args: &Args, targets: &[Target]) -> anyhow::Result<Push> {
    let own = || args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.clone().or_else(own).unwrap_or_default();
    if !is_name(&name) {
        return Err(WrongUse(format!(
            "`{}` cannot be a readable name: 1 to 200 bytes without control characters",
            name.escape_debug()
        ))
        .into());
    }
    let bandwidth = args.bandwidth.map(|rate| (rate * 1e6) as u64);
    if bandwidth.is_some_and(|rate| rate < LEAST_BANDWIDTH) {
        return Err(WrongUse("--bandwidth is below 0.064 MB/s, the least that works".to_owned()).into());
    }
    let mut receive = vec!["image".to_owned(), "receive".to_owned()];
    receive.push(format!("--directory={}", args.hosts.directory.display()));
    let port = args.port.unwrap_or(0);
    let mut hosts = Vec::new();
    for target in targets {
        let local = target.reach == Reach::Local;
        let mut arguments = receive.clone();
        // On this machine the source has the port already, and nobody fetches from the receiver.
        arguments.extend((!local && port > 0).then(|| format!("--port={port}")));
        let words = there::words(&target.reach, "nearmetal", &arguments).map_err(WrongUse)?;
        hosts.push(HostToPush { name: target.name.clone(), words, local });
    }
    Ok(Push { file: args.file.clone(), name, hosts, star: args.star, bandwidth, port })
}

/// A bar for each host, and what is said beside them.
struct Shown {
    format: Format,
    bars: MultiProgress,
    reading: ProgressBar,
    hosts: Vec<(String, ProgressBar)>,
    pieces: u64,
}

impl Shown {
    fn new(format: Format, options: &Push, printer: &Printer) -> Self {
        let length = nearmetal_host::files::metadata(&options.file).map_or(0, |metadata| metadata.len());
        let reading = printer.progress(length, "reading the image");
        let bars = MultiProgress::new();
        if reading.is_hidden() {
            bars.set_draw_target(ProgressDrawTarget::hidden());
        }
        let hosts = options.hosts.iter().map(|host| (host.name.clone(), printer.progress(1, &host.name))).collect();
        Self { format, bars, reading, hosts, pieces: 0 }
    }

    fn bar(&self, host: Option<&str>) -> Option<&ProgressBar> {
        self.hosts.iter().find(|(name, _)| Some(name.as_str()) == host).map(|(_, bar)| bar)
    }

    fn event(&mut self, event: &Event, printer: &mut Printer) {
        if self.format == Format::Json {
            if let Ok(line) = serde_json::to_string(event) {
                printer.data(&line);
            }
        }
        let bar = self.bar(event.host.as_deref());
        match &event.kind {
            EventKind::Named { pieces, .. } => {
                self.pieces = *pieces;
                self.reading.finish_and_clear();
                for (_, bar) in &self.hosts {
                    bar.set_length(*pieces);
                    self.bars.add(bar.clone());
                    bar.tick();
                }
            }
            EventKind::Progress { pieces } => {
                bar.inspect(|bar| bar.set_position(*pieces));
            }
            EventKind::Stored { .. } => {
                bar.inspect(|bar| bar.set_position(self.pieces));
            }
            _ => {}
        }
        if self.format == Format::Text {
            if let Some(words) = words(&event.kind) {
                let line = format!("{}: {words}", event.host.as_deref().unwrap_or_default());
                self.bars.suspend(|| printer.say(&line));
            }
        }
    }

    fn clear(&self) {
        self.reading.finish_and_clear();
        self.hosts.iter().for_each(|(_, bar)| bar.finish_and_clear());
    }
}

/// What people are told as it happens; the outcome comes in the end.
fn words(kind: &EventKind) -> Option<String> {
    Some(match kind {
        EventKind::Silent { silent_seconds } => {
            format!("silent for {silent_seconds:.1} s; those after it fetch from the one before it")
        }
        EventKind::Back => "heard again; it fetches from the end of the chain".to_owned(),
        EventKind::Aside { got, predecessor } => format!(
            "slow ({got} pieces, where the host before it got {predecessor}); it fetches from the end of the chain"
        ),
        EventKind::OverSsh => "cannot reach a data port; its pieces go through ssh, from here".to_owned(),
        EventKind::Note { text } => text.clone(),
        EventKind::Failed { reason } => format!("does not get the image: {reason}"),
        _ => return None,
    })
}

fn end(pushed: &Pushed, format: Format, printer: &mut Printer) -> ExitStatus {
    let failed = pushed.hosts.iter().filter(|(_, end)| end.is_err()).count();
    if format == Format::Text {
        for (host, end) in &pushed.hosts {
            printer.data(&match end {
                Ok((0, _)) => format!("{host}: ✓ stored, nothing sent"),
                Ok((received, 0)) => format!("{host}: ✓ stored, {} sent", Bytes::new(*received)),
                Ok((received, reused)) => {
                    format!("{host}: ✓ stored, {} sent, {} were there", Bytes::new(*received), Bytes::new(*reused))
                }
                Err(reason) => format!("{host}: ✗ {reason}"),
            });
        }
        printer.data(&pushed.image.to_string());
        if let Some(transfer) = pushed.transfer {
            printer.say(&format!(
                "took {:.1} s from the first host's start to the last one's finish",
                transfer.as_secs_f64()
            ));
        }
    }
    if failed > 0 {
        let all = pushed.hosts.len();
        printer.important(&format!(
            "{failed} of {all} hosts do not have the image: see above, and run this again to resume"
        ));
        ExitStatus::Refused
    } else {
        ExitStatus::Done
    }
}
