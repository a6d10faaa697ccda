//! What this process was given of the machine: by a batch system's cpuset and memory limit, by taskset, or by nobody, and
//! then it is all.
//!
//! `Cpus_allowed_list` and `Mems_allowed_list` of /proc/self/status (proc.rst) hold cpusets and affinity alike. Limits of
//! memory are in the control groups above the process (cgroup-v2.rst, `memory.max`; v1, `memory.limit_in_bytes`).

use nearmetal_host::{HostFs, ReadError};
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::reservation::{LONGEST_PATH, is_plain};

/// A limit of cgroup v1 that means none: it is rounded down to pages from the largest i64.
const UNLIMITED: u64 = i64::MAX as u64 - (1 << 20);
/// Control groups above each other that are looked at.
const DEEPEST: usize = 64;
const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// PUs, nodes and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// PUs its threads may run on.
    pub cpus: CpuSet,
    /// Nodes its memory may come from.
    pub nodes: NodeSet,
    /// The limits of memory above it, the nearest first.
    pub memory: Vec<MemoryLimit>,
}

/// A limit, and who sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimit {
    /// How much.
    pub bytes: Bytes,
    /// The file that says so.
    pub file: String,
    /// Device and inode of its control group. Every container may have its own limit at the same path. `None` in a capture.
    pub group: Option<String>,
}

impl Given {
    /// Reads what this process has.
    ///
    /// # Errors
    /// A file of the kernel cannot be read, or is not understood: nothing is taken for granted then.
    pub fn read(fs: &HostFs) -> Result<Self, RunError> {
        Self::of(fs, "self")
    }

    /// Reads what a process has. `process`: its directory in /proc.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn of(fs: &HostFs, process: &str) -> Result<Self, RunError> {
        let status = fs.read(&format!("/proc/{process}/status")).map_err(unreadable)?;
        let (cpus, nodes) = allowed(&status).map_err(RunError::Given)?;
        let groups = fs.read(&format!("/proc/{process}/cgroup")).map_err(unreadable)?;
        let mut memory = Vec::new();
        for (group, name) in groups_above(&groups, second_version(fs)).map_err(RunError::Given)? {
            let file = format!("{group}/{name}");
            writable_down(&file).map_err(RunError::Given)?;
            let text = match fs.read(&file) {
                Ok(text) => text,
                // The root has no limit, nor has a group whose parent does not share memory out (cgroup.subtree_control).
                Err(ReadError::Missing { .. }) if is_root(&group) || fs.exists(&group) => continue,
                Err(ReadError::Missing { .. }) => {
                    let hint = "limits above this process cannot be told: show this container all of /sys/fs/cgroup";
                    return Err(RunError::Given(format!("its control group `{group}` is not there; {hint}")));
                }
                Err(error) => return Err(unreadable(error)),
            };
            let limit = limit(&text).map_err(|why| RunError::Given(format!("`{file}`: {why}")))?;
            if let Some(bytes) = limit {
                let group = fs.identity(&group).map(|(device, inode)| format!("{device}:{inode}"));
                memory.push(MemoryLimit { bytes, file, group });
            }
        }
        Ok(Self { cpus, nodes, memory })
    }

    /// The files of its limits, for a reservation.
    pub fn limit_files(&self) -> Vec<String> {
        self.memory.iter().map(|limit| limit.file.clone()).collect()
    }

    /// The control groups of its limits, for a reservation; none if one of them is unknown.
    pub fn limit_groups(&self) -> Vec<String> {
        self.memory.iter().map(|limit| limit.group.clone()).collect::<Option<_>>().unwrap_or_default()
    }
}

/// Whether a reservation can hold the path of a limit: what others read of it they may show and compare.
fn writable_down(file: &str) -> Result<(), String> {
    if is_plain(file, LONGEST_PATH) {
        return Ok(());
    }
    let shown: String = file.escape_default().take(200).collect();
    Err(format!(
        "its control group's limit `{shown}` has a path of more than {LONGEST_PATH} characters, or with others than printable ASCII: \
         start it in another group"
    ))
}

fn unreadable(error: ReadError) -> RunError {
    RunError::Given(error.to_string())
}

/// PUs and nodes of a status file.
pub(crate) fn allowed(status: &str) -> Result<(CpuSet, NodeSet), String> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim).ok_or_else(|| format!("the status of its process has no `{name}`"))
    };
    let cpus: CpuSet = field("Cpus_allowed_list:")?.parse().map_err(|error| format!("{error}"))?;
    let nodes: NodeSet = field("Mems_allowed_list:")?.parse().map_err(|error| format!("{error}"))?;
    if cpus.is_empty() {
        return Err("the status of its process allows no PU".to_owned());
    }
    Ok((cpus, nodes))
}

/// Where the second version of control groups is: beside the first in some systems (systemd's hybrid mode).
fn second_version(fs: &HostFs) -> &'static str {
    if fs.exists("/sys/fs/cgroup/unified") { "/sys/fs/cgroup/unified" } else { V2 }
}

fn is_root(group: &str) -> bool {
    [V1, V2, "/sys/fs/cgroup/unified"].contains(&group)
}

