//! What became of every object that was found: before anything is done, and after.

use std::collections::BTreeMap;
use std::fmt::Write;

use nearmetal_change::ChangeError;
use nearmetal_change::fix::{FixPlan, Treated, Treatment};
use nearmetal_rules::{Examination, Object, Scope, Severity, Untold, Which};
use serde_json::{Value, json};

use super::Gathered;
use super::gather::BadDomain;
use crate::exit_status::ExitStatus;

/// All of it.
#[derive(Debug)]
pub(crate) struct FixReport {
    /// The transaction, once there is one.
    transaction: Option<u32>,
    /// The changes, in words.
    changes: Vec<String>,
    /// What survives what, in words.
    lifetimes: Vec<&'static str>,
    /// One for each object.
    rows: Vec<Row>,
    /// Objects that were not there before, in words.
    new: Vec<String>,
    /// Domains that could not be read afterwards.
    unread: Vec<BadDomain>,
    /// The least severity that fails.
    fail_on: Option<Severity>,
}

/// The second look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again {
    /// What the rules say now.
    pub examination: Examination,
    /// Domains that they could not look at.
    pub bad_domains: Vec<BadDomain>,
}

impl Again {
    /// Why it says nothing of an object of this scope: the domain cannot be read.
    fn unread(&self, scope: &Scope) -> Option<&str> {
        let (name, _) = place(scope);
        let bad = self.bad_domains.iter().find(|bad| !name.is_empty() && bad.name == name)?;
        Some(&bad.problem)
    }

    /// Why it says nothing of what a rule found here: it lacks a fact, of this object or of another one that it looks at together
    /// with it.
    fn untold(&self, rule: &str, scope: &Scope, before: &Examination) -> Option<String> {
        let (name, which) = place(scope);
        // Of the definition that a guest does not run with, a rule may never have known.
        let was = |untold: &Untold| before.untold.iter().any(|old| old.rule == rule && old.scope == untold.scope);
        let is_of_it = |untold: &&Untold| {
            let (of, definition) = place(&untold.scope);
            let shared = which == definition || [which, definition].contains(&Which::Both);
            untold.rule == rule && of == name && shared && !was(untold)
        };
        let untold = self.examination.untold.iter().find(is_of_it)?;
        Some(format!("cannot check it again: not known: {}", untold.missing.join(", ")))
    }
}

#[derive(Debug)]
struct Row {
    treated: Treated,
    end: End,
}

/// What became of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// It would be cured at once.
    ToCure,
    /// Looked at again, and gone.
    Cured,
    /// The definition is (or would be) right; the running guest is not yet.
    NextStart(String),
    /// It takes a reboot, or a module loaded again.
    NotLive(String),
    /// It was to be cured, and is still found.
    NotCured(String),
    /// It was to be cured, and its rule cannot tell any more.
    Unknown(String),
    /// Not done: why.
    Refused(String),
    /// A person decides.
    NoCure,
}

impl End {
    fn word(&self) -> &'static str {
        match self {
            Self::ToCure => "to cure",
            Self::Cured => "cured",
            Self::NextStart(_) => "next start",
            Self::NotLive(_) => "not live",
            Self::NotCured(_) => "not cured",
            Self::Unknown(_) => "unknown",
            Self::Refused(_) => "refused",
            Self::NoCure => "by hand",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::NextStart(why)
            | Self::NotLive(why)
            | Self::NotCured(why)
            | Self::Unknown(why)
            | Self::Refused(why) => Some(why),
            Self::ToCure | Self::Cured | Self::NoCure => None,
        }
    }

    /// Whether nothing more has to happen than a start.
    fn is_settled(&self) -> bool {
        matches!(self, Self::Cured | Self::NextStart(_))
    }
}

/// All words of [`End`].
const WORDS: [&str; 8] = ["to cure", "cured", "next start", "not live", "not cured", "unknown", "refused", "by hand"];

const AT_NEXT_START: &str = "takes effect when the domain next starts";

