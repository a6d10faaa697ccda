//! What a comparison of one VM in clones, on one scratch device, can be asked for.

use nearmetal_host::HostFs;
use nearmetal_load::{Shape, Workload};
use nearmetal_measure::{Conditions, OnScratch, Pairing};
use nearmetal_units::Bytes;

use super::clones::CloneArgs;
use super::keep::KeepArgs;
use super::kit::{FoundKit, KitArgs};
use super::loads_image::needed_by;
use super::measuring::need_root;
use super::planned::{PlanArgs, shape};
use super::rounds::{RoundArgs, SAME_ARM_PAIRS, block_size, percent, same_arm_pairs};
use super::workload::{Chosen, MemoryArgs, StartArgs, USUAL, several, span_of_any};
use crate::exit_status::WrongUse;

/// Seconds of a sample that is taken once: it shows a trend over sizes, and no interval.
const SINGLE_SHOT_SECONDS: u32 = 2;

/// The VM, where it is measured, and with what.
#[derive(Debug, clap::Args)]
pub(super) struct OnScratchArgs {
    /// The VM; its plan must have been applied, or be named with --plan
    #[arg(value_name = "VM")]
    domain: String,
    /// Whole block device to measure on; ITS CONTENTS ARE LOST
    #[arg(long, value_name = "DEVICE")]
    scratch: String,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    rounds: RoundArgs,
    /// How far each ratio's interval may reach to either side, in percent. A pilot of 10 pairs fixes how many pairs that
    /// needs, 100 at most
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent, conflicts_with_all = ["pairs", "quick"])]
    resolve: f64,
    /// A/A pairs of an arm with itself, for the noise floor: 0, or 2 and more
    #[arg(long, value_name = "NUMBER", default_value_t = SAME_ARM_PAIRS, value_parser = same_arm_pairs)]
    same_arm_pairs: u32,
    /// What is run; repeat it for more, which share their clones. Options for a kind of load must then fit each of them
    #[arg(long, value_name = "WORKLOAD", value_parser = several(|_| true), default_value = USUAL)]
    workload: Vec<Chosen>,
    #[command(flatten)]
    kit: KitArgs,
    /// Block size that is paired; repeat it for more [default: random 512B to 8KiB, sequential 2KiB to 64KiB, iozone
    /// 64KiB; with --quick 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Vec<Bytes>,
    /// Size of the data. iozone: all files, at least 4MiB [default: 256MiB]. oltp, pgbench: all rows, at least 1MiB
    /// [default: 64MiB, in a lab 1MiB; with oltp no more than fit into the server's memory, with pgbench no more than a
    /// quarter of the VM's, and 16MiB for each client if that has room]. web: all files, at least 5MiB [default: 64MiB, in
    /// a lab 5MiB; no more than a quarter of the VM's memory]
    #[arg(long, value_name = "SIZE", value_parser = span_of_any)]
    span: Option<Bytes>,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    /// Leave out the slow rounds in which a lab counts accesses to memory
    #[arg(long)]
    no_accesses: bool,
    /// Leave out the run of each clone in which the kernel counts its exits by reason
    #[arg(long)]
    no_reasons: bool,
    /// Leave out the block sizes that --quick runs once
    #[arg(long, requires = "quick")]
    no_single_shots: bool,
    #[command(flatten)]
    pub(super) keep: KeepArgs,
}

impl OnScratchArgs {
    /// Reads the plan, and what was asked for.
    ///
    /// # Errors
    /// [`WrongUse`] where flags do not fit the workload, the VM has no plan, or only its plan makes it; not root.
    pub(super) fn asked(&self) -> anyhow::Result<(OnScratch, Conditions)> {
        for load in &self.workload {
            load.check(self.rounds.has_seconds(), !self.block_size.is_empty(), self.span)?;
        }
        // Image and kit are found once for all of them.
        let all = Chosen::together(&self.workload);
        let kit = self.kit.of(&all, self.rounds.has_seconds())?;
        need_root("starts guests and drops caches", "")?;
        let journal = self.plan.journal();
        let planned = self.plan.of(&self.domain, &journal)?;
        if planned.change.is_new() {
            return Err(WrongUse(format!(
                "`{0}` is made by its plan, so it has no definition as found to measure the planned one against: measure the \
                 VM itself against its slice (`nearmetal bench inside {0} --pause`)",
                self.domain
            ))
            .into());
        }
        let fs = HostFs::live();
        let conditions = self.clones.conditions(self.rounds.seed, &fs, &journal)?;
        let conditions = self.keep.kept(conditions, &planned, &journal);
        let conditions =
            Conditions { loads: needed_by(&all)?, kit: kit.as_ref().map(FoundKit::packed).transpose()?, ..conditions };
        let kit = kit.map(|kit| kit.kit);
        let shape_of = |load: &Chosen| {
            let shape = shape(&planned.change.xml_after, &planned.placement, load, &fs)?;
            Ok(Shape { kit, ..shape })
        };
        let on = OnScratch {
            guest: self.domain.clone(),
            pairing: self.pairing(shape_of)?,
            placement: planned.placement,
            xml_found: planned.change.xml_before,
            xml_planned: planned.change.xml_after,
            scratch: self.scratch.clone(),
        };
        Ok((on, conditions))
    }

