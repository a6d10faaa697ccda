//! Whether what the rules asked for, and the plan has set, still holds: the rules are asked again.
//!
//! The rule itself is the read-back rather than the text of the edit: libvirt prints a definition in its own words, and
//! writes down what an edit had left out.

use nearmetal_domain::DomainFacts;
use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;
use nearmetal_rules::{Domain, Input, Settings, examine, rule};

use super::{Check, CheckKind, Observed, Outcome};
use crate::{DomainChange, Followed};

/// What was set by rules, and a definition has not.
pub(crate) fn rules_broken(change: &DomainChange, host: &Host, facts: &DomainFacts) -> Vec<String> {
    let class = class(change);
    let differs = |followed: &&Followed| {
        let check = one(CheckKind::LiveDefinition, String::new(), followed, class, host, facts);
        check.outcome == Outcome::Mismatch
    };
    change.followed.iter().filter(differs).map(|followed| followed.what.clone()).collect()
}

fn class(change: &DomainChange) -> Option<WorkloadClass> {
    change.class.as_deref().and_then(|text| text.split(':').next()?.parse().ok())
}

/// One check for each thing that was set, in the stored definition and in the one in force.
pub fn rules_kept(change: &DomainChange, host: &Host, observed: &Observed) -> Vec<Check> {
    let class = class(change);
    let mut checks = Vec::new();
    let live = observed.live.as_ref().map(|facts| (CheckKind::LiveDefinition, "definition in force", facts));
    let both = [Some((CheckKind::StoredDefinition, "stored definition", &observed.stored)), live];
    for (kind, name, facts) in both.into_iter().flatten() {
        for followed in &change.followed {
            let subject = format!("{name}: {} by rule {}", followed.what, followed.rule);
            checks.push(match facts {
                Err(why) => Check::cannot_tell(kind, subject, &followed.wanted, why),
                Ok(facts) => one(kind, subject, followed, class, host, facts),
            });
        }
    }
    checks
}

fn one(
    kind: CheckKind,
    subject: String,
    followed: &Followed,
    class: Option<WorkloadClass>,
    host: &Host,
    facts: &DomainFacts,
) -> Check {
    let (Some(rule), Some(domain)) = (rule(&followed.rule), Domain::new(Some(facts.clone()), None, class)) else {
        let why = format!("this version of nearmetal has no rule `{}`", followed.rule);
        return Check::cannot_tell(kind, subject, &followed.wanted, why);
    };
    let settings = Settings::default();
    let domains = [domain];
    let found = examine(&Input { host: Some(host), domains: &domains, settings: &settings }, [rule]);
    let mut objects = found.findings.iter().flat_map(|finding| &finding.objects);
    match (objects.find(|object| object.what == followed.what), found.cannot_tell.first()) {
        (Some(object), _) => Check::compared(kind, subject, &followed.wanted, &object.found, false),
        (None, Some(untold)) => {
            let why = format!("the rule lacks {}", untold.missing.join(", "));
            Check::cannot_tell(kind, subject, &followed.wanted, why)
        }
        (None, None) => Check::compared(kind, subject, &followed.wanted, &followed.wanted, true),
    }
}
