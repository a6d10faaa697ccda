//! What huge pages and pins are worth, each alone and both together: four clones of one guest, and the slice of bare metal.
//!
//! The experiment of seed 001 (slides "Huge Pages" and "Using NUMA"): a guest on small pages, on huge pages, and on huge pages
//! with its processors and memory pinned. A plan's own worth without either is what `decisions` measures; it has no arm that
//! lacks both, and its arm without huge pages has transparent ones where the host gives them. Here small pages are small: the
//! host's setting is `never` while such a clone is up, and what QEMU's memory really is in is read back for every sample.

use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_host::Host;
use nearmetal_results::{Arm, ArmName, Results, Role};
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::engine::{Fresh, Path, Seat, Session, Step};
use crate::error::MeasureError;
use crate::finish::Request;
use crate::stand::{OnScratch, OnStand, Stand, Turns, Up, Way, paired};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PagesRequest {
    /// The guest, and where it is measured with what.
    #[serde(flatten)]
    pub on: OnScratch,
    /// Under what.
    pub conditions: Conditions,
}

/// What a clone keeps of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    huge_pages: bool,
    pins: bool,
}

/// The guests' arms behind bare metal, in their order.
const ARMS: [Kept; 4] = [
    Kept { huge_pages: false, pins: false },
    Kept { huge_pages: true, pins: false },
    Kept { huge_pages: false, pins: true },
    Kept { huge_pages: true, pins: true },
];
/// Place of the one that keeps both.
const PLANNED: usize = ARMS.len();

impl Kept {
    /// What the arm at this place keeps; `None` for bare metal.
    fn at(arm: usize) -> Option<Self> {
        ARMS.get(arm.checked_sub(1)?).copied()
    }

    fn name(self) -> ArmName {
        match (self.huge_pages, self.pins) {
            (false, false) => ArmName::new("small-pages", "small pages, no pins", Role::AsFound),
            (true, false) => ArmName::new("huge-pages", "huge pages, no pins", Role::Other),
            (false, true) => ArmName::new("pinned", "small pages, pinned", Role::Other),
            (true, true) => ArmName::planned(),
        }
    }

    fn description(self) -> &'static str {
        match (self.huge_pages, self.pins) {
            (false, false) => "as planned, but in 4 KiB pages, and threads and memory go where the kernel puts them",
            (true, false) => {
                "as planned, but threads go where the kernel puts them, and huge pages come from any node's pool with free ones"
            }
            (false, true) => "as planned, but in 4 KiB pages",
            (true, true) => "the domain as planned: huge pages, its threads and memory pinned",
        }
    }

    fn of(self, planned: &DomainXml) -> Result<DomainXml, DomainError> {
        let mut xml = planned.clone();
        if !self.huge_pages {
            xml.remove_hugepages()?;
        }
        if !self.pins {
            xml.remove_pins()?;
            xml.remove_numatune()?;
        }
        Ok(xml)
    }
}

impl Request for PagesRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.on.guest.clone()]
    }

    /// Runs the comparison and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The plan sets no huge pages or no pins, the guest runs and may not be paused, the scratch device cannot be used, a node has
    /// no memory for two such clones, a clone does not come up or is not in the pages it was asked to be in, or four runs in a
    /// row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        let ways = ways(&self.on)?;
        room(&self.on, &Host::read(session.fs))?;
        let stand = Stand::set_up(ways, Up::One, &self.on, session)?;
        let all: Vec<usize> = (0..stand.arms.len()).collect();
        let mut path = PagesPath { stand, read: vec![None; PLANNED + 1] };
        session.note("transparent huge pages are off on the host while a clone in small pages is up".to_owned());
        // Nothing to boot for a round: the stand boots a clone for each sample.
        let turns = Turns { same_arm: vec![PLANNED], groups: &[&all], fresh: Fresh::No };
        paired("pages", &self.on, turns, &mut path, session)
    }
}

/// Bare metal and the four clones.
fn ways(on: &OnScratch) -> Result<Vec<Way>, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: on.guest.clone(), source };
    let planned = DomainXml::parse(&on.xml_planned).map_err(wrap)?;
    let facts = planned.facts().map_err(wrap)?;
    for (is_there, what) in [(facts.hugepages.is_some(), "huge pages"), (!facts.vcpu_pins.is_empty(), "pins")] {
        if !is_there {
            return Err(MeasureError::Asked(format!(
                "the plan of `{}` sets no {what}, so there is nothing to measure them against: plan it with another --class, or \
                 measure what it sets with `nearmetal bench decisions`",
                on.guest
            )));
        }
    }
    let mut ways = vec![Way::bare()];
    for kept in ARMS {
        let xml = kept.of(&planned).map_err(wrap)?;
        ways.push(Way::clone(kept.name(), kept.description(), xml.as_str().to_owned()));
    }
    Ok(ways)
}

