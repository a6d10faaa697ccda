//! The model of the running machine against what other programs read from it, field by field.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Case, Verdict, shared};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![shared("inspect/agrees-with-six-other-programs", agrees), shared("inspect/rows-of-virtual-functions", rows)]
}

/// What was set in the card's table is what is read.
fn rows(bench: &Bench) -> anyhow::Result<Verdict> {
    let card = bench.sh("ls /sys/bus/pci/drivers/igb/*/net")?;
    let device = format!("/sys/class/net/{card}/device");
    bench.sh(&format!(
        "set -e; echo 0 > {device}/sriov_drivers_autoprobe; echo 2 > {device}/sriov_numvfs; ip link set {card} up
         ip link set {card} vf 0 mac 02:00:00:00:00:01; ip link set {card} vf 0 vlan 7; ip link set {card} vf 0 trust on"
    ))?;
    let document = bench.json("nearmetal inspect --format json");
    let text = bench.sh("nearmetal inspect");
    bench.sh(&format!(
        "ip link set {card} down; echo 0 > {device}/sriov_numvfs; echo 1 > {device}/sriov_drivers_autoprobe"
    ))?;
    let document = document?;
    let found =
        items(&document["host"], "network_interfaces").iter().find(|interface| interface["name"] == card.as_str());
    let rows = found.map(|interface| items(interface, "virtual_functions")).unwrap_or_default();
    ensure!(rows.len() == 2, "{} rows of {card}: {rows:?}", rows.len());
    let first = (rows[0]["mac"].as_str(), rows[0]["vlan"].as_u64(), rows[0]["trusted"].as_bool());
    ensure!(first == (Some("02:00:00:00:00:01"), Some(7), Some(true)), "{first:?}");
    let second = (rows[1]["vlan"].as_u64(), rows[1]["trusted"].as_bool());
    ensure!(second == (Some(0), Some(false)), "{second:?}");
    ensure!(text?.contains("02:00:00:00:00:01"), "the tables do not show it");
    Ok(Verdict::Holds("MAC, VLAN and trust of two functions of igb".to_owned()))
}

/// Compares and counts: what is not compared cannot disagree, so the verdict says how much was.
struct Fields {
    compared: usize,
    differences: Vec<String>,
}

impl Fields {
    fn same(&mut self, what: &str, ours: &str, theirs: &str) {
        self.compared += 1;
        if ours != theirs {
            self.differences.push(format!("{what}: `{ours}`, and `{theirs}` there"));
        }
    }
}

fn agrees(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let document = bench.json("nearmetal inspect --format json")?;
    let host = &document["host"];
    let mut fields = Fields { compared: 0, differences: Vec::new() };
    lscpu(bench, host, &mut fields)?;
    numactl(bench, host, &mut fields)?;
    lstopo(bench, host, &document["summary"], &mut fields)?;
    lspci(bench, host, &mut fields)?;
    nodedev(bench, host, &mut fields)?;
    vcpuinfo(bench, host, &mut fields)?;
    ensure!(fields.differences.is_empty(), "{} differ: {}", fields.differences.len(), fields.differences.join("; "));
    // 12 PUs, 4 nodes and 11 functions have more than this between them; fewer means that an output was not read.
    ensure!(fields.compared > 150, "only {} fields were compared", fields.compared);
    Ok(Verdict::Holds(format!("{} fields equal", fields.compared)))
}

fn items<'a>(host: &'a Value, name: &str) -> &'a [Value] {
    host[name].as_array().map_or(&[], Vec::as_slice)
}

