//! The templates of a plan: what `edited` made in a bare definition, each part at its place.

use nearmetal_domain::{OFFLOADS, children_before};
use roxmltree::Node;

use super::sheet::{Child, Sheet, attribute, literal, stop, text};
use crate::guests::Guest;

/// A text as it stands between single quotes.
pub(super) fn escaped(value: &str) -> String {
    attribute(value).replace('\'', "&apos;")
}

/// Writes the templates; `planned` is the bare definition after the plan.
pub(super) fn write(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>) {
    let mut children = Vec::new();
    memory_backing(sheet, guest, planned, &mut children);
    iothreads(sheet, planned, &mut children);
    cputune(sheet, guest, planned, &mut children);
    if let Some(numatune) = child(planned, "numatune") {
        children.push(whole(numatune));
        sheet.template("/domain/numatune", &xml(numatune));
    }
    cpu(sheet, planned, &mut children);
    if !guest.placement.is_floating() {
        sheet.template("/domain/vcpu/@placement[.='auto']", "<xsl:attribute name=\"placement\">static</xsl:attribute>");
    }
    sheet.element("/domain", &guards(guest), &[], &children);
    disks(sheet, guest, planned);
    interfaces(sheet, guest, planned);
    functions(sheet, guest, planned);
}

/// What must be so in a definition before a plan fits it.
fn guards(guest: &Guest<'_>) -> String {
    let vcpus = guest.facts.vcpus.maximum;
    let mut guards =
        stop(&format!("string(name) != {}", literal(&guest.facts.name)), "this definition is of another VM");
    let again = "plan again";
    if !guest.placement.is_floating() {
        let message = format!("the plan is for {vcpus} vCPUs: {again}");
        guards.push_str(&stop(&format!("number(vcpu) != {vcpus}"), &message));
        // libvirt's default unit is KiB; the provider writes MiB.
        let kib = guest.facts.memory.kib();
        let other = format!(
            "(memory/@unit = 'MiB' and number(memory) * 1024 != {kib}) or \
             ((not(memory/@unit) or memory/@unit = 'KiB') and number(memory) != {kib})"
        );
        guards.push_str(&stop(&other, &format!("the plan is for {} of memory: {again}", guest.facts.memory)));
        guards.push_str(&stop("iothreadids", &format!("the plan numbers iothreads by itself: {again}")));
    }
    for disk in &guest.placement.disks {
        let test = format!("not(devices/disk[target/@dev = {}])", literal(&disk.target));
        guards.push_str(&stop(&test, &format!("there is no disk {}: {again}", disk.target)));
    }
    for network in &guest.placement.networks {
        let test = format!("not(devices/interface[{}])", of_mac(&network.mac.to_string()));
        guards.push_str(&stop(&test, &format!("no interface has the address {}: write it as `mac`", network.mac)));
    }
    guards
}

/// Hugepages.
fn memory_backing(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>, children: &mut Vec<Child>) {
    let hugepages = child(planned, "memoryBacking").and_then(|backing| child(backing, "hugepages"));
    match hugepages {
        Some(hugepages) => {
            children.extend(child(planned, "memoryBacking").map(whole));
            let missing = Child { when: "not(hugepages)".to_owned(), behind: vec![], xml: xml(hugepages) };
            sheet.element("/domain/memoryBacking", "", &[], &[missing]);
            sheet.template("/domain/memoryBacking/hugepages", &xml(hugepages));
        }
        None if !guest.placement.memory.nodes.is_empty() => {
            sheet.template("/domain/memoryBacking/hugepages", "");
            sheet.template("/domain/memoryBacking[hugepages and not(*[not(self::hugepages)])]", "");
        }
        None => {}
    }
}

fn iothreads(sheet: &mut Sheet, planned: Node<'_, '_>, children: &mut Vec<Child>) {
    let Some(iothreads) = child(planned, "iothreads") else { return };
    let count = iothreads.text().unwrap_or_default();
    children.push(Child { when: "not(iothreads)".to_owned(), behind: vec!["vcpu", "vcpus"], xml: xml(iothreads) });
    let more = stop(&format!(". > {count}"), &format!("the plan is for {count} iothreads: plan again"));
    sheet.template("/domain/iothreads", &format!("{more}{}", xml(iothreads)));
}

