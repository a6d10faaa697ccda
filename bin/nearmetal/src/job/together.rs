//! What several guests at once did: all together and each alone, for each number of them.

use nearmetal_report::view::{CountRow, GuestShare, TenantView, TogetherView};
use nearmetal_results::{CONFIDENCE, Comparison, Purpose, Results, Role, Run};
use nearmetal_stats::{Pair, ratio};

use super::compared::{BOUND, TOGETHER, ceiling, means};
use super::comparisons::{is_beyond_noise, ratio_of};
use super::metrics::show;

/// The guests with their slices.
pub(super) fn tenants(results: &Results) -> Vec<TenantView> {
    let view = |tenant: &nearmetal_results::Tenant| slice_view(&tenant.guest, &tenant.slice, &tenant.placement);
    results.tenants.iter().map(view).collect()
}

/// A guest with its slice.
pub(super) fn slice_view(guest: &str, slice: &nearmetal_results::Slice, placement: &[String]) -> TenantView {
    TenantView {
        guest: guest.to_owned(),
        cpus: slice.cpus.clone(),
        nodes: slice.nodes.clone(),
        page_size: slice.page_size,
        cpus_on_top: slice.cpus_on_top.clone(),
        device: slice.device.clone(),
        region: Some(slice.region).filter(|region| region.get() > 0),
        placement: placement.to_vec(),
    }
}

/// The view; `None` for one guest alone, or if nothing ran at a rate.
pub(super) fn view(results: &Results, compared: &[Comparison]) -> Option<TogetherView> {
    if results.experiment != TOGETHER || results.tenants.len() < 2 {
        return None;
    }
    let workload =
        &results.runs.iter().find(|run| run.purpose == Purpose::Pair && run.workload.rate().is_some())?.workload;
    let rate = workload.rate()?;
    let unit = results.runs.iter().filter(|run| run.workload == *workload).find_map(|run| run.value(&rate))?.unit;
    let (symbol, scale) = show(unit, workload);
    let paired: Vec<&Run> =
        results.runs.iter().filter(|run| run.purpose == Purpose::Pair && run.workload == *workload).collect();
    let mut counts: Vec<usize> = paired.iter().map(|run| run.count).collect();
    counts.sort_unstable();
    counts.dedup();
    let ceiling = ceiling(results).map(|(rate, _)| rate);
    let of = |count: usize| {
        compared.iter().find(|one| one.count == count && one.metric == rate && one.workload == *workload)
    };
    let alone = of(1).map(means);
    let row = |count: usize| {
        let found = of(count);
        let mean = found.map(means);
        CountRow {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            ratio: found.and_then(|one| ratio_of(&one.estimate)),
            beyond_noise: found.is_some_and(|one| is_beyond_noise(&one.estimate)),
            guests_rate: mean.map(|(guests, _)| guests * scale),
            bare_rate: mean.map(|(_, bare)| bare * scale),
            guests_gain: mean.zip(alone).map(|(all, one)| all.0 / one.0),
            bare_gain: mean.zip(alone).map(|(all, one)| all.1 / one.1),
            peer_bound: mean.zip(ceiling).map(|((guests, _), ceiling)| guests >= BOUND * ceiling),
            shares: results
                .tenants
                .iter()
                .take(count)
                .map(|one| share(results, &paired, count, &one.guest, scale))
                .collect(),
        }
    };
    let counted = || results.runs.iter().filter(|run| run.failure().is_none()).filter_map(|run| run.together.as_ref());
    Some(TogetherView {
        load: workload.label(),
        unit: symbol.to_owned(),
        counts: counts.into_iter().map(row).collect(),
        ceiling: ceiling.map(|rate| rate * scale),
        least_overlap: counted().map(|one| one.overlap).min_by(f64::total_cmp),
        overlap_limit: results.least_overlap,
        clocks_within: counted().map(|one| one.clocks_within).max_by(f64::total_cmp),
    })
}

/// One guest's part against its own bare slice's, in the rounds in which both sides count.
fn share(results: &Results, runs: &[&Run], count: usize, guest: &str, scale: f64) -> GuestShare {
    let side = |role: Role| results.arms.iter().find(|arm| arm.name.role == role).map(|arm| arm.name.id.as_str());
    let rate = |round: u32, arm: Option<&str>| {
        // The last of an arm counts: one that failed may have been run again.
        let of = runs.iter().rev().filter(|run| (run.round, run.count, Some(run.arm.as_str())) == (round, count, arm));
        let parts =
            of.filter(|run| run.failure().is_none()).filter_map(|run| run.together.as_ref()).flat_map(|one| &one.parts);
        parts.filter(|part| part.guest == guest).map(|part| part.rate).find(|rate| rate.is_finite() && *rate > 0.0)
    };
    let mut rounds: Vec<u32> = runs.iter().filter(|run| run.count == count).map(|run| run.round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let (guests, bare) = (side(Role::Planned), side(Role::Bare));
    let pair = |round: u32| Some(Pair { subject: rate(round, guests)?, reference: rate(round, bare)? });
    let pairs: Vec<Pair> = rounds.into_iter().filter_map(pair).collect();
    let mean = |value: fn(&Pair) -> f64| {
        (!pairs.is_empty()).then(|| pairs.iter().map(value).sum::<f64>() / pairs.len() as f64 * scale)
    };
    GuestShare {
        guest: guest.to_owned(),
        ratio: ratio(&pairs, CONFIDENCE, results.seed).ok().filter(|_| pairs.len() > 1).as_ref().map(Into::into),
        guest_rate: mean(|pair| pair.subject),
        bare_rate: mean(|pair| pair.reference),
    }
}