/// A value as other programs print it: unknown is a dash.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Package, core and node of each PU. lscpu numbers cores and sockets itself, so the sets are compared, not the numbers.
fn lscpu(bench: &Bench, host: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("lscpu -p=CPU,CORE,SOCKET,NODE,ONLINE | grep -v '^#'")?;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    ensure!(rows.iter().all(|row| row.len() == 5), "lscpu: {text}");
    let processors = items(host, "processors");
    fields.same("number of PUs", &processors.len().to_string(), &rows.len().to_string());
    for row in &rows {
        let index: u64 = row[0].parse()?;
        let ours = processors.iter().find(|pu| pu["index"] == index).with_context(|| format!("no PU {index}"))?;
        let theirs = |column: usize| -> BTreeSet<u64> {
            rows.iter().filter(|other| other[column] == row[column]).filter_map(|other| other[0].parse().ok()).collect()
        };
        let of_ours = |same: &dyn Fn(&Value) -> bool| -> BTreeSet<u64> {
            processors.iter().filter(|other| same(other)).filter_map(|other| other["index"].as_u64()).collect()
        };
        let core = of_ours(&|other| other["siblings"] == ours["siblings"]);
        fields.same(&format!("core of PU {index}"), &format!("{core:?}"), &format!("{:?}", theirs(1)));
        let package = of_ours(&|other| other["package"] == ours["package"]);
        fields.same(&format!("package of PU {index}"), &format!("{package:?}"), &format!("{:?}", theirs(2)));
        fields.same(&format!("node of PU {index}"), &shown(&ours["node"]), row[3]);
        fields.same(&format!("PU {index} online"), if ours["online"] == true { "Y" } else { "N" }, row[4]);
    }
    Ok(())
}

/// PUs, memory and distances of each node.
fn numactl(bench: &Bench, host: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("numactl -H")?;
    let after = |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).map(str::trim);
    for node in items(host, "nodes") {
        let index = shown(&node["index"]);
        let pus: Vec<String> = items(host, "processors")
            .iter()
            .filter(|pu| pu["node"] == node["index"])
            .map(|pu| pu["index"].to_string())
            .collect();
        fields.same(
            &format!("PUs of node {index}"),
            &pus.join(" "),
            after(&format!("node {index} cpus:")).unwrap_or("?"),
        );
        let mib = node["memory_total"].as_u64().map(|bytes| format!("{} MB", bytes >> 20)).unwrap_or_default();
        fields.same(&format!("memory of node {index}"), &mib, after(&format!("node {index} size:")).unwrap_or("?"));
        let distances: Vec<String> = items(node, "distances").iter().map(|pair| pair[1].to_string()).collect();
        let row = text.lines().rfind(|line| line.trim_start().starts_with(&format!("{index}:"))).unwrap_or_default();
        let row: Vec<&str> = row.split_whitespace().skip(1).collect();
        fields.same(&format!("distances of node {index}"), &distances.join(" "), &row.join(" "));
    }
    Ok(())
}

/// Counts, and every PCI function hwloc sees.
fn lstopo(bench: &Bench, host: &Value, summary: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("lstopo-no-graphics --of xml --whole-io")?;
    let count = |kind: &str| text.matches(&format!("<object type=\"{kind}\"")).count().to_string();
    for (name, kind) in [("packages", "Package"), ("numa_nodes", "NUMANode"), ("cores", "Core"), ("pus", "PU")] {
        fields.same(name, &shown(&summary[name]), &count(kind));
    }
    let known: BTreeSet<String> = items(host, "pci_devices").iter().map(|device| shown(&device["address"])).collect();
    for part in text.split("pci_busid=\"").skip(1) {
        let address = part.split('"').next().unwrap_or_default();
        fields.same("PCI function of hwloc", if known.contains(address) { address } else { "absent" }, address);
    }
    Ok(())
}

