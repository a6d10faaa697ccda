//! `nearmetal bench together`: several VMs at once, over scratch devices, drives of their own, or one network port.

use std::net::IpAddr;

use clap::ArgGroup;
use nearmetal_host::HostFs;
use nearmetal_load::{FioJob, NetTest};
use nearmetal_measure::{Experiment, MOST_TOGETHER, Member, Over, TogetherRequest, function_of};
use nearmetal_results::NetPath;
use nearmetal_units::Bytes;

use super::clones::CloneArgs;
use super::keep::KeepArgs;
use super::measuring::need_root;
use super::net::{checked_address, test};
use super::planned::PlanArgs;
use super::rounds::{SAME_ARM_PAIRS, block_size, percent, same_arm_pairs};
use super::workload::{SPAN, USUAL_SIZE};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// libvirt's default.
const WAY: &str = "bridge.vhost.q1";

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
pub(super) struct Args {
    /// The VMs, two or more, in the order in which they join with --scaling
    #[arg(value_name = "VM", required = true, num_args = 2..)]
    domains: Vec<String>,
    /// Whole block device for one VM; ITS CONTENTS ARE LOST. Once for each VM, in the same order
    #[arg(long, value_name = "DEVICE")]
    scratch: Vec<String>,
    /// Measure the NVMe drive or virtual function that each VM has for itself; THE NAMESPACES' CONTENTS ARE LOST
    #[arg(long)]
    drives: bool,
    /// The namespace that is written to on each drive, by its number (NSID) [default: the only one]
    #[arg(long, value_name = "NUMBER", requires = "drives", conflicts_with_all = ["scratch", "port"])]
    namespace: Option<u32>,
    /// Block size of the drives or scratch devices [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size, conflicts_with = "port")]
    block_size: Option<Bytes>,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    terms: TermArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// What only a network takes.
#[derive(Debug, clap::Args)]
struct NetArgs {
    /// The port that all VMs share; nobody may use it meanwhile, so it must have no address
    #[arg(long, value_name = "INTERFACE", requires_all = ["peer", "address"])]
    port: Option<String>,
    /// Address of the machine at the other end of the port's cable, on which netserver runs
    #[arg(long, value_name = "ADDRESS", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    peer: Option<IpAddr>,
    /// A free address in the peer's network, with its prefix: that of the first VM; each other VM has the next one, and
    /// bare metal the one behind them
    #[arg(long, value_name = "ADDRESS/PREFIX", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    address: Option<String>,
    /// The way of the packets, by the id that `nearmetal bench net list` prints: one over a bridge, or vf-hostdev, where
    /// each VM takes turns with its bare slice on a virtual function of the port [default: bridge.vhost.q1]
    #[arg(long, value_name = "ID", requires = "port", conflicts_with_all = ["scratch", "drives"])]
    way: Option<String>,
    /// What is run over the network: tcp-rr, tcp-stream, tcp-maerts or udp-rr [default: tcp-rr]
    #[arg(long, value_name = "TEST", value_parser = netperf_test, requires = "port", conflicts_with_all = ["scratch", "drives"])]
    test: Option<NetTest>,
}

/// How, whatever the VMs run.
#[derive(Debug, clap::Args)]
struct TermArgs {
    /// Measure one VM, then two, and so on to all of them; without it only all at once
    #[arg(long)]
    scaling: bool,
    /// Percent of a sample's time during which all must have run
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent)]
    overlap: f64,
    /// Take minutes instead of hours: fewer and shorter samples
    #[arg(long)]
    quick: bool,
    /// Seconds of one sample [default: 30, with --quick 5; over a network 10 and 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Pairs for each number of VMs [default: 10, with --quick 6, over a network 4]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: Option<u32>,
    /// How far the interval of each ratio may reach to either side, in percent: the pairs are then a pilot, from which their
    /// number is fixed, 100 at most
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["pairs", "quick"])]
    resolve: Option<f64>,
    /// A/A pairs of all VMs at once, for the noise floor: 0, or 2 and more
    #[arg(long, value_name = "NUMBER", default_value_t = SAME_ARM_PAIRS, value_parser = same_arm_pairs)]
    same_arm_pairs: u32,
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

