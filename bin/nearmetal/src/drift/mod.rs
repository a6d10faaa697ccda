//! What a timer makes of `nearmetal verify --all`: figures for Prometheus, and differences in the system's journal.

mod journal;
mod prometheus;

use nearmetal_rules::{Examination, Input, RULES, Settings, examine};

use crate::doctor::gather;

pub(crate) use journal::to_the_journal;
pub(crate) use prometheus::prometheus;

/// What the rules find here now; `None` where the domains could not be read, since a count of the host's findings alone
/// would look like an improvement.
pub(crate) fn findings() -> Option<Examination> {
    let gathered = gather(&[], None, None).ok()?;
    if gathered.domains_unknown.is_some() || !gathered.bad_domains.is_empty() {
        return None;
    }
    let input = Input { host: Some(&gathered.host), domains: &gathered.domains, settings: &Settings::default() };
    Some(examine(&input, RULES))
}
