//! The probe's memory figures: latency of a walk, and bandwidth.

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, Load, Measured};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// A memory job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryJob {
    /// Buffer size.
    pub size: Bytes,
    /// Page size asked for on the measured side.
    pub pages: ProbePages,
    /// Access pattern (latency only).
    pub pattern: Pattern,
}

/// Page size the probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProbePages {
    /// 4 KiB pages, transparent huge pages refused for the buffer.
    #[serde(rename = "4k")]
    Small,
    /// Transparent huge pages asked for.
    #[serde(rename = "thp")]
    Transparent,
}

/// How the probe walks memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Random inside groups of 64 pages and over the groups: the cost of cache and memory.
    Groups,
    /// One access per page: adds the cost of translation.
    Page,
}

impl ProbePages {
    /// The probe's argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Transparent => "thp",
        }
    }
}

impl Pattern {
    /// The probe's argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::Page => "page",
        }
    }
}

/// `nearmetal-probe memory latency`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryLatency(pub MemoryJob);

/// `nearmetal-probe memory bandwidth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryBandwidth(pub MemoryJob);

/// How long the probe walks at most, as it was built.
const LENGTH: Duration = Duration::from_secs(30);

impl Load for MemoryLatency {
    fn id(&self) -> String {
        format!("memory.latency.{}.{}", self.0.pattern.argument(), self.0.pages.argument())
    }

    fn label(&self) -> String {
        format!("memory latency, {} pages, pattern {}", self.0.pages.argument(), self.0.pattern.argument())
    }

    fn command(&self, at: &At<'_>, _: u64) -> Vec<String> {
        let mut command = common(at.probe, "latency", &self.0);
        command.extend(["--pattern".to_owned(), self.0.pattern.argument().to_owned()]);
        command
    }

    fn limit(&self) -> Duration {
        LENGTH + super::SLACK
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        latency(output)
    }
}

impl Load for MemoryBandwidth {
    fn id(&self) -> String {
        format!("memory.bandwidth.{}", self.0.pages.argument())
    }

    fn label(&self) -> String {
        format!("memory bandwidth, {} pages", self.0.pages.argument())
    }

    fn command(&self, at: &At<'_>, _: u64) -> Vec<String> {
        common(at.probe, "bandwidth", &self.0)
    }

    fn limit(&self) -> Duration {
        LENGTH + super::SLACK
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        bandwidth(output)
    }
}

fn common(probe: &str, what: &str, job: &MemoryJob) -> Vec<String> {
    vec![
        probe.to_owned(),
        "memory".to_owned(),
        what.to_owned(),
        "--size".to_owned(),
        job.size.get().to_string(),
        "--page-size".to_owned(),
        job.pages.argument().to_owned(),
    ]
}

fn parse(output: &str) -> Result<Value, LoadError> {
    serde_json::from_str(output.trim()).map_err(|error| unreadable(output, &error.to_string()))
}

fn unreadable(output: &str, why: &str) -> LoadError {
    LoadError::Unreadable {
        what: "the probe's output".into(),
        why: why.into(),
        text: output.chars().take(300).collect(),
    }
}

/// What backed the buffer, as the probe found it, word for word.
fn notes(document: &Value) -> Vec<String> {
    document.pointer("/result/backing").map(|backing| format!("backing: {backing}")).into_iter().collect()
}

/// Reads `memory latency`.
fn latency(output: &str) -> Result<Measured, LoadError> {
    let document = parse(output)?;
    let number = |name: &str| document.pointer(name).and_then(Value::as_f64);
    let metrics: Vec<Metric> = [
        ("latency.median", "/result/latency/median"),
        ("latency.p99", "/result/latency/p99"),
        ("latency.minimum", "/result/latency/minimum"),
    ]
    .into_iter()
    .filter_map(|(name, pointer)| Metric::new(name, Unit::Nanoseconds, number(pointer)?))
    .collect();
    if metrics.is_empty() {
        return Err(unreadable(output, "no median, p99 or minimum"));
    }
    Ok(Measured { metrics, notes: notes(&document) })
}

/// Reads `memory bandwidth`: the median of each kernel.
fn bandwidth(output: &str) -> Result<Measured, LoadError> {
    let document = parse(output)?;
    let kernels = document.pointer("/result/kernels").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let metrics: Vec<Metric> = kernels
        .iter()
        .filter_map(|kernel| {
            let name = kernel.get("kernel")?.as_str()?;
            let median = kernel.pointer("/bandwidth/median").and_then(Value::as_f64)?;
            Metric::new(&format!("bandwidth.{name}"), Unit::BytesPerSecond, median)
        })
        .collect();
    if metrics.is_empty() {
        return Err(unreadable(output, "no kernel with a median"));
    }
    Ok(Measured { metrics, notes: notes(&document) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory latency","result":
{"backing":{"asked":"thp","got":"thp"},"latency":{"unit":"ns","count":3,"median":110.5,"p99":140.0,"minimum":100.0,"values":[1]}}}"#;
    const BANDWIDTH: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory bandwidth","result":
{"backing":[{"got":"4k"}],"kernels":[{"kernel":"read","bandwidth":{"median":1e10}},{"kernel":"copy","bandwidth":{"median":5e9}}]}}"#;

    #[test]
    fn the_probes_figures_are_read_with_what_backed_them() {
        let measured = latency(LATENCY).unwrap();
        assert_eq!(measured.metrics.iter().map(|metric| metric.value).collect::<Vec<_>>(), [110.5, 140.0, 100.0]);
        assert!(measured.notes[0].contains("thp"));
        let measured = bandwidth(BANDWIDTH).unwrap();
        assert_eq!(measured.metrics[1].name, "bandwidth.copy");
    }

    #[test]
    fn junk_is_an_error() {
        for junk in ["", "{}", "[]", "null", r#"{"result":{"latency":{"median":0}}}"#, r#"{"result":{"kernels":[{}]}}"#]
        {
            assert!(latency(junk).is_err() && bandwidth(junk).is_err(), "{junk}");
        }
    }
}
