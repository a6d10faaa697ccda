//! What was measured on this machine for the guests of a plan: the newest matrix of the same model of device and the same
//! kernel, of the lab or of silicon as this machine is.

use std::path::Path;

use nearmetal_domain::{DomainFacts, DomainXml, InterfaceFacts};
use nearmetal_host::{Host, HostFs};
use nearmetal_measure::{Experiment, Function, MeasureError, device_model, environment_of, port_functions, port_model};
use nearmetal_place::{
    DiskRequest, GuestRequest, Measured, MeasuredDisk, MeasuredGuest, MeasuredNetwork, WorkloadClass,
};
use nearmetal_results::{Environment, ResultsError, Store};

use crate::job::matrix::for_plan;
use crate::job::net_for_plan::{self, Wanted, WayOut};
use crate::job::tuned::{self, NotTaken};
use crate::printer::Printer;

/// Where races of ways are kept below the state directory.
pub(crate) const STORE: &str = "results.sqlite";
/// The kernel's file of vhost-net.
const VHOST_NET: &str = "/dev/vhost-net";

/// A guest of the plan, and what its definitions say.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    /// What the planner is asked.
    pub(crate) request: &'a GuestRequest,
    /// The stored definition.
    pub(crate) stored: DomainFacts,
    /// The definition in force, if it runs.
    pub(crate) live: Option<DomainFacts>,
}

/// Something to say beside the plan.
#[derive(Debug, PartialEq, Eq)]
enum Note {
    /// A recorded matrix cannot be read.
    Important(String),
    /// One was read and is not used.
    Plain(String),
}

/// A store, and the machine it is asked for.
struct Ground<'a> {
    store: &'a Store,
    host: &'a Host,
    kernel: &'a str,
    environment: &'a Environment,
}

