//! What network cards take off the network stack: `ethtool --json -k`. /sys has no file for it.

use nearmetal_host::{Host, Offload};
use serde_json::Value;

use super::ask;

/// Names of `ethtool -k` that rules look at, with the beginning and the end of the kernel's own names they stand for. Those
/// with several say nothing themselves of whether they can be changed.
const NAMES: [(&str, &str, &str); 7] = [
    ("rx-checksumming", "", ""),
    ("tx-checksumming", "tx-checksum-", ""),
    ("scatter-gather", "tx-scatter-gather", ""),
    ("tcp-segmentation-offload", "tx-tcp", "-segmentation"),
    ("generic-segmentation-offload", "", ""),
    ("generic-receive-offload", "", ""),
    ("large-receive-offload", "", ""),
];

/// Asks for cards that carry a bridge or a bond and are up: through others no guest's packets pass.
pub(super) fn fill_in(host: &mut Host) {
    for card in &mut host.network_interfaces {
        if card.pci.is_some() && card.master.is_some() && card.state.as_deref() == Some("up") {
            // A name cannot begin with a hyphen and be mistaken for an option: ethtool takes it as the option's value.
            let answer = ask("ethtool", &["--json", "-k", &card.name]);
            card.offloads = answer.iter().flatten().flat_map(|answer| offloads(answer, &card.name)).collect();
        }
    }
}

/// `[{"ifname": "eth0", "tx-checksumming": {"active": true, "fixed": null, "requested": null}, …}]`
fn offloads(answer: &Value, card: &str) -> Vec<Offload> {
    let of_card = answer.as_array().into_iter().flatten().find(|entry| entry["ifname"] == card);
    let Some(features) = of_card.and_then(Value::as_object) else { return Vec::new() };
    let mut found = Vec::new();
    for (name, begin, end) in NAMES {
        let Some(on) = features.get(name).and_then(|feature| feature["active"].as_bool()) else { continue };
        let fixed = features[name]["fixed"].as_bool().unwrap_or_else(|| {
            let mut parts = features.iter().filter(|(part, _)| part.starts_with(begin) && part.ends_with(end));
            parts.all(|(_, part)| part["fixed"].as_bool() == Some(true))
        });
        found.push(Offload { name: name.to_owned(), on, fixed });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_fixed_where_all_their_parts_are() {
        // ethtool 6.1 on virtio, shortened.
        let answer = serde_json::json!([{
            "ifname": "eth0",
            "rx-checksumming": {"active": true, "fixed": true, "requested": false},
            "tx-checksumming": {"active": true, "fixed": null, "requested": null},
            "tx-checksum-ipv4": {"active": false, "fixed": true, "requested": false},
            "tx-checksum-ip-generic": {"active": true, "fixed": false, "requested": true},
            "tcp-segmentation-offload": {"active": false, "fixed": null, "requested": null},
            "tx-tcp-segmentation": {"active": false, "fixed": true, "requested": false},
            "tx-tcp6-segmentation": {"active": false, "fixed": true, "requested": false},
            "large-receive-offload": {"active": false, "fixed": true, "requested": false},
        }]);
        let seen: Vec<_> = offloads(&answer, "eth0").into_iter().map(|one| (one.name, one.on, one.fixed)).collect();
        let expected = [
            ("rx-checksumming", true, true),
            ("tx-checksumming", true, false),
            ("tcp-segmentation-offload", false, true),
            ("large-receive-offload", false, true),
        ];
        assert_eq!(seen, expected.map(|(name, on, fixed)| (name.to_owned(), on, fixed)));
        for junk in
            [serde_json::json!({}), serde_json::json!([1, {"ifname": "eth0", "rx-checksumming": 3}]), Value::Null]
        {
            assert_eq!(offloads(&junk, "eth0"), []);
        }
        assert_eq!(offloads(&answer, "eth1"), []);
    }
}
