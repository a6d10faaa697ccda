//! Which PUs are online, and which came or went while something was counted.

use nearmetal_units::CpuSet;

use crate::HostFs;

/// The PUs that are online (Linux Documentation/admin-guide/cputopology.rst); `None` where the host does not tell.
pub fn online_pus(fs: &HostFs) -> Option<CpuSet> {
    fs.read("/sys/devices/system/cpu/online").ok()?.trim().parse().ok()
}

/// PUs that were not there all the time. What was counted on them is of a part of the time that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} {pus} {what} meanwhile, so nothing that was counted in that time holds: leave the PUs as they are, and measure again",
    if pus.len() == 1 { "PU" } else { "PUs" }
)]
pub struct PusChanged {
    /// Which.
    pub pus: CpuSet,
    /// What became of them.
    pub what: &'static str,
}

/// What became of the PUs between two looks.
///
/// # Errors
/// One went or came.
pub fn same_pus(before: Option<&CpuSet>, after: Option<&CpuSet>) -> Result<(), PusChanged> {
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    for (pus, what) in [(before.difference(after), "went offline"), (after.difference(before), "came online")] {
        if !pus.is_empty() {
            return Err(PusChanged { pus, what });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pus_that_came_or_went_are_named() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let between = |before, after| same_pus(Some(&set(before)), Some(&set(after))).map_err(|one| one.to_string());
        assert_eq!(between("0-11", "0-11"), Ok(()));
        let went = between("0-11", "0-4,6-11").unwrap_err();
        assert!(went.starts_with("PU 5 went offline meanwhile"), "{went}");
        assert!(between("0-1", "0-3").unwrap_err().starts_with("PUs 2-3 came online"));
        assert_eq!(same_pus(None, Some(&set("0"))), Ok(()), "a host that does not tell");
    }
}
