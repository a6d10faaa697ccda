//! A domain's settings in words, from its XML.

use nearmetal_domain::{DomainFacts, DriverFacts};
use nearmetal_units::{NodeSet, PageSize};

/// Driver options of a disk; what is not written is QEMU's choice and called that.
pub(crate) fn driver(options: &DriverFacts) -> String {
    let mut words = Vec::new();
    let mut add = |name: &str, value: Option<String>| words.extend(value.map(|value| format!("{name}={value}")));
    add("cache", options.cache.clone());
    add("io", options.io.clone());
    add("iothread", options.iothread.map(|number| number.to_string()));
    let mapping: Vec<String> = options.iothread_mapping.iter().map(u32::to_string).collect();
    add("iothreads", (!mapping.is_empty()).then(|| mapping.join(",")));
    add("queues", options.queues.map(|count| count.to_string()));
    let unset = match (&options.cache, &options.io) {
        (None, None) => Some("QEMU's default: writeback, threads"),
        (None, Some(_)) => Some("cache: QEMU's default, writeback"),
        (Some(_), None) => Some("io: QEMU's default, threads"),
        _ => None,
    };
    words.extend(unset.map(str::to_owned));
    words.join(" ")
}

/// The one page size that huge pages of this domain have, where it says one.
pub(crate) fn huge_page(facts: &DomainFacts) -> Option<PageSize> {
    let mut sizes = facts.hugepages.as_ref()?.iter().map(|page| page.size);
    let first = sizes.next()?;
    sizes.all(|size| size == first).then_some(first)
}

/// Nodes the memory is bound to, and whether strictly (libvirt's default mode).
pub(crate) fn binding(facts: &DomainFacts) -> (NodeSet, bool) {
    let Some(tuning) = &facts.numatune else { return (NodeSet::new(), false) };
    let cells = tuning.cells.iter().filter_map(|cell| cell.nodes.clone());
    let nodes = tuning.nodes.clone().into_iter().chain(cells).fold(NodeSet::new(), |all, set| all.union(&set));
    let modes = [tuning.mode.as_deref()].into_iter().chain(tuning.cells.iter().map(|cell| cell.mode.as_deref()));
    let strict = !nodes.is_empty() && modes.into_iter().all(|mode| mode.is_none_or(|mode| mode == "strict"));
    (nodes, strict)
}

/// The settings that tell one definition of a guest from another, one per line.
pub(crate) fn settings(facts: &DomainFacts) -> Vec<String> {
    let mut lines = Vec::new();
    if facts.vcpu_pins.is_empty() {
        lines.push(match &facts.vcpus.cpuset {
            Some(cpus) => format!("vCPUs float over PUs {cpus}"),
            None => "vCPUs float over the whole host".to_owned(),
        });
    } else {
        let pins: Vec<String> = facts.vcpu_pins.iter().map(|(vcpu, cpus)| format!("{vcpu} on {cpus}")).collect();
        lines.push(format!("vCPU pins: {}", pins.join("; ")));
    }
    lines.extend(facts.emulator_pin.as_ref().map(|cpus| format!("emulator thread on PUs {cpus}")));
    lines.extend(facts.iothreads.pins.iter().map(|(number, cpus)| format!("iothread {number} on PUs {cpus}")));
    let (nodes, strict) = binding(facts);
    lines.push(match (nodes.is_empty(), strict) {
        (true, _) => "memory on any node".to_owned(),
        (false, true) => format!("memory on node {nodes} only"),
        (false, false) => format!("memory on node {nodes} by preference"),
    });
    lines.push(match (&facts.hugepages, huge_page(facts)) {
        (None, _) => "memory in 4 KiB pages, transparent huge pages as the kernel likes".to_owned(),
        (Some(_), Some(size)) => format!("memory in {size} huge pages"),
        (Some(pages), None) if pages.is_empty() => "memory in huge pages of the host's default size".to_owned(),
        (Some(_), None) => "memory in huge pages of several sizes".to_owned(),
    });
    let disks = facts.disks.iter().filter(|disk| disk.device == "disk");
    lines.extend(disks.map(|disk| format!("disk {}: {}", disk.target, driver(&disk.driver))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_domain::DomainXml;

    fn facts(inner: &str, driver: &str) -> DomainFacts {
        let text = format!(
            "<domain type='kvm'><name>a</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>{inner}<devices>\
             <disk type='block' device='disk'><driver name='qemu' type='raw'{driver}/><source dev='/dev/nvme0n1'/>\
             <target dev='vda' bus='virtio'/></disk></devices></domain>"
        );
        DomainXml::parse(&text).unwrap().facts().unwrap()
    }

    #[test]
    fn what_is_not_written_is_called_qemus_default() {
        let driver_of = |options| driver(&facts("", options).disks[0].driver);
        assert_eq!(driver_of(""), "QEMU's default: writeback, threads");
        assert_eq!(driver_of(" cache='none' io='native'"), "cache=none io=native");
        assert_eq!(driver_of(" cache='none'"), "cache=none io: QEMU's default, threads");
    }

    #[test]
    fn a_bare_definition_floats_and_a_planned_one_does_not() {
        let found = settings(&facts("", ""));
        assert!(found.contains(&"vCPUs float over the whole host".to_owned()), "{found:?}");
        assert!(found.contains(&"memory on any node".to_owned()), "{found:?}");
        let planned = settings(&facts(
            "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>\
             <cputune><vcpupin vcpu='0' cpuset='2'/><emulatorpin cpuset='3'/></cputune>\
             <numatune><memory mode='strict' nodeset='1'/></numatune>",
            "",
        ));
        for line in
            ["vCPU pins: 0 on 2", "memory on node 1 only", "memory in 2 MiB huge pages", "emulator thread on PUs 3"]
        {
            assert!(planned.contains(&line.to_owned()), "{planned:?}");
        }
    }
}
