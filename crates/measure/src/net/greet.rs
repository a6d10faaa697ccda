//! Seeing that a peer answers, before anything is measured with it.

use std::time::Duration;

use crate::clock;
use crate::error::MeasureError;

/// How often the peer is greeted before it counts as out of reach, a second apart.
const GREETINGS: u32 = 6;

/// Greets the peer in some way until it answers.
pub(crate) fn greeted(greet: impl Fn() -> Result<String, MeasureError>) -> Result<(), MeasureError> {
    let mut tries = 1;
    loop {
        match greet() {
            Ok(_) => return Ok(()),
            Err(error) if tries >= GREETINGS => return Err(error),
            Err(_) => clock::pause(Duration::from_secs(1)),
        }
        tries += 1;
    }
}
