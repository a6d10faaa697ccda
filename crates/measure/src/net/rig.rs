//! The guests of the network matrix and the bare slice: brought up, read back, and one sample of one arm.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use nearmetal_host::{Host, HostFs, guests};
use nearmetal_hypervisor::{Hypervisor, agent};
use nearmetal_units::{CpuSet, NodeSet};

use super::costs::costs_of;
use super::cpu::Busy;
use super::effect::{Movers, PATIENCE, in_the_guest, mover, on_the_host, seen, spread};
use super::guest::{ArmCard, DOWN, UP, guest_with};
use super::netperf::{greeted, greeting};
use super::path::Link;
use super::port::Port;
use super::request::NetMatrixRequest;
use super::space::NAMESPACE;
use super::test::{NetTest, read};
use crate::appliance::Appliance;
use crate::bench::new_uuid;
use crate::cost::{Middle, Target, watched};
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine, SLACK};
use crate::experiment::{Measured, chain};
use crate::matrix::Effect;
use crate::metric::{Metric, Unit};
use crate::program::run;
use crate::results::{ArmKind, Slice};

/// What shows which thread moves the packets: many small ones.
const LOAD: NetTest = NetTest::UdpRr;

/// What there is at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Nothing,
    Guest { arms: Vec<usize>, pid: u32 },
    Bare,
}

/// All that stands for the arms.
pub(super) struct NetRig<'a> {
    pub(super) request: &'a NetMatrixRequest,
    pub(super) fs: &'a HostFs,
    pub(super) host: &'a Host,
    pub(super) hypervisor: &'a mut dyn Hypervisor,
    pub(super) appliance: Appliance,
    pub(super) slice: Slice,
    pub(super) port: Port,
    /// Interface that bare metal is measured on, and its driver.
    pub(super) bare: (String, Option<String>),
    /// The arms, in their order.
    pub(super) cards: Vec<ArmCard>,
    pub(super) notes: Vec<String>,
    standing: Standing,
}

/// Where bare metal runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confinement {
    /// On the guest's PUs and node.
    Slice,
    /// Wherever the kernel puts it.
    None,
}

impl<'a> NetRig<'a> {
    #[allow(clippy::too_many_arguments, reason = "each is one part of the rig, and there is one caller")]
    pub(super) fn new(
        request: &'a NetMatrixRequest,
        fs: &'a HostFs,
        host: &'a Host,
        hypervisor: &'a mut dyn Hypervisor,
        appliance: Appliance,
        slice: Slice,
        port: Port,
        bare: (String, Option<String>),
        cards: Vec<ArmCard>,
    ) -> Self {
        let (notes, standing) = (Vec::new(), Standing::Nothing);
        Self { request, fs, host, hypervisor, appliance, slice, port, bare, cards, notes, standing }
    }

    /// Name of the guests, of which there is one at a time.
    pub(super) fn name(request: &NetMatrixRequest) -> String {
        format!("{}-nearmetal-net", request.guest)
    }

    pub(super) fn title(&self, arm: usize) -> String {
        self.cards[arm].path.title()
    }

    /// Ends what there is.
    pub(super) fn clear(&mut self) -> Result<(), MeasureError> {
        match std::mem::replace(&mut self.standing, Standing::Nothing) {
            Standing::Nothing => Ok(()),
            Standing::Bare => self.port.leave(&self.bare.0, self.fs),
            Standing::Guest { .. } => {
                let name = Self::name(self.request);
                self.hypervisor.destroy(&name).map_err(|source| MeasureError::Hypervisor { arm: name, source })
            }
        }
    }

    /// Whether an arm is there now.
    pub(super) fn stands(&self, arm: usize) -> bool {
        match &self.standing {
            Standing::Nothing => false,
            Standing::Guest { arms, .. } => arms.contains(&arm),
            Standing::Bare => self.cards[arm].path.link == Link::Bare,
        }
    }

    /// Brings up bare metal.
    pub(super) fn stand_bare(&mut self) -> Result<(), MeasureError> {
        if self.standing == Standing::Bare {
            return Ok(());
        }
        self.clear()?;
        // Before it is there in full, so that a failure half way is cleared as well.
        self.standing = Standing::Bare;
        self.port.enter(&self.bare.0.clone(), &self.request.address, self.fs)
    }

