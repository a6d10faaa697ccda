//! `nearmetal-probe memory bandwidth`

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::memory::bandwidth::{Settings, measure};
use nearmetal_probe::output::{Output, remark};

use crate::cli::BandwidthArguments;

/// Measures, prints, and repeats the notes for people.
pub(crate) fn run(arguments: BandwidthArguments) -> Result<(), ProbeError> {
    let bandwidth = measure(&Settings {
        pages: arguments.buffer.pages(),
        instructions: arguments.instructions(),
        stores: arguments.stores(),
        request: arguments.place.into(),
        threads: arguments.threads,
        size: arguments.buffer.size,
        exact_pages: arguments.buffer.require_page_size,
        samples: arguments.samples,
    })?;
    bandwidth.notes.iter().for_each(|note| remark(note));
    Output::new("memory bandwidth", &bandwidth).print()
}
