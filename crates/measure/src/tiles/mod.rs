//! Tiles: guests that serve what a company serves, each of them one part of it, and one tile more until the machine is full.
//!
//! It is what consolidation benchmarks do (SPECvirt, VMmark): a tile asks for a fixed amount of everything, so what a machine
//! is worth is how many tiles it holds before an answer comes too late. The score is nearmetal's own
//! ([`nearmetal_results::judged`]). What asks the guests runs on this host, on PUs that no guest has, so that it needs no second
//! machine; no request crosses a wire.

mod network;
mod path;
mod way;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use nearmetal_domain::DomainXml;
use nearmetal_host::Host;
use nearmetal_load::{At, Peers, Scale, ServedJob, TileRole as Role, TileSize, Workload};
use nearmetal_results::{Arm, Environment, Filling, Link, Look, Results, RoleLimits, Run, Slice, judged};
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use self::network::Network;
use self::path::{Arranged, TileGuest, Tiles};
use self::way::Drivers;
pub use self::way::TileWay;
use crate::appliance::PROBE_IN_GUEST;
use crate::clones::loads_in_guest;
use crate::conditions::Conditions;
use crate::engine::{Fill, FillPlan, Session, Tenant, slice_of};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat};
use crate::net::guest::{ArmCard, mac_of_run, with_probe};
use crate::net::member_clone::MemberClone;
use crate::net::port::{Port, TAP, why_not};
use crate::net::port_functions;
use crate::net::several::{Free, drivers_of, one_each};
use crate::together::{Member, apart, make_room};

/// The most guests of all tiles together.
pub const MOST_GUESTS_OF_TILES: usize = 96;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TilesRequest {
    /// The parts of every tile, in the order of its members.
    pub roles: Vec<Role>,
    /// The guests, tile after tile.
    pub members: Vec<Member>,
    /// How they reach the port: an arm each.
    pub ways: Vec<TileWay>,
    /// Interface of the port; nobody else may use it.
    pub port: String,
    /// How much a tile holds and is asked.
    pub scale: Scale,
    /// Measured seconds of a sample.
    pub seconds: u32,
    /// Seconds of load before them.
    pub ramp: u32,
    /// Samples of each number of tiles in each arm.
    pub samples: u32,
    /// How soon each role has to answer.
    pub limits: Vec<RoleLimits>,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Under what.
    pub conditions: Conditions,
}

impl TilesRequest {
    /// Guests of a tile.
    fn each(&self) -> usize {
        self.roles.len().max(1)
    }

    fn is_emulated(&self) -> bool {
        matches!(self.conditions.environment, Environment::Lab { .. })
    }

    /// The role of a guest, and what its tile is asked.
    fn place(&self, number: usize) -> (Role, TileSize) {
        let tile = (number / self.each()) as u32 + 1;
        let size =
            TileSize { tile, scale: self.scale, seconds: self.seconds, ramp: self.ramp, emulated: self.is_emulated() };
        (self.roles[number % self.each()], size)
    }

    /// What a guest is asked.
    fn job(&self, number: usize, network: Network) -> ServedJob {
        let (role, size) = self.place(number);
        let within = self.limits.iter().filter(|limits| limits.role == role).flat_map(|limits| &limits.within);
        ServedJob {
            within: within.map(|limit| limit.within_ms).collect(),
            ..ServedJob::of(role, network.guest(number), &size)
        }
    }

    /// Refuses guests that are too small for what they serve.
    fn room(&self) -> Result<(), MeasureError> {
        for (number, member) in self.members.iter().enumerate() {
            let (role, size) = self.place(number);
            // A web server alone has the large files, too.
            let alone = role == Role::Web && !self.roles.contains(&Role::Infra);
            let needed = if alone { Role::Infra } else { role }.memory(&size, self.samples);
            let wrap = |source| MeasureError::Xml { arm: member.guest.clone(), source };
            let memory = DomainXml::parse(&member.xml_planned).and_then(|xml| xml.facts()).map_err(wrap)?.memory;
            if memory < needed {
                return Err(MeasureError::Asked(format!(
                    "`{}` has {memory} of memory, and as the {} of a tile {} times as large as usual it needs {needed}: give it more, \
                     or ask for less (--scale)",
                    member.guest,
                    role.title(),
                    self.scale
                )));
            }
        }
        Ok(())
    }

