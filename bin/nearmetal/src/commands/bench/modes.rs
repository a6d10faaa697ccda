//! `nearmetal bench modes`.

use nearmetal_domain::DomainXml;
use nearmetal_host::{Host, HostFs};
use nearmetal_load::{Shape, WorkJob, WorksOn};
use nearmetal_measure::{Conditions, Experiment, Mode, ModesRequest, parts_of};
use nearmetal_units::{Bytes, NodeSet};

use super::clones::CloneArgs;
use super::keep::KeepArgs;
use super::loads_image::needed;
use super::measuring::need_root;
use super::planned::{PlanArgs, shape};
use super::rounds::{RoundArgs, SAME_ARM_PAIRS, one_of, percent, same_arm_pairs};
use super::workload::{Chosen, StartArgs, one};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// Memory of each thread: past the caches of one PU, and with `--quick` little enough to be filled in a moment.
const EACH: Bytes = Bytes::from_mib(64);
const QUICK_EACH: Bytes = Bytes::from_mib(16);
/// The part of a guest's memory that its program may take; the rest is the appliance's.
const MOST_OF_MEMORY: u64 = 2;

/// Find out how a guest should be spread over nodes, and what each way costs
///
/// Takes the VM for what one node holds, and compares five ways to have it over 1, 2, 4 … nodes: a process on each node
/// without a guest (native); one wide guest as libvirt makes it (default), with each vCPU on a PU of its own (pinned), and with
/// the nodes shown to it as cells, too (cells); and one guest a node. Each part has a program whose threads walk memory that
/// they touched first, as a JVM or a database does.
///
/// Each ratio is against native on the same nodes; --mode leaves the other ways out. In a lab, and on processors that count
/// loads by node, it also says which part of the accesses stayed on their node. All guests are clones without disks, booted
/// afresh for each sample, and each clone's pins are read back. Nodes need free memory for one clone beside the VM.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench modes web1 --quick --pause --counts 1,2,4")]
pub(super) struct Args {
    /// The VM; its clones have its machine and CPU model, and on each node its vCPUs and memory
    #[arg(value_name = "VM")]
    domain: String,
    /// The nodes, as 0-3 or 0,2 [default: all that have PUs, the nearest to the first one first]
    #[arg(long, value_name = "NODES")]
    nodes: Option<NodeSet>,
    /// Numbers of nodes to measure [default: 1, 2, 4 and so on, and all]
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    counts: Vec<usize>,
    /// A mode to compare with native; repeat --mode for more [default: all four, with --single all but per-node]
    #[arg(long, value_name = "MODE", value_parser = one_of(&Mode::WITH_GUESTS, Mode::id))]
    mode: Vec<Mode>,
    /// What the program of each node runs [default: threads that walk memory, `nearmetal-probe memory work`]
    #[arg(long, value_name = "WORKLOAD", value_parser = one(|load| load.on == WorksOn::Processors && load.needs_loads_image() && !load.needs_kit()))]
    workload: Option<Chosen>,
    #[command(flatten)]
    start: StartArgs,
    /// Run one program over all nodes, in the place of one on each; then there is no guest on each node
    #[arg(long, requires = "workload")]
    single: bool,
    /// Memory that each thread walks [default: 64MiB, with --quick 16MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "workload")]
    size: Option<Bytes>,
    /// Percent of a sample's time during which the programs of all nodes must have run
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent)]
    overlap: f64,
    /// A/A pairs of the guest with cells (without it, of the last mode) over all nodes, for the noise floor: 0, or 2 and more
    #[arg(long, value_name = "NUMBER", default_value_t = SAME_ARM_PAIRS, value_parser = same_arm_pairs)]
    same_arm_pairs: u32,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    rounds: RoundArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Memory of a thread: as much as the order of its walk needs, and whole pages.
