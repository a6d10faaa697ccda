//! What each decision of a plan is worth: the domain as planned against the same domain without one of them.
//!
//! A plan sets several things at once, and a ratio of the whole says nothing of the parts: one may cost what another gains.
//! Here each arm lacks one decision and keeps all others, so the ratio of the whole to an arm is what that decision is worth
//! beside the others. Where two decisions only help together, each of the two is worth what both gain.

use nearmetal_domain::{DefinitionEdit, DiskFacts, DomainError, DomainXml};
use nearmetal_results::{ArmName, Results, Role};
use serde::{Deserialize, Serialize};

use crate::clones::measured_disk;
use crate::conditions::Conditions;
use crate::engine::{Fresh, Session};
use crate::error::MeasureError;
use crate::finish::Request;
use crate::stand::{OnScratch, Stand, Turns, Up, Way, paired};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionsRequest {
    /// The guest, and where it is measured with what.
    #[serde(flatten)]
    pub on: OnScratch,
    /// Under what.
    pub conditions: Conditions,
}

/// One decision, and how it is taken back in a planned definition.
struct Decision {
    /// Id of the arm without it.
    id: &'static str,
    title: &'static str,
    description: &'static str,
    take_back: fn(&mut DomainXml, &Disk<'_>) -> Result<bool, DomainError>,
}

/// The disk that is measured.
struct Disk<'f> {
    target: &'f str,
    found: &'f DiskFacts,
}

/// Place of the arm as planned.
const PLANNED: usize = 1;

const DECISIONS: [Decision; 5] = [
    Decision {
        id: "without-pins",
        title: "without pins",
        description: "as planned, but every thread runs where the kernel puts it",
        take_back: |xml, _| xml.remove_pins(),
    },
    Decision {
        id: "without-node",
        title: "without memory node",
        description: "as planned, but memory comes from where the kernel takes it",
        take_back: |xml, _| xml.remove_numatune(),
    },
    Decision {
        id: "without-huge-pages",
        title: "without huge pages",
        description: "as planned, but the kernel chooses the page size (transparent huge pages where the host has them on)",
        take_back: |xml, _| xml.remove_hugepages(),
    },
    Decision {
        id: "without-iothread",
        title: "without iothread",
        description: "as planned, but QEMU's main loop serves the disk",
        take_back: |xml, disk| {
            let named = xml.edit(&DefinitionEdit::RemoveAttribute { at: disk.driver(), name: "iothread".into() })?;
            let mapped = xml.edit(&DefinitionEdit::Remove { at: format!("{}/iothreads", disk.driver()) })?;
            Ok(named || mapped)
        },
    },
    Decision {
        id: "without-cache-and-engine",
        title: "without cache and engine",
        description: "as planned, but the disk's cache mode and engine are those found",
        take_back: |xml, disk| {
            let cache = xml.edit(&disk.as_found("cache", disk.found.driver.cache.as_deref()))?;
            let engine = xml.edit(&disk.as_found("io", disk.found.driver.io.as_deref()))?;
            Ok(cache || engine)
        },
    },
];

impl Disk<'_> {
    fn driver(&self) -> String {
        format!("devices/disk[target/@dev='{}']/driver", self.target)
    }

    fn as_found(&self, name: &str, value: Option<&str>) -> DefinitionEdit {
        let (at, name) = (self.driver(), name.to_owned());
        match value {
            Some(value) => DefinitionEdit::SetAttribute { at, name, value: value.to_owned() },
            None => DefinitionEdit::RemoveAttribute { at, name },
        }
    }
}

impl Request for DecisionsRequest {
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
    /// The plan decides none of these things, the guest runs and may not be paused, the scratch device cannot be used, a clone
    /// does not come up, or four runs in a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        let mut stand = Stand::set_up(ways(&self.on)?, Up::One, &self.on, session)?;
        let all: Vec<usize> = (0..stand.arms.len()).collect();
        // Nothing to boot for a round: the stand boots a clone for each sample.
        let turns = Turns { same_arm: vec![PLANNED], groups: &[&all], fresh: Fresh::No };
        paired("decisions", &self.on, turns, &mut stand, session)
    }
}

