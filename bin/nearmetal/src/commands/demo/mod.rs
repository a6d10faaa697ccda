//! `nearmetal demo`.

mod course;
mod finish;
mod job;
mod lab;
mod length;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context;
use nearmetal_lab::machine::Count;
use nearmetal_lab::{Lab, LabError, LabName, Places, UpOptions};

use self::course::Course;
use self::job::{Job, PROGRAMS};
use self::lab::Lines;
use self::length::Length;
use crate::exit_status::ExitStatus;
use crate::installed::beside_this_program;
use crate::printer::Printer;

/// Do the whole job in a lab: take a VM as people have it, place it, prove it, compare it with bare metal, roll it back
///
/// Boots a four-node server in software, finds a guest without any driver options or pins on it, and takes it through
/// inspect, plan, apply, verify, bench, rollback and report. Needs root, about 12 GiB of memory and no KVM: the lab
/// brings its own. Figures are emulated time.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the report goes
    #[arg(long, short, value_name = "DIR", default_value = "demo-report")]
    output: PathBuf,
    /// Name of the lab
    #[arg(long, default_value = "demo")]
    name: String,
    /// Leave the lab running at the end: nearmetal lab exec demo -- virsh list
    #[arg(long)]
    keep_lab: bool,
    /// Run the same stages with fewer and shorter samples. You see a report, but do not trust its figures
    #[arg(long)]
    short: bool,
    /// Use a lab that runs already, remove everything from it again at the end, and leave it running
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "keep_lab"])]
    lab: Option<String>,
}

/// Runs the command.
pub fn demo(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    say_where_it_runs(printer);
    let length = if args.short { Length::SHORT } else { Length::USUAL };
    let name: LabName = args.lab.as_ref().unwrap_or(&args.name).parse()?;
    let programs = PROGRAMS.into_iter().map(beside_this_program).collect::<anyhow::Result<Vec<_>>>()?;
    let mut course = Course::new(printer);
    let places = Places::standard();
    let borrowed = args.lab.is_some();
    let mut lab = match borrowed {
        true => Lab::open(&places, &name)?,
        false => {
            // Its time is emulated, its counts are not: they are what the report opens with.
            let options = UpOptions { count: Some(Count::Work), ..UpOptions::new(name.clone()) };
            course.timed("lab up", |printer| up(&places, &options, printer))?
        }
    };
    let job = Job { output: &args.output, programs: &programs, length: &length, borrowed };
    let in_force = job.run(&mut lab, &mut course).in_force;
    let alive = lab.is_alive();
    let keep = borrowed || alive && (args.keep_lab || in_force);
    if !keep {
        course.stage("lab down", |_| Ok(lab.down()?));
    }
    finish::finish(&job, &mut course);
    if in_force && alive {
        course.next(format!(
            "the change is still in force in the lab: `nearmetal lab exec {name} -- nearmetal rollback --restart` undoes it"
        ));
    }
    match (keep && alive, course.has_trouble()) {
        (true, trouble) => {
            let words = format!("the lab `{name}` still runs; `nearmetal lab down {name}` ends it");
            if trouble { course.next(words) } else { course.printer.say(&words) }
        }
        (false, true) => course.next("the lab is down; with --keep-lab it stays up to be looked at".to_owned()),
        (false, false) => {}
    }
    Ok(course.conclude(&args.output))
}

/// Boots the lab. One that does not come up in time is booted once more: emulation loses an interrupt now and then.
fn up(places: &Places, options: &UpOptions, printer: &mut Printer) -> anyhow::Result<Lab> {
    let first = match Lab::up(places, options, &mut Lines(printer)) {
        Err(error @ LabError::NotReady { .. }) => error,
        other => return other.context("the lab did not come up"),
    };
    printer.say(&format!("  the lab did not come up and is booted again: {first}"));
    Lab::up(places, options, &mut Lines(printer)).context("the lab did not come up in two boots")
}

/// KVM that only emulates is no ground for figures; either way the demo's ground is the lab, and says so.
fn say_where_it_runs(printer: &mut Printer) {
    let host = nearmetal_host::Host::read(&nearmetal_host::HostFs::live());
    let verdict = crate::kvm::verdict(&host).map(|kvm| kvm.verdict);
    printer.say(match verdict.as_deref() {
        Some("accelerates") => {
            "KVM accelerates here; the demo runs in the lab all the same and changes nothing of this host"
        }
        Some("emulates") => {
            "/dev/kvm is here and only emulates guests: the demo runs in the lab, which brings its own KVM"
        }
        _ => "no usable KVM here: the demo runs in the lab, which brings its own",
    });
}
