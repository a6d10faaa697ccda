//! Reading back that an arm is what it says, from the kernel and the guest, before its samples count.

use std::collections::BTreeMap;
use std::time::Duration;

use nearmetal_host::{HostFs, ThreadRole, guests};
use nearmetal_hypervisor::{Hypervisor, agent};
use nearmetal_results::{Backend, Link, NetPath};
use nearmetal_units::CpuSet;
use serde_json::Value;

use super::guest::ArmCard;
use super::interface::{ip_json, master};
use super::port::BRIDGE;
use crate::error::MeasureError;

/// How long a command in the guest may take under emulation.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Bits of virtio-net's features (VIRTIO 1.2, 5.1.3): checksums, segmentation of TCP, several queues.
const CHECKSUM: usize = 0;
const SEGMENTATION: usize = 11;
const MULTIQUEUE: usize = 22;

/// A card as the guest's kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    /// `eth0`.
    pub name: String,
    /// `virtio_net`, `igbvf`.
    pub driver: String,
    /// Transmit queues.
    pub queues: u32,
    /// Negotiated features of virtio, lowest bit first.
    pub features: String,
    /// The vCPUs that send by each queue (XPS), in the queues' order; none where the kernel does not say.
    pub xps: Vec<CpuSet>,
    /// The vCPUs that handle what each queue received (RPS); empty sets where it is handled where the interrupt came.
    pub rps: Vec<CpuSet>,
}

const LIST: &str = r#"cd /sys/class/net && for n in *; do d=$(readlink $n/device/driver); echo "$n|$(cat $n/address)|${d##*/}|$(ls $n/queues | grep -c ^tx)|$(cat $n/device/features 2>/dev/null)|$(cat $n/queues/tx-*/xps_cpus 2>/dev/null | tr '\n' ' ')|$(cat $n/queues/rx-*/rps_cpus 2>/dev/null | tr '\n' ' ')"; done"#;

/// Makes a guest's card spread what it receives over all its vCPUs. `$1` MAC, `$2` mask.
const SPREAD: &str = r#"for n in /sys/class/net/*; do
[ "$(cat $n/address)" = "$1" ] && for q in $n/queues/rx-*; do echo "$2" > $q/rps_cpus || exit 3; done; done; :"#;

/// Switches RPS on, over the first `vcpus`.
pub(crate) fn spread(hypervisor: &mut dyn Hypervisor, guest: &str, mac: &str, vcpus: u32) -> Result<(), MeasureError> {
    let mask = (0..vcpus).collect::<CpuSet>().to_mask();
    let wrap = |source| MeasureError::Hypervisor { arm: guest.to_owned(), source };
    let words = ["sh", "-c", SPREAD, "spread", mac, &mask];
    // What came of it is read back with everything else.
    agent::exec(hypervisor, guest, &words, None, PATIENCE).map(drop).map_err(wrap)
}

