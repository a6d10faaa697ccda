//! What `nearmetal bench together` takes, and what its kinds share.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::Context;
use clap::ArgGroup;
use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{ArmKind, Event, FioJob, MeasureError, NetTest, TogetherResults, TogetherTerms, together_text};
use nearmetal_units::Bytes;

use crate::commands::bench::clones::CloneArgs;
use crate::commands::bench::measuring::{need_root, watch, written};
use crate::commands::bench::net::{checked_address, test};
use crate::commands::bench::planned::{PlanArgs, Planned};
use crate::commands::bench::rounds::{block_size, percent};
use crate::commands::bench::workload::{SPAN, USUAL_SIZE};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// The most guests at once: each is told in turn when to begin, and that takes its time.
const MOST: usize = 16;

/// Compare several VMs at once with their bare slices at once
///
/// All guests begin at one moment, and so do the bare slices they are compared with. A sample of which less than
/// --overlap ran side by side is thrown away, and said to be. Name what the VMs work on: a scratch device for each
/// (--scratch), the drive that each has for itself (--drives), or one network port for all (--port).
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("over").required(true).args(["scratch", "drives", "port"])),
    after_help = "Examples:
  nearmetal bench together w0 w1 --scratch /dev/nvme0n1 --scratch /dev/nvme1n1 --quick --pause
  nearmetal bench together w0 w1 --drives --quick
  nearmetal bench together w0 w1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause"
)]
pub(in super::super) struct Args {
    /// The VMs, two or more, in the order in which they join with --scaling
    #[arg(value_name = "VM", required = true, num_args = 2..)]
    domains: Vec<String>,
    /// Whole block device for one VM; ITS CONTENTS ARE LOST. Once for each VM, in the same order
    #[arg(long, value_name = "DEVICE")]
    pub(super) scratch: Vec<String>,
    /// Measure the NVMe drive or virtual function that each VM has for itself; THE NAMESPACES' CONTENTS ARE LOST
    #[arg(long)]
    pub(super) drives: bool,
    /// The namespace that is written to on each drive, by its number (NSID) [default: the only one]
    #[arg(long, value_name = "NUMBER", requires = "drives", conflicts_with_all = ["scratch", "port"])]
    pub(super) namespace: Option<u32>,
    /// Block size of the drives or scratch devices [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size, conflicts_with = "port")]
    block_size: Option<Bytes>,
    #[command(flatten)]
    pub(super) net: NetArgs,
    #[command(flatten)]
    pub(super) plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    pub(super) terms: TermArgs,
    /// Write all samples here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What only a network takes.
#[derive(Debug, clap::Args)]
pub(super) struct NetArgs {
    /// The port that all VMs share; nobody may use it meanwhile, so it must have no address
    #[arg(long, value_name = "INTERFACE", requires_all = ["peer", "address"])]
    pub(super) port: Option<String>,
    /// Address of the machine at the other end of the port's cable, on which netserver runs
    #[arg(long, value_name = "ADDRESS", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    pub(super) peer: Option<IpAddr>,
    /// A free address in the peer's network, with its prefix: that of the first VM; each other VM has the next one, and
    /// bare metal the one behind them
    #[arg(long, value_name = "ADDRESS/PREFIX", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    pub(super) address: Option<String>,
    /// The way of the packets, by the id that `nearmetal bench net list` prints: one over a bridge, or vf-hostdev, where
    /// each VM takes turns with its bare slice on a virtual function of the port [default: bridge.vhost.q1]
    #[arg(long, value_name = "ID", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    pub(super) way: Option<String>,
    /// What is run over the network: tcp-rr, tcp-stream, tcp-maerts or udp-rr [default: tcp-rr]
    #[arg(long, value_name = "TEST", value_parser = netperf_test, requires = "port", conflicts_with_all = ["scratch", "drives"])]
    pub(super) test: Option<NetTest>,
}

/// How, whatever the VMs run.
#[derive(Debug, clap::Args)]
pub(super) struct TermArgs {
    /// Measure one VM, then two, and so on to all of them; without it only all at once
    #[arg(long)]
    scaling: bool,
    /// Percent of a sample's time during which all must have run
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent)]
    overlap: f64,
    /// Take minutes instead of hours: fewer and shorter samples
    #[arg(long)]
    pub(super) quick: bool,
    /// Seconds of one sample [default: 30, with --quick 5; over a network 10 and 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(super) seconds: Option<u32>,
    /// Pairs for each number of VMs [default: 10, with --quick 6, over a network 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: Option<u32>,
    /// Seed of the order and of the intervals' bootstrap; the same seed gives the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