/// The control groups above a process that may limit its memory, the nearest first, and the name of the limit's file. `v2`: where
/// their second version is.
pub(crate) fn groups_above(groups: &str, v2: &'static str) -> Result<Vec<(String, &'static str)>, String> {
    let is_v1 = |controllers: &str| controllers.split(',').any(|controller| controller == "memory");
    // A controller is in one version alone.
    let first_version = groups.lines().filter_map(|line| line.split(':').nth(1)).any(is_v1);
    let mut files = Vec::new();
    for line in groups.lines() {
        // hierarchy:controllers:path
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (root, name) = match controllers {
            "" if !first_version => (v2, "memory.max"),
            v1 if is_v1(v1) => (V1, "memory.limit_in_bytes"),
            _ => continue,
        };
        // It leads out of what this process is shown, so that its limits cannot be read (cgroup_namespaces(7)).
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(format!("its control group `{path}` lies outside of what /sys/fs/cgroup shows here"));
        }
        let mut path = path.trim_end_matches('/');
        for _ in 0..DEEPEST {
            files.push((format!("{root}{path}"), name));
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    Ok(files)
}

/// What a limit file says; `None` for no limit.
pub(crate) fn limit(text: &str) -> Result<Option<Bytes>, String> {
    match text.trim() {
        "max" => Ok(None),
        number => match number.parse::<u64>() {
            Ok(bytes) if bytes >= UNLIMITED => Ok(None),
            Ok(bytes) => Ok(Some(Bytes::new(bytes))),
            Err(_) => Err(format!("`{}` is not a limit", number.chars().take(40).collect::<String>())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::{Entry, MemoryTree};

    fn given(files: &[(&str, &str)]) -> Result<Given, RunError> {
        let mut tree = MemoryTree::new();
        for (path, text) in files {
            tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        Given::read(&HostFs::of_tree(tree, "test"))
    }

    const STATUS: (&str, &str) = ("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t2-5\nMems_allowed_list:\t0,2\n");

    #[test]
    fn every_limit_of_memory_above_is_read() {
        let given = given(&[
            STATUS,
            ("/proc/self/cgroup", "0::/slurm/job7/step\n"),
            ("/sys/fs/cgroup/slurm/job7/step/memory.max", "max\n"),
            ("/sys/fs/cgroup/slurm/job7/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/slurm/memory.max", "4294967296\n"),
        ])
        .unwrap();
        assert_eq!((given.cpus.to_string().as_str(), given.nodes.to_string().as_str()), ("2-5", "0,2"));
        let limits: Vec<_> = given.memory.iter().map(|limit| (limit.bytes, limit.file.as_str())).collect();
        let (job, slurm) = ("/sys/fs/cgroup/slurm/job7/memory.max", "/sys/fs/cgroup/slurm/memory.max");
        assert_eq!(limits, [(Bytes::from_mib(1024), job), (Bytes::from_mib(4096), slurm)]);
    }

    #[test]
    fn the_first_version_of_control_groups_is_understood_too() {
        let groups = ("/proc/self/cgroup", "4:cpu,memory:/job\n1:name=systemd:/x\n");
        let limit = |text| {
            let given = given(&[STATUS, groups, ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", text)]);
            given.unwrap().memory.first().map(|memory| memory.bytes)
        };
        assert_eq!(limit("2097152\n"), Some(Bytes::from_mib(2)));
        assert_eq!(limit("9223372036854771712\n"), None);
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_taken_for_everything() {
        let root = ("/proc/self/cgroup", "0::/\n");
        assert_eq!(given(&[STATUS, root]).unwrap().memory, []);
        for files in [
            vec![root],
            vec![("/proc/self/status", "Cpus_allowed_list:\t\nMems_allowed_list:\t0\n"), root],
            vec![("/proc/self/status", "Cpus_allowed_list:\tx\nMems_allowed_list:\t0\n"), root],
            vec![STATUS, ("/proc/self/cgroup", "0::/a\n"), ("/sys/fs/cgroup/a/memory.max", "lots\n")],
            vec![STATUS],
            vec![STATUS, ("/proc/self/cgroup", "0::/../../job\n")],
        ] {
            assert!(matches!(given(&files), Err(RunError::Given(_))), "{files:?}");
        }
    }

    #[test]
    fn a_path_that_leads_upwards_is_refused() {
        assert!(groups_above("0::/../x\nnonsense\n", V2).is_err());
        assert_eq!(groups_above("nonsense\n0::/\n", V2).unwrap(), [(V2.to_owned(), "memory.max")]);
    }

    #[test]
    fn a_group_that_is_not_there_is_refused_and_one_without_a_limit_has_none() {
        let group = ("/proc/self/cgroup", "0::/docker/job\n");
        let error = given(&[STATUS, group]).unwrap_err().to_string();
        assert!(error.contains("`/sys/fs/cgroup/docker/job` is not there"), "{error}");
        // The memory of this one is not limited by itself; that of the one above it is.
        let (job, docker) = ("/sys/fs/cgroup/docker/job/cgroup.procs", "/sys/fs/cgroup/docker/memory.max");
        let limits = given(&[STATUS, group, (job, "7\n"), (docker, "1048576\n")]).unwrap().memory;
        assert_eq!(limits, [MemoryLimit { bytes: Bytes::from_mib(1), file: docker.to_owned(), group: None }]);
        // What others could not read in a reservation would keep them all from choosing.
        for name in ["\u{e9}", "\u{1b}[2J", "a\nb"] {
            let (status, limit) =
                (("/proc/self/cgroup", format!("0::/{name}\n")), format!("/sys/fs/cgroup/{name}/memory.max"));
            let refused = self::given(&[STATUS, (status.0, &status.1), (&limit, "7\n")]);
            assert!(refused.is_err(), "{name:?}: {refused:?}");
        }
        // Both versions at once: memory is in the first, and the second has its place beside it.
        let groups = ("/proc/self/cgroup", "9:memory:/job\n0::/user.slice\n");
        let v1 = ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n");
        assert_eq!(given(&[STATUS, groups, v1]).unwrap().memory.len(), 1);
        let (groups, v2) = (("/proc/self/cgroup", "0::/x\n"), ("/sys/fs/cgroup/unified/x/memory.max", "1048576\n"));
        assert_eq!(given(&[STATUS, groups, v2]).unwrap().memory[0].file, v2.0);
    }
}
