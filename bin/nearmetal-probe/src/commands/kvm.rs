//! `nearmetal-probe kvm`

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::kvm::measure::measure;
use nearmetal_probe::output::{Output, remark};

/// Measures /dev/kvm and prints the verdict.
pub(crate) fn run() -> Result<(), ProbeError> {
    let result = measure()?;
    result.notes.iter().for_each(|note| remark(note));
    Output::new("kvm", &result).print()
}