/// A test of netperf: sockperf's say too little of when they measured.
fn netperf_test(text: &str) -> Result<NetTest, String> {
    let known = NetTest::DEFAULT;
    test(text)
        .ok()
        .filter(|test| known.contains(test))
        .ok_or_else(|| format!("VMs at once do not run `{text}`: write one of {}", known.map(NetTest::id).join(", ")))
}

impl Args {
    /// What can be seen before any plan is read.
    pub(super) fn check(&self) -> Result<(), WrongUse> {
        let names = &self.domains;
        if names.len() > MOST {
            return Err(WrongUse(format!("{} VMs are named, and {MOST} at once is the most", names.len())));
        }
        if let Some((_, name)) = names.iter().enumerate().find(|(number, name)| names[..*number].contains(name)) {
            return Err(WrongUse(format!("`{name}` is named twice: name each VM once")));
        }
        if !self.scratch.is_empty() && self.scratch.len() != names.len() {
            return Err(WrongUse(format!(
                "{} VMs and {} scratch devices are named: give each VM one, in the same order (--scratch DEVICE \
                 --scratch DEVICE …)",
                names.len(),
                self.scratch.len()
            )));
        }
        match (&self.net.address, self.net.peer) {
            (Some(address), Some(peer)) => checked_address(address, peer),
            _ => Ok(()),
        }
    }

    /// All VMs in their plans: one plan for all, or the one in force of each.
    pub(super) fn planned(&self, journal: &Journal) -> anyhow::Result<Vec<(&String, Planned)>> {
        self.domains.iter().map(|name| Ok((name, self.plan.of(name, journal)?))).collect()
    }

    /// What each runs on its drive.
    pub(super) fn job(&self) -> FioJob {
        let (seconds, ramp) = if self.terms.quick { (5, 2) } else { (30, 5) };
        let size = self.block_size.unwrap_or(USUAL_SIZE);
        let job = FioJob::first_seed(size, self.terms.seconds.unwrap_or(seconds), ramp);
        FioJob { span: Some(SPAN), ..job }
    }

    /// How, with so many pairs where none are asked for: with --quick, and without.
    pub(super) fn terms(
        &self,
        quick: u32,
        usual: u32,
        fs: &HostFs,
        journal: &Journal,
    ) -> anyhow::Result<TogetherTerms> {
        Ok(TogetherTerms {
            pairs: self.terms.pairs.unwrap_or(if self.terms.quick { quick } else { usual }),
            scaling: self.terms.scaling,
            least_overlap: self.terms.overlap / 100.0,
            conditions: self.clones.conditions(self.terms.seed, fs, journal)?,
        })
    }

    /// Runs the experiment, writes and shows its results.
    pub(super) fn run(
        &self,
        fs: &HostFs,
        printer: &mut Printer,
        experiment: impl FnOnce(&HostFs, &mut Libvirt, &mut dyn FnMut(Event<'_>)) -> Result<TogetherResults, MeasureError>,
    ) -> anyhow::Result<ExitStatus> {
        need_root("starts guests and drops caches", "")?;
        let mut libvirt = Libvirt::open(None)?;
        let results = watch(printer, ArmKind::title, |tell| experiment(fs, &mut libvirt, tell))?;
        written(&results, self.output.as_deref())?;
        printer.data(&together_text(&results).context("the rates give no ratio")?);
        Ok(ExitStatus::Done)
    }
}
