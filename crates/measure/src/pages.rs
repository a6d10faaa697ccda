//! What huge pages and pins are worth, each alone and both together: four clones of one guest, and the slice of bare metal.
//!
//! The experiment of seed 001 (slides "Huge Pages" and "Using NUMA"): a guest on small pages, on huge pages, and on huge pages
//! with its processors and memory pinned. A plan's own worth without either is what `decisions` measures; it has no arm that
//! lacks both, and its arm without huge pages has transparent ones where the host gives them. Here small pages are small: the
//! host's setting is `never` while such a clone is up, and what QEMU's memory really is in is read back for every sample.

use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::arm::{ArmName, Role};
use crate::conditions::Conditions;
use crate::engine::{Fresh, Path, Seat, Session, Step};
use crate::error::MeasureError;
use crate::finish::Request;
use crate::results::{Arm, Results};
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
                "as planned, but threads go where the kernel puts them; huge pages come from the planned pool"
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
    /// The plan sets no huge pages or no pins, the guest runs and may not be paused, the scratch device cannot be used, a clone
    /// does not come up or is not in the pages it was asked to be in, or four runs in a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        let stand = Stand::set_up(ways(&self.on)?, Up::One, &self.on, session)?;
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
    /// In pages that the kernel made large.
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
        Some(Self { pool, transparent: field("AnonHugePages")?, resident: field("Rss")?.plus(pool) })
    }

    fn as_asked(self, kept: Kept, clone: &str) -> Result<(), MeasureError> {
        let problem = match kept.huge_pages {
            true if self.pool == Bytes::ZERO => "huge pages were asked for, and none of its memory is in any",
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
    fn memory_that_is_in_other_pages_than_asked_fails_the_sample() {
        let said = |pool: u64, transparent: u64| {
            Backing::parse(&format!(
                "7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 1000 kB\nAnonHugePages: {transparent} kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: {pool} kB\n"
            ))
        };
        let as_asked = |huge_pages, (pool, transparent)| {
            let kept = Kept { huge_pages, pins: false };
            said(pool, transparent).unwrap().as_asked(kept, "x").map_err(|error| error.to_string())
        };
        assert!(as_asked(true, (2048, 0)).is_ok() && as_asked(false, (0, 0)).is_ok());
        // What QEMU itself has beside its guest may be in transparent pages.
        assert!(as_asked(true, (2048, 2048)).is_ok());
        for (huge, found) in [(true, (0, 2048)), (false, (2048, 0)), (false, (0, 2048))] {
            let why = as_asked(huge, found).unwrap_err();
            assert!(why.contains("were asked for") && why.contains("in huge pages"), "{why}");
        }
        assert_eq!(Backing::parse("Rss: 1000 kB\n"), None);
    }
}
