//! `nearmetal doctor --watch`: looks again and again, and shows what came and what went.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use nearmetal_rules::{Finding, Object, Scope, Severity};
use serde::Serialize;

/// Something that was not found before, or is not found any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    schema: &'static str,
    /// When it was seen.
    pub time: String,
    /// Which of the two.
    pub change: Kind,
    rule: String,
    severity: Severity,
    scope: Scope,
    object: Object,
}

/// What happened to a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// It is new.
    Found,
    /// It is no more.
    Gone,
}

impl Change {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let word = match self.change {
            Kind::Found => "found",
            Kind::Gone => "gone ",
        };
        let finding = Finding {
            rule: self.rule.clone(),
            severity: self.severity,
            scope: self.scope.clone(),
            objects: vec![self.object.clone()],
        };
        let (severity, place) = (self.severity.as_str(), finding.place());
        format!("{}  {word}  {severity:6}  {place}  {}  {}", self.time, self.rule, self.object)
    }
}

/// A rule, what it is about, and which object breaks it. What the object is like may change from look to look (a share
/// of time, a number of pages) and is the same finding.
type Key = (String, Scope, String);

/// Findings of the last look.
#[derive(Debug, Default)]
struct Known(BTreeMap<Key, (Severity, Object)>);

impl Known {
    /// Takes over what is found now; gives what came, worst first, and then what went.
    fn update(&mut self, time: &str, findings: &[Finding]) -> Vec<Change> {
        let mut now = BTreeMap::new();
        for finding in findings {
            for object in &finding.objects {
                let key = (finding.rule.clone(), finding.scope.clone(), object.what.clone());
                now.insert(key, (finding.severity, object.clone()));
            }
        }
        let change = |change, ((rule, scope, _), (severity, object)): (&Key, &(Severity, Object))| Change {
            schema: "nearmetal.doctor.watch/1",
            time: time.to_owned(),
            change,
            rule: rule.clone(),
            severity: *severity,
            scope: scope.clone(),
            object: object.clone(),
        };
        let new = now.iter().filter(|(key, _)| !self.0.contains_key(*key)).map(|entry| change(Kind::Found, entry));
        let old = self.0.iter().filter(|(key, _)| !now.contains_key(*key)).map(|entry| change(Kind::Gone, entry));
        let mut changes: Vec<Change> = new.collect();
        changes.sort_by_key(|change| change.severity);
        changes.extend(old);
        self.0 = now;
        changes
    }
}

/// Looks once for each time stamp and shows what changed; ends with the time stamps and gives the last findings.
/// A look that could not be taken, or was broken off, changes nothing.
pub(crate) fn watch(
    times: impl Iterator<Item = String>,
    mut look: impl FnMut() -> Option<Vec<Finding>>,
    mut show: impl FnMut(&Change),
) -> Vec<Finding> {
    let (mut known, mut last) = (Known::default(), Vec::new());
    for time in times {
        if let Some(findings) = look() {
            known.update(&time, &findings).iter().for_each(&mut show);
            last = findings;
        }
    }
    last
}

/// A time stamp at once and after each pause, until somebody stops it.
pub(crate) struct Times {
    /// Time between two looks.
    pub every: Duration,
    /// Where the word to stop comes from.
    pub stop: Receiver<()>,
    /// Whether the first was given.
    pub begun: bool,
}

impl Iterator for Times {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if std::mem::replace(&mut self.begun, true) {
            return match self.stop.recv_timeout(self.every) {
                Err(RecvTimeoutError::Timeout) => Some(nearmetal_change::now()),
                _ => None,
            };
        }
        Some(nearmetal_change::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(rule: &str, severity: Severity, objects: &[(&str, &str)]) -> Finding {
        let objects = objects.iter().map(|(what, found)| Object::new(*what, *found, "good")).collect();
        Finding { rule: rule.to_owned(), severity, scope: Scope::Host, objects }
    }

    #[test]
    fn only_what_comes_and_goes_is_shown() {
        let loss = |found: &'static str| finding("steal", Severity::Loss, &[("time", found)]);
        let fault = || finding("pin", Severity::Fault, &[("vCPU 0", "x"), ("vCPU 1", "x")]);
        let mut looks = vec![
            Some(vec![loss("5 %")]),
            Some(vec![loss("6 %")]),
            None,
            Some(vec![loss("7 %"), fault()]),
            Some(vec![finding("pin", Severity::Fault, &[("vCPU 1", "x")])]),
        ]
        .into_iter();
        let mut lines = Vec::new();
        let last = watch(
            (0..5).map(|second| format!("t{second}")),
            || looks.next().unwrap(),
            |change| lines.push(change.line()),
        );
        assert_eq!(
            lines,
            [
                "t0  found  loss    host  steal  time: 5 % (wanted: good)",
                "t3  found  fault   host  pin  vCPU 0: x (wanted: good)",
                "t3  found  fault   host  pin  vCPU 1: x (wanted: good)",
                "t4  gone   fault   host  pin  vCPU 0: x (wanted: good)",
                "t4  gone   loss    host  steal  time: 7 % (wanted: good)",
            ]
        );
        assert_eq!(last.len(), 1);
    }

    #[test]
    fn times_end_with_the_word_to_stop() {
        let (sender, stop) = std::sync::mpsc::channel();
        let mut times = Times { every: Duration::from_secs(3600), stop, begun: false };
        assert!(times.next().is_some());
        sender.send(()).unwrap();
        assert_eq!(times.next(), None);
    }

    #[test]
    fn a_change_is_one_line_of_json_with_its_schema() {
        let changes = Known::default().update("t", &[finding("pin", Severity::Fault, &[("vCPU 0", "x")])]);
        let value = serde_json::to_value(&changes[0]).unwrap();
        assert_eq!((&value["schema"], &value["change"]), (&"nearmetal.doctor.watch/1".into(), &"found".into()));
        assert_eq!(value["object"]["what"], "vCPU 0");
    }
}
