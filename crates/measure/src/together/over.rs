//! What several guests work on.

use std::net::IpAddr;

use nearmetal_load::{FioJob, NetTest};
use nearmetal_results::NetPath;
use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

use super::{Ready, TogetherRequest, over_drives, over_scratch};
use crate::engine::Session;
use crate::error::MeasureError;
use crate::net::several;

/// What they work on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Over {
    /// fio, each on a scratch device of its own, whose contents are lost.
    Scratch {
        /// What each runs.
        job: FioJob,
        /// The devices, in the members' order.
        devices: Vec<String>,
    },
    /// fio, each on a drive of its own that host and guest take turns on by PCI passthrough.
    Drives {
        /// What each runs.
        job: FioJob,
        /// The drives, or virtual functions of them, in the members' order.
        functions: Vec<PciAddress>,
        /// The namespace that is written to on each (its NSID); `None`: the only one there is.
        namespace: Option<u32>,
    },
    /// All through one port to one peer.
    Port {
        /// The way their packets take: one over a bridge, or a virtual function for each.
        way: NetPath,
        /// What each runs.
        test: NetTest,
        /// Seconds of a sample.
        seconds: u32,
        /// Interface of the port; nobody else may use it.
        port: String,
        /// Where netserver answers.
        peer: IpAddr,
        /// The first guest's address, with its prefix; the others have the next ones, and bare metal those behind them all.
        address: String,
    },
}

impl Over {
    /// What can be refused before anything is touched.
    pub(super) fn check(&self, request: &TogetherRequest) -> Result<(), MeasureError> {
        let twice = |guests: (usize, usize), what: String| {
            let name = |place: usize| request.members.get(place).map_or("", |member| member.guest.as_str());
            Err(MeasureError::Asked(format!("`{}` and `{}` have the same {what}", name(guests.0), name(guests.1))))
        };
        match self {
            Self::Scratch { devices, .. } => match same(devices) {
                Some(at) => twice(at, format!("scratch device, {}", devices[at.0])),
                None => Ok(()),
            },
            Self::Drives { functions, .. } => match same(functions) {
                Some(at) => twice(at, format!("function, {}", functions[at.0])),
                None => Ok(()),
            },
            Self::Port { way, test, .. } => several::check(way, *test),
        }
    }

    /// Makes the tenants ready: their clones are there, or can be booted for their turn.
    pub(super) fn ready<'p>(
        &'p self,
        request: &'p TogetherRequest,
        session: &mut Session<'_>,
    ) -> Result<Ready<'p>, MeasureError> {
        request.members.iter().try_for_each(|member| session.pause_original(&member.guest))?;
        match self {
            Self::Scratch { job, devices } => over_scratch::ready(request, job, devices, session),
            Self::Drives { job, functions, namespace } => {
                over_drives::ready(request, job, functions, *namespace, session)
            }
            Self::Port { way, test, seconds, port, peer, address } => {
                let over = several::OverPort { way, test: *test, seconds: *seconds, port, peer: *peer, address };
                several::ready(request, over, session)
            }
        }
    }
}

/// The places of two that are the same.
fn same<T: PartialEq>(all: &[T]) -> Option<(usize, usize)> {
    (0..all.len()).find_map(|later| Some((all[..later].iter().position(|one| *one == all[later])?, later)))
}
