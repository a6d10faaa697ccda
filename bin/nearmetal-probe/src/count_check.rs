//! The lab's counters held against loops of known length, and against KVM's own count.

use nearmetal_host::HostFs;
use nearmetal_units::CpuSet;
use serde::Serialize;

use crate::count::read;
use crate::error::ProbeError;
use crate::kvm::guest_code::Exit;
use crate::kvm::machine::{self, Machine};
use crate::kvm::native;
use crate::system::affinity;

/// Iterations of the shorter loop; the longer one has twice as many. A millisecond or two under emulation: some runs meet no
/// tick of the timer.
const ITERATIONS: u64 = 300_000;
/// Times each is run. The fewest instructions count, since a tick only adds.
const RUNS: usize = 50;
/// Instructions in an iteration: dec, jnz.
const INSTRUCTIONS: f64 = 2.0;
/// Exits that the last loop makes.
const EXITS: u64 = 2000;

/// What was counted beside what is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// A loop on the host: instructions of an iteration.
    pub host: Held,
    /// The same loop in a guest.
    pub guest: Held,
    /// Entries into a guest that exits often.
    pub entries: Held,
    /// The PU that all of it ran on.
    pub pu: u32,
}

/// A count, and what it should be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Held {
    /// By the lab's counters.
    pub counted: f64,
    /// By the code that ran; of entries: by KVM, one for each exit.
    pub known: f64,
    /// How far apart they are, as a part of what is known.
    pub error: f64,
}

impl Held {
    fn new(counted: f64, known: f64) -> Self {
        Self { counted, known, error: (counted - known).abs() / known }
    }
}

/// Runs the loops on the PU it finds itself on.
///
/// # Errors
/// This machine is no lab that counts, or runs no guests.
pub fn check(fs: &HostFs) -> Result<Check, ProbeError> {
    let pu = affinity::current();
    affinity::set(&CpuSet::from_iter([pu])).map_err(|error| ProbeError::kernel(format!("stay on PU {pu}"), error))?;
    let counts = |what: &mut dyn FnMut() -> Result<(), ProbeError>| {
        let before = read(fs)?;
        what()?;
        let mut after = read(fs)?.since(&before);
        Ok::<_, ProbeError>(after.pus.swap_remove(pu as usize))
    };
    let host = slope(|iterations| {
        let counted = counts(&mut || {
            native::run(iterations);
            Ok(())
        })?;
        Ok(counted.instructions - counted.in_guest)
    })?;
    let kvm = machine::open().map_err(|error| ProbeError::kernel("open /dev/kvm", error))?;
    let mut machine = Machine::new(&kvm)?;
    let guest = slope(|iterations| {
        let counted = counts(&mut || machine.run(Exit::None, 0, iterations).map(drop))?;
        Ok(counted.in_guest)
    })?;
    let mut exits = None;
    let counted = counts(&mut || {
        exits = machine.run(Exit::Kernel, 1, EXITS)?.counts.map(|counts| counts.exits);
        Ok(())
    })?;
    let by_kvm = exits.ok_or_else(|| ProbeError::Program {
        program: "KVM".to_owned(),
        why: "it counts no exits: its statistics came with Linux 5.14".to_owned(),
    })?;
    Ok(Check {
        host: Held::new(host, INSTRUCTIONS),
        guest: Held::new(guest, INSTRUCTIONS),
        entries: Held::new(counted.world_switches as f64, by_kvm as f64),
        pu,
    })
}

/// Instructions of an iteration: what the longer loop has more than the shorter one. What surrounds them cancels.
fn slope(mut run: impl FnMut(u64) -> Result<u64, ProbeError>) -> Result<f64, ProbeError> {
    let (mut short, mut long) = (u64::MAX, u64::MAX);
    for _ in 0..RUNS {
        short = short.min(run(ITERATIONS)?);
        long = long.min(run(2 * ITERATIONS)?);
    }
    Ok((long as f64 - short as f64) / ITERATIONS as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_surrounds_a_loop_cancels_and_a_tick_is_dropped() {
        let mut run = 0;
        let found = slope(|iterations| {
            run += 1;
            Ok(50_000 + 2 * iterations + if run % 5 < 3 { 7000 } else { 0 })
        });
        assert_eq!(found.unwrap(), 2.0);
        let held = Held::new(1998.0, 2000.0);
        assert!((held.error - 0.001).abs() < 1e-12);
    }
}