/// The guest's cards by address.
pub(crate) fn seen(hypervisor: &mut dyn Hypervisor, guest: &str) -> Result<BTreeMap<String, Seen>, MeasureError> {
    let wrap = |source| MeasureError::Hypervisor { arm: guest.to_owned(), source };
    let output = agent::exec(hypervisor, guest, &["sh", "-c", LIST], None, PATIENCE).map_err(wrap)?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines that are not of this form are no cards: the arm one would have been of is then missing.
fn parse(text: &str) -> BTreeMap<String, Seen> {
    let line = |line: &str| {
        let mut fields = line.split('|').map(str::trim);
        let (name, mac, driver) = (fields.next()?, fields.next()?, fields.next()?);
        let queues = fields.next()?.parse().ok()?;
        let features = fields.next()?;
        let mut masks = || -> Vec<CpuSet> {
            let field = fields.next().unwrap_or_default();
            field.split_ascii_whitespace().map_while(|mask| CpuSet::parse_mask(mask).ok()).collect()
        };
        let (xps, rps) = (masks(), masks());
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let bits = features.chars().all(|bit| bit == '0' || bit == '1');
        let seen = Seen { name: name.into(), driver: driver.into(), queues, features: features.into(), xps, rps };
        (plain && bits).then(|| (mac.to_ascii_lowercase(), seen))
    };
    text.lines().filter_map(line).collect()
}

/// What the guest's own kernel says of the card. `Err` says what is amiss.
pub(crate) fn in_the_guest(path: &NetPath, function_driver: Option<&str>, seen: &Seen) -> Result<String, String> {
    if !path.link.is_virtio() {
        return match function_driver {
            Some(driver) if driver != seen.driver => {
                Err(format!("the guest drives it with `{}`, the host with `{driver}`", seen.driver))
            }
            _ if seen.driver.is_empty() => Err("the guest has no driver for it".to_owned()),
            _ => Ok(format!("in the guest {}: driver {}", seen.name, seen.driver)),
        };
    }
    if seen.driver != "virtio_net" {
        return Err(format!("the guest drives it with `{}`, not virtio_net", seen.driver));
    }
    let queues = path.queues.unwrap_or(1);
    if seen.queues != queues {
        return Err(format!("the guest sees {} queues, not {queues}", seen.queues));
    }
    let bit = |bit: usize| seen.features.as_bytes().get(bit).map(|value| *value == b'1');
    let (Some(checksum), Some(segmentation), Some(several)) = (bit(CHECKSUM), bit(SEGMENTATION), bit(MULTIQUEUE))
    else {
        return Err("the guest's kernel does not list the features of its virtio card".to_owned());
    };
    if several != (queues > 1) {
        return Err(format!("{queues} queues, and the feature of several is {}", if several { "on" } else { "off" }));
    }
    if checksum != path.offloads || segmentation != path.offloads {
        let word = |on: bool| if on { "on" } else { "off" };
        return Err(format!(
            "checksum offload is {} and segmentation offload {}, not both {}",
            word(checksum),
            word(segmentation),
            word(path.offloads)
        ));
    }
    let steering = steering(path, seen)?;
    Ok(format!(
        "in the guest {}: virtio_net, {queues} queue{}, checksum and segmentation offload {}{steering}",
        seen.name,
        if queues == 1 { "" } else { "s" },
        if path.offloads { "on" } else { "off" }
    ))
}

/// Which vCPU sends by which queue, and which handle what comes in.
fn steering(path: &NetPath, seen: &Seen) -> Result<String, String> {
    let spread = !seen.rps.is_empty() && seen.rps.iter().all(|cpus| !cpus.is_empty());
    if spread != path.rps {
        let found = if spread { "is on" } else { "is off, or unknown to its kernel" };
        return Err(format!("the guest's RPS {found}"));
    }
    if path.rps {
        let first = seen.rps.first().map(ToString::to_string).unwrap_or_default();
        return Ok(format!(", RPS over vCPUs {first}"));
    }
    if seen.xps.len() < 2 || seen.xps.iter().any(CpuSet::is_empty) {
        return Ok(String::new());
    }
    let each: Vec<String> =
        seen.xps.iter().enumerate().map(|(queue, cpus)| format!("queue {queue} of vCPU {cpus}")).collect();
    Ok(format!(", XPS {}", each.join(", ")))
}

/// What the host's kernel says of what the card hangs on.
pub(crate) fn on_the_host(fs: &HostFs, card: &ArmCard, port: &str, pid: u32) -> Result<String, String> {
    match card.path.link {
        Link::Bridge => {
            let (tap, uplink) = (master(fs, &card.tap), master(fs, port));
            if tap.as_deref() != Some(BRIDGE) || uplink.as_deref() != Some(BRIDGE) {
                let word = |name: Option<String>| name.unwrap_or_else(|| "no bridge".to_owned());
                return Err(format!("{} is in {}, and {port} in {}", card.tap, word(tap), word(uplink)));
            }
            Ok(format!("{} and {port} are in {BRIDGE}", card.tap))
        }
        Link::VfHostdev => {
            let Some(function) = card.function else { return Err("no function was given".to_owned()) };
            let driver = fs.link_name(&format!("/sys/bus/pci/devices/{function}/driver")).unwrap_or_default();
            if driver != "vfio-pci" {
                return Err(format!("{function} has the driver `{driver}` on the host, not vfio-pci"));
            }
            let group = fs.link_name(&format!("/sys/bus/pci/devices/{function}/iommu_group")).unwrap_or_default();
            let open = guests::open_files(fs, pid).map_err(|error| error.to_string())?;
            let device = format!("/dev/vfio/{group}");
            // With iommufd the group's file is not what QEMU opens.
            if !open.iter().any(|file| file.target == device || file.target.starts_with("/dev/vfio/devices/")) {
                return Err(format!("QEMU does not have {device} open"));
            }
            Ok(format!("{function}: vfio-pci, IOMMU group {group} open in QEMU"))
        }
        _ => {
            let rows = ip_json(&["link", "show", "dev", &card.tap]).map_err(|error| error.to_string())?;
            macvtap_in(&rows, card)
        }
    }
}

fn macvtap_in(rows: &[Value], card: &ArmCard) -> Result<String, String> {
    let row = rows.first().ok_or_else(|| format!("the host has no `{}`", card.tap))?;
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let kind = text(row.pointer("/linkinfo/info_kind"));
    let mode = text(row.pointer("/linkinfo/info_data/mode"));
    let lower = text(row.get("link"));
    // The kernel's word for libvirt's `passthrough`.
    let expected = match card.path.link.macvtap_mode() {
        Some("passthrough") => "passthru",
        Some(mode) => mode,
        None => return Err("it is not a macvtap".to_owned()),
    };
    if (kind.as_str(), mode.as_str(), lower.as_str()) != ("macvtap", expected, card.lower.as_str()) {
        return Err(format!(
            "{} is a {kind} in mode {mode} on {lower}, not a macvtap in mode {expected} on {}",
            card.tap, card.lower
        ));
    }
    Ok(format!("{}: macvtap, mode {mode}, on {lower}", card.tap))
}

/// Processor time of the threads that may move packets, nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Movers {
    /// By vhost worker.
    vhost: BTreeMap<u32, u64>,
    /// QEMU's main thread.
    main: u64,
}

