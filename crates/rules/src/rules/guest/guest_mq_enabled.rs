//! The guest really uses all queues.

use nearmetal_domain::{DiskFacts, InterfaceFacts};
use nearmetal_host::{BlockDevice, NetworkInterface};
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;
use crate::subject::interface_name;

pub(crate) const RULE: Rule = Rule {
    id: "guest-mq-enabled",
    layer: Layer::Guest,
    title: "The guest really uses all queues",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /sys/class/net/*/queues", "guest /sys/block/*/mq", "domain <driver queues>"],
    good: "as many queues in use as the definition gives, or one for each vCPU of the guest",
    applies: "guests with queues in their definition",
    not_applies: "one queue",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["rh-rhel7mq", "okd-mq"],
    fix: Fix {
        live: Some("in the guest: ethtool -L eth0 combined N"),
        persistent: "in the guest: udev rule, or channels of NetworkManager",
        needs: &[Need::Live],
        undo: "none; undo combined 1",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let multi: Vec<(&InterfaceFacts, u32)> = subject
        .tap_interfaces()
        .filter_map(|interface| Some((interface, interface.queues.filter(|queues| *queues > 1)?)))
        .collect();
    let disks: Vec<&DiskFacts> = subject.disks().filter(|disk| disk.is_virtio_blk()).collect();
    // Guests name disks in their own order: with one on each side there is no doubt which is which.
    let disk_queues = match disks.as_slice() {
        [disk] => disk.driver.queues.filter(|queues| *queues > 1),
        _ => None,
    };
    if multi.is_empty() && disk_queues.is_none() {
        return Outcome::NotApplicable;
    }
    let inside = match subject.inside() {
        Ok(inside) => inside,
        Err(unknown) => return unknown,
    };
    // Drivers of virtio take no more queues than there are processors.
    let processors = u32::try_from(inside.online().len()).unwrap_or(u32::MAX);
    let (mut objects, mut missing) = (Vec::new(), Vec::new());
    let mut judge = |what: String, path: String, used: Option<u32>, given: u32| match used {
        None => missing.push(path),
        Some(used) if used < given.min(processors) => {
            objects.push(Object::new(what, format!("{used} in use"), format!("{}", given.min(processors))));
        }
        Some(_) => {}
    };
    let drivers: Vec<&NetworkInterface> =
        inside.network_interfaces.iter().filter(|it| it.driver.as_deref() == Some("virtio_net")).collect();
    for (interface, given) in multi {
        let same = |it: &&&NetworkInterface| {
            it.mac.is_some()
                && it.mac.as_deref().map(str::to_lowercase) == interface.mac.as_deref().map(str::to_lowercase)
        };
        // A masked capture has other addresses; the only interface is still the only one.
        let only = (drivers.len() == 1 && subject.facts.interfaces.len() == 1).then(|| drivers[0]);
        let found = drivers.iter().find(same).copied().or(only);
        let used = found.and_then(|found| found.receive_queues);
        let path =
            format!("the interface with the address of {} in {}", interface_name(interface), subject.domain.name);
        judge(format!("queues of {}", interface_name(interface)), path, used, given);
    }
    if let Some(given) = disk_queues {
        let devices: Vec<&BlockDevice> =
            inside.block_devices.iter().filter(|it| it.partition_of.is_none() && it.name.starts_with("vd")).collect();
        let used = match devices.as_slice() {
            [device] => device.queues,
            _ => None,
        };
        let path = format!("/sys/block/vda/mq in {}", subject.domain.name);
        judge(format!("queues of disk {}", disks[0].target), path, used, given);
    }
    match objects.is_empty() && !missing.is_empty() {
        true => Outcome::CannotTell(missing),
        false => Outcome::of(objects),
    }
}
