//! `nearmetal-probe at`

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearmetal_probe::error::{ProbeError, within};

use crate::cli::AtArguments;

/// A moment farther ahead is a mistake of the caller's clock, not a barrier.
const FARTHEST: Duration = Duration::from_secs(600);
/// The last stretch is waited for without sleeping: a sleep ends late by the timer's slack and the scheduler's mood.
const LAST: Duration = Duration::from_micros(200);

/// Waits, and becomes the command, or runs it where its times are asked for.
pub(crate) fn run(arguments: AtArguments) -> Result<(), ProbeError> {
    let moment = Duration::from_nanos(arguments.nanoseconds);
    // A clock before 1970 is set to nothing: as good as late.
    let left = || moment.checked_sub(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::MAX));
    let Some(ahead) = left() else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Err(ProbeError::Late { late: now.saturating_sub(moment).as_millis() as u64 });
    };
    within("--nanoseconds, in seconds ahead,", ahead.as_secs(), 0, FARTHEST.as_secs())?;
    // In steps, since a clock that is set meanwhile moves the moment.
    while let Some(rest) = left().filter(|rest| !rest.is_zero()) {
        match rest.checked_sub(LAST) {
            Some(nap) => std::thread::sleep(nap.min(Duration::from_millis(100))),
            None => std::hint::spin_loop(),
        }
    }
    let Some((program, rest)) = arguments.command.split_first() else { return Ok(()) };
    let failed = |source| ProbeError::Start { program: program.to_string_lossy().into_owned(), source };
    let mut command = Command::new(program);
    command.args(rest);
    if !arguments.stamp {
        return Err(failed(command.exec()));
    }
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let began = clock();
    let status = command.status().map_err(failed)?;
    let ended = clock();
    if !status.success() {
        return Err(ProbeError::Ended { program: program.to_string_lossy().into_owned(), status });
    }
    writeln!(std::io::stdout().lock(), "BEGAN={began}\nENDED={ended}").map_err(ProbeError::Output)
}
