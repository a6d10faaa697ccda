//! Single files of /etc, for hosts without tuned.

use nearmetal_host::Host;

use crate::collect::{Collected, Settings};
use crate::drives::{Pattern, schedulers};
use crate::target::Target;
use crate::{ExportFile, Input};

/// First line of each file.
pub(crate) const WRITTEN: &str =
    "# Written by `nearmetal doctor export`. `nearmetal doctor --explain RULE` tells about a rule.\n";

/// The files that have something in them.
pub(crate) fn files(input: &Input<'_>, collected: &Collected) -> Vec<ExportFile> {
    let all = [
        ("sysctl.d/90-nearmetal.conf", sysctl(collected)),
        ("modprobe.d/nearmetal.conf", modprobe(collected)),
        ("modules-load.d/nearmetal.conf", lines(&collected.modules, |name, ()| name.clone())),
        ("tmpfiles.d/nearmetal.conf", tmpfiles(input.host, collected)),
        ("udev/rules.d/90-nearmetal.rules", udev(input.host, collected)),
    ];
    let some = all.into_iter().filter(|(_, text)| !text.is_empty());
    some.map(|(path, text)| ExportFile::new(path, format!("{WRITTEN}{text}"))).collect()
}

/// Each setting with its rules in a comment above it.
fn lines<K: Ord, V>(settings: &Settings<K, V>, line: impl Fn(&K, &V) -> String) -> String {
    settings.iter().map(|(key, wanted)| format!("\n# {}\n{}\n", wanted.why(), line(key, &wanted.value))).collect()
}

fn sysctl(collected: &Collected) -> String {
    let lines = collected.files.iter().filter_map(|(target, wanted)| match target {
        Target::Sysctl(name) => Some(format!("\n# {}\n{name} = {}\n", wanted.why(), wanted.value)),
        _ => None,
    });
    lines.collect()
}

/// Both kinds of parameters: those that are written while the module is loaded too.
fn modprobe(collected: &Collected) -> String {
    let writable = collected.files.iter().filter_map(|(target, wanted)| match target {
        Target::Parameter { module, parameter } => {
            Some(format!("\n# {}\noptions {module} {parameter}={}\n", wanted.why(), wanted.value))
        }
        _ => None,
    });
    let loaded =
        lines(&collected.parameters, |(module, parameter), value| format!("options {module} {parameter}={value}"));
    writable.chain([loaded]).collect()
}

/// Files of /sys; tmpfiles.d(5) calls writing `w`.
fn tmpfiles(host: &Host, collected: &Collected) -> String {
    let mut text = String::new();
    let mut add = |path: &str, value: &str, why: &str| text.push_str(&format!("\n# {why}\nw {path} - - - - {value}\n"));
    for (target, wanted) in &collected.files {
        let path = match target {
            Target::HugepagesEnabled => "/sys/kernel/mm/transparent_hugepage/enabled",
            Target::HugepagesDefrag => "/sys/kernel/mm/transparent_hugepage/defrag",
            Target::Sysfs(path) => path,
            _ => continue,
        };
        add(path, &wanted.value, &wanted.why());
    }
    for governors in governors(host, collected) {
        let pus = governors.pus.map_or_else(|| vec!["*".to_owned()], |pus| pus.iter().map(u32::to_string).collect());
        for pu in pus {
            let path = format!("/sys/devices/system/cpu/cpu{pu}/cpufreq/scaling_governor");
            add(&path, &governors.value, &governors.why);
        }
    }
    for ((node, size), wanted) in &collected.pools {
        add(&pool_file(*node, *size), &wanted.value.to_string(), &wanted.why());
    }
    text
}

/// The file of a node's pool.
pub(crate) fn pool_file(node: u32, size: nearmetal_units::PageSize) -> String {
    let kib = size.bytes().kib();
    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{kib}kB/nr_hugepages")
}

/// PUs that get one governor.
pub(crate) struct Governors {
    pub(crate) value: String,
    pub(crate) why: String,
    /// `None` for all that have one.
    pub(crate) pus: Option<Vec<u32>>,
}

/// Governors, joined where they are the same.
pub(crate) fn governors(host: &Host, collected: &Collected) -> Vec<Governors> {
    let mut found: Vec<Governors> = Vec::new();
    for (target, wanted) in &collected.files {
        let Target::Governor(pu) = target else { continue };
        match found.iter_mut().find(|governors| governors.value == wanted.value) {
            Some(Governors { pus: Some(pus), .. }) => pus.push(*pu),
            _ => found.push(Governors { value: wanted.value.clone(), why: wanted.why(), pus: Some(vec![*pu]) }),
        }
    }
    let scaled: usize = host.system.frequency.iter().map(|policy| policy.cpus.len()).sum();
    for governors in &mut found {
        governors.pus = governors.pus.take().filter(|pus| pus.len() < scaled);
    }
    found
}

fn udev(host: &Host, collected: &Collected) -> String {
    let rules = schedulers(host, collected).0.into_iter().map(|(pattern, wanted)| {
        let device = match pattern {
            Pattern::Nvme => "KERNEL==\"nvme*n*\"".to_owned(),
            Pattern::Behind { function, rotational, .. } => {
                format!("KERNELS==\"{function}\", ATTR{{queue/rotational}}==\"{}\"", u8::from(rotational))
            }
        };
        format!(
            "\n# {}\nACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{{DEVTYPE}}==\"disk\", {device}, \
             ATTR{{queue/scheduler}}=\"{}\"\n",
            wanted.why(),
            wanted.value
        )
    });
    rules.collect()
}
