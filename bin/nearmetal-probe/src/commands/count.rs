//! `nearmetal-probe count`

use nearmetal_host::HostFs;
use nearmetal_probe::count::count;
use nearmetal_probe::count_check::check;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::output::Output;

use crate::cli::CountArguments;

/// Prints what was counted.
pub(crate) fn run(arguments: &CountArguments) -> Result<(), ProbeError> {
    if arguments.check {
        return Output::new("count --check", &check(&HostFs::live())?).print();
    }
    Output::new("count", &count(&HostFs::live(), arguments.memory, &arguments.command)?).print()
}