/// All that was measured for these guests. A store that cannot be read is no reason not to plan.
pub(crate) fn measured(
    store: &Path,
    tree: &HostFs,
    host: &Host,
    guests: &[Guest<'_>],
    printer: &mut Printer,
) -> Measured {
    let store = match Store::read_only(store) {
        Ok(Some(store)) => store,
        Ok(None) => return Measured::default(),
        Err(error) => {
            printer.important(&format!("cannot use recorded results: {error}"));
            return Measured::default();
        }
    };
    let Some(kernel) = host.system.kernel.as_deref() else { return Measured::default() };
    let ground = Ground { store: &store, host, kernel, environment: &environment_of(tree) };
    let (mut found, mut notes) = (Measured::default(), Vec::new());
    for guest in guests {
        let request = guest.request;
        let disks = request.disks.iter().filter(|disk| disk.is_virtio_blk);
        found.disks.extend(
            disks.filter_map(|disk| ground.disk(request, disk, |name| device_model(tree, host, name), &mut notes)),
        );
        let functions = |port: &str| port_functions(port, tree, host);
        found.guests.extend(ground.guest(&guest.stored, request.class, &mut notes));
        found.networks.extend(ground.networks(guest, functions, Path::new(VHOST_NET).exists(), &mut notes));
    }
    for note in notes {
        match note {
            Note::Important(text) => printer.important(&text),
            Note::Plain(text) => printer.say(&text),
        }
    }
    found
}

impl Ground<'_> {
    /// The newest tune of this very guest under this kernel, if it says what to use.
    fn guest(&self, now: &DomainFacts, class: WorkloadClass, notes: &mut Vec<Note>) -> Option<MeasuredGuest> {
        let name = &now.name;
        let found = self.store.newest_tune(name, self.kernel, self.environment);
        let (id, results) = found.map_err(|error| notes.push(unreadable(&error))).ok()??;
        // The command line may say another class than the definition.
        let as_asked = DomainFacts { class: Some(class.word().to_owned()), ..now.clone() };
        let unread = |error: MeasureError| Note::Plain(format!("{name}: tune run {id} is not used: {error}"));
        let then = self.tuned_definition(id).map_err(|error| notes.push(unread(error))).ok()?;
        match tuned::for_plan(id, &results, &then, &as_asked) {
            Ok(measured) => return Some(measured),
            Err(NotTaken::For(why)) => notes.push(Note::Plain(format!("{name}: tune run {id} is not used: {why}"))),
            Err(NotTaken::LeaveIt(why)) => notes.push(Note::Important(format!(
                "{name}: tune run {id} says to leave it as it is, since {why}; what is planned here is by rule alone"
            ))),
        }
        None
    }

    /// The definition of the guest that was tuned, as it was found.
    fn tuned_definition(&self, id: i64) -> Result<DomainFacts, MeasureError> {
        let entry = self.store.entry(id)?;
        let request = entry.request.unwrap_or_default();
        let Experiment::Tune(tune) = Experiment::parse(&entry.experiment, &request)? else {
            return Err(MeasureError::Unfit(format!("run {id} is no tune")));
        };
        let facts = DomainXml::parse(tune.on.xml_found()).and_then(|xml| xml.facts());
        facts.map_err(|source| MeasureError::Xml { arm: tune.on.guest().to_owned(), source })
    }

    fn disk(
        &self,
        guest: &GuestRequest,
        disk: &DiskRequest,
        model: impl FnOnce(&str) -> String,
        notes: &mut Vec<Note>,
    ) -> Option<MeasuredDisk> {
        let model = model(disk.block_device.as_deref()?);
        // Two drives that say nothing of themselves need not be the same.
        if model == "unknown" {
            return None;
        }
        let found = self.store.newest_matrix(&model, self.kernel, &guest.name, self.environment);
        let results = found.map_err(|error| notes.push(unreadable(&error))).ok()??;
        let measured = for_plan(&results, &guest.name, &disk.target, disk.is_block);
        let what = format!("disk {}", disk.target);
        measured.map_err(|why| notes.push(unused(guest, &what, &results.created, &why))).ok()
    }

    fn networks(
        &self,
        guest: &Guest<'_>,
        functions: impl Fn(&str) -> Vec<Function>,
        has_vhost: bool,
        notes: &mut Vec<Note>,
    ) -> Vec<MeasuredNetwork> {
        let one = |interface: &InterfaceFacts| {
            // What has no address of its own, no plan can name.
            let mac = interface.mac.as_ref()?.parse().ok()?;
            let same = |other: &&InterfaceFacts| interface.mac.as_ref().is_some_and(|mac| other.has_mac(mac));
            if guest.stored.interfaces.iter().filter(same).count() > 1 {
                return None;
            }
            let running = guest.live.iter().flat_map(|live| &live.interfaces);
            let live = running.into_iter().find(same);
            let way = WayOut::of(interface, live, self.host)?;
            let model = port_model(&way.port, self.host);
            // As with drives: a card without a driver or without ids may be any.
            if model.starts_with("unknown") || model.contains('?') {
                return None;
            }
            let found = self.store.newest_net_matrix(&model, self.kernel, &guest.request.name, self.environment);
            let results = found.map_err(|error| notes.push(unreadable(&error))).ok()??;
            let functions = functions(&way.port);
            let wanted = Wanted { guest: guest.request, interface, mac, way: &way, functions: &functions, has_vhost };
            let measured = net_for_plan::for_plan(&results, &wanted);
            let what = format!("interface {mac}");
            measured.map_err(|why| notes.push(unused(guest.request, &what, &results.created, &why))).ok()
        };
        guest.stored.interfaces.iter().filter_map(one).collect()
    }
}

fn unreadable(error: &ResultsError) -> Note {
    Note::Important(format!("cannot use a recorded matrix: {error}"))
}

fn unused(guest: &GuestRequest, what: &str, created: &str, why: &str) -> Note {
    Note::Plain(format!("{}, {what}: the matrix of {created} is not used: {why}", guest.name))
}

#[cfg(test)]
mod tests;