/// Objects by rule, domain and name, each with the definitions it was found in.
type Seen<'a> = BTreeMap<(&'a str, &'a str, &'a str), Vec<(Which, &'a Object)>>;

fn seen(examination: &Examination) -> Seen<'_> {
    let mut seen = Seen::new();
    for finding in &examination.findings {
        let (name, which) = place(&finding.scope);
        for object in &finding.objects {
            let entry = seen.entry((finding.rule.as_str(), name, object.what.as_str())).or_default();
            match which {
                Which::Both => entry.extend([(Which::Running, object), (Which::Defined, object)]),
                which => entry.push((which, object)),
            }
        }
    }
    seen
}

fn place(scope: &Scope) -> (&str, Which) {
    match scope {
        Scope::Host => ("", Which::Running),
        Scope::Domain { name, which } => (name, *which),
    }
}

impl FixReport {
    /// Before anything is done.
    pub(crate) fn planned(plan: &FixPlan, fail_on: Option<Severity>) -> Self {
        Self::of(plan, fail_on, |treated| match &treated.treatment {
            Treatment::Now => End::ToCure,
            Treatment::NextStart => End::NextStart(AT_NEXT_START.to_owned()),
            other => untouched(other),
        })
    }

    /// Afterwards, with what the rules say then. What they cannot look at any more is not called cured.
    pub(crate) fn read_back(
        plan: &FixPlan,
        before: &Examination,
        after: Result<Again, ChangeError>,
        fail_on: Option<Severity>,
    ) -> Self {
        let after = match after {
            Ok(after) => after,
            Err(error) => {
                let why = format!("cannot check it again: {error}");
                return Self::of(plan, fail_on, |treated| match &treated.treatment {
                    Treatment::Now | Treatment::NextStart => End::NotCured(why.clone()),
                    other => untouched(other),
                });
            }
        };
        let (was, is) = (seen(before), seen(&after.examination));
        let mut report = Self::of(plan, fail_on, |treated| {
            if !treated.treatment.is_taken() {
                return untouched(&treated.treatment);
            }
            let (name, which) = place(&treated.scope);
            if let Some(why) = after.unread(&treated.scope) {
                return End::NotCured(format!("cannot check it again: {why}"));
            }
            let left = is.get(&(treated.rule.as_str(), name, treated.object.what.as_str()));
            let left = left.map_or(&[][..], Vec::as_slice);
            // What is found again needs no reason.
            if let (true, Some(why)) = (left.is_empty(), after.untold(&treated.rule, &treated.scope, before)) {
                return End::Unknown(why);
            }
            let stored = left.iter().find(|(found, _)| *found == Which::Defined && which != Which::Running);
            match (stored, left.first()) {
                (None, None) => End::Cured,
                // The definition is right, the guest runs with the former one.
                (None, Some(_)) if !matches!(treated.scope, Scope::Host) && has_edits(treated) => {
                    End::NextStart(AT_NEXT_START.to_owned())
                }
                (stored, first) => {
                    let found = stored.or(first).map(|(_, object)| object.found.as_str());
                    End::NotCured(format!("found: {}", found.unwrap_or("it")))
                }
            }
        });
        report.unread.clone_from(&after.bad_domains);
        for ((rule, name, what), found) in &is {
            if !was.contains_key(&(*rule, *name, *what)) {
                let place = if name.is_empty() { "host" } else { name };
                let words = found.first().map(|(_, object)| object.to_string()).unwrap_or_default();
                report.new.push(format!("{place}  {rule}  {words}"));
            }
        }
        report
    }

    fn of(plan: &FixPlan, fail_on: Option<Severity>, end: impl Fn(&Treated) -> End) -> Self {
        let rows = plan.treated.iter().map(|treated| Row { end: end(treated), treated: treated.clone() });
        Self {
            transaction: None,
            changes: plan.changes.iter().map(ToString::to_string).collect(),
            lifetimes: plan.lifetimes(),
            rows: rows.collect(),
            new: Vec::new(),
            unread: Vec::new(),
            fail_on,
        }
    }

