//! Where a VM's groups let it be, given who is placed.

use crate::dense::{Assign, Cells, DenseGroup, Piece, State};
use crate::model::{Scope, Together};

/// Hosts and nodes a VM may be on. Reused from VM to VM.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    hosts: Vec<bool>,
    nodes: Vec<bool>,
    /// Whether `hosts` and `nodes` say anything.
    hosts_matter: bool,
    nodes_matter: bool,
}

impl Allowed {
    /// For a VM that is not placed itself.
    pub(crate) fn prepare(&mut self, state: &State<'_>, vm: usize) {
        let problem = state.problem;
        (self.hosts_matter, self.nodes_matter) = (false, false);
        for mine in &problem.vms[vm].groups {
            if mine.scope == Scope::Node && !self.nodes_matter {
                self.nodes_matter = true;
                self.nodes.clear();
                self.nodes.resize(problem.nodes.len(), true);
            }
            if !self.hosts_matter {
                self.hosts_matter = true;
                self.hosts.clear();
                self.hosts.resize(problem.hosts.len(), true);
            }
            for &other in &problem.members[mine.group] {
                let other = other as usize;
                let Some(assign) = state.assigns[other].as_ref().filter(|_| other != vm) else { continue };
                let theirs = problem.vms[other].groups.iter().find(|group| group.group == mine.group);
                let Some(theirs) = theirs else { continue };
                match relation(mine, theirs) {
                    Relation::None => {}
                    Relation::Same => self.only(state, vm, mine.scope, assign),
                    Relation::Different => self.exclude(state, mine.scope, assign),
                }
            }
        }
    }

    fn only(&mut self, state: &State<'_>, vm: usize, scope: Scope, assign: &Assign) {
        let hosts = &state.problem.hosts;
        match scope {
            Scope::Host => {
                self.hosts.iter_mut().enumerate().for_each(|(host, ok)| *ok &= host == assign.host as usize);
            }
            Scope::FailureDomain => {
                let domain = hosts[assign.host as usize].domain;
                self.hosts.iter_mut().zip(hosts).for_each(|(ok, host)| *ok &= host.domain == domain);
            }
            Scope::Node => {
                // Together is on the same nodes, all of them. A VM that may be split is not split for it.
                let alike = match state.problem.shape_of(vm).cells {
                    Cells::Free => assign.pieces.len() == 1,
                    Cells::Fixed(count) => assign.pieces.len() == count as usize,
                };
                self.hosts.iter_mut().enumerate().for_each(|(host, ok)| *ok &= alike && host == assign.host as usize);
                let there = |node: usize| assign.pieces.iter().any(|piece| piece.node as usize == node);
                self.nodes.iter_mut().enumerate().for_each(|(node, ok)| *ok &= there(node));
            }
        }
    }

    fn exclude(&mut self, state: &State<'_>, scope: Scope, assign: &Assign) {
        let hosts = &state.problem.hosts;
        match scope {
            Scope::Host => self.hosts[assign.host as usize] = false,
            Scope::FailureDomain => {
                let domain = hosts[assign.host as usize].domain;
                self.hosts.iter_mut().zip(hosts).for_each(|(ok, host)| *ok &= host.domain != domain);
            }
            Scope::Node => assign.pieces.iter().for_each(|piece| self.nodes[piece.node as usize] = false),
        }
    }

    pub(crate) fn host(&self, host: usize) -> bool {
        !self.hosts_matter || self.hosts[host]
    }

    pub(crate) fn node(&self, node: usize) -> bool {
        !self.nodes_matter || self.nodes[node]
    }

    /// Whether single nodes are ruled out: then nothing worked out for other VMs of the shape counts.
    pub(crate) fn nodes_matter(&self) -> bool {
        self.nodes_matter
    }

    /// Not on these nodes either.
    pub(crate) fn without(&mut self, state: &State<'_>, pieces: &[Piece]) {
        if !self.nodes_matter {
            self.nodes_matter = true;
            self.nodes.clear();
            self.nodes.resize(state.problem.nodes.len(), true);
        }
        pieces.iter().for_each(|piece| self.nodes[piece.node as usize] = false);
    }

    /// No limits.
    pub(crate) fn anything(&mut self) {
        (self.hosts_matter, self.nodes_matter) = (false, false);
    }
}

enum Relation {
    None,
    Same,
    Different,
}

fn relation(mine: &DenseGroup, theirs: &DenseGroup) -> Relation {
    match (mine.rule, theirs.rule) {
        (Together::Together, Together::Together) => Relation::Same,
        (Together::Apart, Together::Apart) => Relation::Different,
        (Together::ApartFromOtherLabels(one), Together::ApartFromOtherLabels(other)) if one != other => {
            Relation::Different
        }
        _ => Relation::None,
    }
}
