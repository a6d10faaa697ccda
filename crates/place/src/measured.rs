//! What was measured on this machine goes before what holds in general.

use nearmetal_host::Host;
use nearmetal_units::MacAddress;

use crate::choices::{Choices, Pins};
use crate::plan::{CacheMode, DiskEngine, NetworkBackend, NetworkPlacement, Placement, Plan, Reason};
use crate::policy::InterfaceQueues;
use crate::request::{GuestRequest, WorkloadClass};

/// All that was measured for some guests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Their disks.
    pub disks: Vec<MeasuredDisk>,
    /// Their network interfaces.
    pub networks: Vec<MeasuredNetwork>,
    /// The guests as a whole.
    pub guests: Vec<MeasuredGuest>,
}

/// The choices that a guest was measured best with, as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredGuest {
    /// Guest.
    pub guest: String,
    /// What won.
    pub choices: Choices,
    /// Target name of the disk that it was measured on, `vda`.
    pub disk: String,
    /// Whether queues of its interfaces raced with the rest: no race of networks decides them then.
    pub has_raced_queues: bool,
    /// When, in which run, and how much.
    pub because: String,
}

/// A way to a disk that was measured on the same model of drive under the same kernel, and shown faster than QEMU's
/// default.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredDisk {
    /// Guest whose disk it is for.
    pub guest: String,
    /// Target name of that disk, `vda`.
    pub target: String,
    /// Host page cache.
    pub cache: CacheMode,
    /// Submission engine.
    pub engine: DiskEngine,
    /// Whether an iothread serves it, or QEMU's main loop.
    pub iothread: bool,
    /// Virtqueues; `None`: as the planner has it.
    pub queues: Option<u32>,
    /// When, where and how much: `measured 2026-01-01 in web1: 1.93 times …`.
    pub because: String,
}

impl MeasuredDisk {
    /// `shared`: iothreads that take its queues in turns.
    fn choice(&self, shared: Option<u32>) -> String {
        let cache = match self.cache {
            CacheMode::None => "none",
            CacheMode::Writeback => "writeback",
        };
        let thread = match (self.iothread, shared) {
            (true, Some(count)) => format!("{count} iothreads"),
            (true, None) => "an iothread".to_owned(),
            (false, _) => "QEMU's main loop".to_owned(),
        };
        format!("cache {cache}, engine {}, {thread}", self.engine.name())
    }
}

/// A way to the network that was measured on the same model of card under the same kernel, and shown faster than libvirt's
/// default.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredNetwork {
    /// Guest whose interface it is for.
    pub guest: String,
    /// Address of that interface.
    pub mac: MacAddress,
    /// Options to set; `None` where the interface would have to be joined in another way, which no plan does: the reason
    /// is then told, and the interface left as it is.
    pub options: Option<NetworkPlacement>,
    /// When, where and how much; without options also what to write, and its price.
    pub because: String,
}

impl Measured {
    /// Tells requests which guests were measured best floating, and which interfaces vhost-net will carry, so that the planner
    /// counts their workers. To be called before the plan is made; interfaces of guests that float are left as they are.
    pub fn expect_in(&self, requests: &mut [GuestRequest]) {
        for own in self.guests.iter().filter(|own| own.choices.pins == Pins::Float) {
            let of = requests.iter_mut().filter(|guest| guest.name == own.guest);
            of.for_each(|guest| guest.class = WorkloadClass::Density);
        }
        // Interfaces that a tune decided stay as it measured them.
        let others = requests
            .iter_mut()
            .filter(|guest| guest.class != WorkloadClass::Density && !self.has_decided_networks(&guest.name));
        for guest in others {
            for network in &mut guest.networks {
                let own = |one: &&MeasuredNetwork| one.guest == guest.name && network.mac.parse() == Ok(one.mac);
                let options = self.networks.iter().find(own).and_then(|one| one.options.as_ref());
                network.uses_vhost = options.map_or(network.uses_vhost, |set| set.backend == NetworkBackend::Vhost);
            }
        }
    }

    /// Whether a tune of this guest measured its interfaces, too.
    fn has_decided_networks(&self, guest: &str) -> bool {
        let own = self.guests.iter().find(|own| own.guest == guest);
        own.is_some_and(|own| own.has_raced_queues || own.choices.interface_queues != InterfaceQueues::Keep)
    }
}

