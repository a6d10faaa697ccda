//! The text format of Prometheus, version 0.0.4
//! (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use nearmetal_change::verify::{CheckKind, Outcome, Verification};
use nearmetal_rules::{Examination, Severity};

/// The word of a kind of check, as in the JSON document.
pub(super) fn word(kind: CheckKind) -> String {
    serde_json::to_value(kind).ok().and_then(|word| Some(word.as_str()?.to_owned())).unwrap_or_default()
}

/// How the checks of one kind came out.
#[derive(Debug, Default)]
struct Counts {
    ok: usize,
    differ: usize,
    unknown: usize,
}

/// All figures. `verifications` is `None` where reading back did not come to its end, `findings` where the rules could
/// not look at everything; what is unknown has no line.
pub(crate) fn prometheus(
    verifications: Option<&[Verification]>,
    findings: Option<&Examination>,
    now: SystemTime,
) -> String {
    let mut counts: BTreeMap<(&str, String), Counts> = BTreeMap::new();
    for verification in verifications.unwrap_or_default() {
        for check in &verification.checks {
            let entry = counts.entry((&verification.guest, word(check.kind))).or_default();
            match check.outcome {
                Outcome::Ok => entry.ok += 1,
                Outcome::Mismatch => entry.differ += 1,
                Outcome::CannotTell { .. } => entry.unknown += 1,
            }
        }
    }
    let labels = |domain: &str, check: &str| format!("domain=\"{}\",check=\"{}\"", escaped(domain), escaped(check));
    let mut page = Page::default();
    page.family(
        "nearmetal_verify_completed",
        "Whether the last read-back came to its end (1), or could not be made (0).",
        [(String::new(), u64::from(verifications.is_some()))],
    );
    page.family(
        "nearmetal_verify_timestamp_seconds",
        "When the last read-back ended or failed, in seconds since 1970.",
        [(String::new(), now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))],
    );
    page.family(
        "nearmetal_verify_ok",
        "Whether everything of this kind that could be read is as planned (1), or something differs (0).",
        // Of one of which nothing could be read, nobody knows.
        counts
            .iter()
            .filter(|(_, counts)| counts.ok + counts.differ > 0)
            .map(|((domain, check), counts)| (labels(domain, check), u64::from(counts.differ == 0))),
    );
    page.family(
        "nearmetal_verify_unknown",
        "How many checks of this kind could not tell.",
        counts.iter().map(|((domain, check), counts)| (labels(domain, check), counts.unknown as u64)),
    );
    page.family(
        "nearmetal_findings",
        "Findings of nearmetal doctor by severity.",
        findings.into_iter().flat_map(|examination| {
            Severity::ALL.into_iter().map(|severity| {
                let count = examination.findings.iter().filter(|finding| finding.severity == severity).count();
                (format!("severity=\"{}\"", severity.as_str()), count as u64)
            })
        }),
    );
    page.0
}

#[derive(Debug, Default)]
struct Page(String);

impl Page {
    /// A gauge with its samples; one without samples is left out.
    fn family(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (String, u64)>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// A label's value: backslash, quotation mark and line break are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nearmetal_change::verify::Check;

    use super::*;

    fn check(kind: CheckKind, outcome: Outcome) -> Check {
        let found = Some("1".to_owned());
        Check { subject: "vCPU 0".to_owned(), kind, planned: "0".to_owned(), found, outcome, place: None }
    }

    fn verification(guest: &str, checks: Vec<Check>) -> Verification {
        let (schema, taken) = ("nearmetal.verification/1".to_owned(), "2026-01-01T00:00:00Z".to_owned());
        Verification { schema, guest: guest.to_owned(), taken, checks, guest_view: None }
    }

    #[test]
    fn each_kind_of_each_guest_is_one_sample_unless_nothing_of_it_is_known_and_names_are_escaped() {
        let unknown = Outcome::CannotTell { why: "no agent".to_owned() };
        let found = [
            verification(
                "web1",
                vec![
                    check(CheckKind::Vcpu, Outcome::Ok),
                    check(CheckKind::Vcpu, Outcome::Mismatch),
                    check(CheckKind::Guest, unknown),
                ],
            ),
            verification("a\"b\\c\nd", vec![check(CheckKind::Memory, Outcome::Ok)]),
        ];
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let text = prometheus(Some(&found), None, now);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "nearmetal_verify_completed 1",
                "nearmetal_verify_timestamp_seconds 1700000000",
                r#"nearmetal_verify_ok{domain="a\"b\\c\nd",check="memory"} 1"#,
                r#"nearmetal_verify_ok{domain="web1",check="vcpu"} 0"#,
                r#"nearmetal_verify_unknown{domain="a\"b\\c\nd",check="memory"} 0"#,
                r#"nearmetal_verify_unknown{domain="web1",check="guest"} 1"#,
                r#"nearmetal_verify_unknown{domain="web1",check="vcpu"} 0"#,
            ]
        );
    }

    #[test]
    fn the_page_of_metrics_has_each_and_no_other() {
        let found = [verification("web1", vec![check(CheckKind::Vcpu, Outcome::Ok)])];
        let text = prometheus(Some(&found), Some(&Examination::default()), UNIX_EPOCH);
        let written: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let page = include_str!("../../../../docs/reference/metrics.md");
        let described: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("| `nearmetal_")?.split('`').next()).collect();
        assert_eq!(written.iter().map(|name| &name["nearmetal_".len()..]).collect::<Vec<_>>(), described);
    }

    #[test]
    fn what_could_not_be_read_back_is_said_and_has_no_samples() {
        let text = prometheus(None, Some(&Examination::default()), UNIX_EPOCH);
        assert!(text.contains("nearmetal_verify_completed 0\n") && !text.contains("nearmetal_verify_ok"), "{text}");
        assert!(text.contains("nearmetal_findings{severity=\"fault\"} 0\n"), "{text}");
        assert!(!prometheus(Some(&[]), None, UNIX_EPOCH).contains("nearmetal_findings"), "unknown is not zero");
    }
}