/// Pins: those that are there go.
fn cputune(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>, children: &mut Vec<Child>) {
    let kinds = ["vcpupin", "emulatorpin", "iothreadpin"];
    if guest.placement.is_floating() {
        let others = "*[not(self::vcpupin or self::emulatorpin or self::iothreadpin)]";
        kinds.iter().for_each(|kind| sheet.template(&format!("/domain/cputune/{kind}"), ""));
        sheet.template(&format!("/domain/cputune[* and not({others})]"), "");
        return;
    }
    let Some(cputune) = child(planned, "cputune") else { return };
    children.push(whole(cputune));
    let mut groups = Vec::new();
    for kind in kinds {
        let pins: String = cputune.children().filter(|node| node.has_tag_name(kind)).map(xml).collect();
        // Pins of iothreads stay where the plan has no iothread.
        if pins.is_empty() && kind == "iothreadpin" {
            continue;
        }
        sheet.template(&format!("/domain/cputune/{kind}"), "");
        groups.push(Child {
            when: "true()".to_owned(),
            behind: children_before("cputune", kind).unwrap_or_default().to_vec(),
            xml: pins,
        });
    }
    sheet.element("/domain/cputune", "", &[], &groups);
}

/// Topology and cells.
fn cpu(sheet: &mut Sheet, planned: Node<'_, '_>, children: &mut Vec<Child>) {
    let Some(cpu) = child(planned, "cpu") else { return };
    children.push(whole(cpu));
    let parts = ["topology", "numa"].into_iter().filter_map(|name| child(cpu, name));
    let missing: Vec<Child> = parts.map(whole).collect();
    sheet.element("/domain/cpu", "", &[], &missing);
    if let Some(topology) = child(cpu, "topology") {
        let wanted: Vec<(&str, Option<String>)> = ["sockets", "cores", "threads"]
            .iter()
            .filter_map(|name| Some((*name, Some(topology.attribute(*name)?.to_owned()))))
            .collect();
        sheet.element("/domain/cpu/topology", "", &wanted, &[]);
        for part in ["dies", "clusters"] {
            let one = format!("<xsl:attribute name=\"{part}\">1</xsl:attribute>");
            sheet.template(&format!("/domain/cpu/topology/@{part}"), &one);
        }
    }
    if let Some(numa) = child(cpu, "numa") {
        sheet.template("/domain/cpu/numa", &xml(numa));
    }
}

fn disks(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>) {
    for disk in &guest.placement.disks {
        let is_it = |node: &Node<'_, '_>| {
            child(*node, "target").is_some_and(|target| target.attribute("dev") == Some(disk.target.as_str()))
        };
        let Some(driver) = devices(planned, "disk").into_iter().find(is_it).and_then(|node| child(node, "driver"))
        else {
            continue;
        };
        let pattern = format!("/domain/devices/disk[target/@dev = {}]", literal(&disk.target));
        let missing = Child { when: "not(driver)".to_owned(), behind: vec![], xml: xml(driver) };
        sheet.element(&pattern, "", &[], &[missing]);
        let mut options: Vec<(&str, Option<String>)> = driver
            .attributes()
            .filter(|option| !["name", "type"].contains(&option.name()))
            .map(|option| (option.name(), Some(option.value().to_owned())))
            .collect();
        let mut children = Vec::new();
        let is_main_loop = disk.queues.is_some() && disk.iothread.or(disk.iothreads).is_none();
        if is_main_loop {
            options.push(("iothread", None));
        }
        if let Some(shared) = child(driver, "iothreads").filter(|_| disk.iothreads.is_some()) {
            options.push(("iothread", None));
            children.push(Child { when: "not(iothreads)".to_owned(), behind: vec![], xml: xml(shared) });
            sheet.template(&format!("{pattern}/driver/iothreads"), &xml(shared));
        }
        sheet.element(&format!("{pattern}/driver"), "", &options, &children);
        if disk.iothread.is_some() || is_main_loop {
            sheet.template(&format!("{pattern}/driver/iothreads"), "");
        }
    }
}

/// Addresses are compared in lower case: the provider writes capitals.
fn of_mac(mac: &str) -> String {
    format!("translate(mac/@address, 'ABCDEF', 'abcdef') = '{mac}'")
}

