//! What costs are called and given for, and the part of a sample in which they are counted. Counting them is the engine's.

use std::time::Duration;

use crate::fio::FioJob;
use crate::metric::Unit;

/// What a name of a cost begins with. Such metrics are never compared as ratios: many of them are rightly 0.
pub const PREFIX: &str = "cost.";

/// Groups of costs, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cost {
    /// CPU time by thread role and by place, in ns for each I/O (transaction, gigabit).
    Cpu,
    /// VM exits by what KVM did about them, for each I/O.
    Exits,
    /// VM exits by the processor's reason, for each I/O; counted in a run of its own.
    Reasons,
    /// Interrupts on the host by line, for each I/O.
    Interrupts,
    /// Context switches, for each I/O.
    Switches,
    /// Instructions by place and thread role, for each I/O, and entries into guests.
    Work,
    /// Accesses to memory, for each I/O, and how far they went: all of them in a lab, loads that memory answered on silicon.
    Locality,
    /// Cycles by place and thread role, for each I/O; not in a lab.
    Cycles,
    /// Loads that a cache or the TLB had no answer for, for each I/O; not in a lab.
    Misses,
    /// What the lab's model makes of instructions and misses, in ns for each I/O; no clock measures it.
    Modelled,
}

impl Cost {
    /// All groups.
    pub const ALL: [Self; 10] = [
        Self::Cpu,
        Self::Exits,
        Self::Reasons,
        Self::Interrupts,
        Self::Switches,
        Self::Work,
        Self::Locality,
        Self::Cycles,
        Self::Misses,
        Self::Modelled,
    ];

    /// Its part of a metric's name.
    pub fn id(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Exits => "exits",
            Self::Reasons => "exit-reasons",
            Self::Interrupts => "interrupts",
            Self::Switches => "switches",
            Self::Work => "work",
            Self::Locality => "locality",
            Self::Cycles => "cycles",
            Self::Misses => "misses",
            Self::Modelled => "modelled",
        }
    }

    /// What a person calls it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Exits => "exits by KVM",
            Self::Reasons => "exits by reason",
            Self::Interrupts => "interrupts",
            Self::Switches => "context switches",
            Self::Work => "instructions",
            Self::Locality => "accesses to memory",
            Self::Cycles => "cycles",
            Self::Misses => "misses",
            Self::Modelled => "modelled time",
        }
    }

    /// Whether it is read nearest to the sample's middle: what reading all else executes is not to be in it.
    pub fn is_counted_by_processors(self) -> bool {
        matches!(self, Self::Work | Self::Locality | Self::Cycles | Self::Misses | Self::Modelled)
    }

    /// The group and the rest of a metric's name, if it is a cost.
    pub fn of(metric: &str) -> Option<(Self, &str)> {
        let (group, name) = metric.strip_prefix(PREFIX)?.split_once('.')?;
        Some((Self::ALL.into_iter().find(|one| one.id() == group)?, name))
    }
}

/// What costs are given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// A read or write of a disk.
    Io,
    /// A request and its answer.
    Transaction,
    /// A billion bits of a stream.
    Gigabit,
    /// A load of a program from its memory.
    Load,
}

impl Each {
    /// What a person calls one.
    pub fn title(self) -> &'static str {
        match self {
            Self::Io => "IO",
            Self::Transaction => "transaction",
            Self::Gigabit => "Gbit",
            Self::Load => "load",
        }
    }

    /// How many of them a rate in the load's unit is, each second: streams count in bits.
    pub fn done(self, rate: f64) -> f64 {
        if self == Self::Gigabit { rate / 1e9 } else { rate }
    }

    /// The unit of a cost that is given for it.
    pub fn unit(self, cost: Cost) -> Unit {
        match (self, cost) {
            (_, Cost::Modelled) => Unit::ModelledNanoseconds,
            (Self::Io, Cost::Cpu) => Unit::CpuNanosecondsPerIo,
            (Self::Io, _) => Unit::PerIo,
            (Self::Transaction, Cost::Cpu) => Unit::CpuNanosecondsPerTransaction,
            (Self::Transaction, _) => Unit::PerTransaction,
            (Self::Gigabit, Cost::Cpu) => Unit::CpuNanosecondsPerGigabit,
            (Self::Gigabit, _) => Unit::PerGigabit,
            (Self::Load, Cost::Cpu) => Unit::CpuNanosecondsPerLoad,
            (Self::Load, _) => Unit::PerLoad,
        }
    }
}

/// The part of a sample that is counted, from the moment it begins: that its command is given, or its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Middle {
    /// When counting begins.
    pub begins: Duration,
    /// When it ends.
    pub ends: Duration,
}

impl Middle {
    /// The middle of a job: from three tenths to eight tenths of its measured seconds. fio takes a moment to start, more of
    /// it in a guest, so that everything is later by up to three tenths on one side.
    pub fn of(job: &FioJob) -> Self {
        let (ramp, seconds) = (Duration::from_secs(job.ramp_seconds.into()), Duration::from_secs(job.seconds.into()));
        Self::after(ramp, seconds)
    }

    /// The middle of `seconds` that begin after `ramp`.
    pub fn after(ramp: Duration, seconds: Duration) -> Self {
        Self { begins: ramp + seconds * 3 / 10, ends: ramp + seconds * 8 / 10 }
    }

    /// As long, and begun that many times as early: for a sample in which reading takes that many times as long.
    pub fn earlier(self, times: u32) -> Self {
        let begins = self.begins / times;
        Self { begins, ends: begins + self.ends.saturating_sub(self.begins) }
    }

    /// What is left of it at a moment of the sample. Half of it at least, however long the first reading took: a few requests say
    /// nothing, and where the program is done by then that is told.
    pub fn rest(self, now: Duration) -> Duration {
        self.ends.saturating_sub(now).max(self.ends.saturating_sub(self.begins) / 2)
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_units::Bytes;

    use super::*;

    #[test]
    fn the_middle_lies_within_the_measured_seconds() {
        let middle = Middle::of(&FioJob::first_seed(Bytes::from_kib(4), 10, 2));
        assert_eq!((middle.begins, middle.ends), (Duration::from_secs(5), Duration::from_secs(10)));
        let slow = middle.earlier(4);
        assert_eq!((slow.begins, slow.ends), (Duration::from_millis(1250), Duration::from_millis(6250)));
        assert_eq!(middle.earlier(1), middle);
    }

    #[test]
    fn a_slow_reading_makes_the_counted_part_shorter_and_not_later() {
        let (whole, ms) = (Middle::after(Duration::ZERO, Duration::from_secs(2)), Duration::from_millis);
        assert_eq!((whole.begins, whole.ends), (ms(600), ms(1600)));
        assert_eq!([600, 900, 1500].map(|now| whole.rest(ms(now))), [ms(1000), ms(700), ms(500)]);
    }
}
