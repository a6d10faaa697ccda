//! `<clock>`: the timers the guest gets.

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::tree;

/// One `<timer>`, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerFacts {
    /// `hpet`, `pit`, `rtc`, `tsc`, `kvmclock`, `hypervclock`, ….
    pub name: String,
    /// `yes` or `no`.
    pub present: Option<String>,
    /// `delay`, `catchup`, `merge`, `discard`.
    pub tickpolicy: Option<String>,
    /// Of `tsc`: `native`, `emulate`, ….
    pub mode: Option<String>,
}

pub(crate) fn read(document: &Document<'_>) -> Vec<TimerFacts> {
    tree::find_all(document, &["clock", "timer"])
        .into_iter()
        .filter_map(|node| {
            Some(TimerFacts {
                name: tree::attribute(node, "name")?,
                present: tree::attribute(node, "present"),
                tickpolicy: tree::attribute(node, "tickpolicy"),
                mode: tree::attribute(node, "mode"),
            })
        })
        .collect()
}
