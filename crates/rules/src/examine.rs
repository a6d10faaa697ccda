//! Runs the rules.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::context::Context;
use crate::finding::{Finding, Outcome, Scope, Which};
use crate::input::{Domain, Input};
use crate::rule::{Check, Rule};
use crate::subject::Subject;

/// What all rules said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Examination {
    /// Broken rules, worst first.
    pub findings: Vec<Finding>,
    /// What could not be told, once for each rule and reason.
    pub cannot_tell: Vec<CannotTell>,
    /// How often each answer was given.
    pub answers: BTreeMap<Answer, usize>,
    /// Where rules could tell nothing, and what each lacks there. For whoever compares two examinations; it is in no document.
    #[serde(skip)]
    pub untold: Vec<Untold>,
}

/// A rule that lacks a fact of one host or domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// Id of the rule.
    pub rule: String,
    /// Of what.
    pub scope: Scope,
    /// What is missing.
    pub missing: Vec<String>,
}

/// Kinds of answers, for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The rule is kept.
    Clean,
    /// It is broken.
    Broken,
    /// It says nothing about this host or domain.
    NotApplicable,
    /// A fact is missing.
    CannotTell,
}

/// A rule that lacks a fact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CannotTell {
    /// Id of the rule.
    pub rule: String,
    /// What is missing.
    pub missing: Vec<String>,
    /// Of how many hosts and domains.
    pub times: usize,
}

/// Runs these rules over the input.
pub fn examine<'a>(input: &Input<'_>, rules: impl IntoIterator<Item = &'a Rule>) -> Examination {
    run(input, rules, |_| true)
}

/// Runs these rules over the host and over the domains of these names, which all others are neighbours of.
pub fn examine_those<'a>(
    input: &Input<'_>,
    rules: impl IntoIterator<Item = &'a Rule>,
    domains: &[String],
) -> Examination {
    run(input, rules, |other| domains.contains(&other.name))
}

fn run<'a>(
    input: &Input<'_>,
    rules: impl IntoIterator<Item = &'a Rule>,
    wanted: impl Fn(&Domain) -> bool,
) -> Examination {
    let domains = || input.domains.iter().filter(|domain| wanted(domain));
    let context = Context::new(input);
    let mut result = Examination::default();
    let mut missing: BTreeMap<(&str, Vec<String>), usize> = BTreeMap::new();
    for rule in rules {
        let outcomes = match rule.check {
            Check::Host(check) => vec![(Scope::Host, check(&context))],
            Check::Domain(check) => domains().flat_map(|domain| of_domain(&context, rule, &check, domain)).collect(),
            Check::Inside(check) => {
                let check = |subject: &Subject<'_>| match subject.inside() {
                    Ok(inside) => check(subject, inside),
                    Err(unknown) => unknown,
                };
                domains().flat_map(|domain| of_domain(&context, rule, &check, domain)).collect()
            }
        };
        for (scope, outcome) in outcomes {
            let answer = match outcome {
                Outcome::Clean => Answer::Clean,
                Outcome::NotApplicable => Answer::NotApplicable,
                Outcome::CannotTell(paths) => {
                    result.untold.push(Untold { rule: rule.id.to_owned(), scope, missing: paths.clone() });
                    *missing.entry((rule.id, paths)).or_default() += 1;
                    Answer::CannotTell
                }
                Outcome::Broken(objects) => {
                    result.findings.push(Finding { rule: rule.id.to_owned(), severity: rule.severity, scope, objects });
                    Answer::Broken
                }
            };
            *result.answers.entry(answer).or_default() += 1;
        }
    }
    result.findings.sort_by(|a, b| (a.severity, &a.scope, &a.rule).cmp(&(b.severity, &b.scope, &b.rule)));
    let told = missing.into_iter();
    result.cannot_tell =
        told.map(|((rule, missing), times)| CannotTell { rule: rule.to_owned(), missing, times }).collect();
    result
}

/// The answers about one domain: one where both definitions give the same.
fn of_domain(
    context: &Context<'_>,
    rule: &Rule,
    check: &dyn Fn(&Subject<'_>) -> Outcome,
    domain: &Domain,
) -> Vec<(Scope, Outcome)> {
    let scope = |which| Scope::Domain { name: domain.name.clone(), which };
    let of = |facts: &Option<nearmetal_domain::DomainFacts>, which| {
        facts.as_ref().map(|facts| {
            if !rule.classes.contains(&domain.class) {
                return Outcome::NotApplicable;
            }
            check(&Subject::new(context, domain, facts, which))
        })
    };
    let (running, defined) = (of(&domain.running, Which::Running), of(&domain.defined, Which::Defined));
    if let Some(both) = running.as_ref().zip(defined.as_ref()).and_then(|(running, defined)| running.joined(defined)) {
        return vec![(scope(Which::Both), both)];
    }
    let pairs = [(running, Which::Running), (defined, Which::Defined)];
    pairs.into_iter().filter_map(|(outcome, which)| Some((scope(which), outcome?))).collect()
}