fn interfaces(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>) {
    for network in &guest.placement.networks {
        let mac = network.mac.to_string();
        let is_it =
            |node: &Node<'_, '_>| child(*node, "mac").is_some_and(|own| own.attribute("address") == Some(mac.as_str()));
        let found = devices(planned, "interface").into_iter().find(is_it);
        let Some(driver) = found.and_then(|node| child(node, "driver")) else { continue };
        let pattern = format!("/domain/devices/interface[{}]", of_mac(&mac));
        let behind = children_before("interface", "driver").unwrap_or_default().to_vec();
        let missing = Child { when: "not(driver)".to_owned(), behind, xml: xml(driver) };
        sheet.element(&pattern, "", &[], &[missing]);
        let options = ["name", "queues"].map(|name| (name, driver.attribute(name).map(str::to_owned)));
        let sides: Vec<Child> = ["host", "guest"]
            .into_iter()
            .filter_map(|side| {
                let xml = xml(child(driver, side)?);
                Some(Child { when: format!("not({side})"), behind: vec!["host"], xml })
            })
            .collect();
        sheet.element(&format!("{pattern}/driver"), "", &options, &sides);
        for (side, names) in OFFLOADS.iter().filter(|_| network.offloads_off) {
            let off: Vec<(&str, Option<String>)> = names.iter().map(|name| (*name, Some("off".to_owned()))).collect();
            sheet.element(&format!("{pattern}/driver/{side}"), "", &off, &[]);
        }
    }
}

/// Functions, and the controllers that show them on a cell.
fn functions(sheet: &mut Sheet, guest: &Guest<'_>, planned: Node<'_, '_>) {
    let Some(parent) = child(planned, "devices") else { return };
    let mut children = Vec::new();
    let mut controllers = false;
    for name in ["controller", "interface", "hostdev"] {
        for node in parent.children().filter(|node| node.has_tag_name(name)) {
            // The interfaces of the bare definition have no alias.
            let alias = child(node, "alias").and_then(|alias| alias.attribute("name"));
            let Some(alias) = alias else { continue };
            controllers |= name == "controller";
            children.push(Child {
                when: format!("not({name}[alias/@name = {}])", literal(alias)),
                behind: children_before("devices", name).unwrap_or_default().to_vec(),
                xml: xml(node),
            });
        }
    }
    if children.is_empty() {
        return;
    }
    let mut guard = String::new();
    if controllers && guest.facts.boot.is_q35() {
        let q35 = "../os/type[starts-with(@machine, 'q35') or starts-with(@machine, 'pc-q35-')]";
        guard =
            stop(&format!("not({q35})"), "functions are shown on cells of a q35 machine only: write machine = \"q35\"");
        let others = "controller[@type = 'pci' and not(starts-with(alias/@name, 'ua-nearmetal'))]";
        guard.push_str(&stop(others, "the definition lays out PCI by itself: plan again"));
    }
    sheet.element("/domain/devices", &guard, &[], &children);
}

fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn devices<'a, 'i>(root: Node<'a, 'i>, name: &str) -> Vec<Node<'a, 'i>> {
    let devices = child(root, "devices");
    devices.into_iter().flat_map(|devices| devices.children()).filter(|node| node.has_tag_name(name)).collect()
}

/// An element where its parent lacks it, behind those that libvirt prints before it.
fn whole(node: Node<'_, '_>) -> Child {
    let name = node.tag_name().name();
    let parent = node.parent().map_or("domain", |parent| parent.tag_name().name());
    let behind = children_before(parent, name).unwrap_or_default().to_vec();
    Child { when: format!("not({name})"), behind, xml: xml(node) }
}

/// An element as it stands in a stylesheet: braces in attributes are doubled there.
fn xml(node: Node<'_, '_>) -> String {
    if let Some(content) = node.text().filter(|_| node.is_text()) {
        return text(content.trim());
    }
    if !node.is_element() {
        return String::new();
    }
    let name = node.tag_name().name();
    let mut out = format!("<{name}");
    for own in node.attributes() {
        let value = attribute(own.value()).replace('{', "{{").replace('}', "}}");
        out.push_str(&format!(" {}=\"{value}\"", own.name()));
    }
    let inside: String = node.children().map(xml).collect();
    match inside.is_empty() {
        true => out + "/>",
        false => format!("{out}>{inside}</{name}>"),
    }
}