/// Runs the command.
pub(super) fn together(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    args.check()?;
    let journal = args.plan.journal();
    // One plan for all, or the one in force of each.
    let planned = args.domains.iter().map(|name| args.plan.of(name, &journal)).collect::<anyhow::Result<Vec<_>>>()?;
    let member = |(name, planned): (&String, &super::planned::Planned)| Member {
        guest: name.clone(),
        placement: planned.placement.clone(),
        xml_planned: planned.change.xml_after.clone(),
    };
    let members: Vec<Member> = args.domains.iter().zip(&planned).map(member).collect();
    let over = args.over(&members)?;
    need_root("starts guests and drops caches", "")?;
    let conditions = args.clones.conditions(args.terms.seed, &HostFs::live(), &journal)?;
    let conditions = match planned.first() {
        Some(first) => args.keep.kept(conditions, first, &journal),
        None => conditions,
    };
    let quick = if matches!(over, Over::Port { .. }) { 4 } else { 6 };
    let request = TogetherRequest {
        members,
        over,
        pairs: args.terms.pairs.unwrap_or(if args.terms.quick { quick } else { 10 }),
        resolve: args.terms.resolve.map(|percent| percent / 100.0),
        same_arm_pairs: args.terms.same_arm_pairs,
        scaling: args.terms.scaling,
        least_overlap: args.terms.overlap / 100.0,
        conditions,
    };
    Ok(Experiment::Together(Box::new(request)))
}

impl Args {
    /// What can be seen before any plan is read.
    fn check(&self) -> Result<(), WrongUse> {
        let names = &self.domains;
        if names.len() > MOST_TOGETHER {
            return Err(WrongUse(format!("{} VMs are named, and {MOST_TOGETHER} at once is the most", names.len())));
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

    /// What each runs on its drive.
    fn job(&self) -> FioJob {
        let (seconds, ramp) = if self.terms.quick { (5, 2) } else { (30, 5) };
        let size = self.block_size.unwrap_or(USUAL_SIZE);
        let job = FioJob::first_seed(size, self.terms.seconds.unwrap_or(seconds), ramp);
        FioJob { span: Some(SPAN), ..job }
    }

    /// What they work on.
    fn over(&self, members: &[Member]) -> anyhow::Result<Over> {
        let Some(port) = &self.net.port else {
            if !self.drives {
                return Ok(Over::Scratch { job: self.job(), devices: self.scratch.clone() });
            }
            let function = |member: &Member| function_of(&member.xml_planned, &member.guest);
            let functions = members.iter().map(function).collect::<Result<Vec<_>, _>>()?;
            return Ok(Over::Drives { job: self.job(), functions, namespace: self.namespace });
        };
        Ok(Over::Port {
            way: way(self.net.way.as_deref().unwrap_or(WAY), members)?,
            test: self.net.test.unwrap_or(NetTest::TcpRr),
            seconds: self.terms.seconds.unwrap_or(if self.terms.quick { 3 } else { 10 }),
            port: port.clone(),
            // clap asks for both with --port.
            peer: self.net.peer.unwrap_or(IpAddr::from([0, 0, 0, 0])),
            address: self.net.address.clone().unwrap_or_default(),
        })
    }
}

/// The way with this id, of those that guests with so many vCPUs can share a port by.
fn way(id: &str, members: &[Member]) -> Result<NetPath, WrongUse> {
    let vcpus = members.iter().map(|member| member.placement.vcpus.len() as u32).min().unwrap_or(1);
    let ways = NetPath::of_several(vcpus);
    ways.iter().copied().find(|way| way.id() == id).ok_or_else(|| {
        let known: Vec<String> = ways.iter().map(NetPath::id).collect();
        WrongUse(format!("--way: no way is called `{id}`; write one of {}", known.join(", ")))
    })
}
