//! What a host says of itself to whoever watches a fleet: what is taken of it, by which guests, its images, and those on
//! their way.

use nearmetal_change::Journal;
use nearmetal_host::{HostFs, Occupancy, RunningGuest};
use nearmetal_image::{ImageId, Store, StoredImage, Transfer};
use nearmetal_run::reservation::{Desk, Reservation};
use nearmetal_units::{Bytes, CpuSet};
use serde::{Deserialize, Serialize};

use crate::standing::{InForce, in_force};

/// A host, now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostNow {
    /// Version of its nearmetal.
    pub(crate) version: String,
    /// PUs that are online; `null`: not known.
    pub(crate) online: Option<CpuSet>,
    /// PUs that runs have; `null`: not known.
    pub(crate) runs: Option<CpuSet>,
    /// Other PUs that vCPUs are bound to; all of these, where those of runs are not known.
    pub(crate) bound: CpuSet,
    /// Its memory.
    pub(crate) memory: MemoryNow,
    /// Guests: those that run, runs that are about to start theirs, and planned ones that are off.
    pub(crate) guests: Vec<GuestNow>,
    /// Whole images; `null`: not known.
    pub(crate) images: Option<Vec<StoredImage>>,
    /// Images on their way; `null`: not known.
    pub(crate) transfers: Option<Vec<Transfer>>,
    /// What could not be told, and what somebody should look after, in words.
    pub(crate) notes: Vec<String>,
}

/// Memory of a host, in bytes; `null`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MemoryNow {
    /// All of it.
    pub(crate) total: Option<Bytes>,
    /// What guests to come can have: free, given up by the kernel, or free in a pool.
    pub(crate) free: Option<Bytes>,
    /// What running guests were given.
    pub(crate) guests: Option<Bytes>,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuestNow {
    /// Its name; `null`: its command line has none.
    pub(crate) name: Option<String>,
    /// Who looks after it; `null`: not known.
    pub(crate) kind: Option<GuestKind>,
    /// Its process; `null`: it does not run.
    pub(crate) pid: Option<u32>,
    /// Its vCPUs; `null`: not known.
    pub(crate) vcpus: Option<u32>,
    /// vCPUs that float over all PUs; `null`: not known.
    pub(crate) floating: Option<u32>,
    /// PUs that its run has, or that its vCPUs are bound to, as text: a set takes far more room than the few bytes in which a
    /// host could name all PUs there can be; `null`: not known.
    pub(crate) cpus: Option<String>,
    /// Memory that it was given; `null`: not known.
    pub(crate) memory: Option<Bytes>,
    /// Base image of a run.
    pub(crate) image: Option<ImageId>,
    /// When a run began.
    pub(crate) since: Option<String>,
}

/// Who looks after a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GuestKind {
    /// A `nearmetal run`.
    Run,
    /// A plan is in force for it.
    Plan,
    /// Somebody else.
    Other,
}

/// Where a host keeps what is asked of it.
#[derive(Debug)]
pub(crate) struct Places {
    /// Images.
    pub(crate) store: Store,
    /// Reservations of runs.
    pub(crate) desk: Desk,
    /// What nearmetal has changed.
    pub(crate) journal: Journal,
}

impl HostNow {
    /// Reads it. Never fails: what this user may not see is `null`, with a note.
    pub(crate) fn read(fs: &HostFs, places: &Places) -> Self {
        let mut notes = Vec::new();
        let (runs, dead) = noted(places.desk.living_and_dead(), "runs", &mut notes).unzip();
        let dead: Vec<Reservation> = dead.unwrap_or_default();
        if !dead.is_empty() {
            let names: Vec<&str> = dead.iter().map(|run| run.name.as_str()).collect();
            notes.push(format!(
                "killed, and not given back yet: {}; the next run of the same user does that",
                names.join(", ")
            ));
        }
        let planned = match in_force(&places.journal, fs) {
            InForce::Changes { planned, .. } => Some(planned),
            InForce::UnderWay(..) => {
                notes.push("a change is under way: which guests have plans is known when it ends".to_owned());
                None
            }
            InForce::Unknown(why) => {
                notes.push(format!("which guests have plans is not known: {why}"));
                None
            }
            InForce::Unfinished(number, started) => {
                notes.push(format!(
                    "transaction {number} of {started} is unfinished: `nearmetal rollback --restart` there restores the \
                     former state"
                ));
                None
            }
        };
        let images = noted(places.store.list(), "images", &mut notes);
        let transfers = noted(places.store.transfers(fs), "images on their way", &mut notes);
        let occupancy = Occupancy::read(fs);
        let guests = guests(&occupancy.guests, runs.as_deref(), planned.as_deref());
        // A dead run's PUs stay its own until a run gives them back.
        let held = runs.as_ref().map(|runs| {
            let held = runs.iter().chain(&dead);
            held.fold(CpuSet::new(), |all, run| all.union(&run.cpus))
        });
        let vcpus = occupancy.guests.iter().filter_map(|guest| guest.vcpus.as_ref());
        let bound = vcpus.fold(CpuSet::new(), |all, vcpus| all.union(&vcpus.bound));
        let bound = match &held {
            Some(held) => bound.difference(held),
            None => bound,
        };
        let mut given = occupancy.guests.iter().map(|guest| guest.memory);
        let memory = MemoryNow {
            total: occupancy.memory_total,
            free: occupancy.memory_free,
            guests: given.try_fold(Bytes::ZERO, |sum, one| Some(sum.plus(one?))),
        };
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, online: occupancy.online, runs: held, bound, memory, guests, images, transfers, notes }
    }
}

