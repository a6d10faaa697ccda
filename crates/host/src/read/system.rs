//! Kernel, name, boot, and the settings that decide how guests run.

use nearmetal_units::Bytes;

use super::processors::ROOT;
use super::settings::{self, list_or_null};
use super::{nodes, power, processor_time, tunables};
use crate::System;
use crate::facts::{Facts, parsed};
use crate::parse::{Parsed, bracketed, flag, malformed, number, word};

/// Enough of /proc/cpuinfo for the first PU: its flags line is about 2 KiB on today's x86. The whole file has a block
/// per PU and takes the kernel milliseconds to make.
pub(crate) const FIRST_BLOCK: usize = 16 << 10;

/// MemTotal of the whole machine; a machine without nodes has it as its node's too.
fn memory_total(facts: &mut Facts<'_>) -> Option<Bytes> {
    const PATH: &str = "/proc/meminfo";
    let text = facts.text(PATH)?;
    facts.noted(parsed(PATH, &text, |text| nodes::meminfo(text, "MemTotal:")))
}

pub(super) fn read(facts: &mut Facts<'_>) -> System {
    let kernel = match facts.optional("/proc/sys/kernel/osrelease", word) {
        // Older captures have /proc/version alone.
        None => facts.optional("/proc/version", release_in_version),
        found => found,
    };
    let cpuinfo = facts.fs.read_head("/proc/cpuinfo", FIRST_BLOCK);
    let cpuinfo = facts.noted(cpuinfo).unwrap_or_default();
    let flags = processor_flags(&cpuinfo);
    System {
        hostname: facts.optional("/proc/sys/kernel/hostname", word),
        kernel,
        boot_id: facts.optional("/proc/sys/kernel/random/boot_id", boot_id),
        command_line: facts.optional("/proc/cmdline", |text| Ok(text.to_owned())),
        processor_model: model_name(&cpuinfo),
        hypervisor: flags.as_ref().map(|flags| flags.iter().any(|flag| flag == "hypervisor")),
        processor_flags: flags,
        container: container(facts),
        numa_balancing: facts.optional("/proc/sys/kernel/numa_balancing", number),
        io_uring_disabled: facts.optional("/proc/sys/kernel/io_uring_disabled", number),
        transparent_hugepage: facts.optional("/sys/kernel/mm/transparent_hugepage/enabled", bracketed),
        transparent_hugepage_defrag: facts.optional("/sys/kernel/mm/transparent_hugepage/defrag", bracketed),
        ksm: facts.optional("/sys/kernel/mm/ksm/run", number),
        swappiness: facts.optional("/proc/sys/vm/swappiness", number),
        zone_reclaim_mode: facts.optional("/proc/sys/vm/zone_reclaim_mode", number),
        clocksource: facts.optional("/sys/devices/system/clocksource/clocksource0/current_clocksource", word),
        smt: facts.optional(&format!("{ROOT}/smt/control"), word),
        isolated: facts.optional(&format!("{ROOT}/isolated"), list_or_null),
        nohz_full: facts.optional(&format!("{ROOT}/nohz_full"), list_or_null),
        frequency: settings::frequency(facts),
        idle_driver: facts.optional(&format!("{ROOT}/cpuidle/current_driver"), word),
        idle_governor: idle_governor(facts),
        vulnerabilities: settings::vulnerabilities(facts),
        module_parameters: settings::module_parameters(facts),
        hugepages: settings::hugepages(facts),
        sysctls: tunables::sysctls(facts),
        bridge_filters: tunables::bridge_filters(facts),
        tuned: tunables::tuned(facts),
        boost: power::boost(facts),
        idle_latency_limit: power::idle_latency_limit(facts),
        processor_time: processor_time::read(facts),
        uptime: facts.optional("/proc/uptime", tunables::uptime),
        swap: tunables::swap(facts),
        ksm_across_nodes: facts.optional("/sys/kernel/mm/ksm/merge_across_nodes", flag),
        memory_total: memory_total(facts),
        ksm_shared_pages: facts.optional("/sys/kernel/mm/ksm/pages_shared", number),
        ..System::default()
    }
}