impl Movers {
    /// Reads them. Documentation/scheduler/sched-stats.rst: the first number of schedstat is time on a processor.
    pub(crate) fn read(fs: &HostFs, pid: u32) -> Result<Self, String> {
        let threads = guests::threads(fs, pid).map_err(|error| error.to_string())?;
        let time = |id: u32| -> Option<u64> {
            let text = fs.read(&format!("/proc/{id}/task/{id}/schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse().ok()
        };
        let vhost = threads.iter().filter(|thread| thread.role == ThreadRole::Vhost);
        let main = time(pid).ok_or("the kernel keeps no time of threads (CONFIG_SCHED_INFO)")?;
        Ok(Self { vhost: vhost.filter_map(|thread| Some((thread.id, time(thread.id)?))).collect(), main })
    }
}

/// Workers that ran a tenth of the main thread's time moved the packets: idle ones run for microseconds.
const WORKERS_SHARE: u64 = 10;

/// Which of them moved the packets of a load between two looks.
pub(crate) fn mover(backend: Backend, before: &Movers, after: &Movers) -> Result<String, String> {
    let main = after.main.saturating_sub(before.main);
    let moved = |(id, time): (&u32, &u64)| (*id, time.saturating_sub(before.vhost.get(id).copied().unwrap_or(0)));
    let busiest = after.vhost.iter().map(moved).max_by_key(|(_, time)| *time);
    let all: u64 = after.vhost.iter().map(moved).map(|(_, time)| time).sum();
    let milliseconds = |time: u64| format!("{:.1} ms", time as f64 / 1e6);
    let words = match busiest {
        Some((id, time)) => format!(
            "under load vhost worker {id} ran {} of {} of all, QEMU's main thread {}",
            milliseconds(time),
            milliseconds(all),
            milliseconds(main)
        ),
        None => format!("under load QEMU's main thread ran {}, and there is no vhost worker", milliseconds(main)),
    };
    // A vhost worker does nothing but move packets; the main thread also serves the agent that runs the load, and in a lab
    // that is more than the packets take.
    let found = if all.saturating_mul(WORKERS_SHARE) > main { Backend::Vhost } else { Backend::Qemu };
    if all == 0 && main == 0 {
        return Err("neither a vhost worker nor QEMU's main thread moved under load".to_owned());
    }
    if found == backend { Ok(words) } else { Err(format!("another thread moves its packets: {words}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_of(features: &str, queues: u32) -> Seen {
        Seen { name: "eth0".into(), driver: "virtio_net".into(), queues, features: features.into(), ..Seen::default() }
    }

    /// As a guest of libvirt 11.3 and QEMU 10.0 has them: one queue, and two.
    const ONE: &str = "1110010111111111111101010000110010000000100000000000001110000000";
    const TWO: &str = "1110010111111111111101110000110010000000100000000000001110000000";

    #[test]
    fn queues_and_offloads_are_what_the_guest_negotiated() {
        let default = NetPath::libvirt_default();
        assert!(in_the_guest(&default, None, &seen_of(ONE, 1)).unwrap().contains("1 queue, checksum"));
        let two = NetPath { queues: Some(2), ..default };
        assert!(in_the_guest(&two, None, &seen_of(TWO, 2)).is_ok());
        assert!(in_the_guest(&two, None, &seen_of(ONE, 1)).unwrap_err().contains("1 queues, not 2"));
        let none = NetPath { offloads: false, ..default };
        assert!(in_the_guest(&none, None, &seen_of(ONE, 1)).unwrap_err().contains("not both off"));
        assert!(in_the_guest(&none, None, &seen_of(&"0".repeat(64), 1)).is_ok());
        assert!(in_the_guest(&default, None, &seen_of("", 1)).is_err(), "no answer is no evidence");
    }

    #[test]
    fn a_function_must_have_the_driver_the_host_has_for_it() {
        let given = NetPath::hardware(Link::VfHostdev);
        let card = |driver: &str| Seen { driver: driver.into(), ..seen_of("", 1) };
        assert!(in_the_guest(&given, Some("igbvf"), &card("igbvf")).is_ok());
        assert!(in_the_guest(&given, Some("igbvf"), &card("virtio_net")).is_err());
        assert!(in_the_guest(&given, None, &card("")).is_err());
    }

    #[test]
    fn the_thread_that_moved_tells_the_backend() {
        let at = |vhost: u64, main: u64| Movers { vhost: BTreeMap::from([(7, vhost), (8, 0)]), main };
        let before = at(1_000_000, 5_000_000);
        assert!(mover(Backend::Vhost, &before, &at(301_000_000, 9_000_000)).unwrap().contains("worker 7 ran 300.0 ms"));
        assert!(mover(Backend::Qemu, &before, &at(301_000_000, 9_000_000)).is_err());
        assert!(mover(Backend::Qemu, &before, &at(1_000_000, 205_000_000)).is_ok());
        // As seen in a lab: the agent's commands keep the main thread busy beside the worker.
        assert!(mover(Backend::Vhost, &before, &at(188_000_000, 313_000_000)).is_ok());
        assert!(mover(Backend::Qemu, &before, &before).is_err(), "nothing moved");
    }

    #[test]
    fn a_macvtap_is_told_by_mode_and_by_what_it_lies_on() {
        let rows = |mode: &str, lower: &str| {
            vec![
                serde_json::json!({"ifname": "nmtap0", "link": lower, "linkinfo": {"info_kind": "macvtap", "info_data": {"mode": mode}}}),
            ]
        };
        let card = |link| ArmCard {
            path: NetPath::virtio(link),
            mac: String::new(),
            tap: "nmtap0".into(),
            lower: "eth9".into(),
            function: None,
        };
        assert!(macvtap_in(&rows("private", "eth9"), &card(Link::MacvtapPrivate)).is_ok());
        assert!(macvtap_in(&rows("passthru", "eth9"), &card(Link::MacvtapPassthrough)).is_ok());
        assert!(macvtap_in(&rows("bridge", "eth9"), &card(Link::MacvtapPrivate)).is_err());
        assert!(macvtap_in(&rows("bridge", "eth8"), &card(Link::MacvtapBridge)).is_err());
        assert!(macvtap_in(&[], &card(Link::MacvtapBridge)).is_err());
    }

    #[test]
    fn steering_is_told_by_the_masks_of_the_queues() {
        let sets = |masks: &[&str]| masks.iter().map(|mask| CpuSet::parse_mask(mask).unwrap()).collect::<Vec<_>>();
        let default = NetPath::libvirt_default();
        let spread = NetPath { rps: true, ..default };
        let with = |xps: &[&str], rps: &[&str]| Seen { xps: sets(xps), rps: sets(rps), ..seen_of("", 2) };
        assert_eq!(
            steering(&default, &with(&["1", "2"], &["0", "0"])).unwrap(),
            ", XPS queue 0 of vCPU 0, queue 1 of vCPU 1"
        );
        assert_eq!(steering(&default, &with(&[], &[])).unwrap(), "", "a kernel without either");
        assert_eq!(steering(&spread, &with(&[], &["3"])).unwrap(), ", RPS over vCPUs 0-1");
        assert!(steering(&spread, &with(&[], &["0"])).is_err() && steering(&spread, &with(&[], &[])).is_err());
        assert!(steering(&default, &with(&[], &["3"])).is_err(), "nobody asked for it");
    }

    #[test]
    fn hostile_lines_are_no_cards() {
        let text = "eth0|52:54:00:AA:00:01|virtio_net|1|1110|1 2 |0 zz \nlo|00:00:00:00:00:00||1|\n../x|52:54:00:aa:00:02|virtio_net|1|11\neth1|52:54:00:aa:00:03|virtio_net|x|11\n";
        let found = parse(text);
        let first = &found["52:54:00:aa:00:01"];
        assert_eq!((first.driver.as_str(), first.xps.len(), first.rps.len()), ("virtio_net", 2, 1), "{first:?}");
        assert!(!found.contains_key("52:54:00:aa:00:02") && !found.contains_key("52:54:00:aa:00:03"));
    }
}