fn noted<T, E: std::error::Error + Send + Sync + 'static>(
    result: Result<T, E>,
    what: &str,
    notes: &mut Vec<String>,
) -> Option<T> {
    let failed = |error: E| notes.push(format!("{what} are not known: {:#}", anyhow::Error::from(error)));
    result.map_err(failed).ok()
}

/// Guests that run, each with who looks after it; then runs whose guest is not there, and plans whose guest is off.
fn guests(running: &[RunningGuest], runs: Option<&[Reservation]>, planned: Option<&[String]>) -> Vec<GuestNow> {
    let run_of = |guest: &RunningGuest| {
        let same = |run: &&Reservation| guest.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&run.uuid));
        runs.unwrap_or_default().iter().find(same)
    };
    let has_plan = |name: &str| planned.unwrap_or_default().iter().any(|planned| planned == name);
    let mut all: Vec<GuestNow> = running
        .iter()
        .map(|guest| {
            let run = run_of(guest);
            let kind = match (run, guest.name.as_deref()) {
                (Some(_), _) => Some(GuestKind::Run),
                (None, Some(name)) if has_plan(name) => Some(GuestKind::Plan),
                // Who cannot be asked may be the one.
                _ => (runs.is_some() && planned.is_some()).then_some(GuestKind::Other),
            };
            let vcpus = guest.vcpus.as_ref();
            GuestNow {
                name: guest.name.clone(),
                kind,
                pid: Some(guest.pid),
                vcpus: vcpus.map(|vcpus| vcpus.count),
                floating: vcpus.map(|vcpus| vcpus.floating),
                cpus: run.map(|run| &run.cpus).or_else(|| vcpus.map(|vcpus| &vcpus.bound)).map(CpuSet::to_string),
                memory: guest.memory,
                image: run.and_then(|run| run.image),
                since: run.map(|run| run.since.clone()),
            }
        })
        .collect();
    let off = |name: &str, kind| GuestNow {
        name: Some(name.to_owned()),
        kind: Some(kind),
        pid: None,
        vcpus: None,
        floating: None,
        cpus: None,
        memory: None,
        image: None,
        since: None,
    };
    for run in runs.unwrap_or_default() {
        if !running.iter().any(|guest| run_of(guest).is_some_and(|own| own.name == run.name)) {
            let memory = run.memory.iter().fold(Bytes::ZERO, |sum, share| sum.plus(share.bytes));
            let (cpus, since) = (Some(run.cpus.to_string()), Some(run.since.clone()));
            let memory = Some(memory);
            all.push(GuestNow { cpus, memory, image: run.image, since, ..off(&run.name, GuestKind::Run) });
        }
    }
    for name in planned.unwrap_or_default() {
        if !running.iter().any(|guest| guest.name.as_ref() == Some(name)) {
            all.push(off(name, GuestKind::Plan));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::{Vcpus, files, tree_text};
    use nearmetal_run::reservation::NodeShare;

    fn reservation(name: &str, uuid: &str, cpus: &str) -> Reservation {
        Reservation {
            cpus: cpus.parse().unwrap(),
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(256) }],
            ..Reservation::empty(name, uuid, "batch")
        }
    }

    fn running(name: &str, uuid: &str, bound: &str) -> RunningGuest {
        let vcpus = Vcpus { count: 2, floating: 0, bound: bound.parse().unwrap() };
        let memory = Some(Bytes::from_mib(512));
        RunningGuest { pid: 9, name: Some(name.to_owned()), uuid: Some(uuid.to_owned()), memory, vcpus: Some(vcpus) }
    }

    fn told(guests: &[GuestNow]) -> Vec<(&str, Option<GuestKind>, bool)> {
        guests.iter().map(|guest| (guest.name.as_deref().unwrap_or("?"), guest.kind, guest.pid.is_some())).collect()
    }

    #[test]
    fn each_guest_says_who_looks_after_it_and_those_that_are_not_there_are_listed_too() {
        let here = [running("run-a", "AA", "1"), running("web1", "BB", "4-5"), running("else", "CC", "6")];
        let runs = [reservation("run-a", "aa", "1-2"), reservation("run-b", "dd", "3")];
        let planned = ["web1".to_owned(), "db".to_owned()];
        let seen = guests(&here, Some(&runs), Some(&planned));
        assert_eq!(
            told(&seen),
            [
                ("run-a", Some(GuestKind::Run), true),
                ("web1", Some(GuestKind::Plan), true),
                ("else", Some(GuestKind::Other), true),
                ("run-b", Some(GuestKind::Run), false),
                ("db", Some(GuestKind::Plan), false),
            ]
        );
        assert_eq!(seen[0].cpus.as_deref(), Some("1-2"), "all that the run has");
        assert_eq!((seen[3].vcpus, seen[3].memory), (None, Some(Bytes::from_mib(256))));
        // Who may not see runs cannot say that a guest is none.
        let blind = guests(&here, None, Some(&planned));
        assert_eq!(told(&blind)[0], ("run-a", None, true));
        assert_eq!(told(&blind)[1], ("web1", Some(GuestKind::Plan), true));
    }

    #[test]
    fn a_host_is_read_from_its_own_files_and_what_cannot_be_read_is_null_with_a_note() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let tree = "[/sys/devices/system/cpu]\nonline = 0-7\n[/proc]\nmeminfo =\n| MemTotal: 4096 kB\n| MemFree: 1024 kB\n\
                    [/proc/70]\ncmdline : qemu-system-x86_64\\x00-name\\x00guest=web1\\x00-m\\x00size=1024k\\x00\n\
                    [/proc/70/task/71]\ncomm = CPU 0/KVM\nstatus =\n| Cpus_allowed_list:\t2-3\n";
        tree_text::unpack(tree, &path("root")).unwrap();
        let fs = HostFs::at(path("root")).unwrap();
        let desk = Desk::at(path("runs"));
        let _claim = desk.turn().unwrap().reserve(reservation("run-a", "aa", "1-2")).unwrap();
        let places = Places { store: Store::at(path("images")), desk, journal: Journal::at(path("state")) };
        let now = HostNow::read(&fs, &places);
        let pus = |now: &HostNow| (now.runs.as_ref().map(ToString::to_string), now.bound.to_string());
        assert_eq!(pus(&now), (Some("1-2".to_owned()), "3".to_owned()));
        assert_eq!(now.memory.guests, Some(Bytes::from_mib(1)));
        assert_eq!(
            (now.images.clone(), now.transfers.clone(), now.notes.clone()),
            (Some(vec![]), Some(vec![]), vec![])
        );
        let kinds = told(&now.guests);
        assert_eq!(kinds, [("web1", Some(GuestKind::Other), true), ("run-a", Some(GuestKind::Run), false)]);
        let again: HostNow = serde_json::from_str(&serde_json::to_string(&now).unwrap()).unwrap();
        assert_eq!(again, now);

        // A file where the store should be.
        files::write(&path("images"), "in the way").unwrap();
        let now = HostNow::read(&fs, &places);
        assert_eq!((now.images, now.transfers), (None, None));
        assert!(now.notes[0].starts_with("images are not known: cannot list"), "{:?}", now.notes);

        // And where reservations should be: what vCPUs are bound to is seen, and no run is called none.
        let unlisted = Places { desk: Desk::at(path("images")), ..places };
        let now = HostNow::read(&fs, &unlisted);
        assert_eq!(pus(&now), (None, "2-3".to_owned()));
        let document = serde_json::to_value(&now).unwrap();
        assert!(document["runs"].is_null(), "{document}");
        assert_eq!(serde_json::from_value::<HostNow>(document).unwrap(), now);
    }
}
