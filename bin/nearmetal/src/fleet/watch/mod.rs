//! Watching a fleet: hosts are asked over and over, and drawn or told as a document.

mod board;
mod picture;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nearmetal_change::Reach;
use nearmetal_host::HostFs;
use serde::Serialize;

use super::answers::ask;
use super::now::{HostNow, Places};
use super::targets::Target;
use super::there::Patience;

pub(crate) use board::{Board, Seen};
pub(crate) use picture::{Frame, picture};

/// What a host may print: thousands of guests.
const MOST_ANSWER: u64 = 4 << 20;

/// The document of one look.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    schema: &'static str,
    /// When it was looked.
    time: &'a str,
    /// One for each host, in the order of the file.
    hosts: Vec<HostSeen<'a>>,
    /// VMs of the fleet file; empty without a file.
    vms: Vec<VmSeen<'a>>,
}

/// A host, and what it said last.
#[derive(Debug, Serialize)]
struct HostSeen<'a> {
    host: &'a str,
    answer: Option<&'a HostNow>,
    problem: Option<&'a str>,
    answered: Option<&'a str>,
}

/// A VM of the fleet file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct VmSeen<'a> {
    /// Its name.
    pub(crate) vm: &'a str,
    /// Hosts on which a guest of that name runs.
    pub(crate) hosts: Vec<&'a str>,
}

/// Hosts, and what is known of each.
pub(crate) type Look<'a> = [(&'a str, Option<Seen<HostNow>>)];

impl<'a> Document<'a> {
    /// Of a look. A host that was not asked yet has neither an answer nor a problem.
    pub(crate) fn of(time: &'a str, look: &'a Look<'a>, vms: Vec<VmSeen<'a>>) -> Self {
        let host = |(host, seen): &'a (&'a str, Option<Seen<HostNow>>)| {
            let answer = seen.as_ref().map(|seen| &seen.answer);
            HostSeen {
                host,
                answer: answer.and_then(|answer| answer.as_ref().ok()),
                problem: answer.and_then(|answer| answer.as_ref().err()).map(String::as_str),
                answered: seen.as_ref().and_then(|seen| seen.answered.as_deref()),
            }
        };
        Self { schema: "nearmetal.fleet-watch/1", time, hosts: look.iter().map(host).collect(), vms }
    }
}

/// Where each VM of a file runs, by its name.
pub(crate) fn vms<'a>(names: &'a [String], look: &'a Look<'a>) -> Vec<VmSeen<'a>> {
    let mut found: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    for (host, seen) in look {
        let Some(Ok(now)) = seen.as_ref().map(|seen| seen.answer.as_ref()) else { continue };
        for guest in now.guests.iter().filter(|guest| guest.pid.is_some()) {
            if let Some(name) = &guest.name {
                found.entry(name).or_default().push(host);
            }
        }
    }
    names.iter().map(|name| VmSeen { vm: name, hosts: found.remove(name.as_str()).unwrap_or_default() }).collect()
}

/// What one host is asked, and how long it may take.
pub(crate) struct Question<'a> {
    /// Options for the nearmetal there.
    pub(crate) arguments: Vec<String>,
    /// Where this machine keeps what is asked of it.
    pub(crate) here: Places,
    /// How long an answer may take.
    pub(crate) limit: Duration,
    /// Set once nobody wants answers any more.
    pub(crate) stop: &'a AtomicBool,
}

