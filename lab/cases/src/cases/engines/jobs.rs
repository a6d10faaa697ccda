//! The jobs, the same for each engine.

use anyhow::Context as _;

/// A job that starts one guest.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Its name, and that of its files.
    pub(super) name: String,
    /// Who it runs as. A run of `farm` is a session inside the job's control group; root's is the system's.
    pub(super) user: &'static str,
    /// Whether the guest is the system's libvirt's: of root, or of the service, for a user.
    pub(super) system: bool,
    pub(super) flavour: &'static str,
    /// CPUs that the engine is asked for.
    pub(super) cpus: u32,
    /// MiB that it is asked for: the guest's memory, and as much for QEMU and libvirt.
    pub(super) memory: u32,
    /// What the guest's shell runs: no quotes and no `$`, which engines have meanings of their own for.
    pub(super) command: &'static str,
    /// How it ends at last.
    pub(super) end: End,
}

/// How a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its command, with this code.
    Code(i32),
    /// Somebody removes it.
    Removed,
}

/// The jobs that something is done to.
pub(super) const REMOVED: &str = "removed";
/// Has a host of its own when something more urgent comes, and runs once more.
pub(super) const PREEMPTED: &str = "preempted";
/// Wants that host.
pub(super) const URGENT: &str = "urgent";
/// Is held from the start, and released.
pub(super) const HELD: &str = "held";
/// Runs while the engine's daemons are restarted, and is removed then.
pub(super) const RESTARTED: &str = "restarted";
/// Runs for a while.
pub(super) const LONG: &str = "long";
/// More vCPUs than a node has.
pub(super) const WIDE: &str = "wide";
/// Wants both hosts at once, where an engine has such jobs.
pub(super) const BOTH: &str = "both";
/// So many jobs, unless others are asked for: `./dev farm` asks for forty.
const USUAL: usize = 15;
/// Variable that says how many.
const COUNT: &str = "NEARMETAL_FARM_JOBS";

/// All of them, `removed`, `long`, `restarted` and `preempted` first: they are to run at once.
pub(super) fn of_number(count: usize) -> Vec<Job> {
    let job = |name: &str, flavour, cpus, command| {
        let memory = if flavour == "wide" { 1024 } else { 512 };
        Job { name: name.to_owned(), user: "farm", system: false, flavour, cpus, memory, command, end: End::Code(0) }
    };
    let root = |name, flavour, cpus| Job { user: "root", system: true, ..job(name, flavour, cpus, "exit 0") };
    let mut jobs = vec![
        Job { end: End::Removed, ..job(REMOVED, "tiny", 2, "sleep 900") },
        job(LONG, "tiny", 2, "sleep 60"),
        Job { end: End::Removed, ..job(RESTARTED, "tiny", 2, "sleep 3600") },
        // The whole of a host.
        job(PREEMPTED, "tiny", 6, "sleep 120"),
        job(HELD, "tiny", 2, "exit 0"),
        Job { end: End::Code(7), ..job("fails", "tiny", 2, "exit 7") },
        job(WIDE, "wide", 6, "nproc | grep -qx 4"),
        root("as-root", "tiny", 2),
        Job { system: true, ..job("pages", "pages", 3, "exit 0") },
        Job { system: true, ..job("function", "function", 2, "grep -qx 0x10ca /sys/bus/pci/devices/*/device") },
        job(BOTH, "tiny", 2, "exit 0"),
        job(URGENT, "tiny", 6, "exit 0"),
    ];
    for number in jobs.len() + 1..=count {
        let (flavour, cpus, command) =
            if number % 3 == 0 { ("pair", 3, "nproc | grep -qx 2") } else { ("tiny", 2, "nproc | grep -qx 1") };
        jobs.push(job(&format!("plain-{number}"), flavour, cpus, command));
    }
    jobs
}

/// Variable that has all jobs run as root, for a nearmetal whose runs take root.
const AS_ROOT: &str = "NEARMETAL_FARM_AS_ROOT";

/// As many as are wanted, or all of them as root where that is asked for.
pub(super) fn wanted() -> anyhow::Result<Vec<Job>> {
    let count = match std::env::var(COUNT) {
        Ok(text) => text.parse().ok().filter(|count| *count >= USUAL),
        Err(_) => Some(USUAL),
    };
    let mut jobs = of_number(count.with_context(|| format!("{COUNT}: a number from {USUAL} up"))?);
    if std::env::var_os(AS_ROOT).is_some() {
        jobs.iter_mut().for_each(|job| (job.user, job.system) = ("root", true));
    }
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_names_of_their_own_and_want_more_than_two_hosts_have() {
        let jobs = of_number(USUAL);
        let names: std::collections::BTreeSet<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!((jobs.len(), names.len()), (USUAL, USUAL));
        assert!(jobs.iter().map(|job| job.cpus).sum::<u32>() > 3 * 2 * 6);
        assert!(jobs.iter().any(|job| job.flavour == "pair") && jobs.iter().all(|job| job.cpus <= 6));
        assert!(jobs.iter().all(|job| !job.command.contains(['$', '\'', '"'])));
    }
}
