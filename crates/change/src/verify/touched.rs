//! Which memory the guest's vCPUs touch (`--deep`): the read-back of memory placement by what is used, not by what is
//! allocated.
//!
//! Pages may be where they were planned, and the guest still work far from them: in memory of another node at the same
//! distance, or across its own cells, which its kernel was told to ignore.

use std::time::Duration;

use nearmetal_host::{GuestAccesses, GuestProcess, HostFs, VcpuAccesses, Went, guest_accesses};
use nearmetal_place::Placement;
use nearmetal_units::CpuSet;

use super::{Check, CheckKind};

/// For how long a guest is watched.
const LENGTH: Duration = Duration::from_secs(3);
/// The part of all accesses that must go to the planned nodes. What a host does for a guest in the guest's own name (clock
/// pages, shared libraries of firmware) may lie elsewhere, and is less than that.
const PLANNED: f64 = 0.95;
/// Fewer accesses say nothing: an idle guest's are its kernel's alone, some millions in the time.
const LEAST: u64 = 10_000_000;
/// The same of loads that no cache answered, which is what processors tell.
const LEAST_LOADS: u64 = 100_000;

/// Watches the guest.
pub(super) fn look(files: &HostFs, guest: &GuestProcess) -> Result<GuestAccesses, String> {
    guest_accesses(files, guest, LENGTH).map_err(|error| error.to_string())
}

/// One check for the guest, and one for each of several cells.
pub(super) fn judge(placement: &Placement, seen: Option<&Result<GuestAccesses, String>>) -> Vec<Check> {
    let Some(seen) = seen.filter(|_| !placement.memory.nodes.is_empty()) else { return Vec::new() };
    let all = VcpusOf {
        subject: "memory that the vCPUs touch".to_owned(),
        vcpus: None,
        nodes: &placement.memory.nodes.iter().collect::<Vec<_>>(),
        least: PLANNED,
    };
    let mut checks = vec![all.judge(seen)];
    let cells = placement.cells.len();
    // A kernel that ignores its cells spreads its accesses evenly; one that heeds them does better than halfway from there.
    let heeded = f64::midpoint(1.0, 1.0 / cells as f64);
    for (number, cell) in placement.cells.iter().enumerate().filter(|_| cells > 1) {
        let subject = format!("memory that the vCPUs of cell {number} touch");
        let one = VcpusOf { subject, vcpus: Some(&cell.vcpus), nodes: &[cell.node], least: heeded };
        checks.push(one.judge(seen));
    }
    checks
}

/// Some vCPUs, and where their accesses are to go.
struct VcpusOf<'a> {
    subject: String,
    /// `None`: all of them.
    vcpus: Option<&'a CpuSet>,
    nodes: &'a [u32],
    /// The part of them that must.
    least: f64,
}

impl VcpusOf<'_> {
    fn judge(&self, seen: &Result<GuestAccesses, String>) -> Check {
        let nodes: Vec<String> = self.nodes.iter().map(u32::to_string).collect();
        let planned = format!("at least {:.0} % of accesses on node {}", self.least * 100.0, nodes.join(" or "));
        let cannot_tell =
            |why: String| Check::cannot_tell(CheckKind::Touched, self.subject.clone(), planned.clone(), why);
        let seen = match seen {
            Ok(seen) => seen,
            Err(why) => return cannot_tell(why.clone()),
        };
        let own = |one: &&VcpuAccesses| self.vcpus.is_none_or(|vcpus| one.vcpus.is_subset(vcpus));
        let own: Vec<&VcpuAccesses> = seen.vcpus.iter().filter(own).collect();
        let total = own.iter().fold(0, |sum: u64, one| sum.saturating_add(one.went.total()));
        if own.is_empty() {
            return cannot_tell(
                "its vCPUs share PUs with others of the guest, so that theirs cannot be told".to_owned(),
            );
        }
        let nears = own.iter().any(|one| matches!(one.went, Went::Near { .. }));
        let least = if nears { LEAST_LOADS } else { LEAST };
        if total < least {
            return cannot_tell(format!(
                "the guest was idle: {total} accesses in {:.1} s, and {least} are the least that say something; verify it while it works",
                seen.seconds
            ));
        }
        let Some((right, place)) = self.right(&own) else {
            return cannot_tell(
                "this processor tells local accesses from remote ones, and not which node they went to".to_owned(),
            );
        };
        let share = right as f64 / total as f64;
        let found = format!(
            "{:.1} % of {} in {:.1} s{}",
            share * 100.0,
            millions(total),
            seen.seconds,
            elsewhere(&own, self.nodes, total)
        );
        Check::compared(CheckKind::Touched, self.subject.clone(), planned.clone(), found, share >= self.least).at(place)
    }

    /// How many went where they are to go, and who says so. Loads that are only known to be local are on the planned node
    /// where there is one.
    fn right(&self, own: &[&VcpuAccesses]) -> Option<(u64, &'static str)> {
        let mut sum: u64 = 0;
        let mut place = "";
        for one in own {
            let (right, whose) = match &one.went {
                Went::Nodes(nodes) => {
                    let right = nodes.iter().filter(|(node, _)| self.nodes.contains(node));
                    (right.map(|(_, count)| *count).sum(), "the lab's counters")
                }
                Went::Near { local, .. } if self.nodes.len() == 1 => (*local, "perf_event_open: node-loads"),
                Went::Near { .. } => return None,
            };
            (sum, place) = (sum.saturating_add(right), whose);
        }
        Some((sum, place))
    }
}

