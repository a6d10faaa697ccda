//! Reading back that an arm is what it says, from the kernel and the guest, before its samples count.

use std::collections::BTreeMap;
use std::time::Duration;

use nearmetal_host::{HostFs, ThreadRole, guests};
use nearmetal_hypervisor::{Hypervisor, agent};
use serde_json::Value;

use super::guest::ArmCard;
use super::path::{Backend, Link, NetPath};
use super::port::{BRIDGE, ip_json, master};
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
}

const LIST: &str = r#"cd /sys/class/net && for n in *; do d=$(readlink $n/device/driver); echo "$n|$(cat $n/address)|${d##*/}|$(ls $n/queues | grep -c ^tx)|$(cat $n/device/features 2>/dev/null)"; done"#;

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
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        let bits = features.chars().all(|bit| bit == '0' || bit == '1');
        let seen = Seen { name: name.into(), driver: driver.into(), queues, features: features.into() };
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
    Ok(format!(
        "in the guest {}: virtio_net, {queues} queue{}, checksum and segmentation offload {}",
        seen.name,
        if queues == 1 { "" } else { "s" },
        if path.offloads { "on" } else { "off" }
    ))
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
        None => return Err("it is no macvtap".to_owned()),
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
        Seen { name: "eth0".into(), driver: "virtio_net".into(), queues, features: features.into() }
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
    fn hostile_lines_are_no_cards() {
        let text = "eth0|52:54:00:AA:00:01|virtio_net|1|1110\nlo|00:00:00:00:00:00||1|\n../x|52:54:00:aa:00:02|virtio_net|1|11\neth1|52:54:00:aa:00:03|virtio_net|x|11\n";
        let found = parse(text);
        assert_eq!(found["52:54:00:aa:00:01"].driver, "virtio_net");
        assert!(!found.contains_key("52:54:00:aa:00:02") && !found.contains_key("52:54:00:aa:00:03"));
    }
}
