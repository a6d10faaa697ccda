//! What a sample of tiles is worth: a score, and whether every guest answered soon enough. Worked out of the runs, afterwards.

use nearmetal_load::{Limit, SERVED_OFFERED, ServedJob, TileRole as Role, Workload};
use serde::{Deserialize, Serialize};

use crate::results::{Part, Run, Tenant};

/// Name of the metric that says how many PUs were busy.
pub const BUSY: &str = "busy";

/// What a tile scores that answers all it is asked.
pub const FULL_TILE: f64 = 100.0;

/// How soon the guests of a role have to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleLimits {
    /// Whose.
    pub role: Role,
    /// All of them have to hold.
    pub within: Vec<Limit>,
}

impl RoleLimits {
    /// Those of all roles where nobody asked for others.
    pub fn usual() -> Vec<Self> {
        Role::ALL.map(|role| Self { role, within: role.limits().to_vec() }).to_vec()
    }
}

/// One guest in one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Its part of the tile.
    pub role: Role,
    /// Domain.
    pub guest: String,
    /// The part of what it was asked that it answered, from 0 to 1.
    pub answered: f64,
    /// PUs that its QEMU kept busy; `None` if nobody counted.
    pub busy: Option<f64>,
}

/// One tile in one sample.
#[derive(Debug, Clone, PartialEq)]
pub struct TileScore {
    /// Mean of what its guests answered, [`FULL_TILE`] for all of it.
    pub score: f64,
    /// Its guests.
    pub guests: Vec<Served>,
}

/// A limit that did not hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Miss {
    /// Number of the tile, from 1.
    pub tile: usize,
    /// The guest's part of it.
    pub role: Role,
    /// Domain.
    pub guest: String,
    /// Which.
    pub limit: Limit,
    /// The part of the requests that was answered within it, from 0 to 1.
    pub answered: f64,
    /// Within how many ns 95 % were answered; `None` where fewer were, or too few were asked.
    pub p95: Option<f64>,
}

impl Miss {
    /// How much was missing, from 0 to 1.
    pub fn by(&self) -> f64 {
        self.limit.part - self.answered
    }
}

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The tiles, in their order.
    pub tiles: Vec<TileScore>,
    /// The limits that did not hold, the worst first; none where quality of service was kept.
    pub misses: Vec<Miss>,
    /// PUs of the machine that were busy; `None` if nobody counted.
    pub busy: Option<f64>,
}

impl Judged {
    /// The sum of the tiles.
    pub fn score(&self) -> f64 {
        self.tiles.iter().map(|tile| tile.score).sum()
    }

    /// The guest that answered the smallest part of what it was asked, with the number of its tile: a sum hides it.
    pub fn least(&self) -> Option<(usize, &Served)> {
        let all = self.tiles.iter().enumerate().flat_map(|(tile, of)| of.guests.iter().map(move |one| (tile + 1, one)));
        all.min_by(|(_, one), (_, other)| one.answered.total_cmp(&other.answered))
    }

    /// PUs that the guests of a role kept busy together; `None` if one was not counted, or there are none.
    pub fn busy_of(&self, role: Role) -> Option<f64> {
        let of = self.tiles.iter().flat_map(|tile| &tile.guests).filter(|one| one.role == role);
        let busy: Option<Vec<f64>> = of.map(|one| one.busy).collect();
        busy.filter(|all| !all.is_empty()).map(|all| all.iter().sum())
    }
}

/// What a guest of a tile is asked.
fn job(tenant: &Tenant) -> Option<&ServedJob> {
    match tenant.load.as_ref()? {
        Workload::Served(job) => Some(job),
        _ => None,
    }
}

fn value(part: &Part, name: &str) -> Option<f64> {
    part.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
}

/// The part of what was due that was answered. More than was due on average is no merit: the moments are drawn.
fn answered(part: &Part, job: &ServedJob) -> f64 {
    let offered = value(part, SERVED_OFFERED).unwrap_or(job.rate.get());
    if offered > 0.0 { (part.rate / offered).clamp(0.0, 1.0) } else { 0.0 }
}

/// Name of the percentile that is said of a guest that answers too late.
const P95: &str = "latency.p95";

