//! Several VMs, each with a drive that it has for itself.

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{FunctionMember, FunctionTogetherRequest, bench_functions_together};

use super::args::Args;
use crate::commands::bench::drive::function_given_to;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Runs the command.
pub(super) fn each_its_own(args: &Args, journal: &Journal, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let fs = HostFs::live();
    let mut members = Vec::new();
    for (name, planned) in args.planned(journal)? {
        members.push(FunctionMember {
            guest: name.clone(),
            placement: planned.placement,
            function: function_given_to(name, &planned.change.xml_after)?,
            xml_planned: planned.change.xml_after,
        });
    }
    let request = FunctionTogetherRequest {
        members,
        namespace: args.namespace,
        job: args.job(),
        terms: args.terms(6, 10, &fs, journal)?,
    };
    args.run(&fs, printer, |fs, libvirt, tell| bench_functions_together(&request, fs, libvirt, tell))
}
