//! Damages lists of flavors, millions of times, and expects each to be a fleet file or refused.
//!
//! Part of `./dev fuzz [COUNT] [NAME]`, with the rules of the host crate's example of this name.

use std::process::ExitCode;

use nearmetal_fleet::file::FleetFile;
use nearmetal_host::fuzzing::{Target, campaign};
use nearmetal_interchange::fleet_from_flavors;

const SHOWN: &str = r#"{"name": "a", "vcpus": 2, "ram": 2048, "disk": 0,
 "properties": {"hw:mem_page_size": "1GB", "hw:cpu_policy": "dedicated", "hw:numa_nodes": "2", "quota:x": "1"}}"#;
const LISTED: &str = r#"[{"ID": "1", "Name": "b", "RAM": 1024, "VCPUs": 1,
 "Properties": "hw:cpu_policy='mixed', hw:cpu_thread_policy='require', hw:mem_page_size='any'"}]"#;

/// Reads it; what comes out is a fleet file.
fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match fleet_from_flavors(text, "fuzz") {
        Ok((fleet, limits)) => {
            assert!(FleetFile::parse("", &fleet).is_ok(), "{fleet}");
            limits.iter().for_each(|limit| drop(limit.line()));
        }
        Err(error) => drop(error.to_string()),
    }
}

fn main() -> ExitCode {
    let target = |name: &'static str, seed: &str| Target { name, seed: seed.into(), run: Box::new(read) };
    campaign(vec![target("flavor", SHOWN), target("list of flavors", LISTED)], std::env::args().skip(1))
}
