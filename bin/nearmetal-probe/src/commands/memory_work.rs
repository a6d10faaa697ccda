//! `nearmetal-probe memory work`

use std::time::Duration;

use nearmetal_probe::error::{ProbeError, within};
use nearmetal_probe::memory::work::{SECONDS, Settings, measure};
use nearmetal_probe::output::{Output, remark};

use crate::cli::WorkArguments;

/// Works, prints, and repeats the notes for people.
pub(crate) fn run(arguments: WorkArguments) -> Result<(), ProbeError> {
    let seconds = within("--seconds", arguments.seconds, SECONDS.0, SECONDS.1)?;
    let work = measure(&Settings {
        pages: arguments.buffer.pages(),
        request: arguments.place.into(),
        threads: arguments.threads,
        duration: Duration::from_secs(seconds),
        size: arguments.buffer.size,
        exact_pages: arguments.buffer.require_page_size,
        seed: arguments.seed,
    })?;
    work.notes.iter().for_each(|note| remark(note));
    Output::new("memory work", &work).print()
}