/// Where the others went, the most first; nothing where there are none.
fn elsewhere(own: &[&VcpuAccesses], nodes: &[u32], total: u64) -> String {
    let mut others = std::collections::BTreeMap::<u32, u64>::new();
    for one in own {
        if let Went::Nodes(went) = &one.went {
            for (node, count) in went.iter().filter(|(node, _)| !nodes.contains(node)) {
                *others.entry(*node).or_default() += count;
            }
        }
    }
    let mut others: Vec<(u32, u64)> = others.into_iter().collect();
    others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let one = |(node, count): &(u32, u64)| format!("{:.1} % on node {node}", *count as f64 / total as f64 * 100.0);
    let words: Vec<String> = others.iter().map(one).collect();
    if words.is_empty() { String::new() } else { format!("; {}", words.join(", ")) }
}

fn millions(count: u64) -> String {
    if count < 1_000_000 { count.to_string() } else { format!("{:.1} million", count as f64 / 1e6) }
}

#[cfg(test)]
mod tests {
    use nearmetal_units::NodeSet;

    use super::*;
    use crate::tests::stage;
    use crate::verify::Outcome;

    fn vcpus(text: &str, went: Went) -> VcpuAccesses {
        VcpuAccesses { vcpus: text.parse().unwrap(), went }
    }

    fn nodes(counts: &[(u32, u64)]) -> Went {
        Went::Nodes(counts.iter().copied().collect())
    }

    fn judged(nodes: &str, cells: &[(&str, u32)], vcpus: Vec<VcpuAccesses>) -> Vec<Check> {
        let mut placement = stage::plan_file().plan.placements.swap_remove(0);
        placement.memory.nodes = nodes.parse::<NodeSet>().unwrap();
        placement.cells = cells
            .iter()
            .map(|(vcpus, node)| nearmetal_place::GuestCell {
                vcpus: vcpus.parse().unwrap(),
                memory: nearmetal_units::Bytes::from_mib(1),
                node: *node,
                distances: Vec::new(),
            })
            .collect();
        judge(&placement, Some(&Ok(GuestAccesses { seconds: 3.0, vcpus })))
    }

    #[test]
    fn accesses_elsewhere_are_a_mismatch_that_says_where() {
        let own = vcpus("0", nodes(&[(1, 90_000_000), (3, 9_000_000), (0, 1_000_000)]));
        let checks = judged("1", &[], vec![own]);
        assert_eq!((checks.len(), &checks[0].outcome), (1, &Outcome::Mismatch));
        assert_eq!(
            checks[0].found.as_deref(),
            Some("90.0 % of 100.0 million in 3.0 s; 9.0 % on node 3, 1.0 % on node 0")
        );
        let near = judged("1", &[], vec![vcpus("0", nodes(&[(1, 99_000_000), (3, 1_000_000)]))]);
        assert_eq!(near[0].outcome, Outcome::Ok, "{near:?}");
    }

    #[test]
    fn a_guest_that_ignores_its_cells_is_seen_where_all_its_pages_are_right() {
        let cells = [("0", 0), ("1", 1)];
        let even = || nodes(&[(0, 50_000_000), (1, 50_000_000)]);
        let checks = judged("0-1", &cells, vec![vcpus("0", even()), vcpus("1", even())]);
        let outcomes: Vec<_> = checks.iter().map(|check| &check.outcome).collect();
        assert_eq!(outcomes, [&Outcome::Ok, &Outcome::Mismatch, &Outcome::Mismatch]);
        assert_eq!(checks[1].planned, "at least 75 % of accesses on node 0");
        let heeds = vec![vcpus("0", nodes(&[(0, 80_000_000), (1, 20_000_000)])), vcpus("1", nodes(&[(1, 50_000_000)]))];
        assert!(judged("0-1", &cells, heeds).iter().all(|check| check.outcome == Outcome::Ok));
        let shared = judged("0-1", &cells, vec![vcpus("0-1", even())]);
        assert!(matches!(&shared[1].outcome, Outcome::CannotTell { why } if why.contains("share PUs")));
    }

    #[test]
    fn an_idle_guest_and_a_processor_without_nodes_are_no_verdict() {
        let idle = judged("1", &[], vec![vcpus("0", nodes(&[(3, 9_999_999)]))]);
        assert!(matches!(&idle[0].outcome, Outcome::CannotTell { why } if why.contains("verify it while it works")));
        let near = |local, remote| vec![vcpus("0", Went::Near { local, remote })];
        assert_eq!(judged("1", &[], near(990_000, 10_000))[0].outcome, Outcome::Ok);
        assert_eq!(judged("1", &[], near(90_000, 910_000))[0].outcome, Outcome::Mismatch);
        assert!(matches!(judged("0-1", &[], near(1, 99_999_900))[0].outcome, Outcome::CannotTell { .. }));
        let placement = stage::plan_file().plan.placements.swap_remove(0);
        let why = Err("the processor does not count node-loads".to_owned());
        assert!(matches!(&judge(&placement, Some(&why))[0].outcome, Outcome::CannotTell { .. }));
        assert!(judge(&placement, None).is_empty(), "--deep asks");
    }
}
