//! Mounted file systems, from /proc/1/mountinfo. Documentation/filesystems/proc.rst, section 3.5.

use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, malformed, unescaped};
use crate::{Mount, ReadError};

/// File systems in which nobody keeps files of his own.
const KERNEL_OWN: [&str; 24] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
    "smackfs",
];

/// Options with a path in them say where something lies, not how it behaves; those of an overlay fill pages.
const LONGEST_OPTION: usize = 64;

/// The mounts of the first process: what nearmetal itself sees may be a container's.
pub(super) fn read(facts: &mut Facts<'_>) -> Option<Vec<Mount>> {
    let (mut path, mut text) = ("/proc/1/mountinfo", facts.fs.read("/proc/1/mountinfo"));
    if matches!(text, Err(ReadError::Missing { .. } | ReadError::Denied { .. })) {
        (path, text) = ("/proc/self/mountinfo", facts.fs.read("/proc/self/mountinfo"));
    }
    let text = facts.noted(text)?;
    facts.noted(parsed(path, &text, mounts))
}

pub(super) fn mounts(text: &str) -> Parsed<Vec<Mount>> {
    let Some(text) = text.strip_suffix('\n') else { return malformed("cut off: the last line has no newline") };
    let mut found = Vec::new();
    for line in text.lines() {
        let mount = mount(line)?;
        if !KERNEL_OWN.contains(&mount.kind.as_str()) {
            found.push(mount);
        }
    }
    Ok(found)
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext4 /dev/vda1 rw,errors=continue`.
fn mount(line: &str) -> Parsed<Mount> {
    let halves = line.split_once(" - ");
    let (first, second): (Vec<&str>, Vec<&str>) = match halves {
        Some((first, second)) => (first.split(' ').collect(), second.split(' ').collect()),
        None => return malformed(format!("expected ` - ` in `{line}`")),
    };
    let ([_, _, number, _, point, own, ..], [kind, source, rest @ ..]) = (&first[..], &second[..]) else {
        return malformed(format!("expected 6 fields, ` - ` and 2 in `{line}`"));
    };
    let mut options: Vec<String> = Vec::new();
    for option in own.split(',').chain(rest.iter().flat_map(|all| all.split(','))) {
        let plain = !option.is_empty() && option.len() <= LONGEST_OPTION && !option.contains('/');
        if plain && !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    let number = super::block::device_number(number)?;
    Ok(Mount {
        point: unescaped(point),
        kind: (*kind).to_owned(),
        source: unescaped(source),
        number: Some(number),
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_have_a_point_a_kind_and_options_of_both_halves() {
        let text = "22 27 0:21 / /proc rw,relatime - proc proc rw\n\
                    36 35 98:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,errors=continue\n\
                    40 36 0:44 / /vm\\040images rw,noatime - nfs4 nas:/vm rw,vers=4.2,addr=10.0.0.1\n\
                    41 36 0:45 / /var/lib/x rw - overlay overlay rw,lowerdir=/a:/b,index=off\n";
        let mounts = mounts(text).unwrap();
        let seen: Vec<_> = mounts.iter().map(|mount| (mount.point.as_str(), mount.kind.as_str())).collect();
        assert_eq!(seen, [("/", "ext4"), ("/vm images", "nfs4"), ("/var/lib/x", "overlay")]);
        assert_eq!(mounts[1].option("vers"), Some("4.2"));
        assert_eq!(mounts[2].options, ["rw", "index=off"]);
    }

    #[test]
    fn a_cut_or_strange_table_is_refused() {
        for junk in ["", "1 2 3", "no such thing\n", "1 2 0:1 / /x rw - \n", "1 2 0:1 / - ext4 /dev/x rw\n"] {
            assert!(mounts(junk).is_err(), "{junk:?}");
        }
    }
}
