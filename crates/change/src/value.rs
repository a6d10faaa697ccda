//! Values of kernel files as they mean: what is written is not always what is read.
//!
//! A file of choices shows all of them with the one in force in brackets (`always [madvise] never`), a set of CPUs comes
//! back with leading groups or as ranges, a switch set to `1` shows `Y`, and numbers parted by one space come back parted
//! by a tab.

use nearmetal_units::CpuSet;

use crate::ChangeError;
use crate::kernel::{Kernel, required};

/// What to write to have the present value again.
pub(crate) fn present(kernel: &dyn Kernel, path: &str) -> Result<String, ChangeError> {
    let text = required(kernel, path)?;
    Ok(chosen(&text).map_or_else(|| text.clone(), str::to_owned))
}

/// The word in brackets of a file of choices; `None` where it is none.
fn chosen(text: &str) -> Option<&str> {
    let mut words = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let word = words.next()?;
    words.next().is_none().then_some(word)
}

/// Whether a file that holds one value means another.
pub(crate) fn same_value(path: &str, left: &str, right: &str) -> bool {
    let plain = |text: &str| -> String {
        let text = chosen(text).unwrap_or(text);
        text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (left, right) = (plain(left), plain(right));
    if left == right {
        return true;
    }
    let same_set = |parse: fn(&str) -> Option<CpuSet>| parse(&left).is_some_and(|set| parse(&right) == Some(set));
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.ends_with("_list") || name.ends_with("cpulist") {
        return same_set(|text| text.parse().ok());
    }
    if name.ends_with("affinity") || name.ends_with("_cpus") || name.ends_with("cpumask") {
        return same_set(|text| CpuSet::parse_mask(text).ok());
    }
    let number = |text: &str| text.parse::<i128>().ok();
    if let (Some(left), Some(right)) = (number(&left), number(&right)) {
        return left == right;
    }
    // kstrtobool, which reads parameters of modules.
    let switch = |text: &str| match text {
        "Y" | "y" | "1" | "on" => Some(true),
        "N" | "n" | "0" | "off" => Some(false),
        _ => None,
    };
    path.starts_with("/sys/module/") && switch(&left).is_some() && switch(&left) == switch(&right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_compare_by_what_they_mean() {
        let thp = "/sys/kernel/mm/transparent_hugepage/enabled";
        let mask = "/proc/irq/30/smp_affinity";
        let list = "/proc/irq/30/smp_affinity_list";
        let parameter = "/sys/module/kvm/parameters/nx_huge_pages";
        let table = [
            (thp, "always [madvise] never\n", "madvise", true),
            (thp, "always [madvise] never\n", "always", false),
            ("/sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline", "none", true),
            ("/sys/block/sda/queue/scheduler", "none", "none", true),
            (mask, "00000000,0000000f", "f", true),
            (mask, "0000000f", "0000001f", false),
            (mask, "junk", "f", false),
            (list, "0-3", "0,1,2,3", true),
            (list, "0-3", "0-4", false),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000", "0", true),
            (parameter, "N", "0", true),
            (parameter, "Y", "0", false),
            ("/proc/sys/kernel/numa_balancing", "0", "0", true),
            ("/proc/sys/kernel/numa_balancing", "1", "0", false),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456", "4096 131072 6291456", true),
            ("/proc/sys/x", "Y", "1", false),
        ];
        for (path, found, wanted, same) in table {
            assert_eq!(same_value(path, found, wanted), same, "{path}: {found} / {wanted}");
            assert_eq!(same_value(path, wanted, found), same, "{path}: {wanted} / {found}");
        }
        assert_eq!(chosen("[a] [b]"), None, "two choices in force are not a choice");
    }
}
