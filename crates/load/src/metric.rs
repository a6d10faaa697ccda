//! One measured value with its unit.

use serde::{Deserialize, Serialize};

use crate::cost::PREFIX;

/// What a value counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    /// I/O operations per second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// CPU nanoseconds per I/O operation.
    #[serde(rename = "CPU ns/IO")]
    CpuNanosecondsPerIo,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Requests answered per second.
    #[serde(rename = "trans/s")]
    TransactionsPerSecond,
    /// Seconds of processor time for each gigabit moved.
    #[serde(rename = "CPU s/Gbit")]
    CpuSecondsPerGigabit,
    /// CPU nanoseconds per transaction.
    #[serde(rename = "CPU ns/trans")]
    CpuNanosecondsPerTransaction,
    /// CPU nanoseconds per gigabit moved.
    #[serde(rename = "CPU ns/Gbit")]
    CpuNanosecondsPerGigabit,
    /// Events per I/O operation.
    #[serde(rename = "1/IO")]
    PerIo,
    /// Events per transaction.
    #[serde(rename = "1/trans")]
    PerTransaction,
    /// Events per gigabit moved.
    #[serde(rename = "1/Gbit")]
    PerGigabit,
    /// Loads of a program from its memory, per second.
    #[serde(rename = "loads/s")]
    LoadsPerSecond,
    /// CPU nanoseconds per load.
    #[serde(rename = "CPU ns/load")]
    CpuNanosecondsPerLoad,
    /// Events per load.
    #[serde(rename = "1/load")]
    PerLoad,
    /// Nanoseconds that a model makes of a request's instructions and misses; no clock measures them.
    #[serde(rename = "modelled ns")]
    ModelledNanoseconds,
    /// A part of all, from 0 to 1; more is better.
    #[serde(rename = "share")]
    Share,
    /// How far memory is, as ACPI's SLIT gives it: 10 is local.
    #[serde(rename = "distance")]
    Distance,
    /// Runs of a command that an hour has room for.
    #[serde(rename = "runs/h")]
    RunsPerHour,
    /// PUs that were busy on average.
    #[serde(rename = "PUs")]
    BusyPus,
}

impl Unit {
    /// As shown.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::BytesPerSecond => "B/s",
            Self::Nanoseconds => "ns",
            Self::CpuNanosecondsPerIo => "CPU ns/IO",
            Self::BitsPerSecond => "bit/s",
            Self::TransactionsPerSecond => "trans/s",
            Self::CpuSecondsPerGigabit => "CPU s/Gbit",
            Self::CpuNanosecondsPerTransaction => "CPU ns/trans",
            Self::CpuNanosecondsPerGigabit => "CPU ns/Gbit",
            Self::PerIo => "1/IO",
            Self::PerTransaction => "1/trans",
            Self::PerGigabit => "1/Gbit",
            Self::LoadsPerSecond => "loads/s",
            Self::CpuNanosecondsPerLoad => "CPU ns/load",
            Self::PerLoad => "1/load",
            Self::ModelledNanoseconds => "modelled ns",
            Self::Share => "share",
            Self::Distance => "distance",
            Self::RunsPerHour => "runs/h",
            Self::BusyPus => "PUs",
        }
    }

    /// Whether it counts what something costs: events, or processor time, for each request.
    fn is_of_costs(self) -> bool {
        match self {
            Self::CpuNanosecondsPerIo
            | Self::CpuSecondsPerGigabit
            | Self::CpuNanosecondsPerTransaction
            | Self::CpuNanosecondsPerGigabit
            | Self::PerIo
            | Self::CpuNanosecondsPerLoad
            | Self::PerTransaction
            | Self::PerGigabit
            | Self::ModelledNanoseconds
            | Self::PerLoad => true,
            Self::Iops
            | Self::BytesPerSecond
            | Self::Nanoseconds
            | Self::BitsPerSecond
            | Self::TransactionsPerSecond
            | Self::LoadsPerSecond
            | Self::Share
            | Self::Distance
            | Self::RunsPerHour
            | Self::BusyPus => false,
        }
    }

    /// Whether a larger value is the better one.
    pub fn higher_is_better(self) -> bool {
        matches!(
            self,
            Self::Iops
                | Self::BytesPerSecond
                | Self::BitsPerSecond
                | Self::TransactionsPerSecond
                | Self::LoadsPerSecond
                | Self::RunsPerHour
                | Self::Share
        )
    }
}

