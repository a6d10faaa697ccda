//! What a plan takes from a network matrix for one interface of a guest, and what it only tells.

use nearmetal_domain::InterfaceFacts;
use nearmetal_host::{Host, NetworkInterface};
use nearmetal_load::NetTest;
use nearmetal_measure::Function;
use nearmetal_place::{GuestRequest, MeasuredNetwork, NetworkBackend, NetworkPlacement, WorkloadClass};
use nearmetal_results::{Advice, Backend, Link, NetArmResult, NetFigure, NetMatrixResults};
use nearmetal_units::MacAddress;

use super::net_matrix::{in_the_guest, price, reference};
use super::race::measured_text;

/// Where an interface's packets leave this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WayOut {
    /// Interface of the port.
    pub(crate) port: String,
    /// How the interface is joined to it, where a matrix measures such a way.
    pub(crate) link: Option<Link>,
}

impl WayOut {
    /// Out of the definition and the host; `None` where they do not tell one port of a card. `live` is the same interface
    /// in the definition in force: there libvirt writes the bridge that one of its networks stands for.
    pub(crate) fn of(interface: &InterfaceFacts, live: Option<&InterfaceFacts>, host: &Host) -> Option<Self> {
        let found = |name: &str| host.network_interfaces.iter().find(|found| found.name == name);
        let (on, mode) = match interface.kind.as_str() {
            "bridge" | "direct" => (interface.source.as_deref()?, interface.source_mode.as_deref()),
            "network" => {
                let live = live.filter(|live| live.kind == "network" && live.source_mode.is_none())?;
                (live.source.as_deref()?, None)
            }
            _ => return None,
        };
        let lower = found(on)?;
        if interface.kind != "direct" {
            let mut ports = host
                .network_interfaces
                .iter()
                .filter(|member| member.master.as_deref() == Some(on) && member.pci.is_some());
            // With several it is not known which one a packet takes.
            let (port, None) = (ports.next()?, ports.next()) else { return None };
            let link = (card_of(port, host) == Some(port)).then_some(Link::Bridge)?;
            return Some(Self { port: port.name.clone(), link: Some(link) });
        }
        let port = card_of(lower, host)?;
        let on_a_function = port.name != lower.name;
        let link = match mode {
            Some("bridge") if !on_a_function => Some(Link::MacvtapBridge),
            Some("private") if !on_a_function => Some(Link::MacvtapPrivate),
            Some("passthrough") if on_a_function => Some(Link::VfMacvtapPassthrough),
            Some("passthrough") => Some(Link::MacvtapPassthrough),
            _ => None,
        };
        Some(Self { port: port.name.clone(), link })
    }
}

/// The port of the card an interface is on: itself, or for a virtual function the interface of its physical one.
fn card_of<'a>(interface: &'a NetworkInterface, host: &'a Host) -> Option<&'a NetworkInterface> {
    let address = interface.pci?;
    let device = host.pci_devices.iter().find(|device| device.address == address)?;
    match device.physical_function {
        None => Some(interface),
        Some(physical) => host.network_interfaces.iter().find(|found| found.pci == Some(physical)),
    }
}

/// An interface that a matrix was found for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Its guest.
    pub(crate) guest: &'a GuestRequest,
    /// It.
    pub(crate) interface: &'a InterfaceFacts,
    /// Its address.
    pub(crate) mac: MacAddress,
    /// Where its packets leave.
    pub(crate) way: &'a WayOut,
    /// Virtual functions of that port.
    pub(crate) functions: &'a [Function],
    /// Whether this machine has vhost-net now.
    pub(crate) has_vhost: bool,
}

/// What a plan takes from a matrix for one interface; `Err` says in words why it takes nothing and tells nothing.
pub(crate) fn for_plan(results: &NetMatrixResults, wanted: &Wanted<'_>) -> Result<MeasuredNetwork, String> {
    let (arm, estimate) = match results.advice() {
        Advice::Use(arm, estimate) => (arm, estimate),
        Advice::Default => return Err(format!("nothing was shown better than {}", reference(results))),
        Advice::NoneFaster(arm, estimate) => {
            let (title, than) = (arm.path.title(), reference(results));
            return Err(format!("its best, {title}, was not shown better than {than}: {estimate}"));
        }
        Advice::Unknown => return Err("it has no winner that was measured again".to_owned()),
    };
    let title = arm.path.title();
    let class = wanted.guest.class;
    if let Some((test, ratio)) = shown_slower(results, class) {
        let than = reference(results);
        return Err(format!(
            "its winner, {title}, did {ratio} of {than} in {test}, which counts for class {}",
            class.word()
        ));
    }
    let figure = results.confirmation.as_ref().and_then(|fresh| fresh.of_test(results.decided_by()));
    let bound = figure.is_some_and(|figure| figure.peer_bound == Some(true));
    let because = format!(
        "{}{}",
        measured_text(
            (&results.created, &results.guest),
            (estimate, &format!("{} in {}", reference(results), results.decided_by().id())),
            ("card model", &results.ground),
            &results.environment
        ),
        if bound { ", the winner at the peer's limit" } else { "" }
    );
    let (guest, mac) = (wanted.guest.name.clone(), wanted.mac);
    if wanted.way.link != Some(arm.path.link) {
        let why = "it joins the guest in another way, so the interface is not changed";
        let because = format!("{title}: {because}; {why}: {}", by_hand(arm, wanted));
        return Ok(MeasuredNetwork { guest, mac, options: None, because });
    }
    if arm.path.rps {
        let why = "part of it is set in the guest, so the interface is not changed";
        let because = format!("{title}: {because}; {why}: {}", by_hand(arm, wanted));
        return Ok(MeasuredNetwork { guest, mac, options: None, because });
    }
    Ok(MeasuredNetwork { guest, mac, options: Some(options(arm, wanted)?), because })
}