fn size(text: &str) -> Result<Bytes, String> {
    let (least, page) = (Bytes::from_mib(1), 4096);
    match text.parse::<Bytes>() {
        Ok(size) if size >= least && size.get() % page == 0 => Ok(size),
        Ok(size) => Err(format!("{size} is not a number of whole pages of 4 KiB from {least} on")),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command.
pub(super) fn modes(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    if args.single && args.mode.contains(&Mode::PerNode) {
        return Err(WrongUse(format!(
            "--single runs one program, and `{}` has a VM on each node: name other modes",
            Mode::PerNode.id()
        ))
        .into());
    }
    let journal = args.plan.journal();
    let planned = args.plan.of(&args.domain, &journal)?;
    need_root("starts guests and drops caches", "")?;
    let fs = HostFs::live();
    let xml = planned.change.xml_before.clone();
    let facts = DomainXml::parse(&xml)?.facts()?;
    let (vcpus, memory) = (facts.vcpus.maximum, facts.memory);
    let loads = match &args.workload {
        Some(chosen) => {
            // What runs on one node of the guest's memory and vCPUs.
            let shape = Shape {
                seconds: args.rounds.seconds(),
                ramp: args.rounds.ramp(),
                vcpus,
                nodes: 1,
                ..shape(&xml, &planned.placement, chosen, &fs)?
            };
            chosen.of(&shape)
        }
        None => vec![walk(args, vcpus, memory)?.into()],
    };
    let workload = args.start.given(loads)?.into_iter().next();
    let workload = workload.ok_or_else(|| WrongUse("--workload names no load".to_owned()))?;
    let host = Host::read(&fs);
    let parts = parts_of(&host, args.nodes.as_ref(), vcpus, memory)?;
    let counts = if args.counts.is_empty() { doubling(parts.len()) } else { sorted(&args.counts) };
    let conditions = args.clones.conditions(args.rounds.seed, &fs, &journal)?;
    let loads = needed(args.workload.as_ref().is_some_and(Chosen::needs_loads_image))?;
    let conditions = Conditions { loads, ..conditions };
    let request = ModesRequest {
        guest: args.domain.clone(),
        xml,
        memory,
        parts,
        counts,
        modes: if args.mode.is_empty() { Mode::WITH_GUESTS.to_vec() } else { args.mode.clone() },
        workload,
        single: args.single,
        pairs: args.rounds.pairs(),
        same_arm_pairs: args.same_arm_pairs,
        least_overlap: args.overlap / 100.0,
        quick: args.rounds.quick,
        conditions: args.keep.kept(conditions, &planned, &journal),
    };
    Ok(Experiment::Modes(Box::new(request)))
}

/// Threads that walk memory of their own, a part of the guest's at most.
fn walk(args: &Args, vcpus: u32, memory: Bytes) -> Result<WorkJob, WrongUse> {
    let each = args.size.unwrap_or(if args.rounds.quick { QUICK_EACH } else { EACH });
    let asked = each.times(vcpus.into());
    if asked.times(MOST_OF_MEMORY) > memory {
        return Err(WrongUse(format!(
            "{vcpus} threads of {each} need {asked}, and at most half of the memory of `{}` ({memory}) may be walked: give a \
             smaller --size",
            args.domain
        )));
    }
    Ok(WorkJob { threads: vcpus, each, seconds: args.rounds.seconds() })
}

/// 1, 2, 4 and so on, and all.
fn doubling(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|n| *n < all).collect();
    counts.push(all);
    counts
}

fn sorted(counts: &[usize]) -> Vec<usize> {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nodes_double_up_to_all() {
        assert_eq!(doubling(4), [1, 2, 4]);
        assert_eq!(doubling(6), [1, 2, 4, 6]);
        assert_eq!(sorted(&[4, 1, 4]), [1, 4]);
    }

    #[test]
    fn a_threads_memory_is_whole_pages() {
        assert_eq!(size("16MiB"), Ok(Bytes::from_mib(16)));
        assert!(size("1000").is_err() && size("x").is_err() && size("1025KiB").is_err());
    }
}
