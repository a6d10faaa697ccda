//! Programs whose threads each work on memory of their own: the probe's `memory work`.
//!
//! It stands for a server, such as a JVM with a thread for each warehouse, where what counts is how near the memory is that a
//! thread touched first. The program holds no thread on a PU: where they run is the kernel's choice, within what the process
//! was bound to. So it shows what a guest's kernel makes of the nodes that it sees, or does not see.

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, Load, Measured, Window};
use crate::cost::{Each, Middle};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Seconds that it walks before costs are counted. A thread first fills its memory, which takes long on an emulated machine
/// and may take these seconds and three tenths of the measured ones.
const RAMP: u32 = 2;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkJob {
    /// Threads.
    pub threads: u32,
    /// Memory of each of them.
    pub each: Bytes,
    /// Measured seconds.
    pub seconds: u32,
}

impl Load for WorkJob {
    fn id(&self) -> String {
        format!("memory.work.t{}.{}", self.threads, self.each.kib())
    }

    fn label(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!("memory work, {} {threads} of {}", self.threads, self.each)
    }

    fn rate(&self) -> Option<String> {
        Some("loads".to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let numbers = [
            ("--threads", self.threads.to_string()),
            ("--seconds", (RAMP + self.seconds).to_string()),
            ("--size", self.each.times(self.threads.into()).get().to_string()),
            ("--seed", seed.to_string()),
        ];
        let words = [at.probe, "memory", "work"].map(str::to_owned);
        words.into_iter().chain(numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value])).collect()
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs((RAMP + self.seconds).into()))
    }

    fn middle(&self) -> Option<(Middle, Each)> {
        let (ramp, seconds) = (Duration::from_secs(RAMP.into()), Duration::from_secs(self.seconds.into()));
        Some((Middle::after(ramp, seconds), Each::Load))
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        let rate = number(output, "loads_per_second")?;
        let metric = Metric::new("loads", Unit::LoadsPerSecond, rate);
        let metric = metric.ok_or_else(|| unreadable(output, "`loads_per_second` is not above zero"))?;
        Ok(Measured { metrics: vec![metric], notes: Vec::new() })
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        Ok(Window { began: number(output, "began_ms")? - ahead, ended: number(output, "ended_ms")? - ahead })
    }

    fn provenance(&self) -> Option<(String, String)> {
        let command = self.command(&At::probe("nearmetal-probe"), 0);
        Some(("memory work command".to_owned(), command.join(" ")))
    }
}

fn number(output: &str, name: &str) -> Result<f64, LoadError> {
    let document: Value =
        serde_json::from_str(output.trim()).map_err(|error| unreadable(output, &error.to_string()))?;
    let value = document.pointer(&format!("/result/{name}")).and_then(Value::as_f64);
    value.filter(|value| *value > 0.0).ok_or_else(|| unreadable(output, &format!("no `{name}` in it")))
}

fn unreadable(output: &str, why: &str) -> LoadError {
    LoadError::Unreadable {
        what: "the output of the probe's `memory work`".into(),
        why: why.into(),
        text: output.chars().take(300).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory work",
"result":{"threads":2,"began_ms":1000.5,"ended_ms":6000.5,"loads":500,"loads_per_second":100.0}}"#;

    fn job() -> WorkJob {
        WorkJob { threads: 2, each: Bytes::from_mib(16), seconds: 5 }
    }

    #[test]
    fn its_rate_and_its_moments_are_read() {
        assert_eq!(job().read(SAID).unwrap().metrics[0].value, 100.0);
        assert_eq!(job().window(SAID, 0.5).unwrap(), Window { began: 1000.0, ended: 6000.0 });
    }

    #[test]
    fn a_run_without_a_rate_is_an_error() {
        for junk in ["", "{}", r#"{"result":{"loads_per_second":0}}"#, r#"{"result":{"loads_per_second":"9"}}"#] {
            assert!(job().read(junk).is_err() && job().window(junk, 0.0).is_err(), "{junk}");
        }
    }

    #[test]
    fn more_of_its_loads_take_longer() {
        let workload = crate::Workload::from(job());
        assert!(workload.fills_first());
        assert_eq!(workload.longer(4), Some(WorkJob { seconds: 20, ..job() }.into()));
    }

    #[test]
    fn it_walks_until_what_is_counted_is_over() {
        let (middle, _) = job().middle().unwrap();
        assert!(middle.ends < job().length().unwrap());
        let words = job().command(&At::probe("p"), 9).join(" ");
        assert_eq!(words, "p memory work --threads 2 --seconds 7 --size 33554432 --seed 9");
    }
}