    /// All loads, each in its shape and none twice: how long and how often, and what is measured beside them.
    fn pairing(&self, shape_of: impl Fn(&Chosen) -> anyhow::Result<Shape>) -> anyhow::Result<Pairing> {
        let mut pairing = Pairing {
            accesses: !self.no_accesses,
            reasons: !self.no_reasons,
            same_arm_pairs: self.same_arm_pairs,
            memory: self.memory.workloads(),
            ..self.rounds.pairing(Vec::new(), Some(self.resolve))
        };
        for load in &self.workload {
            let (paired, once) = self.jobs(load, &shape_of(load)?)?;
            for (all, own) in [(&mut pairing.paired, paired), (&mut pairing.single_shot, once)] {
                let new: Vec<Workload> = own.into_iter().filter(|job| !all.contains(job)).collect();
                all.extend(new);
            }
        }
        Ok(pairing)
    }

    /// What of a load is run in pairs, and what once.
    fn jobs(&self, load: &Chosen, shape: &Shape) -> Result<(Vec<Workload>, Vec<Workload>), WrongUse> {
        let (quick, seconds) = (self.rounds.quick, self.rounds.seconds());
        let span = self.span.unwrap_or(shape.span);
        let jobs =
            |size: Bytes, seconds: u32| load.of(&Shape { size, seconds, ramp: self.rounds.ramp(), span, ..*shape });
        let once = seconds.min(SINGLE_SHOT_SECONDS);
        let sizes: Vec<Bytes> = load.sizes().iter().copied().map(Bytes::new).collect();
        let is_paired = |size: &Bytes| match self.block_size.as_slice() {
            [] => !quick || *size == load.usual_size(),
            chosen => chosen.contains(size),
        };
        let (mut paired, mut single): (Vec<Bytes>, Vec<Bytes>) = sizes.iter().partition(|size| is_paired(size));
        paired.extend(self.block_size.iter().filter(|size| !sizes.contains(size)));
        // One that makes no requests is run once all the same.
        if sizes.is_empty() {
            paired.push(load.usual_size());
        }
        // A set over a file system has no fixed length, so it is not run on the side.
        if !quick || sizes.len() == 1 || self.no_single_shots {
            single.clear();
        }
        let paired = self.start.given(paired.into_iter().flat_map(|size| jobs(size, seconds)).collect())?;
        Ok((paired, single.into_iter().flat_map(|size| jobs(size, once)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        on: OnScratchArgs,
    }

    fn pairing(words: &[&str]) -> Pairing {
        let line = Line::parse_from([&["slice", "web1", "--scratch", "/dev/null"], words].concat());
        let shape_of = |load: &Chosen| {
            Ok(Shape {
                size: Bytes::from_kib(4),
                seconds: 1,
                ramp: 1,
                span: load.usual_span(true),
                vcpus: 2,
                memory: Bytes::from_mib(512),
                nodes: 1,
                emulated: true,
                kit: None,
            })
        };
        line.on.pairing(shape_of).unwrap()
    }

    #[test]
    fn each_load_keeps_its_own_shape_and_none_runs_twice() {
        let (oltp, web) = (pairing(&["--quick", "--workload", "oltp"]), pairing(&["--quick", "--workload", "web"]));
        let both = pairing(&["--quick", "--workload", "oltp", "--workload", "web", "--workload", "oltp"]);
        assert_eq!(both.paired, [oltp.paired, web.paired].concat());
        let (usual, twice) =
            (pairing(&["--quick"]), pairing(&["--quick", "--workload", "random", "--workload", "random"]));
        assert_eq!(usual, twice);
        assert!(usual.paired.len() == 1 && usual.single_shot.len() > 1, "{usual:?}");
    }
}