/// What is set on an interface that is joined as the winner is; `Err` where it has what the winner had not.
fn options(arm: &NetArmResult, wanted: &Wanted<'_>) -> Result<NetworkPlacement, String> {
    let (title, interface) = (arm.path.title(), wanted.interface);
    if !interface.is_virtio_tap() {
        let model = interface.model.as_deref().unwrap_or("an emulated card");
        return Err(format!("its winner, {title}, is a virtio card, and this one is {model}"));
    }
    let queues = arm.path.queues.unwrap_or(1);
    if queues == 0 || queues > wanted.guest.vcpus.max(1) {
        let vcpus = wanted.guest.vcpus;
        return Err(format!("its winner, {title}, has {queues} queues, and this guest {vcpus} vCPUs: measure it here"));
    }
    if arm.path.offloads && !interface.offloads_off.is_empty() {
        let off = interface.offloads_off.join(", ");
        return Err(format!("its winner, {title}, was measured with all offloads, and this interface has off: {off}"));
    }
    let backend = match arm.path.backend {
        Some(Backend::Vhost) if !wanted.has_vhost => {
            return Err(format!("its winner, {title}, needs /dev/vhost-net, which is not there: load vhost_net"));
        }
        Some(Backend::Vhost) => NetworkBackend::Vhost,
        Some(Backend::Qemu) => NetworkBackend::Qemu,
        None => return Err(format!("it does not say what moves the packets of its winner, {title}")),
    };
    Ok(NetworkPlacement { mac: wanted.mac, backend, queues, offloads_off: !arm.path.offloads })
}

/// A test of the fresh rounds in which the winner was shown slower than what it is compared with, with its ratio. Of a
/// latency guest only round trips count, of a throughput guest only streams.
fn shown_slower(results: &NetMatrixResults, class: WorkloadClass) -> Option<(&'static str, String)> {
    let counts = |test: NetTest| match class {
        WorkloadClass::Latency => !test.is_stream(),
        WorkloadClass::Throughput => test.is_stream(),
        _ => true,
    };
    let fresh = results.confirmation.as_ref()?;
    let tests = results.tests.iter().filter(|test| counts(**test));
    tests.filter_map(|test| Some((*test, fresh.of_test(*test)?))).find_map(|(test, figure): (_, &NetFigure)| {
        let estimate = figure.to_default.as_ref().filter(|estimate| estimate.interval().high < 1.0)?;
        Some((test.id(), estimate.to_string()))
    })
}

/// What to write by hand for a winner that no plan sets, and what it costs in other ways.
fn by_hand(arm: &NetArmResult, wanted: &Wanted<'_>) -> String {
    let port = &wanted.way.port;
    // A matrix of the same model of card may be another card's: the function must be one of this port, and free.
    let free = || wanted.functions.iter().filter(|function| function.obstacle.is_none());
    let same = |function: &&Function| {
        function.address.to_string() == arm.source || function.interface.as_deref() == Some(arm.source.as_str())
    };
    let lines = match arm.path.link {
        Link::VfHostdev => {
            let function = free().find(same).or_else(|| free().next());
            function.map(|function| arm.path.lines_for_libvirt(port, Some(function.address)))
        }
        Link::VfMacvtapPassthrough => {
            let named = || free().filter(|function| function.interface.is_some());
            let function = named().find(same).or_else(|| named().next());
            function.and_then(|one| one.interface.as_deref()).map(|on| arm.path.lines_for_libvirt(on, None))
        }
        _ => Some(arm.path.lines_for_libvirt(port, None)),
    };
    let mut text = match lines {
        Some(lines) => format!("as libvirt writes it: {lines}"),
        None => format!("`{port}` has no free virtual function for it: `nearmetal device vfs {port} 1` makes one"),
    };
    for more in
        [in_the_guest(&arm.path), price(arm.path.link)].into_iter().map(str::trim).filter(|more| !more.is_empty())
    {
        text.push_str(&format!("; {more}"));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