    /// With the number of the transaction that did it.
    pub(crate) fn in_transaction(self, number: u32) -> Self {
        Self { transaction: Some(number), ..self }
    }

    /// How much is not as it was to be.
    pub(crate) fn mismatches(&self) -> usize {
        let not_cured = self.rows.iter().filter(|row| matches!(row.end, End::NotCured(_)));
        not_cured.count() + self.new.len()
    }

    /// Domains that could not be read afterwards.
    pub(crate) fn unread(&self) -> &[BadDomain] {
        &self.unread
    }

    /// The exit code.
    pub(crate) fn status(&self, gathered: &Gathered) -> ExitStatus {
        // As for `doctor`, what cannot be told is no finding.
        let is_left = |row: &Row| !row.end.is_settled() && !matches!(row.end, End::Unknown(_));
        let fails = |row: &Row| is_left(row) && self.fail_on.is_some_and(|least| row.treated.severity <= least);
        if !gathered.bad_domains.is_empty() || !self.unread.is_empty() {
            ExitStatus::Refused
        } else if self.mismatches() > 0 || self.rows.iter().any(fails) {
            ExitStatus::Findings
        } else {
            ExitStatus::Done
        }
    }
}

fn has_edits(treated: &Treated) -> bool {
    treated.object.cures.iter().any(|cure| matches!(cure, nearmetal_rules::Cure::Definition(_)))
}

/// What nothing was to be done about.
fn untouched(treatment: &Treatment) -> End {
    match treatment {
        Treatment::Now => End::ToCure,
        Treatment::NextStart => End::NextStart(AT_NEXT_START.to_owned()),
        Treatment::Stored => End::NextStart("the stored definition already has it: restart the domain".to_owned()),
        Treatment::NotLive(what) => {
            End::NotLive(format!("{}; `nearmetal doctor export DIR` writes it", what.join("; ")))
        }
        Treatment::Refused(why) => End::Refused(why.clone()),
        Treatment::NoCure => End::NoCure,
    }
}

