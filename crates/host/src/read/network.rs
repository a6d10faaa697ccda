//! Network interfaces. Documentation/ABI/testing/sysfs-class-net.

use super::pci::{function_in_path, node_of};
use super::routes;
use crate::facts::{Facts, index_after, parsed};
use crate::parse::{Parsed, line, malformed, number, number_u32, word};
use crate::{NetworkInterface, PciDevice, ReadError, VirtualFunction};

const ROOT: &str = "/sys/class/net";

pub(super) fn read(facts: &mut Facts<'_>, functions: &[PciDevice]) -> Vec<NetworkInterface> {
    let mut interfaces = Vec::new();
    let routes = routes::default_interfaces(facts);
    for name in facts.list(ROOT) {
        // bonding_masters is a file among the interfaces.
        if facts.fs.exists(&format!("{ROOT}/{name}/.")) {
            let default_route = routes.as_ref().map(|names| names.contains(&name));
            interfaces.push(NetworkInterface { default_route, ..read_interface(facts, name, functions) });
        }
    }
    interfaces
}

fn read_interface(facts: &mut Facts<'_>, name: String, functions: &[PciDevice]) -> NetworkInterface {
    let root = format!("{ROOT}/{name}");
    let place = facts.fs.resolve(&root);
    let place = facts.noted(place).unwrap_or_default();
    let pci = function_in_path(&place);
    let queues = facts.list(&format!("{root}/queues"));
    let count = |prefix: &str| {
        let queues = queues.iter().filter(|queue| index_after(queue, prefix).is_some()).count();
        u32::try_from(queues).ok().filter(|queues| *queues > 0)
    };
    NetworkInterface {
        pci,
        node: node_of(functions, pci),
        driver: pci.and_then(|_| facts.link_name(&format!("{root}/device/driver"))),
        master: facts.link_name(&format!("{root}/master")),
        receive_queues: count("rx-"),
        transmit_queues: count("tx-"),
        state: facts.optional(&format!("{root}/operstate"), word),
        speed: speed(facts, &format!("{root}/speed")),
        mtu: facts.optional(&format!("{root}/mtu"), number_u32),
        mac: facts.optional(&format!("{root}/address"), mac).flatten(),
        kind: kind(facts, &root),
        offloads: Vec::new(),
        default_route: None,
        virtual_functions: virtual_functions(facts, &root, functions.iter().find(|device| Some(device.address) == pci)),
        name,
    }
}

/// Mbit/s. A link that is down answers with an error, or with -1 as an unsigned number on older kernels.
fn speed(facts: &mut Facts<'_>, path: &str) -> Option<u64> {
    let text = match facts.fs.read(path) {
        // A copy of a file that could not be read is empty.
        Ok(text) if text.is_empty() => return None,
        Ok(text) => text,
        Err(error) => {
            if matches!(&error, ReadError::Unreadable { raw, .. } if !raw.is_empty()) {
                facts.note(error);
            }
            return None;
        }
    };
    let speed = parsed(path, &text, |text| line(text).and_then(|line| if line == "-1" { Ok(0) } else { number(line) }));
    facts.noted(speed).filter(|speed| *speed > 0 && *speed < u64::from(u32::MAX))
}

/// Six bytes; `None` for interfaces that have none, or one of another length (InfiniBand).
pub(super) fn mac(text: &str) -> Parsed<Option<String>> {
    let bytes: Vec<&str> = text.split(':').collect();
    let hex = |byte: &&str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    match bytes.iter().all(hex) {
        true => Ok((bytes.len() == 6).then(|| text.to_owned())),
        false if text.is_empty() => Ok(None),
        false => malformed("expected bytes split by colons"),
    }
}

/// `DEVTYPE=` of its uevent; taps have flags of their own.
fn kind(facts: &mut Facts<'_>, root: &str) -> Option<String> {
    let uevent = facts.text(&format!("{root}/uevent")).unwrap_or_default();
    let kind = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")).map(str::to_owned);
    kind.filter(|kind| !kind.is_empty())
        .or_else(|| facts.fs.exists(&format!("{root}/tun_flags")).then(|| "tap".to_owned()))
        .or_else(|| facts.fs.exists(&format!("{root}/bridge/.")).then(|| "bridge".to_owned()))
        .or_else(|| facts.fs.exists(&format!("{root}/bonding/.")).then(|| "bond".to_owned()))
}

/// Rows of the card's table. Only mlx5 shows settings in files (`device/sriov/N`), others by netlink alone.
fn virtual_functions(facts: &mut Facts<'_>, root: &str, card: Option<&PciDevice>) -> Vec<VirtualFunction> {
    let functions = card.and_then(|card| card.sriov.as_ref()).map_or(&[][..], |state| &state.functions);
    let mut rows = Vec::new();
    for (number, function) in functions.iter().enumerate() {
        let directory = format!("{root}/device/sriov/{number}");
        let config = facts.fs.read(&format!("{directory}/config")).unwrap_or_default();
        let field = |name: &str| {
            let mut fields = config.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
        };
        rows.push(VirtualFunction {
            number: number as u32,
            function: Some(*function),
            mac: field("MAC"),
            vlan: field("VLAN").and_then(|vlan| vlan.parse().ok()),
            trusted: field("Trust").map(|trust| trust.eq_ignore_ascii_case("on")),
            spoof_check: field("SpoofCheck").map(|check| check.eq_ignore_ascii_case("on")),
            max_rate: field("MaxTxRate").and_then(|rate| rate.parse().ok()),
        });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_are_six_bytes_or_none() {
        assert_eq!(mac("52:54:00:00:00:01"), Ok(Some("52:54:00:00:00:01".to_owned())));
        assert_eq!((mac("00:00:00"), mac("")), (Ok(None), Ok(None)));
        assert!(mac("no such thing").is_err() && mac("0:1:2:3:4:5").is_err());
    }
}