    /// Boots a guest that has the cards of `arms` and no others, unless it is there.
    pub(super) fn stand_guest(&mut self, arms: &[usize]) -> Result<u32, MeasureError> {
        match &self.standing {
            Standing::Guest { arms: there, pid } if there == arms => return Ok(*pid),
            _ => self.clear()?,
        }
        let Some(first) = arms.first() else { return Err(MeasureError::Unfit("a guest of no arms".to_owned())) };
        self.port.make(self.cards[*first].path.link.role(), self.fs)?;
        let name = Self::name(self.request);
        let cards: Vec<&ArmCard> = arms.iter().map(|arm| &self.cards[*arm]).collect();
        let uuid = new_uuid(self.fs)?;
        let xml = guest_with(&self.request.xml, &name, &uuid, super::port::BRIDGE, &cards, &self.appliance)?;
        let guest = GuestArm { name: name.clone(), xml, device: String::new() };
        let guests = BTreeMap::from([(ArmKind::Planned, guest)]);
        let conditions = &self.request.conditions;
        let mut machine = Machine::of_clones(&mut *self.hypervisor, self.fs, conditions, &self.slice, "", guests);
        let booted = machine.boot(&[ArmKind::Planned]);
        let notes = std::mem::take(&mut machine.notes);
        if booted.is_err() {
            // A guest whose agent never answers is there all the same.
            let _ = machine.end_all();
        }
        self.notes.extend(notes);
        booted?;
        let wrap = |source| MeasureError::Hypervisor { arm: name.clone(), source };
        self.hypervisor.resume(&name).map_err(wrap)?;
        let process = guests::find(self.fs, &uuid)
            .map_err(|source| MeasureError::Kernel { what: format!("cannot find the process of `{name}`"), source })?;
        let pid = process
            .map(|process| process.pid)
            .ok_or_else(|| MeasureError::Unfit(format!("`{name}` has no QEMU process in /proc")))?;
        self.standing = Standing::Guest { arms: arms.to_vec(), pid };
        let vcpus = self.request.placement.vcpus.len() as u32;
        for card in arms.iter().map(|arm| &self.cards[*arm]) {
            if card.path.link == Link::Bridge {
                self.port.settle(&card.tap, &card.mac)?;
            }
            if card.path.rps {
                spread(self.hypervisor, &name, &card.mac, vcpus)?;
            }
        }
        Ok(pid)
    }

    /// Reads an arm back that is there: what the guest has, what the host has, and who moves its packets.
    pub(super) fn read_back(&mut self, arm: usize) -> Effect {
        let shown = match self.standing.clone() {
            Standing::Bare => self.read_back_bare(),
            Standing::Guest { pid, .. } => self.read_back_guest(arm, pid),
            Standing::Nothing => Err("nothing of it is there".to_owned()),
        };
        match shown {
            Ok(evidence) => Effect::Shown { evidence },
            Err(why) => Effect::NotShown { why },
        }
    }

    fn read_back_guest(&mut self, arm: usize, pid: u32) -> Result<Vec<String>, String> {
        let card = self.cards[arm].clone();
        let name = Self::name(self.request);
        let found = seen(self.hypervisor, &name).map_err(|error| chain(&error))?;
        let seen =
            found.get(&card.mac).ok_or_else(|| format!("the guest has no card with the address {}", card.mac))?;
        let driver = self.function_driver(&card);
        let mut evidence = vec![
            on_the_host(self.fs, &card, &self.port.name, pid)?,
            in_the_guest(&card.path, driver.as_deref(), seen)?,
        ];
        let movers = self.under_load(arm, pid);
        // Whatever came of it: a card left up would answer in the next one's place.
        self.down(arm).map_err(|error| chain(&error))?;
        let (before, after) = movers?;
        evidence.push(match card.path.backend {
            Some(backend) => mover(backend, &before, &after)?,
            None => "the peer answered through it".to_owned(),
        });
        Ok(evidence)
    }

    fn under_load(&mut self, arm: usize, pid: u32) -> Result<(Movers, Movers), String> {
        self.up(arm).map_err(|error| {
            let bridged = self.cards[arm].path.link == Link::Bridge;
            format!("the peer does not answer: {}{}", chain(&error), self.port.why_a_bridge_fails(bridged))
        })?;
        let before = Movers::read(self.fs, pid)?;
        self.netperf(arm, LOAD, 1, Confinement::Slice).map_err(|error| chain(&error))?;
        Ok((before, Movers::read(self.fs, pid)?))
    }

    fn read_back_bare(&mut self) -> Result<Vec<String>, String> {
        self.greet().map_err(|error| format!("the peer does not answer: {}", chain(&error)))?;
        let driver = self.bare.1.as_deref().unwrap_or("unknown");
        Ok(vec![
            format!("{} in namespace {NAMESPACE}, driver {driver}; the peer answered through it", self.bare.0),
            format!("netperf on PUs {}, node {}", self.slice.cpus, self.slice.nodes),
        ])
    }

    /// The host's driver of a card's function, which the guest's must be too.
    fn function_driver(&self, card: &ArmCard) -> Option<String> {
        card.function.filter(|_| card.path.link == Link::VfHostdev)?;
        self.request.function_driver(self.host, card.function)
    }