/// Refuses what a planned node lacks the memory for: the pool stays while a clone in small pages is up. Where the kernel does not
/// say how much there is, the clones are tried.
fn room(on: &OnScratch, host: &Host) -> Result<(), MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: on.guest.clone(), source };
    let guest = DomainXml::parse(&on.xml_planned).and_then(|xml| xml.facts()).map_err(wrap)?.memory;
    let memory = &on.placement.memory;
    let nodes = memory.nodes.len().max(1) as u64;
    for index in memory.nodes.iter() {
        let Some((node, available)) = host.node(index).and_then(|node| Some((node, node.memory_available()?))) else {
            continue;
        };
        let pool = memory.page_size.map_or(Bytes::ZERO, |size| {
            let free = node.pool(size).map_or(0, |pool| pool.free);
            size.bytes().times(memory.pages.div_ceil(nodes).saturating_sub(free))
        });
        let small = Bytes::new(guest.get().div_ceil(nodes));
        let needed = pool.plus(small);
        if available < needed {
            return Err(MeasureError::Unfit(format!(
                "node {index} has {available} of memory to give, and {needed} are needed: {pool} to grow its pool for a clone in \
                 huge pages, which stay in it, and {small} for a clone in small pages; stop other VMs there, or plan `{}` on \
                 another node",
                on.guest
            )));
        }
    }
    Ok(())
}

/// The arms on their regions, each in its pages.
struct PagesPath {
    stand: Stand,
    /// What each arm's memory was in, last.
    read: Vec<Option<Backing>>,
}

impl OnStand for PagesPath {
    fn stand(&self) -> &Stand {
        &self.stand
    }
}

impl Path for PagesPath {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let kept = Kept::at(step.arm);
        // Small pages stay small only if the kernel makes none large while they are touched, and later.
        session.transparent_pages_off(kept.is_some_and(|kept| !kept.huge_pages))?;
        self.stand.turn_to(step, session)?;
        let (Some(kept), Some(guest)) = (kept, self.stand.clones.guest(step.arm)) else { return Ok(()) };
        let name = guest.name.clone();
        let backing = Backing::of(session.must_have_process(&name)?, session)?;
        self.read[step.arm] = Some(backing);
        backing.as_asked(kept, &name)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.stand.seat(arm, tenant)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.stand.revive(step, session)
    }

    fn read_back(&self, arms: &mut [Arm]) {
        for (arm, read) in arms.iter_mut().zip(&self.read) {
            arm.placement.extend(read.map(Backing::line));
        }
    }
}

/// What the memory of QEMU's process is in, once its guest is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Backing {
    /// In pages of a pool.
    pool: Bytes,
    /// In pages that the kernel made large, of whatever memory: its own, shared, or of files.
    transparent: Bytes,
    /// In any.
    resident: Bytes,
}

