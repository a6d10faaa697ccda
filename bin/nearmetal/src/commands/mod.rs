//! One file and one function per command; this file only lists them.

mod after_start;
mod apply;
mod bench;
mod boot_apply;
mod capture;
mod class;
mod completions;
mod demo;
mod device;
mod doctor;
mod experiment;
mod export;
mod fleet;
mod image;
mod inspect;
mod lab;
mod offer;
mod plan;
mod report;
mod rollback;
mod run;
mod verify;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// The commands, in the order of the job.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Inspect(inspect::Args),
    Capture(capture::Args),
    Doctor(doctor::Args),
    Class(class::Args),
    Device(device::Args),
    Plan(plan::Args),
    Apply(apply::Args),
    Verify(verify::Args),
    Tune(Box<bench::tune::Args>),
    Bench(Box<bench::Args>),
    Experiment(experiment::Args),
    Report(report::Args),
    Rollback(rollback::Args),
    Fleet(fleet::Args),
    Export(export::Args),
    Image(image::Args),
    Run(Box<run::Args>),
    Offer(offer::Args),
    Demo(demo::Args),
    Lab(lab::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    BootApply(boot_apply::Args),
    #[command(hide = true)]
    RunService(run::serve::Args),
    #[command(hide = true)]
    AfterStart(after_start::Args),
}

/// Runs one command.
pub fn run(command: Command, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match command {
        Command::Inspect(args) => inspect::inspect(args, printer),
        Command::Capture(args) => capture::capture(args, printer),
        Command::Doctor(args) => doctor::doctor(args, printer),
        Command::Class(args) => class::class(args, printer),
        Command::Device(args) => device::device(args, printer),
        Command::Plan(args) => plan::plan(args, printer),
        Command::Apply(args) => apply::apply(args, printer),
        Command::Verify(args) => verify::verify(args, printer),
        Command::Tune(args) => bench::tune::tune(&args, printer),
        Command::Bench(args) => bench::bench(*args, printer),
        Command::Experiment(args) => experiment::experiment(args, printer),
        Command::Report(args) => report::report(args, printer),
        Command::Rollback(args) => rollback::rollback(args, printer),
        Command::Fleet(args) => fleet::fleet(args, printer),
        Command::Export(args) => export::export(&args, printer),
        Command::Image(args) => image::image(args, printer),
        Command::Run(args) => run::run(&args, printer),
        Command::Offer(args) => offer::offer(&args, printer),
        Command::Demo(args) => demo::demo(args, printer),
        Command::Lab(args) => lab::lab(args, printer),
        Command::Completions(args) => completions::completions(args, printer),
        Command::RunService(args) => run::serve::serve(args, printer),
        Command::AfterStart(args) => after_start::after_start(args, printer),
        Command::BootApply(args) => boot_apply::boot_apply(args, printer),
    }
}