/// What a sample of tiles is worth; `None` for one that failed, or that is none of tiles. `tenants` are all of the document's,
/// tile after tile.
pub fn judged(run: &Run, tenants: &[Tenant], limits: &[RoleLimits]) -> Option<Judged> {
    run.failure().is_none().then_some(())?;
    let parts = &run.together.as_ref()?.parts;
    let mut judged = Judged { tiles: Vec::new(), misses: Vec::new(), busy: run.value(BUSY).map(|busy| busy.value) };
    let mut number = None;
    for (part, tenant) in parts.iter().zip(tenants) {
        let job = job(tenant)?;
        // The tiles have numbers of their own, and stand one after the other.
        if number.replace(job.size.tile) != Some(job.size.tile) {
            judged.tiles.push(TileScore { score: 0.0, guests: Vec::new() });
        }
        let tile = judged.tiles.len();
        judged.misses.extend(missed(part, job, tile, limits));
        let one = Served {
            role: job.role,
            guest: part.guest.clone(),
            answered: answered(part, job),
            busy: value(part, BUSY),
        };
        judged.tiles.last_mut()?.guests.push(one);
    }
    for tile in &mut judged.tiles {
        tile.score = FULL_TILE * tile.guests.iter().map(|one| one.answered).sum::<f64>() / tile.guests.len() as f64;
    }
    judged.misses.sort_by(|one, other| other.by().total_cmp(&one.by()));
    (!judged.tiles.is_empty()).then_some(judged)
}

/// The limits of its role that a guest did not keep. One request may always be late: of sixty that an idle guest is asked, one is
/// more than 0.5 %, and says nothing.
fn missed(part: &Part, job: &ServedJob, tile: usize, limits: &[RoleLimits]) -> Vec<Miss> {
    let due = value(part, SERVED_OFFERED).unwrap_or(job.rate.get()) * f64::from(job.size.seconds);
    let of_role = limits.iter().filter(|one| one.role == job.role).flat_map(|one| &one.within);
    let miss = |limit: &Limit| {
        // A metric of 0 does not exist: then none was answered in time.
        let answered = value(part, &limit.metric()).unwrap_or(0.0);
        let guest = part.guest.clone();
        let p95 = value(part, P95);
        let late = (due * (1.0 - answered)).round();
        (answered < limit.part && late > 1.0).then_some(Miss {
            tile,
            role: job.role,
            guest,
            limit: *limit,
            answered,
            p95,
        })
    };
    of_role.filter_map(miss).collect()
}

#[cfg(test)]
mod tests {
    use nearmetal_load::{Metric, Scale, TileSize, Unit, Window};
    use proptest::prelude::*;

    use super::*;
    use crate::results::{Outcome, Purpose, Slice, Together};

    const ROLES: [Role; 2] = [Role::Web, Role::Idle];

    fn job(number: usize) -> ServedJob {
        let size = TileSize { tile: number as u32 / 2 + 1, scale: Scale::ONE, seconds: 60, ramp: 15, emulated: false };
        ServedJob::of(ROLES[number % 2], [198, 18, 1, 1].into(), &size)
    }

    fn tenants() -> Vec<Tenant> {
        let slice = Slice {
            cpus: "0".parse().unwrap(),
            nodes: "0".parse().unwrap(),
            page_size: None,
            device: String::new(),
            region: nearmetal_units::Bytes::ZERO,
            cpus_on_top: "1".parse().unwrap(),
        };
        let tenant = |number: usize| Tenant {
            guest: format!("g{number}"),
            slice: slice.clone(),
            placement: vec![],
            load: Some(job(number).into()),
        };
        (0..4).map(tenant).collect()
    }

    /// What a guest answered of what was due, and which part of it in time.
    fn run(parts: &[(f64, Option<f64>, f64)]) -> Run {
        let part = |(number, (answered, offered, within)): (usize, &(f64, Option<f64>, f64))| {
            let rate = |name: &str, value: f64| Metric::new(name, Unit::TransactionsPerSecond, value);
            let mut metrics: Vec<Metric> = rate("answered", *answered).into_iter().collect();
            metrics.extend(offered.and_then(|offered| rate(SERVED_OFFERED, offered)));
            for limit in ROLES[number % 2].limits() {
                metrics.extend(Metric::new(&limit.metric(), Unit::Share, *within));
            }
            metrics.extend(Metric::new(P95, Unit::Nanoseconds, 4.2e9));
            let window = Window { began: 1.0, ended: 2.0 };
            Part { guest: format!("g{number}"), rate: *answered, window, metrics }
        };
        let parts: Vec<Part> = parts.iter().enumerate().map(part).collect();
        Run {
            round: 0,
            position: 0,
            purpose: Purpose::Fill,
            arm: "vf".into(),
            count: parts.len(),
            workload: job(0).into(),
            seed: 1,
            started: String::new(),
            seconds: 1.0,
            outcome: Outcome::Measured { metrics: vec![], notes: vec![] },
            together: Some(Together { parts, overlap: 1.0, clocks_within: 0.0 }),
        }
    }

