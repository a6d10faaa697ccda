//! `nearmetal-probe reach`

use std::net::TcpStream;
use std::time::{Duration, Instant};

use nearmetal_probe::error::ProbeError;

use crate::cli::ReachArguments;

/// How long one try may take: a guest that is not there answers nothing at all.
const TRY: Duration = Duration::from_secs(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// Tries until somebody accepts a connection.
pub(crate) fn run(arguments: &ReachArguments) -> Result<(), ProbeError> {
    let ReachArguments { address, seconds } = *arguments;
    let limit = Duration::from_secs(seconds);
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed()).max(PAUSE);
        match TcpStream::connect_timeout(&address, TRY.min(left)) {
            Ok(_) => return Ok(()),
            Err(source) if began.elapsed() >= limit => return Err(ProbeError::Unreached { address, seconds, source }),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
