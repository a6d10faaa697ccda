//! Read-back of who pays for a guest: its QEMU is in the control group of this process, so that the job's limits hold for it and
//! its processor time and memory are charged to the job (cgroups(7)).

use nearmetal_change::verify::{Check, CheckKind};
use nearmetal_host::{HostFs, guests};

/// Whether something that differs from the plan is the job's own, which its guest has with it: weights and quotas of its control group
/// (the guest is in no other: [`read_back`]), and how the scheduler treats this process (batch systems start jobs with a nice value).
pub fn is_given(fs: &HostFs, check: &Check) -> bool {
    match check.kind {
        CheckKind::ProcessorTime => true,
        CheckKind::Scheduling => {
            let own = std::process::id();
            let threads = guests::threads(fs, own).unwrap_or_default();
            let own = threads.iter().find(|thread| thread.id == own).and_then(|thread| thread.scheduling);
            own.is_some_and(|own| check.found.as_ref() == Some(&own.to_string()))
        }
        _ => false,
    }
}

/// Compares the control groups of a guest's QEMU with those of this process, in every hierarchy.
///
/// # Errors
/// They differ, or one of them cannot be read.
pub fn read_back(fs: &HostFs, uuid: &str) -> Result<(), String> {
    let planned = "the guest's control group: expected this job's";
    let unseen = |why: String| format!("{planned}; could not be determined ({why})");
    let groups = |process: &str| {
        let text = fs.read(&format!("/proc/{process}/cgroup")).map_err(|error| unseen(error.to_string()))?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        Ok::<_, String>(lines)
    };
    let pid = guests::own_pid_of(fs, uuid).map_err(|error| unseen(error.to_string()))?;
    let pid = pid.ok_or_else(|| unseen("it has no QEMU process".to_owned()))?;
    let (own, found) = (groups("self")?, groups(&pid.to_string())?);
    if own.is_empty() {
        return Err(unseen("the kernel shows none".to_owned()));
    }
    match found.iter().find(|line| !own.contains(line)) {
        Some(other) => Err(format!("{planned}, found process {pid} in `{other}`")),
        None if found.len() < own.len() => Err(format!("{planned}, found process {pid} in some of them only")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_change::verify::Outcome;
    use nearmetal_host::{Entry, MemoryTree};

    #[test]
    fn what_the_job_has_itself_is_no_difference_and_anything_else_is() {
        let own = std::process::id();
        let mut tree = MemoryTree::new();
        let nice = "S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 39 19 5 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0\n";
        for (name, text) in [("stat", format!("{own} (nearmetal) {nice}")), ("comm", "nearmetal\n".to_owned())] {
            tree.put(&format!("/proc/{own}/task/{own}/{name}"), Entry::File(text.into_bytes())).unwrap();
        }
        let fs = HostFs::of_tree(tree, "test");
        let is_given = |kind, found: Option<&str>| {
            let (subject, planned, found) = ("x".to_owned(), "y".to_owned(), found.map(str::to_owned));
            is_given(&fs, &Check { subject, kind, planned, found, outcome: Outcome::Mismatch, place: None })
        };
        assert!(is_given(CheckKind::Scheduling, Some("SCHED_OTHER nice 19")));
        assert!(is_given(CheckKind::ProcessorTime, Some("50000 of 100000")));
        for (kind, found) in [
            (CheckKind::Scheduling, Some("SCHED_OTHER nice 18")),
            (CheckKind::Scheduling, None),
            (CheckKind::Vcpu, Some("0-11")),
            (CheckKind::Memory, Some("node 1")),
        ] {
            assert!(!is_given(kind, found), "{kind:?} {found:?}");
        }
    }

    const UUID: &str = "11111111-2222-4333-8444-555555555555";

    #[test]
    fn a_guest_outside_of_the_job_is_found() {
        let look = |own: &str, qemu: Option<&str>| {
            let mut tree = MemoryTree::new();
            let mut put = |path: &str, text: &str| tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
            put("/proc/self/cgroup", own);
            if let Some(qemu) = qemu {
                put("/proc/70/cmdline", &format!("qemu-system-x86_64\0-name\0guest=run-job-1\0-uuid\0{UUID}\0"));
                put("/proc/70/cgroup", qemu);
            }
            read_back(&HostFs::of_tree(tree, "test"), UUID)
        };
        look("0::/job\n", Some("0::/job\n")).unwrap();
        look("2:memory:/job\n1:name=systemd:/x\n", Some("1:name=systemd:/x\n2:memory:/job\n")).unwrap();
        for (own, qemu, says) in [
            ("0::/job\n", Some("0::/machine.slice/x\n"), "found process 70 in `0::/machine.slice/x`"),
            ("2:memory:/job\n1:cpu:/job\n", Some("1:cpu:/job\n"), "in some of them only"),
            ("0::/job\n", None, "no QEMU process"),
            ("", Some(""), "the kernel shows none"),
        ] {
            let found = look(own, qemu).unwrap_err();
            assert!(found.contains(says), "{found}");
        }
    }
}