    #[test]
    fn a_tile_is_the_mean_of_its_parts_and_more_than_was_due_is_no_merit() {
        let run = run(&[(250.0, Some(500.0), 0.5), (1.5, Some(1.0), 1.0), (500.0, Some(500.0), 1.0), (1.0, None, 1.0)]);
        let judged = judged(&run, &tenants(), &RoleLimits::usual()).unwrap();
        let scores: Vec<f64> = judged.tiles.iter().map(|tile| tile.score).collect();
        assert_eq!((scores, judged.score()), (vec![75.0, 100.0], 175.0));
        let (tile, least) = judged.least().unwrap();
        assert_eq!((tile, least.guest.as_str(), least.answered), (1, "g0", 0.5));
        let misses: Vec<(usize, &str, u32)> =
            judged.misses.iter().map(|miss| (miss.tile, miss.guest.as_str(), miss.limit.within_ms)).collect();
        assert_eq!(misses, [(1, "g0", 5_000), (1, "g0", 3_000)], "99 % is missed by more than 95 %");
    }

    #[test]
    fn none_in_time_has_no_metric_and_is_a_miss() {
        let run = run(&[(500.0, Some(500.0), 0.0), (1.0, Some(1.0), 1.0)]);
        let judged = judged(&run, &tenants(), &RoleLimits::usual()).unwrap();
        assert_eq!(judged.misses.len(), 2);
        assert!(judged.misses.iter().all(|miss| miss.answered == 0.0));
        let said = crate::tiles::miss_text(&judged.misses[0]);
        assert!(said.ends_with("99 % is the limit; 95 % were answered within 4.2 s"), "{said}");
        let mine = Limit { part: 0.5, within_ms: 7, ours: true };
        let other = [RoleLimits { role: Role::Web, within: vec![mine] }];
        assert_eq!(super::judged(&run, &tenants(), &other).unwrap().misses[0].limit, mine, "the limits in force count");
    }

    #[test]
    fn one_late_request_is_no_miss_however_few_were_due() {
        let misses = |late: f64| {
            let run = run(&[(500.0, Some(500.0), 1.0), (1.0, Some(1.0), 1.0 - late / 60.0)]);
            judged(&run, &tenants(), &RoleLimits::usual()).unwrap().misses.len()
        };
        assert_eq!([0.0, 1.0, 2.0, 60.0].map(misses), [0, 0, 1, 1]);
    }

    #[test]
    fn what_failed_or_is_of_something_else_is_not_judged() {
        let mut failed = run(&[(1.0, None, 1.0)]);
        failed.outcome = Outcome::Failed { why: "no".into() };
        assert_eq!(judged(&failed, &tenants(), &[]), None);
        let mut others = tenants();
        others[0].load = None;
        assert_eq!(judged(&run(&[(1.0, None, 1.0)]), &others, &[]), None);
    }

    proptest! {
        /// Whatever drivers say, a tile scores 0 to 100, and the sum is that of the tiles.
        #[test]
        fn a_score_has_its_bounds(parts in proptest::collection::vec((0.0f64..1e6, proptest::option::of(0.0f64..1e6), 0.0f64..1.0), 1..5)) {
            let judged = judged(&run(&parts), &tenants(), &RoleLimits::usual()).unwrap();
            prop_assert!(judged.tiles.iter().all(|tile| (0.0..=FULL_TILE).contains(&tile.score)));
            prop_assert!(judged.score() <= FULL_TILE * judged.tiles.len() as f64);
            prop_assert_eq!(judged.tiles.iter().map(|tile| tile.guests.len()).sum::<usize>(), parts.len());
        }
    }
}