    /// The addresses in a guest's tile that other servers of it ask.
    fn peers(&self, number: usize, network: Network) -> Peers {
        let first = number / self.each() * self.each();
        let of = |wanted: Role| {
            let place = self.roles.iter().position(|role| *role == wanted);
            place.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |place| network.guest(first + place))
        };
        Peers { infra: of(Role::Infra), db: of(Role::Db) }
    }
}

impl Request for TilesRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        self.members.iter().map(|member| member.guest.clone()).collect()
    }

    fn check(&self) -> Result<(), MeasureError> {
        let refused = |why: String| Err(MeasureError::Asked(why));
        if self.roles.is_empty() || self.members.is_empty() || self.members.len() % self.each() != 0 {
            return refused(format!("{} guests do not make tiles of {}", self.members.len(), self.roles.len()));
        }
        for (number, role) in self.roles.iter().enumerate() {
            if self.roles[..number].contains(role) {
                return refused(format!("a tile has two guests for `{role}`: name one"));
            }
            if let Some(asked) = role.needs().filter(|asked| !self.roles.contains(asked)) {
                return refused(format!(
                    "the {} asks the {}, and the tiles have none: name a guest for `{asked}`, or leave `{role}` out",
                    role.title(),
                    asked.title()
                ));
            }
        }
        if self.ways.is_empty() || (1..self.ways.len()).any(|later| self.ways[..later].contains(&self.ways[later])) {
            return refused("name each way once, and at least one".to_owned());
        }
        self.room()?;
        apart(&self.members, MOST_GUESTS_OF_TILES)
    }

    /// Runs the experiment and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// A port that is used, no PU beside the slices, too few virtual functions, clones or servers that do not come up; or four
    /// samples in a row that fail.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

/// The PUs beside all slices, and their nodes: what asks the guests runs there. Those of emulator threads are taken only where
/// there are no others.
fn beside(tenants: &[Tenant], host: &Host) -> Result<(CpuSet, NodeSet), MeasureError> {
    let union =
        |of: fn(&Slice) -> &CpuSet| tenants.iter().fold(CpuSet::new(), |all, tenant| all.union(of(&tenant.slice)));
    let no_slice = host.online().difference(&union(|slice| &slice.cpus));
    let nobodys = no_slice.difference(&union(|slice| &slice.cpus_on_top));
    let cpus = if nobodys.is_empty() { no_slice } else { nobodys };
    if cpus.is_empty() {
        return Err(MeasureError::Asked(format!(
            "the guests' vCPUs take all {} PUs, and what asks the guests needs at least 1 beside them: plan fewer or smaller guests",
            host.online().len()
        )));
    }
    let with = host.nodes.iter().filter(|node| !node.cpus.intersection(&cpus).is_empty());
    let nodes = with.map(|node| node.index).collect();
    Ok((cpus, nodes))
}