/// Inode of the machine's first PID namespace on every Linux since 3.8: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// By the namespace of the reading process itself, which every user may look at; that of process 1 takes root.
fn container(facts: &mut Facts<'_>) -> Option<bool> {
    const PATH: &str = "/proc/self/ns/pid";
    let name = facts.link_name(PATH)?;
    facts.noted(parsed(PATH, &name, pid_namespace)).map(|inode| inode != FIRST_PID_NAMESPACE)
}

/// `pid:[4026531836]`.
pub(super) fn pid_namespace(text: &str) -> Parsed<u64> {
    match text.strip_prefix("pid:[").and_then(|rest| rest.strip_suffix(']')) {
        Some(inode) => number(inode),
        None => malformed("expected `pid:[INODE]`"),
    }
}

/// `current_governor` since Linux 5.9, `current_governor_ro` before.
fn idle_governor(facts: &mut Facts<'_>) -> Option<String> {
    let mut read = |name: &str| facts.optional(&format!("{ROOT}/cpuidle/{name}"), word);
    read("current_governor").or_else(|| read("current_governor_ro"))
}

pub(super) fn release_in_version(text: &str) -> Parsed<String> {
    match text.strip_prefix("Linux version ").and_then(|rest| rest.split_whitespace().next()) {
        Some(release) => Ok(release.to_owned()),
        None => malformed("expected `Linux version RELEASE`"),
    }
}

pub(super) fn boot_id(text: &str) -> Parsed<String> {
    let uuid = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if uuid { Ok(text.to_owned()) } else { malformed("expected a UUID") }
}

/// The value of a complete line of cpuinfo's first block.
pub(crate) fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.split_inclusive('\n').find_map(|line| {
        let (key, value) = line.strip_suffix('\n')?.split_once(':')?;
        (key.trim() == name && !value.trim().is_empty()).then(|| value.trim())
    })
}

/// `model name` on x86, `cpu` on POWER. ARM kernels give numbers only.
pub(super) fn model_name(cpuinfo: &str) -> Option<String> {
    cpuinfo_field(cpuinfo, "model name").or_else(|| cpuinfo_field(cpuinfo, "cpu")).map(str::to_owned)
}

/// Sorted; `None` where the architecture lists no flags.
pub(super) fn processor_flags(cpuinfo: &str) -> Option<Vec<String>> {
    let mut flags: Vec<String> = cpuinfo_field(cpuinfo, "flags")?.split_whitespace().map(str::to_owned).collect();
    flags.sort_unstable();
    flags.dedup();
    Some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_its_inode_or_malformed() {
        assert_eq!(pid_namespace("pid:[4026531836]").unwrap(), FIRST_PID_NAMESPACE);
        for bad in ["", "pid:[]", "pid:[-1]", "user:[1]", "pid:[1", "pid:[18446744073709551616]"] {
            assert!(pid_namespace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpuinfo_gives_model_and_flags_or_nothing() {
        let x86 = "processor\t: 0\nmodel name\t: AMD EPYC 7282\nflags\t\t: fpu vme hypervisor lm\n\nprocessor\t: 1\n";
        assert_eq!(model_name(x86).as_deref(), Some("AMD EPYC 7282"));
        let system = System { processor_flags: processor_flags(x86), ..System::default() };
        assert_eq!((system.has_flag("hypervisor"), system.has_flag("hyper")), (Some(true), Some(false)));
        let power = "processor\t: 0\ncpu\t\t: POWER7 (architected), altivec supported\n";
        assert_eq!((model_name(power).is_some(), processor_flags(power)), (true, None));
        for junk in ["", "model name", "model name\t: ", "flags : fpu"] {
            assert_eq!((model_name(junk), processor_flags(junk)), (None, None), "{junk}");
        }
    }

    #[test]
    fn the_release_is_a_word_of_the_version() {
        assert_eq!(release_in_version("Linux version 6.1.0-9 (x@y) #1 SMP").as_deref(), Ok("6.1.0-9"));
        assert!(release_in_version("FreeBSD").is_err() && boot_id("x").is_err());
    }
}
