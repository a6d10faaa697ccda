//! Several VMs, each with a scratch device.

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{Member, TogetherRequest, bench_together};

use super::args::Args;
use crate::commands::bench::planned::Planned;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Runs the command.
pub(super) fn each_a_device(args: &Args, journal: &Journal, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let fs = HostFs::live();
    let member = |((name, planned), scratch): ((&String, Planned), &String)| Member {
        guest: name.clone(),
        placement: planned.placement,
        xml_planned: planned.change.xml_after,
        scratch: scratch.clone(),
    };
    let request = TogetherRequest {
        members: args.planned(journal)?.into_iter().zip(&args.scratch).map(member).collect(),
        job: args.job(),
        terms: args.terms(6, 10, &fs, journal)?,
    };
    args.run(&fs, printer, |fs, libvirt, tell| bench_together(&request, fs, libvirt, tell))
}