/// Bare metal, the domain as planned, and one for each decision that the plan makes.
fn ways(on: &OnScratch) -> Result<Vec<Way>, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: on.guest.clone(), source };
    let planned = DomainXml::parse(&on.xml_planned).map_err(wrap)?;
    let target = measured_disk(&on.xml_planned, &on.guest)?;
    let found = DomainXml::parse(&on.xml_found).and_then(|xml| xml.facts()).map_err(wrap)?;
    let found = found.disks.iter().find(|disk| disk.target == target);
    let found = found.ok_or_else(|| {
        MeasureError::Asked(format!("the disk `{target}` of `{}` is in its plan, and not as it was found", on.guest))
    })?;
    let disk = Disk { target: &target, found };
    let mut ways = vec![Way::bare(), Way::clone(ArmName::planned(), "the domain as planned", on.xml_planned.clone())];
    for decision in &DECISIONS {
        let mut xml = planned.clone();
        if (decision.take_back)(&mut xml, &disk).map_err(wrap)? {
            let name = ArmName::new(decision.id, decision.title, Role::Other);
            ways.push(Way::clone(name, decision.description, xml.as_str().to_owned()));
        }
    }
    if ways.len() == 2 {
        return Err(MeasureError::Asked(format!(
            "the plan changes neither pins, memory nor the disk's driver of `{}`, so there is no decision to measure; \
             `nearmetal bench slice` compares the domain with bare metal",
            on.guest
        )));
    }
    Ok(ways)
}

#[cfg(test)]
mod tests {
    use nearmetal_units::{CpuSet, PageSize};

    use super::*;
    use crate::played::on_scratch;

    fn ids(on: &OnScratch) -> Vec<String> {
        ways(on).unwrap().into_iter().map(|way| way.name.id).collect()
    }

    #[test]
    fn an_arm_lacks_one_decision_and_keeps_the_others() {
        let mut on = on_scratch();
        let mut xml = DomainXml::parse(&on.xml_planned).unwrap();
        xml.set_hugepages(PageSize::HUGE_2M).unwrap();
        xml.set_numatune_strict(&"0".parse().unwrap()).unwrap();
        xml.set_iothreads(&[CpuSet::one(2)]).unwrap();
        let planned = nearmetal_domain::DriverOptions {
            cache: Some(nearmetal_domain::DiskCache::None),
            io: Some(nearmetal_domain::DiskIo::Native),
            iothread: Some(1),
            iothreads: None,
            main_loop: false,
            queues: None,
        };
        xml.set_disk_driver("vda", &planned).unwrap();
        on.xml_planned = xml.as_str().to_owned();
        let ways = ways(&on).unwrap();
        let facts = |id: &str| {
            let way = ways.iter().find(|way| way.name.id == id).unwrap();
            DomainXml::parse(way.xml.as_deref().unwrap()).unwrap().facts().unwrap()
        };
        let whole = facts("planned");
        // What an arm lacks, beside how the planned definition has it.
        let lacks = |id: &str| {
            let facts = facts(id);
            let driver = |facts: &nearmetal_domain::DomainFacts| facts.disks[0].driver.clone();
            [
                ("pins", facts.vcpu_pins != whole.vcpu_pins || facts.emulator_pin != whole.emulator_pin),
                ("node", facts.numatune != whole.numatune),
                ("pages", facts.hugepages != whole.hugepages),
                ("iothread", driver(&facts).iothread != driver(&whole).iothread),
                ("cache", (driver(&facts).cache, driver(&facts).io) != (driver(&whole).cache, driver(&whole).io)),
            ]
            .into_iter()
            .filter_map(|(what, differs)| differs.then_some(what))
            .collect::<Vec<_>>()
        };
        let each = ["pins", "node", "pages", "iothread", "cache"];
        for (decision, lacked) in DECISIONS.iter().zip(each) {
            assert_eq!(lacks(decision.id), [lacked], "{}", decision.id);
        }
    }

    #[test]
    fn what_the_plan_does_not_decide_is_no_arm() {
        assert_eq!(ids(&on_scratch()), ["bare-slice", "planned", "without-pins"]);
        let mut on = on_scratch();
        on.xml_planned.clone_from(&on.xml_found);
        let why = ways(&on).map(drop).unwrap_err().to_string();
        assert!(why.contains("no decision to measure"), "{why}");
    }
}
