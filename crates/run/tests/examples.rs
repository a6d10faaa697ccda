//! Jobs that the package brings as examples ask for a flavour that users without root can have, and for enough of the host.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_run::flavour::{EXAMPLE, Flavours};
use nearmetal_run::needs::in_a_session;
use nearmetal_run::session::BESIDE;
use nearmetal_units::Bytes;

const SLURM: &str = include_str!("../../../packaging/examples/slurm/job.sbatch");
const CONDOR: &str = include_str!("../../../packaging/examples/condor/job.submit");
const KUBERNETES: &str = include_str!("../../../packaging/examples/kubernetes/job.yaml");

/// What follows `before` up to the first character that is neither letter, digit nor `-`.
fn word<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}")).1;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
    &rest[..end]
}

#[test]
fn every_example_job_asks_for_a_flavour_of_users_and_for_room_beside_it() {
    let flavours = Flavours::parse("example.toml", EXAMPLE).unwrap();
    for (text, flavour, same, cpus, memory) in [
        (SLURM, "nearmetal run ", "constraint=flavour.", "cpus-per-task=", "--mem="),
        (CONDOR, "\"run ", "stringListMember(\"", "request_cpus   = ", "request_memory = "),
        (KUBERNETES, "- run\n            - ", "nearmetal/flavour.", "cpu: \"", "memory: "),
    ] {
        let name = word(text, flavour);
        assert_eq!(name, word(text, same), "{text}");
        let flavour = flavours.find(name).unwrap();
        in_a_session(flavour).unwrap();
        // Engines give PUs, and not all of them whole cores.
        assert!(!flavour.whole_cores, "{name}");
        assert_eq!(word(text, cpus), (flavour.vcpus + 1).to_string(), "{text}");
        let mebibytes = word(text, memory).trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap();
        assert!(Bytes::from_mib(mebibytes) >= flavour.memory.plus(BESIDE).plus(BESIDE), "{text}");
    }
}

#[test]
fn slurm_s_time_limit_is_above_the_flavour_s() {
    let flavours = Flavours::parse("example.toml", EXAMPLE).unwrap();
    let limit = flavours.find("batch").unwrap().time_limit.unwrap();
    let time = SLURM.split_once("--time=").unwrap().1.lines().next().unwrap();
    let seconds = time.split(':').fold(0, |sum, part| sum * 60 + part.parse::<u64>().unwrap());
    assert!(seconds > limit.as_secs(), "{time}");
}