/// One value of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// What of the workload: `iops`, `latency.p99`, ….
    pub name: String,
    /// Unit.
    pub unit: Unit,
    /// Value: finite, and not below what [`Metric::sound`] says.
    pub value: f64,
}

impl Metric {
    /// A metric, if the value can be one: finite and above zero (a rate or time of zero is a failed run, not a figure).
    pub fn new(name: &str, unit: Unit, value: f64) -> Option<Self> {
        (value.is_finite() && value > 0.0).then(|| Self { name: name.to_owned(), unit, value })
    }

    /// Whether it says where the time goes. Such metrics are never compared as ratios.
    pub fn is_cost(&self) -> bool {
        // A test of the network has its own id in front: `tcp-rr.cost.exits.all`.
        self.name.starts_with(PREFIX) || self.name.split_once('.').is_some_and(|(_, rest)| rest.starts_with(PREFIX))
    }

    /// Whether 0 is a value of it. A cost may be: no exit happened, a thread never ran. A rate, a time, and any other figure
    /// that is compared as a ratio may not: it would be a run that failed.
    pub fn may_be_zero(&self) -> bool {
        self.is_cost() && self.unit.is_of_costs()
    }

    /// Checks the value, which other programs and other versions may have written.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that names the metric's field.
    pub fn sound(&self) -> Result<(), String> {
        let Self { name, unit, value } = self;
        let (fits, least) = match self.may_be_zero() {
            true => (*value >= 0.0, "0 or above, as every cost is"),
            false => (*value > 0.0, "above 0: one of 0 is a run that failed"),
        };
        match value.is_finite() && fits {
            true => Ok(()),
            false => Err(format!("`{name}` is {value} {}, and it has to be {least}", unit.symbol())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, unit: Unit, value: f64) -> Metric {
        Metric { name: name.to_owned(), unit, value }
    }

    #[test]
    fn zero_is_a_value_of_costs_and_of_nothing_else() {
        let of_a_network = metric("tcp-rr.cost.cpu.emulator-thread", Unit::CpuNanosecondsPerTransaction, 0.0);
        assert_eq!(of_a_network.sound(), Ok(()));
        assert!(
            metric("tcp-rr.cpu", Unit::CpuNanosecondsPerTransaction, 0.0).sound().is_err(),
            "it is compared as a ratio"
        );
        for cost in ["cost.exits.all", "cost.interrupts.all", "cost.cpu.iothreads"] {
            assert_eq!(metric(cost, Unit::PerIo, 0.0).sound(), Ok(()), "{cost}");
        }
        assert_eq!(metric("cost.cpu.vcpus", Unit::CpuNanosecondsPerGigabit, 0.0).sound(), Ok(()));
        // The processor time of a request is compared as a ratio: 0 would divide by nothing.
        for (name, unit) in
            [("iops", Unit::Iops), ("latency.p99", Unit::Nanoseconds), ("cpu", Unit::CpuNanosecondsPerIo)]
        {
            let why = metric(name, unit, 0.0).sound().unwrap_err();
            assert!(why.contains(name) && why.contains("is 0") && why.contains("above 0"), "{why}");
        }
        assert!(metric("cost.exits.all", Unit::Iops, 0.0).sound().is_err(), "a rate is no cost, whatever its name");
    }

    #[test]
    fn no_metric_is_below_zero_or_without_end() {
        for value in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(metric("cost.exits.all", Unit::PerIo, value).sound().is_err(), "{value}");
            assert!(metric("iops", Unit::Iops, value).sound().is_err(), "{value}");
        }
    }
}
