//! The next best place of each VM, and what it would have cost.

use crate::dense::{Assign, State};
use crate::model::{Fleet, RunnerUp};
use crate::search::{CROWDS, Constructor, Finder, Score};

/// Hosts looked at for one VM at most, beside its own: those after its own, in turn. More change the answer rarely and
/// cost time on every VM.
const HOSTS_SEEN: usize = 24;

/// Looks for second-best places.
pub(crate) struct Search<'a> {
    state: State<'a>,
    finder: Finder,
}

impl<'a> Search<'a> {
    pub(crate) fn new(state: &State<'a>) -> Self {
        Self { state: state.clone(), finder: Finder::default() }
    }

    pub(crate) fn of(
        &mut self,
        fleet: &Fleet,
        state: &State<'_>,
        constructor: &mut Constructor,
        vm: usize,
    ) -> Option<RunnerUp> {
        let problem = state.problem;
        let shape = problem.shape_of(vm);
        let own = self.state.take(vm)?;
        let found = self.search(constructor, vm, &own);
        let chosen = {
            constructor.allowed.anything();
            self.state.worth(shape, &own)
        };
        let opens = u64::from(self.state.host_vms[own.host as usize] == 0);
        let crowds = self.state.crowds_by(shape, own.host as usize, &own.pieces);
        let opened = own.pieces.iter().filter(|piece| self.state.uses[piece.node as usize].vms == 0).count() as u64;
        self.state.put(vm, own);
        let (score, assign) = found?;
        let first = problem.hosts[assign.host as usize].first;
        let host = &fleet.hosts[assign.host as usize];
        let nodes = assign.pieces.iter().map(|piece| host.nodes[piece.node as usize - first].index).collect();
        let own_score = [
            chosen[crate::dense::EXTRA],
            chosen[crate::dense::REMOTE],
            chosen[crate::dense::REMOTE_DEVICES],
            opens,
            opened + CROWDS * crowds,
        ];
        Some(RunnerUp { host: host.name.clone(), nodes, cost: cost(&score, &own_score) })
    }

    fn search(&mut self, constructor: &mut Constructor, vm: usize, own: &Assign) -> Option<(Score, Assign)> {
        let problem = self.state.problem;
        let shape = problem.shape_of(vm);
        let count = problem.hosts.len();
        constructor.allowed.prepare(&self.state, vm);
        let mut best: Option<(Score, Assign)> = None;
        for step in 1..count.min(HOSTS_SEEN + 1) {
            let host = (own.host as usize + step) % count;
            if !constructor.allowed.host(host) {
                continue;
            }
            if let Some(score) = self.finder.best_on(&self.state, shape, host, &constructor.allowed) {
                if best.as_ref().is_none_or(|(other, _)| score < *other) {
                    best = Some((score, self.finder.assign(host)));
                }
            }
        }
        // On its own host without the nodes it has.
        constructor.allowed.without(&self.state, &own.pieces);
        if let Some(score) = self.finder.best_on(&self.state, shape, own.host as usize, &constructor.allowed) {
            if best.as_ref().is_none_or(|(other, _)| score < *other) {
                best = Some((score, self.finder.assign(own.host as usize)));
            }
        }
        best
    }
}

/// What the other place costs more, at the first level where they differ.
fn cost(other: &Score, own: &[u64; 5]) -> String {
    let words = ["nodes more", "of remote memory more (MiB times distance)", "steps farther from its devices"];
    for (level, words) in words.iter().enumerate() {
        if other[level] > own[level] {
            return format!("{} {words}", other[level] - own[level]);
        }
        if other[level] < own[level] {
            return "nothing for this VM alone; it would have cost others more".to_owned();
        }
    }
    match (other[3].cmp(&own[3]), other[4].cmp(&own[4])) {
        (std::cmp::Ordering::Greater, _) => "one host more in use".to_owned(),
        (std::cmp::Ordering::Equal, _) if other[4] / CROWDS > own[4] / CROWDS => {
            "memory bandwidth shared with another VM that lives on it".to_owned()
        }
        (std::cmp::Ordering::Equal, std::cmp::Ordering::Greater) => "a node broken into that is whole now".to_owned(),
        _ => "nothing at any level: it only fits less tightly".to_owned(),
    }
}
