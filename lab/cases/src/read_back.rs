//! What is in force and not as planned, as `verify --all` tells it in three places at once: its document, the figures for
//! Prometheus and the system's journal. They must say the same, whatever was broken.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::context::Bench;

/// As the timer runs it, but for what it waits for: an agent in the lab is slow, and only a guest that reads shows its engine.
const SCRIPT: &str = "cursor=$(journalctl -q -n 0 --show-cursor | sed 's/^-- cursor: //'); rm -f /root/drift.prom
    nearmetal verify --all --agent-timeout 60 --journal --textfile /root/drift.prom --format json > /root/drift.json; code=$?
    cat /root/drift.json; echo ----; cat /root/drift.prom; echo ----; journalctl --sync
    journalctl -q --all -o json -t nearmetal --after-cursor=\"$cursor\"; echo ----; echo $code";

/// One check that is not as planned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    /// The domain; of settings and devices, the transaction.
    pub guest: String,
    /// Kind of the check.
    pub kind: String,
    /// What was looked at.
    pub subject: String,
    /// What the plan says.
    pub planned: String,
    /// What is there; `?` where that is unknown.
    pub found: String,
}

impl Mismatch {
    /// Whether it is one of this guest (of a transaction: of those so named) and says all of these words.
    pub fn names(&self, guest: &str, words: &[&str]) -> bool {
        let text = self.to_string();
        self.guest.starts_with(guest) && words.iter().all(|word| text.contains(word))
    }

    /// From fields of a document or of the journal.
    fn read(value: &Value, guest: &str, [kind, subject, planned, found]: [&str; 4]) -> anyhow::Result<Self> {
        let text =
            |name: &str| value[name].as_str().map(str::to_owned).with_context(|| format!("no `{name}`: {value}"));
        let found = if value[found].is_null() { "?".to_owned() } else { text(found)? };
        Ok(Self { guest: guest.to_owned(), kind: text(kind)?, subject: text(subject)?, planned: text(planned)?, found })
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { guest, kind, subject, planned, found } = self;
        write!(formatter, "{guest}: {subject} ({kind}): planned {planned}, found {found}")
    }
}

impl Bench {
    /// Everything in force that is not as planned; exit code, figures and journal say the same.
    pub fn mismatches(&self) -> anyhow::Result<Vec<Mismatch>> {
        let text = self.sh(SCRIPT)?;
        let parts: Vec<&str> = text.splitn(4, "----\n").collect();
        let [document, figures, journal, code] = parts[..] else { anyhow::bail!("`{SCRIPT}` printed {text}") };
        let (all, wrong) = checks(document)?;
        let expected = if wrong.is_empty() { "0" } else { "1" };
        ensure!(code.trim() == expected, "verify ended with {code}, not {expected}: {wrong:#?}");
        let amiss: BTreeSet<_> = wrong.iter().map(|one| (one.guest.clone(), one.kind.clone())).collect();
        for (guest, kind) in &all {
            let value = u8::from(!amiss.contains(&(guest.clone(), kind.clone())));
            let line = format!("nearmetal_verify_ok{{domain=\"{guest}\",check=\"{kind}\"}} {value}");
            ensure!(figures.lines().any(|written| written == line), "the figures lack `{line}`: {figures}");
        }
        let lines = figures.lines().filter(|line| line.starts_with("nearmetal_verify_ok{")).count();
        ensure!(lines == all.len(), "{lines} figures of {} kinds of checks: {figures}", all.len());
        let told = entries(journal)?;
        let mut expected = wrong.clone();
        expected.sort();
        ensure!(told == expected, "the journal has {told:#?}, not {expected:#?}");
        Ok(wrong)
    }
}

/// Guests, each with a kind of check that came to something: of others there are no figures.
type Kinds = BTreeSet<(String, String)>;

/// The kinds of checks in a document, and the checks that are not as planned.
fn checks(document: &str) -> anyhow::Result<(Kinds, Vec<Mismatch>)> {
    let document: Value =
        serde_json::from_str(document).with_context(|| format!("verify printed no JSON: {document}"))?;
    let (mut all, mut wrong) = (BTreeSet::new(), Vec::new());
    for one in document.as_array().unwrap_or(&vec![document.clone()]) {
        let guest = one["guest"].as_str().with_context(|| format!("a verification without a guest: {one}"))?;
        for check in one["checks"].as_array().into_iter().flatten() {
            let mismatch = Mismatch::read(check, guest, ["kind", "subject", "planned", "found"])?;
            if check["outcome"] == "ok" || check["outcome"] == "mismatch" {
                all.insert((mismatch.guest.clone(), mismatch.kind.clone()));
            }
            if check["outcome"] == "mismatch" {
                wrong.push(mismatch);
            }
        }
    }
    ensure!(!all.is_empty(), "nothing is in force");
    Ok((all, wrong))
}

/// The differences among entries of the journal, sorted.
pub fn entries(journal: &str) -> anyhow::Result<Vec<Mismatch>> {
    let mut told = Vec::new();
    for line in journal.lines() {
        let entry: Value =
            serde_json::from_str(line).with_context(|| format!("not an entry of the journal: {line}"))?;
        let Some(guest) = entry["NEARMETAL_DOMAIN"].as_str() else { continue };
        ensure!(entry["PRIORITY"] == "4", "not a warning: {entry}");
        let fields = ["NEARMETAL_CHECK", "NEARMETAL_SUBJECT", "NEARMETAL_PLANNED", "NEARMETAL_FOUND"];
        told.push(Mismatch::read(&entry, guest, fields)?);
    }
    told.sort();
    Ok(told)
}
