//! `nearmetal-probe gate`

use std::time::Duration;

use nearmetal_probe::error::ProbeError;
use nearmetal_probe::gate::{Ask, ask};

use crate::cli::programs::GateCommand;

/// How long a gate may take to answer.
const TO_ANSWER: Duration = Duration::from_secs(30);

/// Asks, and is done when the gate has answered.
pub(crate) fn run(command: &GateCommand) -> Result<(), ProbeError> {
    match command {
        GateCommand::Wait { name, seconds } => ask(name, Ask::Wait, Duration::from_secs(*seconds)),
        GateCommand::Open { name } => ask(name, Ask::Open, TO_ANSWER),
        GateCommand::Close { name } => ask(name, Ask::Close, TO_ANSWER),
    }
}