/// For people.
pub(crate) fn text(report: &FixReport) -> String {
    let place = |row: &Row| match place(&row.treated.scope) {
        ("", _) => "host".to_owned(),
        (name, _) => name.to_owned(),
    };
    let width = |of: &dyn Fn(&Row) -> usize| report.rows.iter().map(of).max().unwrap_or(0);
    let (places, rules) = (width(&|row| place(row).chars().count()), width(&|row| row.treated.rule.len()));
    let mut page = String::new();
    for row in &report.rows {
        let (word, rule, object) = (row.end.word(), &row.treated.rule, &row.treated.object);
        let _ = write!(page, "{word:10}  {:places$}  {rule:rules$}  {object}", place(row));
        match row.end.why() {
            Some(why) => writeln!(page, ": {why}"),
            None => writeln!(page),
        }
        .unwrap_or_default();
        if row.treated.treatment.is_taken() {
            for cure in &row.treated.object.cures {
                let _ = writeln!(page, "{:10}  {}: {cure}", "", cure.when());
            }
        }
    }
    for new in &report.new {
        let _ = writeln!(page, "new         {new}");
    }
    if report.rows.is_empty() {
        page.push_str("found nothing to fix\n");
        return page;
    }
    let counts: Vec<String> = WORDS
        .iter()
        .map(|word| (report.rows.iter().filter(|row| row.end.word() == *word).count(), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let _ = writeln!(page, "\n{}", counts.join(", "));
    page
}

/// For programs: `nearmetal.doctor-fix/1`, described by docs/reference/doctor-fix.schema.json.
pub(crate) fn json(report: &FixReport) -> String {
    let rows: Vec<Value> = report
        .rows
        .iter()
        .map(|row| {
            let treated = &row.treated;
            json!({
                "rule": treated.rule, "severity": treated.severity, "scope": treated.scope, "object": treated.object,
                "outcome": row.end.word().replace(' ', "-"), "why": row.end.why(),
            })
        })
        .collect();
    let document = json!({
        "schema": "nearmetal.doctor-fix/1",
        "nearmetal_version": env!("CARGO_PKG_VERSION"),
        "transaction": report.transaction,
        "changes": report.changes,
        "lifetimes": report.lifetimes,
        "objects": rows,
        "new_findings": report.new,
        "mismatches": report.mismatches(),
    });
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use nearmetal_rules::{Cure, Finding};

    use super::*;

    fn domain(which: Which) -> Scope {
        Scope::Domain { name: "web1".to_owned(), which }
    }

    fn treated(rule: &str, scope: Scope, cures: &[Cure], treatment: Treatment) -> Treated {
        let object = cures.iter().cloned().fold(Object::new("it", "poor", "good"), Object::cured_by);
        Treated { rule: rule.to_owned(), severity: Severity::Loss, scope, object, treatment }
    }

    fn plan(treated: Vec<Treated>) -> FixPlan {
        FixPlan { treated, changes: Vec::new() }
    }

    fn examination(found: &[(&str, Scope)]) -> Examination {
        let finding = |(rule, scope): &(&str, Scope)| Finding {
            rule: (*rule).to_owned(),
            severity: Severity::Loss,
            scope: scope.clone(),
            objects: vec![Object::new("it", "poor as ever", "good")],
        };
        Examination { findings: found.iter().map(finding).collect(), ..Examination::default() }
    }

    fn seen_again(examination: Examination) -> Again {
        Again { examination, ..Again::default() }
    }

    fn outcomes(report: &FixReport) -> Vec<(&str, &str)> {
        report.rows.iter().map(|row| (row.treated.rule.as_str(), row.end.word())).collect()
    }

    #[test]
    fn what_is_gone_is_cured_and_what_only_runs_otherwise_waits_for_a_start() {
        let edit = [Cure::attribute("devices/memballoon", "model", "none")];
        let setting = [Cure::kernel_file("/proc/sys/kernel/numa_balancing", "0")];
        let plan = plan(vec![
            treated("gone", Scope::Host, &setting, Treatment::Now),
            treated("there", Scope::Host, &setting, Treatment::Now),
            treated("off", domain(Which::Defined), &edit, Treatment::NextStart),
            treated("runs", domain(Which::Both), &edit, Treatment::NextStart),
            treated("undone", domain(Which::Both), &edit, Treatment::NextStart),
            treated("stored", domain(Which::Running), &edit, Treatment::Stored),
            treated("hands", Scope::Host, &[], Treatment::NoCure),
        ]);
        let before = examination(&[]);
        let after = examination(&[
            ("there", Scope::Host),
            ("runs", domain(Which::Running)),
            ("undone", domain(Which::Both)),
            ("stored", domain(Which::Running)),
            ("hands", Scope::Host),
        ]);
        let same = after.clone();
        let report = FixReport::read_back(&plan, &same, Ok(seen_again(after)), Some(Severity::Loss));
        let wanted = [
            ("gone", "cured"),
            ("there", "not cured"),
            ("off", "cured"),
            ("runs", "next start"),
            ("undone", "not cured"),
            ("stored", "next start"),
            ("hands", "by hand"),
        ];
        assert_eq!(outcomes(&report), wanted);
        assert_eq!((report.mismatches(), report.new.len()), (2, 0));
        assert!(
            text(&report).contains("not cured   host  there   it: poor (wanted: good): found: poor as ever"),
            "{}",
            text(&report)
        );
        // The same, where nothing of it was found before: each is new.
        let again = examination(&[("there", Scope::Host), ("other", domain(Which::Defined))]);
        let report = FixReport::read_back(&plan, &before, Ok(seen_again(again)), None);
        assert_eq!(report.new.len(), 2);
        assert!(text(&report).contains("new         web1  other  it: poor as ever"), "{}", text(&report));
        let failed = FixReport::read_back(&plan, &before, Err(ChangeError::Kernel("gone".to_owned())), None);
        assert_eq!(failed.mismatches(), 5, "what cannot be looked at is not called cured");
        // A domain that could be read before.
        let problem = "an element is not closed".to_owned();
        let bad_domains = vec![BadDomain { name: "web1".to_owned(), runs: true, problem }];
        let again = Again { examination: Examination::default(), bad_domains };
        let report = FixReport::read_back(&plan, &before, Ok(again), None);
        let not_cured = outcomes(&report)
            .iter()
            .filter(|(_, word)| *word == "not cured")
            .map(|(rule, _)| *rule)
            .collect::<Vec<_>>();
        assert_eq!(not_cured, ["off", "runs", "undone"]);
        assert!(text(&report).contains("cannot check it again: an element is not closed"), "{}", text(&report));
        let gathered = Gathered::of(nearmetal_host::synthetic::Synthetic::new().build());
        assert_eq!(report.status(&gathered), ExitStatus::Refused);
        // A rule that lacks a fact of the host by then, and another of a domain that no cure was for.
        let untold = |rule: &str, scope| Untold { rule: rule.to_owned(), scope, missing: vec!["/proc/x".to_owned()] };
        let other = Scope::Domain { name: "db".to_owned(), which: Which::Both };
        let untold = vec![untold("gone", Scope::Host), untold("off", other), untold("off", domain(Which::Running))];
        let again = seen_again(Examination { untold, ..Examination::default() });
        let report = FixReport::read_back(&plan, &again.examination.clone(), Ok(again.clone()), None);
        assert!(outcomes(&report).contains(&("gone", "cured")), "what was not told before either");
        let report = FixReport::read_back(&plan, &before, Ok(again), None);
        let ends: Vec<_> = outcomes(&report).into_iter().filter(|(rule, _)| ["gone", "off"].contains(rule)).collect();
        assert_eq!(ends, [("gone", "unknown"), ("off", "cured")], "the stored definition is the one that was cured");
        assert!(text(&report).contains("cannot check it again: not known: /proc/x"), "{}", text(&report));
        assert_eq!(report.mismatches(), 0);
    }

    #[test]
    fn the_exit_code_is_about_what_is_neither_cured_nor_waiting() {
        let gathered = Gathered::of(nearmetal_host::synthetic::Synthetic::new().build());
        let status = |treatment: Treatment, fail_on| {
            let report = FixReport::planned(&plan(vec![treated("a", Scope::Host, &[], treatment)]), fail_on);
            report.status(&gathered)
        };
        assert_eq!(status(Treatment::Now, Some(Severity::Loss)), ExitStatus::Findings, "not done yet");
        assert_eq!(status(Treatment::Now, Some(Severity::Fault)), ExitStatus::Done);
        assert_eq!(status(Treatment::NextStart, Some(Severity::Loss)), ExitStatus::Done);
        assert_eq!(status(Treatment::NoCure, Some(Severity::Note)), ExitStatus::Findings);
        assert_eq!(status(Treatment::Refused(String::new()), None), ExitStatus::Done);
    }

    #[test]
    fn the_document_has_the_fields_of_its_schema() {
        let schema = include_str!("../../../../docs/reference/doctor-fix.schema.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        let report = FixReport::planned(&plan(vec![treated("a", Scope::Host, &[], Treatment::NoCure)]), None);
        let document: Value = serde_json::from_str(&json(&report.in_transaction(3))).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&document), keys(&schema["properties"]));
        assert_eq!(keys(&document["objects"][0]), keys(&schema["properties"]["objects"]["items"]["properties"]));
        let words: Vec<&str> = WORDS.to_vec();
        let listed = &schema["properties"]["objects"]["items"]["properties"]["outcome"]["enum"];
        let listed: Vec<String> =
            listed.as_array().unwrap().iter().map(|word| word.as_str().unwrap().replace('-', " ")).collect();
        assert_eq!(listed, words);
    }
}
