//! fio's JSON, read as what it is: the output of a program that ran in a guest.

use serde_json::Value;

use crate::error::MeasureError;
use crate::metric::{Metric, Unit};

/// The largest output looked at; fio's JSON for one job is about 10 kB.
const LIMIT: usize = 4 << 20;

/// Reads one run's metrics. Fails when fio reported an error, did no I/O, or the text is not fio's.
///
/// Format: fio's HOWTO, "output-format=json"; `lat_ns` percentiles by `lat_percentiles=1`.
pub(crate) fn metrics(output: &str) -> Result<Vec<Metric>, MeasureError> {
    let unreadable = |why: &str| MeasureError::Unreadable {
        what: "fio's output".into(),
        why: why.into(),
        text: output.chars().take(300).collect(),
    };
    if output.len() > LIMIT {
        return Err(unreadable("it is longer than 4 MiB"));
    }
    // fio prints warnings before the JSON on some builds.
    let start = output.find('{').ok_or_else(|| unreadable("no JSON in it"))?;
    let document: Value = serde_json::from_str(&output[start..]).map_err(|error| unreadable(&error.to_string()))?;
    let job = document.pointer("/jobs/0").ok_or_else(|| unreadable("no job in it"))?;
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_f64);
    match job.get("error").and_then(Value::as_i64) {
        Some(0) => {}
        Some(code) => {
            return Err(MeasureError::WorkloadFailed { what: "fio".into(), why: format!("job error {code}") });
        }
        None => return Err(unreadable("no error field in the job")),
    }
    let sum = |name: &str| Some(number(&format!("/read/{name}"))? + number(&format!("/write/{name}"))?);
    let iops = sum("iops").ok_or_else(|| unreadable("no read and write iops"))?;
    let bandwidth = sum("bw_bytes").ok_or_else(|| unreadable("no bw_bytes"))?;
    let ios = sum("total_ios").unwrap_or(0.0);
    let mut metrics =
        vec![Metric::new("iops", Unit::Iops, iops), Metric::new("bandwidth", Unit::BytesPerSecond, bandwidth)];
    for (name, percentile) in [("p50", "50.000000"), ("p99", "99.000000"), ("p99.9", "99.900000")] {
        for direction in ["read", "write"] {
            let value = number(&format!("/{direction}/lat_ns/percentile/{percentile}"));
            metrics.push(
                value.and_then(|value| Metric::new(&format!("latency.{direction}.{name}"), Unit::Nanoseconds, value)),
            );
        }
    }
    for direction in ["read", "write"] {
        let value = number(&format!("/{direction}/lat_ns/mean"));
        metrics
            .push(value.and_then(|value| Metric::new(&format!("latency.{direction}.mean"), Unit::Nanoseconds, value)));
    }
    if let (Some(user), Some(system), Some(runtime)) = (number("/usr_cpu"), number("/sys_cpu"), number("/job_runtime"))
    {
        if ios > 0.0 {
            let cpu_nanoseconds = (user + system) / 100.0 * runtime * 1e6;
            metrics.push(Metric::new("cpu", Unit::CpuNanosecondsPerIo, cpu_nanoseconds / ios));
        }
    }
    let metrics: Vec<Metric> = metrics.into_iter().flatten().collect();
    if metrics.iter().any(|metric| metric.name == "iops") {
        Ok(metrics)
    } else {
        Err(MeasureError::WorkloadFailed { what: "fio".into(), why: "it did no I/O".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(error: i64, iops: f64) -> String {
        format!(
            r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{{"fio version":"fio-3.39","jobs":[{{"error":{error},"usr_cpu":10.0,"sys_cpu":15.0,"job_runtime":5000,
"read":{{"iops":{iops},"bw_bytes":4096000,"total_ios":5000,"lat_ns":{{"mean":2000.5,"percentile":{{"50.000000":1500,"99.000000":9000}}}}}},
"write":{{"iops":{iops},"bw_bytes":4096000,"total_ios":5000,"lat_ns":{{"mean":2100.5,"percentile":{{"50.000000":1600,"99.000000":9100}}}}}}}}]}}"#
        )
    }

    #[test]
    fn a_run_gives_rates_latencies_and_cpu() {
        let metrics = metrics(&output(0, 1000.0)).unwrap();
        let value = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert_eq!(value("iops"), Some(2000.0));
        assert_eq!(value("bandwidth"), Some(8_192_000.0));
        assert_eq!(value("latency.write.p99"), Some(9100.0));
        assert_eq!(value("latency.read.p99.9"), None, "a percentile fio did not print is absent, not zero");
        assert_eq!(value("cpu"), Some(125_000.0));
    }

    #[test]
    fn a_failed_run_is_an_error_not_a_zero() {
        assert!(metrics(&output(5, 1000.0)).is_err());
        assert!(metrics(&output(0, 0.0)).is_err());
        for junk in
            ["", "{", "{}", "{\"jobs\":[]}", "{\"jobs\":[{}]}", "{\"jobs\":[{\"error\":0}]}", "fio: no such file"]
        {
            assert!(metrics(junk).is_err(), "{junk}");
        }
    }
}