impl Question<'_> {
    /// Asks a host.
    ///
    /// # Errors
    /// No answer, in words.
    pub(crate) fn ask(&self, target: &Target) -> Result<HostNow, String> {
        match &target.reach {
            Reach::Local => Ok(HostNow::read(&HostFs::live(), &self.here)),
            Reach::Nowhere { known_by } => {
                Err(format!("not asked: only {known_by} describes it; give it an `ssh` key in the fleet file"))
            }
            Reach::Ssh { .. } => {
                let patience = Patience { limit: self.limit, stop: self.stop, most: MOST_ANSWER };
                ask(target, &self.arguments, Some(&patience))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use nearmetal_cli_reference::{Fields, Tables};
    use nearmetal_image::{ImageId, Motion, Progress, Stage, StoredImage, Transfer};
    use nearmetal_units::Bytes;

    use super::super::now::{GuestKind, GuestNow, MemoryNow};
    use super::*;

    const PAGE: Tables<'_> = Tables(include_str!("../../../../../docs/reference/fleet-watch.md"));

    pub(in crate::fleet) fn guest(name: &str, kind: GuestKind, cpus: &str, gib: u64) -> GuestNow {
        GuestNow {
            name: Some(name.to_owned()),
            kind: Some(kind),
            pid: Some(4711),
            vcpus: Some(4),
            floating: Some(if cpus.is_empty() { 4 } else { 0 }),
            cpus: Some(cpus.parse().unwrap()),
            memory: Some(Bytes::from_mib(gib << 10)),
            image: None,
            since: None,
        }
    }

    pub(in crate::fleet) fn transfer(name: &str, motion: Motion, stage: Stage, have: u64) -> Transfer {
        let (received, reused) = (have * 200_000, have * 62_144);
        let progress =
            Progress { name: name.to_owned(), stage, pieces: 8000, have, received, reused, since: 1_795_597_200 };
        Transfer { image: ImageId::from_bytes([7; 32]), length: 8000 << 18, motion, progress: Some(progress) }
    }

    pub(in crate::fleet) fn image(name: &str) -> StoredImage {
        let image = ImageId::from_bytes([9; 32]);
        StoredImage { image, name: Some(name.to_owned()), length: 3 << 30, allocated: 1 << 30, stored: Some(1) }
    }

    /// A host of 64 PUs and 256 GiB with nothing on it.
    pub(in crate::fleet) fn host() -> HostNow {
        let gib = |gib: u64| Some(Bytes::from_mib(gib << 10));
        HostNow {
            version: "0.1.0".to_owned(),
            online: Some("0-63".parse().unwrap()),
            runs: Some("".parse().unwrap()),
            bound: "".parse().unwrap(),
            memory: MemoryNow { total: gib(256), free: gib(240), guests: gib(0) },
            guests: Vec::new(),
            images: Some(Vec::new()),
            transfers: Some(Vec::new()),
            notes: Vec::new(),
        }
    }

    pub(in crate::fleet) fn seen(answer: Result<HostNow, &str>, answered: Option<&str>) -> Option<Seen<HostNow>> {
        Some(Seen { answer: answer.map_err(str::to_owned), answered: answered.map(str::to_owned) })
    }

    #[test]
    fn the_document_has_the_fields_of_its_page() {
        let full = GuestNow {
            image: Some(ImageId::from_bytes([9; 32])),
            since: Some("2026-11-25T09:00:00Z".to_owned()),
            ..guest("run-batch-1", GuestKind::Run, "1-2", 1)
        };
        let now = HostNow {
            guests: vec![full],
            images: Some(vec![image("debian")]),
            transfers: Some(vec![transfer("alma", Motion::Running, Stage::Fetching, 4000)]),
            notes: vec!["x".to_owned()],
            ..host()
        };
        let look = [("alpha", seen(Ok(now), Some("t"))), ("beta", seen(Err("gone"), None)), ("gamma", None)];
        let names = ["run-batch-1".to_owned(), "db".to_owned()];
        let vms = vms(&names, &look);
        assert_eq!((vms[0].hosts.as_slice(), vms[1].hosts.len()), (&["alpha"][..], 0));
        let document = serde_json::to_value(Document::of("t", &look, vms)).unwrap();
        PAGE.have(&Fields::of(&document), "## Fields");
        assert!(PAGE.section("## Fields").contains("Schema `nearmetal.fleet-watch/1`"));
        assert_eq!(document["hosts"][1]["problem"], "gone");
        assert!(document["hosts"][2]["problem"].is_null() && document["hosts"][2]["answer"].is_null());
        let words = |words: &[serde_json::Value]| {
            words.iter().all(|word| PAGE.section("## Fields").contains(&format!("`{}`", word.as_str().unwrap())))
        };
        let kinds = [GuestKind::Run, GuestKind::Plan, GuestKind::Other].map(|kind| serde_json::to_value(kind).unwrap());
        let motions = [Motion::Running, Motion::Stopped, Motion::Unknown].map(|one| serde_json::to_value(one).unwrap());
        let stages = [Stage::Waiting, Stage::Looking, Stage::Fetching, Stage::Syncing];
        let stages = stages.map(|one| serde_json::to_value(one).unwrap());
        assert!(words(&kinds) && words(&motions) && words(&stages));
    }
}
