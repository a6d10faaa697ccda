//! The probe's memory figures.

use serde_json::Value;

use crate::error::MeasureError;
use crate::experiment::Measured;
use crate::metric::{Metric, Unit};
use crate::workload::MemoryJob;

/// Arguments of a latency run.
pub(crate) fn latency_command(probe: &str, job: &MemoryJob) -> Vec<String> {
    let mut command = common(probe, "latency", job);
    command.extend(["--pattern".to_owned(), job.pattern.argument().to_owned()]);
    command
}

/// Arguments of a bandwidth run.
pub(crate) fn bandwidth_command(probe: &str, job: &MemoryJob) -> Vec<String> {
    common(probe, "bandwidth", job)
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

fn parse(output: &str) -> Result<Value, MeasureError> {
    serde_json::from_str(output.trim()).map_err(|error| unreadable(output, &error.to_string()))
}

fn unreadable(output: &str, why: &str) -> MeasureError {
    MeasureError::Unreadable {
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
pub(crate) fn latency(output: &str) -> Result<Measured, MeasureError> {
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
pub(crate) fn bandwidth(output: &str) -> Result<Measured, MeasureError> {
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
