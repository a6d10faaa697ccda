//! Telling a lab that boots from one that hangs, which emulation makes it do now and then.

use std::time::{Duration, Instant};

/// What the kernel says when a processor no longer gets its timer's interrupts, or a task a device's. On a busy host
/// QEMU's emulation sometimes loses the end of one while the processor starts: it stays in service for ever, and after a
/// reset QEMU itself hangs.
const STALLED: [&str; 2] = ["kthread starved for", "blocked for more than"];

/// What the kernel says when it stops for good: seen at its start, where emulation lost the timer's interrupts ("timer doesn't work through
/// Interrupt-remapped IO-APIC").
const PANIC: &str = "Kernel panic - not syncing";

/// How long a lab that said so may still take: on a very busy host it is merely slow.
const PATIENCE: Duration = Duration::from_secs(25);

/// A lab that neither ran nor waited to run for so long waits for an interrupt that will not come: most hang without a
/// word until the kernel looks for blocked tasks, four minutes later.
const IDLE: Duration = Duration::from_secs(15);

/// Processor seconds in [`IDLE`] that are none: a lab that is up and has nothing to do uses about 0.02 a second, one that
/// boots about 1.
const NEXT_TO_NOTHING: f64 = 1.5;

/// What is known of one boot.
#[derive(Debug)]
pub(crate) struct Vigil {
    /// Length of the console's text that is about earlier boots.
    seen: usize,
    stalled: Option<Instant>,
    /// Whether idleness says anything: real processors boot so fast that they wait for most of it.
    emulated: bool,
    /// When the lab last did anything, and how much it had done by then.
    active: (Instant, f64),
}

impl Vigil {
    /// Of a lab that starts `now`, whose console has said `seen` bytes before.
    pub(crate) fn new(now: Instant, seen: usize, emulated: bool) -> Self {
        Self { seen, stalled: None, emulated, active: (now, 0.0) }
    }

    /// Whether it hangs, by all its console has said and the processor seconds its QEMU has used or waited for.
    pub(crate) fn hangs(&mut self, now: Instant, console: &str, seconds: f64) -> bool {
        let news = console.get(self.seen..).unwrap_or_default();
        if self.stalled.is_none() && STALLED.iter().any(|words| news.contains(words)) {
            self.stalled = Some(now);
        }
        // Threads that end take with them what they waited for.
        if (seconds - self.active.1).abs() > NEXT_TO_NOTHING {
            self.active = (now, seconds);
        }
        let longer_than = |since: Instant, limit| now.saturating_duration_since(since) > limit;
        news.contains(PANIC)
            || self.stalled.is_some_and(|since| longer_than(since, PATIENCE))
            || (self.emulated && longer_than(self.active.0, IDLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot that works so many seconds of a processor each second, as the console says `text` after `says`; when it
    /// is taken for one that hangs, within four minutes.
    fn taken_for_hung(share: f64, says: u64, text: &str, emulated: bool) -> Option<u64> {
        let start = Instant::now();
        let old = "rcu: rcu_preempt kthread starved for 5249 jiffies!\n";
        let mut vigil = Vigil::new(start, old.len(), emulated);
        (0..240).find(|&second| {
            let console = if second < says { old.to_owned() } else { format!("{old}{text}") };
            vigil.hangs(start + Duration::from_secs(second), &console, share * second as f64)
        })
    }

    #[test]
    fn a_boot_that_works_is_left_alone() {
        assert_eq!(taken_for_hung(1.1, 10, "kvm_intel: VMX not supported by CPU 8", true), None);
        // On a host so busy that it gets an eighth of a processor; what it waits for counts.
        assert_eq!(taken_for_hung(0.125, 0, "", true), None);
    }

    #[test]
    fn a_kernel_that_panicked_comes_up_no_more_however_busy_it_is() {
        let said = "Kernel panic - not syncing: timer doesn't work through Interrupt-remapped IO-APIC\n";
        assert_eq!(taken_for_hung(1.1, 3, said, true), Some(3));
    }

    #[test]
    fn an_idle_one_hangs_though_it_says_nothing() {
        assert_eq!(taken_for_hung(0.02, 0, "", true), Some(16));
        assert_eq!(taken_for_hung(0.02, 0, "", false), None, "real processors wait a lot while they boot");
    }

    #[test]
    fn one_whose_kernel_says_so_hangs_however_it_spins() {
        assert_eq!(taken_for_hung(2.0, 24, "rcu: rcu_preempt kthread starved for 5251 jiffies!", false), Some(50));
        assert_eq!(
            taken_for_hung(2.0, 40, "INFO: task busybox:269 blocked for more than 120 seconds.", true),
            Some(66)
        );
    }
}
