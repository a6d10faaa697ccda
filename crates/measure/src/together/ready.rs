//! Members that are ready: the ceiling, the rounds, and the results put together, whatever they run.

use std::collections::BTreeSet;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Versions};
use nearmetal_stats::Sample;
use nearmetal_units::NodeSet;

use super::prepare::TogetherTerms;
use super::results::{MemberInfo, Side, TOGETHER_SCHEMA, TogetherLoad, TogetherResults};
use super::rounds::rounds;
use super::sample::{Bench, Load, Running};
use crate::bench::Event;
use crate::error::MeasureError;
use crate::record::provenance;
use crate::results::{ArmKind, Slice};
use crate::schedule::Design;
use crate::workload::Workload;

/// Samples of the ceiling.
const CEILING_RUNS: u32 = 3;

/// Clones that were read back, those that are up paused, and what they run.
pub(crate) struct Ready<'a> {
    pub(crate) terms: &'a TogetherTerms,
    pub(crate) members: Vec<Running>,
    pub(crate) infos: Vec<MemberInfo>,
    pub(crate) load: &'a mut dyn Load,
    pub(crate) versions: Option<Versions>,
    /// What a reader must know.
    pub(crate) caveats: Vec<String>,
}

impl Ready<'_> {
    /// Measures; `load` is what the results say of it.
    ///
    /// # Errors
    /// Several samples in a row failed.
    pub(crate) fn measured(
        self,
        load: TogetherLoad,
        fs: &HostFs,
        host: &Host,
        hypervisor: &mut dyn Hypervisor,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<TogetherResults, MeasureError> {
        let Self { terms, members, infos, load: run, versions, mut caveats } = self;
        let (probe, least_overlap) = (terms.conditions.probe.clone(), terms.least_overlap);
        let mut bench = Bench { fs, hypervisor, probe, load: run, least_overlap };
        let ceiling = match load {
            TogetherLoad::Net { .. } => {
                tell(Event::Stage("measuring what this machine and the peer get without a guest"));
                ceiling(&mut bench, &members, host)
            }
            TogetherLoad::Disk { .. } | TogetherLoad::Function { .. } => None,
        };
        let samples = rounds(terms, &members, &mut bench, tell)?;
        let job = match &load {
            TogetherLoad::Disk { job } | TogetherLoad::Function { job } => Some(Workload::Fio(job.clone())),
            TogetherLoad::Net { .. } => None,
        };
        let design = Design {
            arms: vec![ArmKind::BareSlice, ArmKind::Planned],
            paired: job.into_iter().collect(),
            rounds: terms.pairs,
            same_arm: Vec::new(),
            same_arm_pairs: 0,
            single_shot: Vec::new(),
        };
        let mut provenance = provenance(host, versions.as_ref(), terms.conditions.seed, &design);
        if let TogetherLoad::Net { test, peer, seconds, .. } = &load {
            provenance.retain(|name, _| !name.starts_with("fio"));
            provenance.insert("netperf command".to_owned(), test.command(*peer, *seconds).join(" "));
        }
        // Each member's machine says the same of the appliance.
        let mut said = BTreeSet::new();
        caveats.retain(|caveat| said.insert(caveat.clone()));
        Ok(TogetherResults {
            schema: TOGETHER_SCHEMA.to_owned(),
            created: nearmetal_change::timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: terms.conditions.environment.clone(),
            seed: terms.conditions.seed,
            members: infos,
            load,
            ceiling,
            least_overlap,
            samples,
            caveats,
            provenance,
        })
    }
}

/// The median of what as many processes as there are members get at once where the kernel puts them.
fn ceiling(bench: &mut Bench<'_>, members: &[Running], host: &Host) -> Option<f64> {
    let anywhere = |member: &Running| {
        let nodes: NodeSet = host.nodes.iter().map(|node| node.index).collect();
        let slice = Slice { cpus: host.online(), nodes, ..member.slice.clone() };
        Running { slice, ..member.clone() }
    };
    let members: Vec<Running> = members.iter().map(anywhere).collect();
    let one = |_| {
        let sample = bench.sample(&members, Side::Bare, 0, 1);
        (!sample.members.is_empty()).then(|| sample.aggregate())
    };
    let rates: Vec<f64> = (0..CEILING_RUNS).filter_map(one).collect();
    Sample::new(rates).ok().map(|sample| sample.median())
}