fn measure(request: &TilesRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    if let Some(why) = why_not(&request.port, &session.host) {
        return Err(MeasureError::Asked(why));
    }
    session.without_fio();
    let functions = match request.ways.contains(&TileWay::Vf) {
        true => {
            let there = port_functions(&request.port, session.fs, &session.host);
            one_each(request.members.len(), &request.port, there)?
        }
        false => Vec::new(),
    };
    let network = Network::of(&request.port, &session.host);
    let tenant = |(number, member): (usize, &Member)| Tenant {
        load: Some(request.job(number, network).into()),
        ..Tenant::new(&member.guest, slice_of(&member.placement, &request.port, Bytes::ZERO))
    };
    let tenants: Vec<Tenant> = request.members.iter().enumerate().map(tenant).collect();
    let on = beside(&tenants, &session.host)?;
    request.members.iter().try_for_each(|member| session.pause_original(&member.guest))?;
    make_room(&request.members, &tenants, session)?;
    let mut path = path(request, &tenants, &functions, &on, session)?;
    let arms: Vec<Arm> = request.ways.iter().map(|way| arm(*way, &request.port)).collect();
    let filling = Filling {
        roles: request.roles.clone(),
        limits: request.limits.clone(),
        scale: request.scale,
        samples: request.samples,
        drivers: on.0.clone(),
        ksm: session.host.system.ksm,
    };
    let kept: Vec<nearmetal_results::Tenant> = tenants.iter().cloned().map(nearmetal_results::Tenant::from).collect();
    let look = |run: &Run| {
        let judged = judged(run, &kept, &request.limits)?;
        Some(Look { score: judged.score(), is_kept: judged.misses.is_empty() })
    };
    let plan = FillPlan {
        arms: arms.iter().map(|arm| arm.name.id.clone()).collect(),
        each: request.each(),
        tiles: request.members.len() / request.each(),
        samples: request.samples,
        workload: request.job(0, network).into(),
        seed: request.conditions.seed,
    };
    let workloads: Vec<Workload> = tenants.iter().filter_map(|tenant| tenant.load.clone()).collect();
    let mut experiment = Experiment {
        experiment: "tiles",
        quick: true,
        arms,
        tenants: tenants.clone(),
        least_overlap: Some(request.least_overlap),
        caveats: caveats(request, &tenants, &on.0, session),
        workloads,
        facts: Vec::new(),
        path: &mut path,
    };
    let runs = experiment.runs(&mut Fill::new(plan, &look), session)?;
    let mut results = experiment.document(runs, session)?;
    results.caveats.extend(not_read(&results, &|arm| path.was_read(arm)));
    results.tiles = Some(Box::new(filling));
    Ok(results)
}

/// The limits of which a sample can tell little, for want of requests.
fn too_few(request: &TilesRequest) -> Vec<String> {
    let of_role = |(number, role): (usize, &Role)| {
        let size = request.place(number).1;
        let due = size.rate(*role).get() * f64::from(size.seconds);
        let limits = request.limits.iter().filter(|limits| limits.role == *role).flat_map(|limits| &limits.within);
        // The limit that needs most says it for the others.
        let most = limits.max_by_key(|limit| limit.fewest_requests())?;
        (due < most.fewest_requests() as f64).then(|| {
            format!(
                "a sample has some {due:.0} requests of each {}, and with fewer than {} one late request decides whether {} % are \
                 answered within {} ms, so a single one never counts: take longer samples (--seconds)",
                role.title(),
                most.fewest_requests(),
                (most.part * 1000.0).round() / 10.0,
                most.within_ms
            )
        })
    };
    request.roles.iter().enumerate().filter_map(of_role).collect()
}

/// What a reader must know of arms that were over before the measurement was interrupted: their guests are not booted again, so
/// there is nothing to read of them.
fn not_read(results: &Results, was_read: &dyn Fn(usize) -> bool) -> Option<String> {
    let ran = |arm: &Arm| results.runs.iter().any(|run| run.arm == arm.name.id && run.failure().is_none());
    let of = results.arms.iter().enumerate().filter(|(number, arm)| ran(arm) && !was_read(*number));
    let titles: Vec<&str> = of.map(|(_, arm)| arm.name.title.as_str()).collect();
    (!titles.is_empty()).then(|| {
        format!(
            "the measurement was interrupted, and what was read of the guests before is lost: definition and placement are \
             missing for {}",
            titles.join(", ")
        )
    })
}

/// An arm before it has run.
fn arm(way: TileWay, port: &str) -> Arm {
    Arm {
        name: way.arm(),
        description: way.description(port),
        region: port.to_owned(),
        xml: None,
        command_line: None,
        placement: Vec::new(),
    }
}

