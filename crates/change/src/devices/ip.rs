//! A network card's table of virtual functions, by iproute2: the kernel gives it out by netlink alone.

use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::ChangeError;
use crate::device_state::{NetworkSettings, Rate, RowSetting, Vlan};
use crate::kernel::Kernel;

/// The rows of a card, by number; what a driver does not tell is `None`.
pub(crate) fn rows(kernel: &dyn Kernel, interface: &str, count: usize) -> Result<Vec<NetworkSettings>, ChangeError> {
    let text = kernel.run("ip", &["-json", "-details", "link", "show", "dev", interface])?;
    parse(&text, interface, count)
        .ok_or_else(|| ChangeError::Kernel(format!("`ip -json -details link show dev {interface}` printed no table")))
}

fn parse(text: &str, interface: &str, count: usize) -> Option<Vec<NetworkSettings>> {
    let document: Value = serde_json::from_str(text).ok()?;
    let link = document.as_array()?.iter().find(|link| link["ifname"] == interface)?;
    let mut rows = vec![NetworkSettings::default(); count];
    for row in link["vfinfo_list"].as_array().into_iter().flatten() {
        let number = row["vf"].as_u64().and_then(|number| usize::try_from(number).ok());
        if let Some(place) = number.and_then(|number| rows.get_mut(number)) {
            *place = settings(row);
        }
    }
    Some(rows)
}

fn settings(row: &Value) -> NetworkSettings {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let vlan = &row["vlan_list"][0];
    NetworkSettings {
        // "mac" before iproute2 5.0.
        mac: row["address"].as_str().or_else(|| row["mac"].as_str()).map(str::to_owned),
        // A row without a tag is in no VLAN, which the kernel numbers 0.
        vlan: Some(Vlan {
            id: number(&vlan["vlan"]).unwrap_or(0),
            priority: number(&vlan["qos"]).unwrap_or(0),
            service: vlan["protocol"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("802.1ad")),
        }),
        spoof_check: row["spoofchk"].as_bool(),
        trust: row["trust"].as_bool(),
        rate: number(&row["rate"]["max_tx"]).map(|max| Rate { max, min: number(&row["rate"]["min_tx"]).unwrap_or(0) }),
        link_state: row["link_state"].as_str().or_else(|| row["link-state"].as_str()).map(str::to_owned),
    }
}

/// Sets one setting of one row. Each by itself, so that a refusal names it.
pub(super) fn set(
    kernel: &dyn Kernel,
    interface: &str,
    number: usize,
    setting: &RowSetting,
) -> Result<(), ChangeError> {
    let number = number.to_string();
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let words: Vec<String> = match setting {
        RowSetting::Mac(mac) => vec!["mac".to_owned(), mac.clone()],
        RowSetting::Vlan(vlan) => {
            let mut words = vec!["vlan".to_owned(), vlan.id.to_string(), "qos".to_owned(), vlan.priority.to_string()];
            words.extend(vlan.service.then(|| ["proto", "802.1ad"].map(str::to_owned)).into_iter().flatten());
            words
        }
        RowSetting::SpoofCheck(on) => vec!["spoofchk".to_owned(), switch(*on)],
        RowSetting::Trust(on) => vec!["trust".to_owned(), switch(*on)],
        RowSetting::Rate(rate) => {
            // A driver that knows no least rate refuses even 0.
            let mut words = vec!["max_tx_rate".to_owned(), rate.max.to_string()];
            words
                .extend((rate.min > 0).then(|| ["min_tx_rate".to_owned(), rate.min.to_string()]).into_iter().flatten());
            words
        }
        RowSetting::LinkState(state) => vec!["state".to_owned(), state.clone()],
    };
    let mut arguments = vec!["link", "set", "dev", interface, "vf", &number];
    arguments.extend(words.iter().map(String::as_str));
    let first = kernel.run("ip", &arguments);
    // A card that has just got its functions anew is without its link for a moment.
    let again = first.is_err() && matches!(setting, RowSetting::Rate(_)) && link_returns(kernel, interface);
    match if again { kernel.run("ip", &arguments) } else { first } {
        Ok(_) => Ok(()),
        // igb knows no rate without a link, and says only that the argument is invalid.
        Err(ChangeError::Kernel(why)) if matches!(setting, RowSetting::Rate(_)) && !has_link(kernel, interface) => {
            Err(ChangeError::Kernel(format!(
                "{why}; `{interface}` has no link, and some drivers need one to limit rates: run `ip link set \
                 {interface} up` first"
            )))
        }
        Err(error) => Err(error),
    }
}

/// How long a link may take to come back, and how often it is looked at.
const LINK_PATIENCE: Duration = Duration::from_secs(20);
const LINK_STEP: Duration = Duration::from_millis(200);

/// Waits for the link of an interface that is to be up; at once `false` for one that is not, or has its link.
fn link_returns(kernel: &dyn Kernel, interface: &str) -> bool {
    let flags = kernel.read(&format!("/sys/class/net/{interface}/flags"));
    // IFF_UP, include/uapi/linux/if.h.
    let is_up = matches!(flags, Ok(Some(text)) if flag_bits(&text).is_some_and(|bits| bits & 1 == 1));
    if !is_up || has_link(kernel, interface) {
        return false;
    }
    (0..LINK_PATIENCE.as_millis() / LINK_STEP.as_millis()).any(|_| {
        sleep(LINK_STEP);
        has_link(kernel, interface)
    })
}

/// The flags of an interface, `0x1003`.
pub(super) fn flag_bits(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// Whether the card has a link.
pub(super) fn has_link(kernel: &dyn Kernel, interface: &str) -> bool {
    let state = kernel.read(&format!("/sys/class/net/{interface}/operstate"));
    matches!(state, Ok(Some(text)) if text.trim() == "up")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_iproute2_prints_them() {
        // iproute2 6.15 on igb, shortened; a second row of a driver that tells nothing.
        let text = r#"[{"ifname":"enp57s0","vfinfo_list":[
            {"vf":0,"link_type":"ether","address":"02:00:00:00:00:01","vlan_list":[{"vlan":7,"qos":3}],"tx_rate":100,
             "rate":{"max_tx":100,"min_tx":0},"spoofchk":false,"link_state":"auto","trust":true},
            {"vf":1,"mac":"00:00:00:00:00:00","vlan_list":[{}]},
            {"vf":9,"address":"02:00:00:00:00:09"},{"vf":"x"},3]}]"#;
        let rows = parse(text, "enp57s0", 2).unwrap();
        let first = NetworkSettings {
            mac: Some("02:00:00:00:00:01".to_owned()),
            vlan: Some(Vlan { id: 7, priority: 3, service: false }),
            spoof_check: Some(false),
            trust: Some(true),
            rate: Some(Rate { max: 100, min: 0 }),
            link_state: Some("auto".to_owned()),
        };
        assert_eq!(rows[0], first);
        assert_eq!((rows[1].mac.as_deref(), rows[1].trust, rows[1].rate), (Some("00:00:00:00:00:00"), None, None));
        for junk in ["", "{}", "[]", r#"[{"ifname":"eth1"}]"#] {
            assert_eq!(parse(junk, "enp57s0", 2), None, "{junk}");
        }
    }
}
