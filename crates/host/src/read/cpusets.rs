//! Control groups that limit PUs or nodes.
//!
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst. Both may be mounted at once.

use nearmetal_units::{CpuSet, NodeSet};

use crate::Cpuset;
use crate::facts::Facts;
use crate::parse::{cpu_list, node_list, word};

/// libvirt's deepest is /machine.slice/machine-qemu….scope/libvirt/vcpu0.
const DEEPEST: usize = 6;

/// A host of a thousand containers has some thousand groups; a damaged capture could have any number.
const MOST: usize = 20_000;

struct Version {
    number: u32,
    root: &'static str,
    cpus: &'static str,
    nodes: &'static str,
    effective_cpus: &'static str,
    effective_nodes: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        number: 2,
        root: "/sys/fs/cgroup",
        cpus: "cpuset.cpus",
        nodes: "cpuset.mems",
        effective_cpus: "cpuset.cpus.effective",
        effective_nodes: "cpuset.mems.effective",
    },
    Version {
        number: 1,
        root: "/sys/fs/cgroup/cpuset",
        cpus: "cpuset.cpus",
        nodes: "cpuset.mems",
        effective_cpus: "cpuset.effective_cpus",
        effective_nodes: "cpuset.effective_mems",
    },
];

pub(super) fn read(facts: &mut Facts<'_>) -> Vec<Cpuset> {
    let mut found = Vec::new();
    for version in &VERSIONS {
        // The root of version 2 has the effective sets alone; below a hybrid one lies version 1's own root.
        let is_version = match version.number {
            2 => facts.fs.exists("/sys/fs/cgroup/cgroup.controllers"),
            _ => facts.fs.exists(&format!("{}/{}", version.root, version.cpus)),
        };
        if is_version {
            walk(facts, version, "", 0, &mut 0, &mut found);
        }
    }
    found.sort_by(|left, right| (&left.path, left.version).cmp(&(&right.path, right.version)));
    found
}

fn walk(facts: &mut Facts<'_>, version: &Version, path: &str, depth: usize, seen: &mut usize, found: &mut Vec<Cpuset>) {
    *seen += 1;
    let directory = format!("{}{path}", version.root);
    let names = facts.list(&directory);
    let has = |name: &str| names.iter().any(|other| other == name);
    if has(version.cpus) {
        let cpus = facts.optional(&format!("{directory}/{}", version.cpus), cpu_list);
        let nodes = facts.optional(&format!("{directory}/{}", version.nodes), node_list);
        // A group that asks for nothing has what its parent has; the root has everything.
        if depth > 0
            && (cpus.as_ref().is_some_and(|set: &CpuSet| !set.is_empty())
                || nodes.as_ref().is_some_and(|set: &NodeSet| !set.is_empty()))
        {
            found.push(Cpuset {
                path: path.to_owned(),
                version: version.number,
                cpus,
                effective_cpus: facts.optional(&format!("{directory}/{}", version.effective_cpus), cpu_list),
                nodes,
                effective_nodes: facts.optional(&format!("{directory}/{}", version.effective_nodes), node_list),
                partition: partition(facts, &directory, version),
                spread_page: spread(facts, &directory, version, "page"),
                spread_slab: spread(facts, &directory, version, "slab"),
            });
        }
    } else if depth > 0 {
        // Controllers are given downwards: no group below has one either.
        return;
    }
    if depth == DEEPEST {
        return;
    }
    for name in names {
        // Files are `controller.name`; groups of systemd end in .slice, .scope and .service.
        let below = format!("{path}/{name}");
        if *seen < MOST && facts.fs.exists(&format!("{}{below}/cgroup.procs", version.root)) {
            walk(facts, version, &below, depth + 1, seen, found);
        }
    }
}

fn spread(facts: &mut Facts<'_>, directory: &str, version: &Version, what: &str) -> Option<bool> {
    let path = format!("{directory}/cpuset.memory_spread_{what}");
    (version.number == 1).then(|| facts.optional(&path, crate::parse::flag)).flatten()
}

fn partition(facts: &mut Facts<'_>, directory: &str, version: &Version) -> Option<String> {
    match version.number {
        2 => facts.optional(&format!("{directory}/cpuset.cpus.partition"), word),
        _ => {
            let exclusive = facts.optional(&format!("{directory}/cpuset.cpu_exclusive"), crate::parse::flag)?;
            Some(if exclusive { "exclusive" } else { "member" }.to_owned())
        }
    }
}
