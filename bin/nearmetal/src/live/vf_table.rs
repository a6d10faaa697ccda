//! What a network card's table says of its virtual functions. Most drivers tell it by netlink alone, which is iproute2's
//! trade: `ip -json -details link show` is asked, on the machine itself only.

use nearmetal_host::Host;
use serde_json::Value;

use super::ask;

/// Fills in MAC, VLAN, trust, spoof check and rate where /sys had none. Without `ip`, or a card with virtual functions, nothing changes.
pub(crate) fn fill_in(host: &mut Host) {
    if host.network_interfaces.iter().all(|card| card.virtual_functions.is_empty()) {
        return;
    }
    if let Some(links) = ask("ip", &["-json", "-details", "link", "show"]) {
        links.iter().for_each(|links| merge(host, links));
    }
}

fn merge(host: &mut Host, links: &Value) {
    for link in links.as_array().into_iter().flatten() {
        let card = host.network_interfaces.iter_mut().find(|card| link["ifname"] == card.name.as_str());
        let Some(card) = card else { continue };
        for row in link["vfinfo_list"].as_array().into_iter().flatten() {
            let function = card.virtual_functions.iter_mut().find(|function| row["vf"] == function.number);
            let Some(function) = function else { continue };
            // "mac" before iproute2 5.0. A card's default is an address of zeros: the guest will make up its own.
            let mac = row["address"].as_str().or_else(|| row["mac"].as_str()).map(str::to_owned);
            function.mac = function.mac.take().or(mac);
            // A row without a list is in no VLAN, which the kernel numbers 0.
            let vlan = row["vlan_list"][0]["vlan"].as_u64().unwrap_or(0);
            function.vlan = function.vlan.or(u32::try_from(vlan).ok());
            function.trusted = function.trusted.or(row["trust"].as_bool());
            function.spoof_check = function.spoof_check.or(row["spoofchk"].as_bool());
            let rate = row["rate"]["max_tx"].as_u64().and_then(|rate| u32::try_from(rate).ok());
            function.max_rate = function.max_rate.or(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::synthetic::Synthetic;
    use nearmetal_host::{NetworkInterface, VirtualFunction};

    #[test]
    fn rows_go_to_their_functions_and_junk_to_nobody() {
        let mut host = Synthetic::new().build();
        let row = |number| VirtualFunction { number, ..VirtualFunction::default() };
        host.network_interfaces.push(NetworkInterface {
            name: "enp57s0".to_owned(),
            virtual_functions: vec![row(0), row(1)],
            ..NetworkInterface::default()
        });
        // iproute2 6.15 on igb.
        let links = serde_json::json!([
            {"ifname": "lo"},
            {"ifname": "enp57s0", "vfinfo_list": [
                {"vf": 0, "link_type": "ether", "address": "02:00:00:00:00:01", "vlan_list": [{"vlan": 7}],
                    "rate": {"max_tx": 100, "min_tx": 0}, "spoofchk": true, "trust": true},
                {"vf": 1, "address": "00:00:00:00:00:00", "trust": false},
                {"vf": 9, "address": "02:00:00:00:00:09"}, {"vf": "x"}, 3]},
        ]);
        merge(&mut host, &links);
        let card = host.network_interfaces.last().unwrap();
        let seen: Vec<_> =
            card.virtual_functions.iter().map(|row| (row.mac.as_deref().unwrap(), row.vlan, row.trusted)).collect();
        assert_eq!(seen, [("02:00:00:00:00:01", Some(7), Some(true)), ("00:00:00:00:00:00", Some(0), Some(false))]);
        assert_eq!(
            (card.virtual_functions[0].spoof_check, card.virtual_functions[0].max_rate),
            (Some(true), Some(100))
        );
        assert_eq!((card.virtual_functions[1].spoof_check, card.virtual_functions[1].max_rate), (None, None));
        let before = host.clone();
        for junk in [serde_json::json!({}), serde_json::json!([1, {"ifname": 5}]), Value::Null] {
            merge(&mut host, &junk);
        }
        assert_eq!(host, before);
    }
}