/// Ids, class, driver, node and IOMMU group of each function.
fn lspci(bench: &Bench, host: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("lspci -D -vvvmmnnk")?;
    let verbose = bench.sh("lspci -D -vv")?;
    let hexadecimal = |value: &Value, digits: usize| {
        value.as_u64().map_or_else(|| "-".to_owned(), |number| format!("{number:0digits$x}"))
    };
    let in_brackets = |text: &str| text.rsplit_once('[').map_or("-", |(_, id)| id.trim_end_matches(']')).to_owned();
    let mut seen = 0;
    for record in text.split("\n\n") {
        let values: BTreeMap<&str, &str> = record.lines().filter_map(|line| line.split_once(":\t")).collect();
        let Some(address) = values.get("Slot") else { continue };
        let ours = items(host, "pci_devices").iter().find(|device| device["address"] == **address);
        let ours = ours.with_context(|| format!("lspci has {address}, the model does not"))?;
        let theirs = |name: &str| values.get(name).map_or("-".to_owned(), |value| in_brackets(value));
        let plain = |name: &str| values.get(name).map_or("-".to_owned(), |value| (*value).to_owned());
        // lspci leaves out the lowest byte of the class, the programming interface.
        let class = hexadecimal(&ours["class"], 6);
        fields.same(&format!("class of {address}"), &class[..4.min(class.len())], &theirs("Class"));
        fields.same(&format!("vendor of {address}"), &hexadecimal(&ours["vendor"], 4), &theirs("Vendor"));
        fields.same(&format!("device of {address}"), &hexadecimal(&ours["device"], 4), &theirs("Device"));
        fields.same(&format!("driver of {address}"), &shown(&ours["driver"]), &plain("Driver"));
        fields.same(&format!("node of {address}"), &shown(&ours["node"]), &plain("NUMANode"));
        fields.same(&format!("IOMMU group of {address}"), &shown(&ours["iommu_group"]), &plain("IOMMUGroup"));
        let block = verbose.split("\n\n").find(|block| block.starts_with(*address)).unwrap_or_default();
        let count = |name: &str| block.lines().find_map(|line| line.split(name).nth(1)?.split(',').next());
        let vfs = shown(&ours["sriov"]["vfs"]);
        fields.same(&format!("VFs of {address}"), &vfs, count("Number of VFs: ").unwrap_or("-"));
        // A driver may allow fewer than the hardware has (igb: 7 of 8), and the kernel's figure is the driver's.
        let able: Option<u64> = count("Total VFs: ").and_then(|text| text.parse().ok());
        let fewer = ours["sriov"]["total_vfs"].as_u64() <= able;
        fields.same(&format!("total VFs of {address} within the hardware's"), if fewer { "yes" } else { "no" }, "yes");
        seen += 1;
    }
    fields.same("number of PCI functions", &items(host, "pci_devices").len().to_string(), &seen.to_string());
    Ok(())
}

/// Node and IOMMU group of each function as libvirt gives them.
fn nodedev(bench: &Bench, host: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("for d in $(virsh -q nodedev-list --cap pci); do virsh nodedev-dumpxml $d; done")?;
    for device in text.split("</device>").filter(|part| part.contains("<capability type='pci'>")) {
        let within = |start: &str, end: &str| device.split(start).nth(1)?.split(end).next().map(str::to_owned);
        let path = within("<path>", "</path>").unwrap_or_default();
        let address = path.rsplit('/').next().unwrap_or_default();
        let ours = items(host, "pci_devices").iter().find(|device| device["address"] == address);
        let ours = ours.with_context(|| format!("libvirt has {address}, the model does not"))?;
        let group = within("<iommuGroup number='", "'").unwrap_or("-".to_owned());
        fields.same(&format!("libvirt's IOMMU group of {address}"), &shown(&ours["iommu_group"]), &group);
        let node = within("<numa node='", "'").unwrap_or("-".to_owned());
        fields.same(&format!("libvirt's node of {address}"), &shown(&ours["node"]), &node);
        let driver = within("<driver>", "</driver>")
            .and_then(|text| Some(text.split("<name>").nth(1)?.split('<').next()?.to_owned()));
        fields.same(
            &format!("libvirt's driver of {address}"),
            &shown(&ours["driver"]),
            &driver.unwrap_or("-".to_owned()),
        );
    }
    Ok(())
}

/// Affinity of each vCPU thread.
fn vcpuinfo(bench: &Bench, host: &Value, fields: &mut Fields) -> anyhow::Result<()> {
    let text = bench.sh("virsh vcpuinfo web1")?;
    let guest =
        items(host, "guests").iter().find(|guest| guest["name"] == "web1").context("web1 is not in the model")?;
    let masks: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("CPU Affinity:")).map(str::trim).collect();
    ensure!(masks.len() == 2, "vcpuinfo: {text}");
    for (number, mask) in masks.iter().enumerate() {
        let theirs: Vec<String> =
            mask.char_indices().filter(|(_, letter)| *letter == 'y').map(|(index, _)| index.to_string()).collect();
        let thread = items(guest, "threads").iter().find(|thread| thread["role"]["vcpu"] == number);
        let thread = thread.with_context(|| format!("no thread of vCPU {number}: {}", guest["threads"]))?;
        fields.same(&format!("affinity of vCPU {number}"), &shown(&thread["affinity"]), &theirs.join(","));
    }
    Ok(())
}
