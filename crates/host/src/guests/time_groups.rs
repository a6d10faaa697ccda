//! Control groups that deal out processor time to the threads of a guest.
//!
//! Documentation/admin-guide/cgroup-v2.rst (`cpu.weight`, `cpu.max`), cgroup-v1 and scheduler/sched-bwc.rst (`cpu.shares`,
//! `cpu.cfs_quota_us`, `cpu.cfs_period_us`).

use std::collections::BTreeMap;

use crate::facts::Facts;
use crate::parse::{Parsed, malformed, number};
use crate::{CpuQuota, CpuTimeGroup, Thread, ThreadRole};

/// Where version 2 is mounted.
const UNIFIED: &str = "/sys/fs/cgroup";

/// Where a thread is: the mount point of the hierarchy that has the CPU controller, and its path there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    root: String,
    version: u32,
    path: String,
}

/// The groups of these threads and all above them, the root left out.
pub(super) fn read(facts: &mut Facts<'_>, pid: u32, threads: &[Thread]) -> Vec<CpuTimeGroup> {
    let mut members: BTreeMap<Place, Vec<u32>> = BTreeMap::new();
    for thread in threads {
        // Right for threads of QEMU; the kernel's vhost threads before Linux 6.4 are no threads of it.
        let own = format!("/proc/{pid}/task/{}/cgroup", thread.id);
        let mut text = facts.text(&own);
        if text.is_none() && thread.role == ThreadRole::Vhost {
            text = facts.text(&format!("/proc/{}/cgroup", thread.id));
        }
        let Some(place) = text.as_deref().and_then(place) else { continue };
        let mut above = place.path.as_str();
        while let Some((parent, _)) = above.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            members.entry(Place { path: parent.to_owned(), ..place.clone() }).or_default();
            above = parent;
        }
        if !place.path.is_empty() {
            members.entry(place).or_default().push(thread.id);
        }
    }
    members.into_iter().filter_map(|(place, threads)| group(facts, place, threads)).collect()
}

/// What `/proc/PID/task/TID/cgroup` says: `4:cpu,cpuacct:/path` where version 1 has the controller, else `0::/path`.
pub(super) fn place(text: &str) -> Option<Place> {
    let mut unified = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let path = path.trim_end_matches('/').to_owned();
        if controllers.split(',').any(|controller| controller == "cpu") {
            return Some(Place { root: format!("{UNIFIED}/{controllers}"), version: 1, path });
        }
        if (number, controllers) == ("0", "") {
            unified = Some(Place { root: UNIFIED.to_owned(), version: 2, path });
        }
    }
    unified
}

fn group(facts: &mut Facts<'_>, place: Place, threads: Vec<u32>) -> Option<CpuTimeGroup> {
    let directory = format!("{}{}", place.root, place.path);
    let (weight, quota) = match place.version {
        1 => {
            let period = facts.optional(&format!("{directory}/cpu.cfs_period_us"), number);
            let quota = facts.optional(&format!("{directory}/cpu.cfs_quota_us"), old_quota);
            let quota = match (quota, period) {
                (Some(None), _) => Some(CpuQuota::Unlimited),
                (Some(Some(quota)), Some(period)) => Some(CpuQuota::Limited { quota, period }),
                _ => None,
            };
            (facts.optional(&format!("{directory}/cpu.shares"), number), quota)
        }
        _ => (
            facts.optional(&format!("{directory}/cpu.weight"), number),
            facts.optional(&format!("{directory}/cpu.max"), quota),
        ),
    };
    // Without the controller it has neither file, and its threads have what a group above has.
    (weight.is_some() || quota.is_some()).then_some(CpuTimeGroup {
        path: place.path,
        version: place.version,
        threads,
        weight,
        quota,
    })
}

/// `max 100000`, or `50000 100000`.
pub(super) fn quota(text: &str) -> Parsed<CpuQuota> {
    match text.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["max", period] => number(period).map(|_| CpuQuota::Unlimited),
        [quota, period] => Ok(CpuQuota::Limited { quota: number(quota)?, period: number(period)? }),
        _ => malformed("expected a quota and a period"),
    }
}

/// `-1` is no limit.
fn old_quota(text: &str) -> Parsed<Option<u64>> {
    if text == "-1" { Ok(None) } else { number(text).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_the_cpu_controller_is() {
        let found = |text: &str| place(text).map(|place| (place.root, place.version, place.path));
        let unified = "0::/machine.slice/a.scope/libvirt/vcpu0\n";
        assert_eq!(found(unified), Some((UNIFIED.to_owned(), 2, "/machine.slice/a.scope/libvirt/vcpu0".to_owned())));
        let hybrid = format!("5:cpuset:/x\n4:cpu,cpuacct:/machine/a:b\n{unified}");
        assert_eq!(found(&hybrid), Some(("/sys/fs/cgroup/cpu,cpuacct".to_owned(), 1, "/machine/a:b".to_owned())));
        assert_eq!(found("5:cpuset:/x\n"), None);
        assert_eq!(found("0::/\n").unwrap().2, "");
    }

    #[test]
    fn no_limit_is_a_word_and_never_a_number() {
        assert_eq!(quota("max 100000"), Ok(CpuQuota::Unlimited));
        assert_eq!(quota("50000 100000").unwrap().to_string(), "50000 of each 100000 µs");
        assert_eq!((old_quota("-1"), old_quota("7")), (Ok(None), Ok(Some(7))));
        for junk in ["", "max", "max max", "50000", "-1 100000", "1 2 3"] {
            assert!(quota(junk).is_err(), "{junk}");
        }
    }
}
