//! `nearmetal-probe see-binding`

use nearmetal_probe::binding::Binding;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::output::Output;

/// Prints the binding of this process.
pub(crate) fn run() -> Result<(), ProbeError> {
    Output::new("see-binding", &Binding::read()?).print()
}
