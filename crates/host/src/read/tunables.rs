//! Numbers under /proc/sys, packet filters of bridges, tuned's profile, swap, uptime.

use nearmetal_units::Bytes;

use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed, number, signed, unescaped};
use crate::{ReadError, SwapArea, Sysctl, TunedProfile};

/// Documentation/admin-guide/sysctl/kernel.rst and vm.rst.
const SYSCTLS: [&str; 5] = [
    "kernel.nmi_watchdog",
    "kernel.sched_rt_runtime_us",
    "kernel.split_lock_mitigate",
    "kernel.timer_migration",
    "vm.stat_interval",
];

/// Documentation/networking/ip-sysctl.rst, /proc/sys/net/bridge/*.
const BRIDGE_FILTERS: [&str; 3] = [
    "net.bridge.bridge-nf-call-arptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
];

pub(super) fn sysctls(facts: &mut Facts<'_>) -> Vec<Sysctl> {
    SYSCTLS.iter().filter_map(|name| sysctl(facts, name)).collect()
}

fn sysctl(facts: &mut Facts<'_>, name: &str) -> Option<Sysctl> {
    let value = facts.optional(&Sysctl::path_of(name), signed)?;
    Some(Sysctl { name: name.to_owned(), value })
}

/// The directory appears with the module. Its absence is an answer only where the directory above it is there.
pub(super) fn bridge_filters(facts: &mut Facts<'_>) -> Option<Vec<Sysctl>> {
    let families = facts.list("/proc/sys/net");
    if families.is_empty() {
        return None;
    }
    match families.iter().any(|family| family == "bridge") {
        true => Some(BRIDGE_FILTERS.iter().filter_map(|name| sysctl(facts, name)).collect()),
        false => Some(Vec::new()),
    }
}

/// tuned writes the names of the profiles it was told to use, and an empty file for none (tuned/utils/profile_recommender
/// and daemon.py: `ACTIVE_PROFILE_FILE`).
pub(super) fn tuned(facts: &mut Facts<'_>) -> Option<TunedProfile> {
    match facts.fs.read("/etc/tuned/active_profile") {
        Ok(text) if text.trim().is_empty() => Some(TunedProfile::None),
        Ok(text) => Some(TunedProfile::Active(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))),
        Err(ReadError::Missing { .. }) if facts.fs.exists("/etc/tuned") => Some(TunedProfile::None),
        // A source of /sys and /proc alone says nothing of it.
        Err(ReadError::Missing { .. }) => facts.fs.exists("/etc").then_some(TunedProfile::Absent),
        Err(error) => {
            facts.note(error);
            None
        }
    }
}

pub(super) fn swap(facts: &mut Facts<'_>) -> Option<Vec<SwapArea>> {
    let text = facts.text("/proc/swaps")?;
    facts.noted(parsed("/proc/swaps", &text, swap_areas))
}

/// A heading, then `NAME TYPE SIZE USED PRIORITY` with sizes in KiB.
pub(super) fn swap_areas(text: &str) -> Parsed<Vec<SwapArea>> {
    let Some(text) = text.strip_suffix('\n') else { return malformed("cut off: the last line has no newline") };
    let mut lines = text.lines();
    if !lines.next().is_some_and(|heading| heading.starts_with("Filename")) {
        return malformed("expected a heading that begins with `Filename`");
    }
    let area = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [name, _, size, used, _] => Ok(SwapArea {
                name: unescaped(name),
                size: Bytes::from_kib(number(size)?),
                used: Bytes::from_kib(number(used)?),
            }),
            _ => malformed(format!("expected 5 fields in `{line}`")),
        }
    };
    lines.map(area).collect()
}

/// Whole seconds of `12704.28 5964.14`.
pub(super) fn uptime(text: &str) -> Parsed<u64> {
    match text.split_once('.') {
        Some((seconds, _)) => number(seconds),
        None => malformed("expected seconds since boot"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_areas_are_rows_under_a_heading() {
        let text = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0  partition\t8388604\t0\t100\n\
                    /swap\\040file  file\t1048572\t1024\t-2\n";
        let areas = swap_areas(text).unwrap();
        assert_eq!((areas[0].is_memory(), areas[1].is_memory(), areas[1].name.as_str()), (true, false, "/swap file"));
        assert_eq!(areas[1].used, Bytes::from_mib(1));
        assert_eq!(swap_areas("Filename Type Size Used Priority\n"), Ok(Vec::new()));
        for junk in ["", "Filename", "no such thing\n", "Filename\n/dev/sda2 partition 1\n", "Filename\na b c d e\n"] {
            assert!(swap_areas(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn uptime_is_its_whole_seconds() {
        assert_eq!(uptime("12704.28 5964.14"), Ok(12_704));
        for junk in ["", "12704", "-1.5 2", "no such thing"] {
            assert!(uptime(junk).is_err(), "{junk:?}");
        }
    }
}
