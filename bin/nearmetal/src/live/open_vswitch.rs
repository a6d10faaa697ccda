//! Open vSwitch's settings for packet processing in user space, from its database by `ovs-vsctl`.
//!
//! ovs-vswitchd.conf.db(5): `other_config:dpdk-init` and `pmd-cpu-mask` of Open_vSwitch, `options:dpdk-devargs` of Interface.

use nearmetal_host::{DpdkPort, OpenVswitch};
use nearmetal_units::CpuSet;
use serde_json::Value;

use super::ask;

/// Seconds the database may take to answer.
const TIMEOUT: &str = "--timeout=2";

/// What it says; `None` where it is not installed, does not run, or lets root alone ask. PUs that are not online are none.
pub(super) fn ask_it(online: &CpuSet) -> Option<OpenVswitch> {
    let settings = ["--columns=other_config", "list", "Open_vSwitch"];
    let interfaces = ["--columns=name,type,options", "list", "Interface"];
    let mut arguments = vec![TIMEOUT, "--no-wait", "--format=json", "--"];
    arguments.extend(settings);
    arguments.push("--");
    arguments.extend(interfaces);
    match &ask("ovs-vsctl", &arguments)?[..] {
        [settings, interfaces] => read(settings, interfaces, online),
        _ => None,
    }
}

fn read(settings: &Value, interfaces: &Value, online: &CpuSet) -> Option<OpenVswitch> {
    let config = settings["data"].as_array()?.first()?.get(0)?;
    let mut switch = OpenVswitch {
        dpdk: matches!(entry(config, "dpdk-init"), Some("true" | "try")),
        polling_cpus: entry(config, "pmd-cpu-mask").and_then(|mask| cpus(mask, online)),
        ports: Vec::new(),
    };
    for row in interfaces["data"].as_array().into_iter().flatten() {
        if let (Some(name), Some("dpdk")) = (row[0].as_str(), row[1].as_str()) {
            // `0000:02:00.0,dv_flow_en=1`; other kinds of devices have other words.
            let device = entry(&row[2], "dpdk-devargs").and_then(|words| words.split(',').next());
            switch.ports.push(DpdkPort { name: name.to_owned(), function: device.and_then(|word| word.parse().ok()) });
        }
    }
    Some(switch)
}

/// A value of `["map", [["name", "value"], …]]`.
fn entry<'a>(map: &'a Value, name: &str) -> Option<&'a str> {
    map[1].as_array()?.iter().find(|pair| pair[0] == name)?[1].as_str()
}

/// A mask in hexadecimal, with or without `0x`; a mask of nothing is none.
fn cpus(mask: &str, online: &CpuSet) -> Option<CpuSet> {
    let digits = mask.strip_prefix("0x").or_else(|| mask.strip_prefix("0X")).unwrap_or(mask);
    // The kernel's masks have a comma at every 8 digits, counted from the right.
    let words: Option<Vec<&str>> =
        digits.as_bytes().rchunks(8).rev().map(|word| std::str::from_utf8(word).ok()).collect();
    let set = CpuSet::parse_mask(&words?.join(",")).ok()?;
    let set = set.intersection(online);
    (!set.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // Open vSwitch 3.1 printed these.
    fn settings() -> Value {
        json!({"data": [[["map", [["dpdk-init", "true"], ["pmd-cpu-mask", "0x80006"]]]]], "headings": ["other_config"]})
    }

    fn interfaces() -> Value {
        json!({"data": [
            ["br0", "internal", ["map", []]],
            ["vhu0", "dpdkvhostuserclient", ["map", [["vhost-server-path", "/run/vhu0"]]]],
            ["dpdk0", "dpdk", ["map", [["dpdk-devargs", "0000:02:00.0,n=1"]]]]],
            "headings": ["name", "type", "options"]})
    }

    #[test]
    fn masks_and_cards_are_read_from_the_database() {
        let switch = read(&settings(), &interfaces(), &"0-31".parse().unwrap()).unwrap();
        assert_eq!((switch.dpdk, switch.polling_cpus.unwrap().to_string().as_str()), (true, "1-2,19"));
        let [port] = &switch.ports[..] else { panic!("{:?}", switch.ports) };
        assert_eq!((port.name.as_str(), port.function.unwrap().to_string().as_str()), ("dpdk0", "0000:02:00.0"));
        let unset = read(&json!({"data": [[["map", []]]]}), &json!({"data": []}), &CpuSet::new()).unwrap();
        assert_eq!(unset, OpenVswitch::default());
    }

    #[test]
    fn junk_gives_nothing_and_pus_of_masks_are_online() {
        for junk in [json!({}), json!({"data": []}), json!({"data": [3]}), Value::Null] {
            assert_eq!(read(&junk, &junk, &CpuSet::new()), None, "{junk}");
        }
        assert_eq!(cpus("ff", &"0-2".parse().unwrap()).unwrap().to_string(), "0-2");
        assert_eq!(cpus("100000001", &"0-63".parse().unwrap()).unwrap().to_string(), "0,32");
        for junk in ["", "0x", "0", "0xg", "-1"] {
            assert_eq!(cpus(junk, &"0-63".parse().unwrap()), None, "{junk}");
        }
    }
}
