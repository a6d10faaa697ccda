//! The measurement behind `nearmetal-probe kvm`: instruction rates in turn, then both kinds of exit, by time budget.

use serde::Serialize;

use crate::error::ProbeError;
use crate::kvm::guest_code::Exit;
use crate::kvm::machine::{self, Machine};
use crate::kvm::native;
use crate::kvm::slope::{Round, calibrate};
use crate::kvm::verdict::{THRESHOLD, Verdict};
use crate::statistics::Samples;
use crate::system::clock;

/// Nanoseconds one run is calibrated to last.
const RUN_TARGET: u64 = 2_000_000;
/// Nanoseconds the samples of one figure may take; with calibration, three figures stay well below a second.
const FIGURE_BUDGET: u64 = 120_000_000;
/// Samples of one figure, at least (however slow) and at most (however fast).
const SAMPLES: (usize, usize) = (3, 15);
/// Iterations of one run, at most: 10^9 is a second of the fastest loop.
const ITERATION_LIMIT: u64 = 1_000_000_000;
/// Instructions in an iteration of the counting loop: dec, jnz.
const INSTRUCTIONS: f64 = 2.0;

/// The verdict and what it rests on; figures only where guests ran.
#[derive(Debug, Clone, Serialize)]
pub struct KvmResult {
    /// What /dev/kvm is worth.
    pub verdict: Verdict,
    /// Guest rate over host rate below which it is called emulation.
    pub threshold: f64,
    /// Why, in words.
    pub reason: String,
    /// Instruction rates.
    pub rate: Option<RateFigures>,
    /// Cost of an exit that ends in user space (an emulated device's register).
    pub exit_to_user_space: Option<ExitFigures>,
    /// Cost of an exit the kernel handles itself.
    pub exit_in_kernel: Option<ExitFigures>,
    /// Name of the clock.
    pub clock: &'static str,
    /// Nanoseconds the whole took.
    pub elapsed_ns: u64,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// Instruction rates of the same loop in the guest and on the host, measured in turn.
#[derive(Debug, Clone, Serialize)]
pub struct RateFigures {
    /// Mode the guest runs in.
    pub guest_mode: &'static str,
    /// Instructions per second in the guest.
    pub guest: Samples,
    /// Instructions per second on the host.
    pub host: Samples,
    /// Median of the guest's over the median of the host's.
    pub ratio: f64,
    /// Part of the guest's instructions that KVM emulated, where it counts: 0 on hardware.
    pub emulated_share: Option<f64>,
    /// Iterations of one run: guest, host.
    pub iterations: [u64; 2],
}

/// Cost of one kind of exit.
#[derive(Debug, Clone, Serialize)]
pub struct ExitFigures {
    /// The instruction that exits.
    pub instruction: &'static str,
    /// Slopes over bodies of 0, 1 and 2 exits, one per round.
    pub cost: Samples,
    /// Median over the rounds of how far the middle point lies off the line, as a part of the slope: near 0 is good.
    pub bend: f64,
    /// Iterations of one run.
    pub iterations: u64,
    /// Exits per iteration that KVM counted in the last round, for bodies of 0, 1 and 2 exits: 0, 1, 2 prove the
    /// slope's meaning. `None` where KVM does not count. Exits to user space are also counted by this program, and a
    /// wrong number is an error.
    pub exits_per_loop: [Option<f64>; 3],
}

impl RateFigures {
    /// The figures in words.
    fn words(&self) -> String {
        let counted = self.emulated_share.map_or(String::new(), |share| {
            format!("; KVM counts {:.0} % of the guest's instructions as emulated", share * 100.0)
        });
        let speed = match self.ratio {
            // A slowdown that is told in words: nobody counts the zeros of 0.00011.
            slow if slow > 0.0 && slow < THRESHOLD => {
                format!("the guest runs about {:.0} times slower than the host", slow.recip())
            }
            ratio => format!("the guest runs {ratio:.2} times the host's instructions per second"),
        };
        format!("{speed}; below {THRESHOLD} times its instructions per second it is called emulation{counted}")
    }
}

impl ExitFigures {
    /// What to know when KVM did not count one and two exits per iteration.
    fn note(&self) -> Option<String> {
        let [_, Some(one), Some(two)] = self.exits_per_loop else { return None };
        let proven = (one - 1.0).abs() < 0.1 && (two - 2.0).abs() < 0.2;
        (!proven).then(|| {
            format!(
                "KVM counted {one:.2} and {two:.2} exits per iteration for one and two `{}`: the figure is not the \
                 cost of an exit",
                self.instruction
            )
        })
    }
}

/// Measures. That KVM is absent or not permitted is a result, not an error.
///
/// # Errors
/// [`ProbeError`] when KVM opens and then refuses to run a guest.
pub fn measure() -> Result<KvmResult, ProbeError> {
    let begin = clock::nanoseconds();
    let kvm = match machine::open() {
        Ok(kvm) => kvm,
        Err(error) => {
            let verdict = Verdict::of_open_error(&error);
            let verdict = verdict.ok_or_else(|| ProbeError::kernel("open /dev/kvm", error.kind()))?;
            return Ok(without_figures(verdict, format!("opening /dev/kvm: {error}"), begin));
        }
    };
    let mut machine = Machine::new(&kvm)?;
    let rate = rates(&mut machine)?;
    let verdict = Verdict::of_ratio(rate.ratio);
    let reason = rate.words();
    let exit_to_user_space = exit_cost(&mut machine, Exit::UserSpace, "out imm8, al")?;
    let exit_in_kernel = exit_cost(&mut machine, Exit::Kernel, "cpuid")?;
    let notes = [&exit_to_user_space, &exit_in_kernel].into_iter().filter_map(ExitFigures::note).collect();
    Ok(KvmResult {
        notes,
        rate: Some(rate),
        exit_to_user_space: Some(exit_to_user_space),
        exit_in_kernel: Some(exit_in_kernel),
        ..without_figures(verdict, reason, begin)
    })
}

fn without_figures(verdict: Verdict, reason: String, begin: u64) -> KvmResult {
    KvmResult {
        verdict,
        threshold: THRESHOLD,
        reason,
        rate: None,
        exit_to_user_space: None,
        exit_in_kernel: None,
        clock: clock::NAME,
        elapsed_ns: clock::nanoseconds().saturating_sub(begin),
        notes: Vec::new(),
    }
}

/// Whether another sample is due, by number and by time.
fn another(taken: usize, begin: u64) -> bool {
    taken < SAMPLES.0 || (taken < SAMPLES.1 && clock::nanoseconds().saturating_sub(begin) < FIGURE_BUDGET)
}

fn rates(machine: &mut Machine) -> Result<RateFigures, ProbeError> {
    let in_guest = |iterations| machine.run(Exit::None, 0, iterations).map(|run| run.nanoseconds);
    let guest_iterations = calibrate(RUN_TARGET, ITERATION_LIMIT, in_guest)?;
    let host_iterations =
        calibrate(RUN_TARGET, ITERATION_LIMIT, |iterations| Ok::<u64, ProbeError>(native::run(iterations)))?;
    // Both sides' rates are taken between one iteration and many, so that entering the guest does not count.
    let per_second = |iterations: u64, many: u64, one: u64| {
        (iterations - 1) as f64 * INSTRUCTIONS * 1e9 / many.saturating_sub(one).max(1) as f64
    };
    let (mut guest, mut host, mut emulated_share) = (Vec::new(), Vec::new(), None);
    let begin = clock::nanoseconds();
    while another(guest.len(), begin) {
        let one = machine.run(Exit::None, 0, 1)?;
        let many = machine.run(Exit::None, 0, guest_iterations)?;
        emulated_share = one.counts.zip(many.counts).map(|(one, many)| {
            many.emulated.saturating_sub(one.emulated) as f64 / ((guest_iterations - 1) as f64 * INSTRUCTIONS)
        });
        guest.push(per_second(guest_iterations, many.nanoseconds, one.nanoseconds));
        let one = native::run(1);
        host.push(per_second(host_iterations, native::run(host_iterations), one));
    }
    let guest = Samples::new("instructions/s", guest).ok_or(ProbeError::Thread)?;
    let host = Samples::new("instructions/s", host).ok_or(ProbeError::Thread)?;
    let ratio = guest.median / host.median;
    Ok(RateFigures {
        guest_mode: "64-bit, paging on",
        guest,
        host,
        ratio,
        emulated_share,
        iterations: [guest_iterations, host_iterations],
    })
}

fn exit_cost(machine: &mut Machine, exit: Exit, instruction: &'static str) -> Result<ExitFigures, ProbeError> {
    let iterations = calibrate(RUN_TARGET, ITERATION_LIMIT, |iterations| {
        machine.run(exit, 1, iterations).map(|run| run.nanoseconds)
    })?;
    let (mut slopes, mut bends, mut exits_per_loop) = (Vec::new(), Vec::new(), [None; 3]);
    let begin = clock::nanoseconds();
    while another(slopes.len(), begin) {
        let mut per_iteration = [0.0; 3];
        for (exits, (time, counted)) in (0..).zip(per_iteration.iter_mut().zip(&mut exits_per_loop)) {
            let run = machine.run(exit, exits, iterations)?;
            *time = run.nanoseconds as f64 / iterations as f64;
            // The halt at the end is one exit more.
            *counted = run.counts.map(|counts| counts.exits.saturating_sub(1) as f64 / iterations as f64);
        }
        let round = Round { per_iteration };
        slopes.push(round.slope());
        bends.push(round.bend());
    }
    let cost = Samples::new("ns/exit", slopes).ok_or(ProbeError::Thread)?;
    let bend = Samples::new("", bends).map_or(0.0, |bends| bends.median);
    Ok(ExitFigures { instruction, cost, bend, iterations, exits_per_loop })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(exits_per_loop: [Option<f64>; 3]) -> ExitFigures {
        let cost = Samples::new("ns/exit", vec![1000.0]).unwrap();
        ExitFigures { instruction: "cpuid", cost, bend: 0.0, iterations: 1000, exits_per_loop }
    }

    #[test]
    fn exits_that_were_none_are_told() {
        assert_eq!(figures([None; 3]).note(), None);
        assert_eq!(figures([Some(0.01), Some(1.01), Some(2.01)]).note(), None);
        assert!(figures([Some(0.0), Some(0.0), Some(0.0)]).note().unwrap().contains("0.00 and 0.00 exits"));
    }
}