/// The guests of all ways, none of which is there yet.
fn path<'r>(
    request: &'r TilesRequest,
    tenants: &[Tenant],
    functions: &[Free],
    on: &(CpuSet, NodeSet),
    session: &mut Session<'_>,
) -> Result<Tiles<'r>, MeasureError> {
    let appliance = with_probe(&[], drivers_of(functions), session)?;
    let network = Network::of(&request.port, &session.host);
    let run = session.new_uuid()?;
    let loads = loads_in_guest();
    let at = At { loads: &loads, ..At::probe(PROBE_IN_GUEST) };
    let mut arms = Vec::new();
    for way in &request.ways {
        let mut guests = Vec::new();
        for (number, (member, tenant)) in request.members.iter().zip(tenants).enumerate() {
            let (role, size) = request.place(number);
            let address = network.guest(number);
            let path = way.card();
            let function = functions.get(number).filter(|_| path.link == Link::VfHostdev);
            let clone = MemberClone {
                guest: &member.guest,
                xml: &member.xml_planned,
                arm: way.word(),
                peer: None,
                card: ArmCard {
                    path,
                    mac: mac_of_run(&run, number),
                    tap: if function.is_some() { String::new() } else { format!("{TAP}{number}") },
                    lower: String::new(),
                    function: function.map(|function| function.address),
                },
                driver: function.and_then(|function| function.driver.clone()),
                address: format!("{address}/{}", Network::PREFIX),
                uuid: session.new_uuid()?,
                appliance: appliance.clone(),
                evidence: Vec::new(),
            };
            guests.push(TileGuest {
                role,
                clone,
                slice: tenant.slice.clone(),
                server: role.server(&at, &size, &request.peers(number, network)),
                endpoint: (address, role.port()).into(),
                is_up: false,
                serving: None,
                recorded: None,
            });
        }
        arms.push(Arranged { way: *way, guests });
    }
    session.will_clone(arms.iter().flat_map(|arm| &arm.guests).map(|guest| guest.clone.name()))?;
    let (host, fs) = (session.host.clone(), session.fs);
    // No frame of a guest comes in from the wire, so the port need not be told whose they are.
    let port = Port::take(&request.port, Vec::new(), &host, fs, &mut session.leftovers)?;
    let drivers = Drivers { address: network.driver(), mac: mac_of_run(&run, u8::MAX.into()), is_entered: false };
    let to_serve = Duration::from_secs(request.place(0).1.patience().into());
    Ok(Tiles { port, arms, each: request.each(), drivers, on: on.clone(), to_serve, standing: None })
}

fn caveats(request: &TilesRequest, tenants: &[Tenant], drivers: &CpuSet, session: &Session<'_>) -> Vec<String> {
    let scale = request.scale;
    let mut caveats: Vec<String> = lab_caveat(&request.conditions.environment).into_iter().collect();
    if request.is_emulated() {
        caveats.push(format!(
            "whether quality of service was kept is emulated, too: each tile is asked {scale} times the usual rates, and says nothing of silicon"
        ));
    } else if scale != Scale::ONE {
        caveats
            .push(format!("each tile is asked {scale} times the usual rates, so scores compare at this factor alone"));
    }
    caveats.extend([
        "the score is nearmetal's own and not SPECvirt's: the mean part of what a tile's guests were asked that they answered, times 100, added up over the tiles".to_owned(),
        format!("what asks the guests runs on this host, on the PUs {drivers} beside all slices: no request crosses a wire"),
        "guests of one way are up at a time: they are booted when their way's turn comes, and stay up for the samples of one number of tiles".to_owned(),
    ]);
    caveats.extend(too_few(request));
    if tenants.iter().any(|tenant| !tenant.slice.cpus_on_top.intersection(drivers).is_empty()) {
        caveats.push(
            "no PU is without a thread of a guest: what asks the guests shares PUs with emulator threads and iothreads"
                .to_owned(),
        );
    }
    let ksm = session.host.system.ksm;
    if ksm.is_some_and(|run| run == 1) {
        caveats.push("KSM merged equal pages meanwhile (/sys/kernel/mm/ksm/run is 1): it takes time, and gives memory that tiles of different customers would not have".to_owned());
    }
    caveats
}

#[cfg(test)]
mod tests;
