//! What a sample of tiles is worth: a score, and whether every guest answered soon enough. Worked out of the runs, afterwards.

use serde::{Deserialize, Serialize};

use super::{Limit, Role};
use crate::engine::BUSY;
use crate::load::{ServedJob, Workload};
use crate::results::{Part, Run, Tenant};

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
    let offered = value(part, OFFERED).unwrap_or(job.rate.get());
    if offered > 0.0 { (part.rate / offered).clamp(0.0, 1.0) } else { 0.0 }
}

/// Name of the metric that says how many requests a second were due, where a driver says it.
pub(crate) const OFFERED: &str = "offered";

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

/// The limits of its role that a guest did not keep.
fn missed(part: &Part, job: &ServedJob, tile: usize, limits: &[RoleLimits]) -> Vec<Miss> {
    let of_role = limits.iter().filter(|one| one.role == job.role).flat_map(|one| &one.within);
    let miss = |limit: &Limit| {
        // A metric of 0 does not exist: then none was answered in time.
        let answered = value(part, &limit.metric()).unwrap_or(0.0);
        let guest = part.guest.clone();
        (answered < limit.part).then_some(Miss { tile, role: job.role, guest, limit: *limit, answered })
    };
    of_role.filter_map(miss).collect()
}