    /// One sample of an arm that is there: every test, with the processor time the host spent on it.
    pub(super) fn sample(&mut self, arm: usize, tests: &[NetTest]) -> Result<Measured, MeasureError> {
        let mut metrics = Vec::new();
        let result = self.up(arm).and_then(|()| {
            tests.iter().try_for_each(|test| {
                metrics.extend(self.measured(arm, *test, Confinement::Slice)?);
                Ok(())
            })
        });
        self.down(arm)?;
        result.map(|()| Measured { metrics, notes: vec![] })
    }

    /// One test of bare metal or the guest, with what it cost.
    pub(super) fn measured(
        &mut self,
        arm: usize,
        test: NetTest,
        confinement: Confinement,
    ) -> Result<Vec<Metric>, MeasureError> {
        let cpus = self.slice.cpus.union(&self.slice.cpus_on_top);
        let before = Busy::read(self.fs, &cpus)?;
        let (fs, target) = (self.fs, self.target());
        let middle = Middle::after(test.ramp(), Duration::from_secs(self.request.seconds.into()));
        let (text, counted) =
            watched(fs, &target, Some(middle), || self.netperf(arm, test, self.request.seconds, confinement));
        let text = text?;
        let busy = Busy::read(self.fs, &cpus)?.since(before);
        let moved = read(test, &text)?;
        let (unit, factor) = if test.is_stream() {
            (Unit::CpuSecondsPerGigabit, 1.0)
        } else {
            (Unit::CpuNanosecondsPerTransaction, 1e9)
        };
        let cost = |name: &str, seconds: f64| {
            Metric::new(&format!("{}.{name}", test.id()), unit, seconds * factor / moved.units.max(f64::MIN_POSITIVE))
        };
        let (counts, unknown) = costs_of(test, &counted, &moved);
        for note in unknown.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>() {
            self.notes.push(note);
        }
        let mut metrics = moved.metrics;
        metrics.extend([cost("cpu-slice", busy.slice), cost("cpu-host", busy.host)].into_iter().flatten());
        metrics.extend(counts);
        Ok(metrics)
    }

    /// Whose counters are read beside a run.
    fn target(&self) -> Target {
        let guests = match &self.standing {
            Standing::Guest { pid, .. } => vec![*pid],
            Standing::Bare | Standing::Nothing => Vec::new(),
        };
        Target { guests, slice: self.slice.cpus.clone(), on_top: self.slice.cpus_on_top.clone() }
    }

    fn up(&mut self, arm: usize) -> Result<(), MeasureError> {
        if self.standing == Standing::Bare {
            return self.greet();
        }
        let mac = self.cards[arm].mac.clone();
        let (address, peer) = (self.request.address.clone(), self.request.peer.to_string());
        self.in_guest(arm, &["sh", "-c", UP, "up", &mac, &address, &peer], PATIENCE).map(drop)
    }

    fn down(&mut self, arm: usize) -> Result<(), MeasureError> {
        if self.standing == Standing::Bare {
            return Ok(());
        }
        self.in_guest(arm, &["sh", "-c", DOWN], PATIENCE).map(drop)
    }

    fn greet(&self) -> Result<(), MeasureError> {
        let words = greeting(self.request.peer);
        greeted(|| self.on_bare_metal(&words, Confinement::Slice))
    }

    fn netperf(
        &mut self,
        arm: usize,
        test: NetTest,
        seconds: u32,
        confinement: Confinement,
    ) -> Result<String, MeasureError> {
        let words = test.command(self.request.peer, seconds);
        if self.standing == Standing::Bare {
            return self.on_bare_metal(&words, confinement);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.in_guest(arm, &words, Duration::from_secs(u64::from(seconds)) + SLACK)
    }

    fn on_bare_metal(&self, words: &[String], confinement: Confinement) -> Result<String, MeasureError> {
        // This process keeps off the slice, and what it starts inherits that: even "anywhere" has to be said.
        let all = || (self.host.online(), self.host.nodes.iter().map(|node| node.index).collect::<NodeSet>());
        let (cpus, nodes): (CpuSet, NodeSet) = match confinement {
            Confinement::Slice => (self.slice.cpus.clone(), self.slice.nodes.clone()),
            Confinement::None => all(),
        };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", NAMESPACE]).arg(&self.request.conditions.probe);
        command.args(["bind", "--cpus", &cpus.to_string(), "--nodes", &nodes.to_string(), "--"]).args(words);
        run(&mut command)
    }

    fn in_guest(&mut self, arm: usize, words: &[&str], limit: Duration) -> Result<String, MeasureError> {
        let title = self.title(arm);
        let output = agent::exec(self.hypervisor, &Self::name(self.request), words, None, limit)
            .map_err(|source| MeasureError::Hypervisor { arm: title.clone(), source })?;
        if output.status.is_success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        let why = said.into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| format!("{:?}", output.status));
        let why = why.chars().take(400).collect();
        Err(MeasureError::WorkloadFailed { what: format!("`{}` in the guest, {title}", words[0]), why })
    }
}