/// Puts what was measured into a plan, in place of the choices that rest on rules, and says so. A disk the plan leaves as
/// it is stays so; an engine the kernel refuses now is not used, nor cache none on a file that does not open past the page
/// cache, and the reason says that too. Interfaces of a guest that floats stay as they are: it was measured pinned.
pub fn use_measured(host: &Host, plan: &mut Plan, measured: &Measured) {
    for placement in &mut plan.placements {
        // A tune measured its disk as the rules have it, or as it chose itself: never as a race of disks did.
        let is_tuned = |disk: &MeasuredDisk| {
            measured.guests.iter().any(|tuned| tuned.guest == disk.guest && tuned.disk == disk.target)
        };
        let raced: Vec<MeasuredDisk> = measured.disks.iter().filter(|disk| !is_tuned(disk)).cloned().collect();
        use_disks(host, placement, &raced);
        use_choices(host, placement, &measured.guests);
        if !placement.is_floating() && !measured.has_decided_networks(&placement.guest) {
            use_networks(placement, &measured.networks);
        }
    }
}

/// What was measured of the whole guest goes before what was measured of its disk alone.
fn use_choices(host: &Host, placement: &mut Placement, measured: &[MeasuredGuest]) {
    let Some(own) = measured.iter().find(|one| one.guest == placement.guest) else { return };
    if let (false, Some(engine)) = (placement.is_floating(), own.choices.engine) {
        let disk = MeasuredDisk {
            guest: own.guest.clone(),
            target: own.disk.clone(),
            cache: CacheMode::None,
            engine,
            iothread: own.choices.iothread,
            queues: None,
            because: own.because.clone(),
        };
        use_disks(host, placement, &[disk]);
    }
    let (subject, choice, because) = ("tuned".to_owned(), own.choices.words(), own.because.clone());
    placement.reasons.insert(0, Reason { subject, choice, because, source: None });
}

fn use_networks(placement: &mut Placement, measured: &[MeasuredNetwork]) {
    for own in measured.iter().filter(|one| one.guest == placement.guest) {
        let choice = match &own.options {
            None => "left as it is".to_owned(),
            Some(set) => {
                let plural = if set.queues == 1 { "" } else { "s" };
                let offloads = if set.offloads_off { ", offloads off" } else { "" };
                format!("backend {}, {} queue{plural}{offloads}", set.backend.name(), set.queues)
            }
        };
        placement.networks.extend(own.options.clone());
        let subject = format!("interface {}", own.mac);
        placement.reasons.push(Reason { subject, choice, because: own.because.clone(), source: None });
    }
}

fn use_disks(host: &Host, placement: &mut Placement, measured: &[MeasuredDisk]) {
    for disk in &mut placement.disks {
        let own = |one: &&MeasuredDisk| one.guest == placement.guest && one.target == disk.target;
        let Some(measured) = measured.iter().find(own) else { continue };
        let subject = format!("disk {}", disk.target);
        let at = placement.reasons.iter().position(|reason| reason.subject == subject);
        let at = at.unwrap_or(placement.reasons.len());
        let forbidden =
            host.system.io_uring_disabled.filter(|value| *value > 0 && measured.engine == DiskEngine::IoUring);
        let refused = match forbidden {
            Some(value) => Some(format!("io_uring_disabled is {value} now")),
            // The planner gives up cache none for such files alone.
            None => (measured.cache == CacheMode::None && disk.cache == CacheMode::Writeback)
                .then(|| "its file does not open past the host's page cache".to_owned()),
        };
        if let Some(why) = refused {
            let because = format!("{}; but {why}, so the rules decide", measured.because);
            let choice = format!("not {}", measured.choice(disk.iothreads));
            placement.reasons.insert(at, Reason { subject, choice, because, source: None });
            continue;
        }
        disk.cache = measured.cache;
        disk.engine = measured.engine;
        disk.iothread = disk.iothread.filter(|_| measured.iothread);
        disk.iothreads = disk.iothreads.filter(|_| measured.iothread);
        disk.queues = measured.queues.or(disk.queues);
        let replaced = |reason: &Reason| {
            let words: &[&str] =
                if measured.iothread { &["cache ", "engine "] } else { &["cache ", "engine ", "iothread "] };
            reason.subject == subject && words.iter().any(|word| reason.choice.starts_with(word))
        };
        placement.reasons.retain(|reason| !replaced(reason));
        let at = at.min(placement.reasons.len());
        let (choice, because) = (measured.choice(disk.iothreads), measured.because.clone());
        placement.reasons.insert(at, Reason { subject, choice, because, source: None });
    }
}