impl Backing {
    /// From `smaps_rollup` of proc(5).
    fn of(process: u32, session: &Session<'_>) -> Result<Self, MeasureError> {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = session.fs.read(&path).map_err(|source| MeasureError::Kernel {
            what: "cannot read what a clone's memory is in".into(),
            source,
        })?;
        let read = Self::parse(&text);
        read.ok_or_else(|| MeasureError::Unfit(format!("`{path}` does not say what the memory is in")))
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value?.trim().strip_suffix("kB")?.trim().parse().ok().map(Bytes::from_kib)
        };
        let pool = field("Private_Hugetlb")?.plus(field("Shared_Hugetlb")?);
        // Older kernels do not count the last two.
        let more = ["ShmemPmdMapped", "FilePmdMapped"].into_iter().filter_map(field);
        let transparent = more.fold(field("AnonHugePages")?, Bytes::plus);
        Some(Self { pool, transparent, resident: field("Rss")?.plus(pool) })
    }

    fn as_asked(self, kept: Kept, clone: &str) -> Result<(), MeasureError> {
        let problem = match kept.huge_pages {
            // What is not the guest's is QEMU's own.
            true if self.pool.times(2) <= self.resident => {
                "huge pages were asked for, and less than half of its memory is in huge pages"
            }
            false if self.pool > Bytes::ZERO => "small pages were asked for, and some of its memory is in huge pages",
            false if self.transparent > Bytes::ZERO => {
                "small pages were asked for, and the kernel made some of them large"
            }
            _ => return Ok(()),
        };
        Err(MeasureError::Unfit(format!("the clone `{clone}`: {problem} ({})", self.line())))
    }

    fn line(self) -> String {
        format!("memory: {} of {} in huge pages, {} in transparent ones", self.pool, self.resident, self.transparent)
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{HugepagePool, NumaNode};
    use nearmetal_units::PageSize;

    use super::*;
    use crate::played::{in_huge_pages, on_scratch};

    #[test]
    fn each_arm_keeps_what_its_name_says() {
        let ways = ways(&in_huge_pages()).unwrap();
        let kept: Vec<(String, bool, bool, bool)> = ways
            .iter()
            .filter_map(|way| {
                let facts = DomainXml::parse(way.xml.as_deref()?).unwrap().facts().unwrap();
                let pinned = !facts.vcpu_pins.is_empty();
                Some((way.name.id.clone(), facts.hugepages.is_some(), pinned, facts.numatune.is_some()))
            })
            .collect();
        let expected = [
            ("small-pages", false, false, false),
            ("huge-pages", true, false, false),
            ("pinned", false, true, true),
            ("planned", true, true, true),
        ];
        assert_eq!(kept, expected.map(|(id, huge, pins, node)| (id.to_owned(), huge, pins, node)));
        assert!(ways[0].xml.is_none() && ways[PLANNED].name == ArmName::planned());
    }

    #[test]
    fn a_plan_without_one_of_the_two_is_refused_in_words() {
        let why = ways(&on_scratch()).map(drop).unwrap_err().to_string();
        assert!(why.contains("sets no huge pages"), "{why}");
        let mut floating = in_huge_pages();
        let mut xml = DomainXml::parse(&floating.xml_planned).unwrap();
        xml.remove_pins().unwrap();
        floating.xml_planned = xml.as_str().to_owned();
        let why = ways(&floating).map(drop).unwrap_err().to_string();
        assert!(why.contains("sets no pins"), "{why}");
    }

    #[test]
    fn a_node_without_memory_for_two_clones_is_refused_before_any_is_booted() {
        let on = in_huge_pages();
        let host = |free: Option<u64>, in_the_pool: u64| {
            let pool = HugepagePool { size: PageSize::HUGE_2M, total: in_the_pool, free: in_the_pool, surplus: 0 };
            let memory_free = free.map(Bytes::from_mib);
            Host { nodes: vec![NumaNode { memory_free, pools: vec![pool], ..NumaNode::default() }], ..Host::default() }
        };
        let guest = DomainXml::parse(&on.xml_planned).unwrap().facts().unwrap().memory.get() >> 20;
        // The plan has 256 pages of 2 MiB.
        let both = guest + 512;
        assert!(room(&on, &host(Some(both), 0)).is_ok());
        let why = room(&on, &host(Some(both - 1), 0)).unwrap_err().to_string();
        assert!(why.contains("node 0 has") && why.contains("512 MiB to grow its pool"), "{why}");
        assert!(room(&on, &host(Some(guest), 256)).is_ok() && room(&on, &host(Some(guest - 1), 256)).is_err());
        assert!(room(&on, &host(None, 0)).is_ok(), "unknown is not too little");
    }

    #[test]
    fn memory_that_is_in_other_pages_than_asked_fails_the_sample() {
        let said = |pool: u64, transparent: u64| {
            Backing::parse(&format!(
                "7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 1000 kB\nAnonHugePages: {transparent} kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: {pool} kB\n"
            ))
        };
        let mapped = |kib: u64| {
            Backing::parse(&format!(
                "Rss: 9000 kB\nAnonHugePages: 0 kB\nShmemPmdMapped: {kib} kB\nFilePmdMapped: {kib} kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 0 kB\n"
            ))
        };
        assert_eq!(mapped(2048).unwrap().transparent, Bytes::from_mib(4));
        let small = Kept { huge_pages: false, pins: true };
        assert!(mapped(0).unwrap().as_asked(small, "x").is_ok() && mapped(2048).unwrap().as_asked(small, "x").is_err());
        let as_asked = |huge_pages, (pool, transparent)| {
            let kept = Kept { huge_pages, pins: false };
            said(pool, transparent).unwrap().as_asked(kept, "x").map_err(|error| error.to_string())
        };
        assert!(as_asked(true, (2048, 0)).is_ok() && as_asked(false, (0, 0)).is_ok());
        // What QEMU itself has beside its guest may be in transparent pages.
        assert!(as_asked(true, (2048, 2048)).is_ok());
        for (huge, found) in [(true, (0, 2048)), (true, (1000, 0)), (false, (2048, 0)), (false, (0, 2048))] {
            let why = as_asked(huge, found).unwrap_err();
            assert!(why.contains("were asked for") && why.contains("in huge pages"), "{why}");
        }
        assert_eq!(Backing::parse("Rss: 1000 kB\n"), None);
    }
}
