//! Options of `nearmetal plan` that concern a fleet.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_fleet::{Arrival, Options};

/// Planning many VMs over many hosts
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Fleets")]
pub(crate) struct FleetArgs {
    /// Plan all VMs of this fleet file over its hosts (`nearmetal fleet example` prints one, `nearmetal fleet init` writes
    /// one)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["domains", "domain_xml", "capture", "class", "no_hugepages"])]
    pub(crate) fleet: Option<PathBuf>,
    /// Show how the plan would change: `remove-host=NAME`, `smt-off`, `smt-off=HOST`, `add-vm=NAME` (one more like NAME),
    /// `add-vm=NAME*COUNT`, `add-vm=FILE.toml` (the VMs of another file); may be repeated
    #[arg(long, value_name = "CHANGE", requires = "fleet", conflicts_with_all = ["output", "directory"])]
    pub(crate) what_if: Vec<String>,
    /// Write everything to this directory: plan.json, the report page, and each host's pictures, definitions and commands
    #[arg(long, value_name = "DIR", requires = "fleet")]
    pub(crate) directory: Option<PathBuf>,
    /// Show every VM with its reasons and its second-best place
    #[arg(long, requires = "fleet")]
    pub(crate) details: bool,
    /// Place VMs one by one in the file's order, as if each arrived without notice
    #[arg(long, requires = "fleet")]
    pub(crate) online: bool,
    /// Limit the search to N steps. The plan says how many it took; the same number and seed give the same plan
    #[arg(long, value_name = "N", requires = "fleet")]
    pub(crate) steps: Option<u64>,
    /// Seed of the search
    #[arg(long, value_name = "N", requires = "fleet", default_value_t = Options::default().seed)]
    pub(crate) seed: u64,
    /// Stop the search after SECONDS; 0 for no time limit [default: 2, or none with --steps]
    #[arg(long, value_name = "SECONDS", requires = "fleet", value_parser = seconds)]
    pub(crate) budget: Option<Duration>,
}

impl FleetArgs {
    /// How to search. Who names a number of steps wants just these: a clock would make the plan another one each time.
    pub(crate) fn options(&self) -> Options {
        let default = Options::default();
        let budget = match (self.budget, self.steps) {
            (Some(budget), _) => Some(budget).filter(|budget| !budget.is_zero()),
            (None, Some(_)) => None,
            (None, None) => default.budget,
        };
        let arrival = if self.online { Arrival::Online } else { Arrival::Batch };
        Options { seed: self.seed, steps: self.steps.unwrap_or(default.steps), budget, arrival }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let refused = || format!("`{text}` is not a time: write seconds from 0 to 86400, such as 0.5");
    let seconds: f64 = text.parse().map_err(|_| refused())?;
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(refused());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| refused())
}
