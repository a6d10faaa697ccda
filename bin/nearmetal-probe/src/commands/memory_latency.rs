//! `nearmetal-probe memory latency`

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::memory::latency::{Settings, measure};
use nearmetal_probe::output::{Output, remark};

use crate::cli::LatencyArguments;

/// Measures, prints, and repeats the notes for people.
pub(crate) fn run(arguments: LatencyArguments) -> Result<(), ProbeError> {
    let latency = measure(&Settings {
        pages: arguments.buffer.pages(),
        pattern: arguments.pattern(),
        request: arguments.place.into(),
        size: arguments.buffer.size,
        exact_pages: arguments.buffer.require_page_size,
        samples: arguments.samples,
        loads: arguments.loads,
        seed: arguments.seed,
    })?;
    latency.notes.iter().for_each(|note| remark(note));
    Output::new("memory latency", &latency).print()
}
