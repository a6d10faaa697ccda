//! What jobs left in `/srv/jobs` of their hosts: what the engine gave each, and what its run took and proved.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use nearmetal_units::{CpuSet, NodeSet};
use serde_json::Value;

use super::farm::Farm;
use super::jobs::{End, Job};

/// PUs of a host.
const HOST: usize = 6;

/// How many PUs an engine gives a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// As many as it asks for.
    Exactly,
    /// HTCondor hands a slot on to the next job of the same user that fits into it.
    AtLeast,
}

/// A guest, by its job's files on one host.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) host: &'static str,
    /// PUs and nodes that the job was given.
    given: (CpuSet, NodeSet),
    /// PUs and nodes that its run reserved.
    taken: Option<(CpuSet, NodeSet)>,
    /// Whether the guest was read back as planned.
    read_back: bool,
    /// The run's last words: outcome and code.
    ended: Option<(String, i64)>,
}

/// Of every job that began, by its name; two of one that has two hosts.
pub(super) fn gather(farm: &Farm) -> anyhow::Result<BTreeMap<String, Vec<Evidence>>> {
    let mut all: BTreeMap<String, Vec<Evidence>> = BTreeMap::new();
    for (host, bench) in farm.hosts() {
        let text = bench.sh("cd /srv/jobs; for f in *.given; do echo \"job:${f%.given}\"; cat $f ${f%.given}.events 2>/dev/null; done; true")?;
        for part in text.split("job:").skip(1) {
            let (name, lines) = part.split_once('\n').unwrap_or((part, ""));
            let evidence = read(host, lines).with_context(|| format!("`{name}` on {host}: {lines}"))?;
            all.entry(name.to_owned()).or_default().push(evidence);
        }
    }
    Ok(all)
}

fn read(host: &'static str, lines: &str) -> anyhow::Result<Evidence> {
    let mut evidence = Evidence { host, ..Evidence::default() };
    for line in lines.lines() {
        if let Some(cpus) = line.strip_prefix("Cpus_allowed_list:") {
            evidence.given.0 = cpus.trim().parse()?;
        } else if let Some(nodes) = line.strip_prefix("Mems_allowed_list:") {
            evidence.given.1 = nodes.trim().parse()?;
        } else if let Ok(event) = serde_json::from_str::<Value>(line) {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            match text("event").as_str() {
                "reserved" => evidence.taken = Some((text("cpus").parse()?, text("nodes").parse()?)),
                "read-back" => evidence.read_back = true,
                "ended" => evidence.ended = Some((text("outcome"), event["code"].as_i64().unwrap_or(-1))),
                _ => {}
            }
        }
    }
    Ok(evidence)
}

/// Every job's guest was read back inside what the engine gave it, and ended as it should.
pub(super) fn check(jobs: &[Job], all: &BTreeMap<String, Vec<Evidence>>, share: Share) -> anyhow::Result<()> {
    for job in jobs {
        let name = &job.name;
        let found = all.get(name).with_context(|| format!("`{name}` left nothing on any host"))?;
        for one in found {
            let Some((cpus, nodes)) = &one.taken else {
                ensure!(job.end == End::Removed, "`{name}` reserved nothing: {one:?}");
                continue;
            };
            ensure!(cpus.is_subset(&one.given.0) && nodes.is_subset(&one.given.1), "`{name}` took more: {one:?}");
            // The engine's own cpuset: a job of the whole host has all six.
            let (given, wanted) = (one.given.0.len(), job.cpus as usize);
            let right = given == wanted || share == Share::AtLeast && (wanted..=HOST).contains(&given);
            ensure!(right, "`{name}` asked for {wanted} CPUs: {one:?}");
        }
        if let End::Code(code) = job.end {
            // A job that was started anew on the other host has files of its first run as well.
            let end = Some(("exited".to_owned(), i64::from(code)));
            ensure!(found.iter().any(|one| one.ended == end), "`{name}` did not end with {code}: {found:?}");
            let ended = found.iter().filter(|one| one.ended == end);
            ensure!(ended.into_iter().all(|one| one.read_back), "`{name}` was not read back: {found:?}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::engines::jobs::of_number;

    const LINES: &str = "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1\ncgroup:0::/x\n\
        {\"event\":\"reserved\",\"cpus\":\"2-3\",\"nodes\":\"0\"}\n{\"event\":\"read-back\",\"checks\":7,\"untold\":0}\n\
        {\"event\":\"ended\",\"outcome\":\"exited\",\"code\":0}\n";

    fn checked(lines: &str, share: Share) -> anyhow::Result<()> {
        let job = of_number(20).into_iter().find(|job| job.name == "held").unwrap();
        let evidence = read("farm-a", lines)?;
        check(std::slice::from_ref(&job), &BTreeMap::from([(job.name.clone(), vec![evidence])]), share)
    }

    #[test]
    fn a_guest_outside_of_what_its_job_was_given_is_found() {
        checked(LINES, Share::Exactly).unwrap();
        // A slot that somebody left.
        checked(&LINES.replacen("2-3\nMems", "0-5\nMems", 1), Share::AtLeast).unwrap();
        assert!(checked(&LINES.replacen("2-3\nMems", "3\nMems", 1), Share::AtLeast).is_err());
        for (from, to, says) in [
            ("\"cpus\":\"2-3\"", "\"cpus\":\"2-4\"", "took more"),
            ("\"nodes\":\"0\"", "\"nodes\":\"2\"", "took more"),
            ("2-3\nMems", "0-5\nMems", "asked for 2 CPUs"),
            ("read-back", "agent", "not read back"),
            ("\"code\":0", "\"code\":3", "did not end with 0"),
            ("reserved", "recovered", "reserved nothing"),
        ] {
            let error = checked(&LINES.replacen(from, to, 1), Share::Exactly).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
