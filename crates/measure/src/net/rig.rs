//! The guests of the network matrix and the bare slice: brought up, read back, and the path of the race.

use nearmetal_load::{NetTest, SLACK};
use nearmetal_results::{Effect, Link, PortRole, Slice};

use super::effect::{Movers, PATIENCE, in_the_guest, mover, on_the_host, seen, spread};
use super::greet::greeted;
use super::guest::{ArmCard, DOWN, UP, guest_with};
use super::port::{BRIDGE, Port};
use super::request::NetMatrixRequest;
use super::space::NAMESPACE;
use crate::appliance::Appliance;
use crate::engine::{Guest, Path, Pus, Seat, Session, SplitMix, Step, chain, failed};
use crate::error::MeasureError;
use crate::program::run;

/// What shows which thread moves the packets: many small ones.
const LOAD: NetTest = NetTest::UdpRr;

/// What there is at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Nothing,
    /// A guest that has the cards of these arms, paused; and the one whose card is up.
    Guest {
        arms: Vec<usize>,
        pid: u32,
        up: Option<usize>,
    },
    Bare,
}

/// All that stands for the arms: the cards by their place, and behind them the arm without a slice.
pub(super) struct NetRig<'a> {
    pub(super) request: &'a NetMatrixRequest,
    pub(super) appliance: Appliance,
    pub(super) slice: Slice,
    pub(super) port: Port,
    /// Interface that bare metal is measured on, and its driver.
    pub(super) bare: (String, Option<String>),
    /// The arms, in their order.
    pub(super) cards: Vec<ArmCard>,
    /// Arms whose guests have no other card; else those that need the port in the same way share one.
    pub(super) alone: bool,
    /// Arms that are in it: a guest has no card of another.
    pub(super) running: Vec<usize>,
    standing: Standing,
}

impl<'a> NetRig<'a> {
    pub(super) fn new(
        request: &'a NetMatrixRequest,
        appliance: Appliance,
        slice: Slice,
        port: Port,
        bare: (String, Option<String>),
        cards: Vec<ArmCard>,
    ) -> Self {
        let running = (0..cards.len()).collect();
        Self { request, appliance, slice, port, bare, cards, alone: false, running, standing: Standing::Nothing }
    }

    /// Name of the guests, of which there is one at a time.
    pub(super) fn name(request: &NetMatrixRequest) -> String {
        format!("{}-nearmetal-net", request.guest)
    }

    pub(super) fn title(&self, arm: usize) -> String {
        self.cards.get(arm).map_or_else(|| "bare metal, all PUs".to_owned(), |card| card.path.title())
    }

    fn is_bare(&self, arm: usize) -> bool {
        self.cards.get(arm).is_none_or(|card| card.path.link == Link::Bare)
    }

    /// Ends what there is.
    pub(super) fn clear(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        match std::mem::replace(&mut self.standing, Standing::Nothing) {
            Standing::Nothing => Ok(()),
            Standing::Bare => self.port.leave(&self.bare.0, session.fs),
            Standing::Guest { .. } => session.end(&Self::name(self.request)),
        }
    }

    /// Whether an arm is there now.
    fn stands(&self, arm: usize) -> bool {
        match &self.standing {
            Standing::Nothing => false,
            Standing::Guest { arms, .. } => arms.contains(&arm),
            Standing::Bare => self.is_bare(arm),
        }
    }

    /// Arms that share a guest.
    pub(super) fn batches(&self, arms: &[usize]) -> Vec<Vec<usize>> {
        batches(&self.cards, arms)
    }

    /// Brings up what an arm needs, unless it is there.
    pub(super) fn stand(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if self.is_bare(arm) {
            return self.stand_bare(session);
        }
        let batch = match self.alone {
            true => None,
            false => self.batches(&self.running).into_iter().find(|batch| batch.contains(&arm)),
        };
        self.stand_guest(&batch.unwrap_or_else(|| vec![arm]), session).map(drop)
    }

    /// Brings up bare metal.
    pub(super) fn stand_bare(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if self.standing == Standing::Bare {
            return Ok(());
        }
        self.clear(session)?;
        // Before it is there in full, so that a failure half way is cleared as well.
        self.standing = Standing::Bare;
        self.port.enter(&self.bare.0.clone(), &self.request.address, session.fs)
    }

    /// Boots a guest that has the cards of `arms` and no others, unless it is there; it is paused.
    pub(super) fn stand_guest(&mut self, arms: &[usize], session: &mut Session<'_>) -> Result<u32, MeasureError> {
        match &self.standing {
            Standing::Guest { arms: there, pid, .. } if there == arms => return Ok(*pid),
            _ => self.clear(session)?,
        }
        let Some(first) = arms.first() else { return Err(MeasureError::Unfit("a guest of no arms".to_owned())) };
        self.port.make(self.cards[*first].path.link.role(), session.fs)?;
        let name = Self::name(self.request);
        let cards: Vec<&ArmCard> = arms.iter().map(|arm| &self.cards[*arm]).collect();
        let xml = guest_with(&self.request.xml, &name, &session.new_uuid()?, BRIDGE, &cards, &self.appliance)?;
        let guest = Guest { name: name.clone(), xml, device: String::new() };
        if let Err(error) = session.boot(&guest) {
            // A guest whose agent never answers is there all the same.
            session.end(&name)?;
            return Err(error);
        }
        let pid = session.must_have_process(&name)?;
        self.standing = Standing::Guest { arms: arms.to_vec(), pid, up: None };
        let vcpus = self.request.placement.vcpus.len() as u32;
        for card in arms.iter().map(|arm| &self.cards[*arm]) {
            if card.path.link == Link::Bridge {
                self.port.settle(&card.tap, &card.mac)?;
            }
            if card.path.rps {
                spread(session.hypervisor, &name, &card.mac, vcpus)?;
            }
        }
        session.hypervisor.suspend(&name).map_err(failed(&name))?;
        Ok(pid)
    }

    /// Reads an arm back that is there: what the guest has, what the host has, and who moves its packets.
    pub(super) fn read_back(&mut self, arm: usize, session: &mut Session<'_>) -> Effect {
        let shown = match self.standing.clone() {
            Standing::Bare => self.read_back_bare(session),
            Standing::Guest { pid, .. } => self.read_back_guest(arm, pid, session),
            Standing::Nothing => Err("nothing of it is there".to_owned()),
        };
        match shown {
            Ok(evidence) => Effect::Shown { evidence },
            Err(why) => Effect::NotShown { why },
        }
    }

    fn read_back_guest(&mut self, arm: usize, pid: u32, session: &mut Session<'_>) -> Result<Vec<String>, String> {
        let card = self.cards[arm].clone();
        let name = Self::name(self.request);
        session.hypervisor.resume(&name).map_err(|error| error.to_string())?;
        let evidence = self.read_back_running(&card, arm, pid, session);
        // Whatever came of it: the next arm finds its guest paused.
        session.hypervisor.suspend(&name).map_err(|error| error.to_string())?;
        evidence
    }

    fn read_back_running(
        &mut self,
        card: &ArmCard,
        arm: usize,
        pid: u32,
        session: &mut Session<'_>,
    ) -> Result<Vec<String>, String> {
        let found = seen(session.hypervisor, &Self::name(self.request)).map_err(|error| chain(&error))?;
        let seen =
            found.get(&card.mac).ok_or_else(|| format!("the guest has no card with the address {}", card.mac))?;
        let driver = card.function.filter(|_| card.path.link == Link::VfHostdev);
        // The host's driver of a card's function, which the guest's must be too.
        let driver = driver.and_then(|function| self.request.function_driver(&session.host, Some(function)));
        let mut evidence = vec![
            on_the_host(session.fs, card, &self.port.name, pid)?,
            in_the_guest(&card.path, driver.as_deref(), seen)?,
        ];
        let movers = self.under_load(arm, pid, session);
        // Whatever came of it: a card left up would answer in the next one's place.
        self.down(session).map_err(|error| chain(&error))?;
        let (before, after) = movers?;
        evidence.push(match card.path.backend {
            Some(backend) => mover(backend, &before, &after)?,
            None => "the peer answered through it".to_owned(),
        });
        Ok(evidence)
    }

    fn under_load(&mut self, arm: usize, pid: u32, session: &mut Session<'_>) -> Result<(Movers, Movers), String> {
        self.up(arm, session).map_err(|error| {
            let bridged = self.cards[arm].path.link == Link::Bridge;
            format!("the peer does not answer: {}{}", chain(&error), self.port.why_a_bridge_fails(bridged))
        })?;
        let before = Movers::read(session.fs, pid)?;
        let words = LOAD.command(self.request.peer, 1);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        session.ask(&Self::name(self.request), &words, SLACK).map_err(|error| chain(&error))?;
        Ok((before, Movers::read(session.fs, pid)?))
    }

    fn read_back_bare(&mut self, session: &Session<'_>) -> Result<Vec<String>, String> {
        self.greet(session).map_err(|error| format!("the peer does not answer: {}", chain(&error)))?;
        let driver = self.bare.1.as_deref().unwrap_or("unknown");
        Ok(vec![
            format!("{} in namespace {NAMESPACE}, driver {driver}; the peer answered through it", self.bare.0),
            format!("netperf on PUs {}, node {}", self.slice.cpus, self.slice.nodes),
        ])
    }

    /// Brings a guest's card up; the guest runs.
    fn up(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let mac = self.cards[arm].mac.clone();
        let (address, peer) = (self.request.address.clone(), self.request.peer.to_string());
        let words = ["sh", "-c", UP, "up", &mac, &address, &peer];
        session.ask(&Self::name(self.request), &words, PATIENCE).map(drop)
    }

    /// Takes a guest's cards down; the guest runs.
    fn down(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        session.ask(&Self::name(self.request), &["sh", "-c", DOWN], PATIENCE).map(drop)
    }

    fn greet(&self, session: &Session<'_>) -> Result<(), MeasureError> {
        let words = nearmetal_load::greeting(self.request.peer);
        let probe = &session.conditions.probe;
        greeted(|| {
            let mut command = std::process::Command::new("ip");
            command.args(["netns", "exec", NAMESPACE]).arg(probe);
            command.args([
                "bind",
                "--cpus",
                &self.slice.cpus.to_string(),
                "--nodes",
                &self.slice.nodes.to_string(),
                "--",
            ]);
            run(command.args(&words))
        })
    }
}

impl Path for NetRig<'_> {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let arm = step.arm;
        self.stand(arm, session)?;
        let name = Self::name(self.request);
        match self.standing.clone() {
            Standing::Guest { up, .. } if up == Some(arm) => return Ok(()),
            Standing::Guest { .. } => {}
            _ => return self.greet(session),
        }
        session.hypervisor.resume(&name).map_err(failed(&name))?;
        let result = self.down(session).and_then(|()| self.up(arm, session));
        session.hypervisor.suspend(&name).map_err(failed(&name))?;
        if let Standing::Guest { up, .. } = &mut self.standing {
            *up = result.is_ok().then_some(arm);
        }
        result
    }

    fn seat(&self, arm: usize, _: usize) -> Seat {
        if self.is_bare(arm) {
            let around = ["ip", "netns", "exec", NAMESPACE].map(str::to_owned).to_vec();
            let on = if arm >= self.cards.len() { Pus::All } else { Pus::OfTheSlice };
            return Seat { around, on, ..Seat::default() };
        }
        Seat::guest(&Self::name(self.request), "")
    }

    fn refresh(&mut self, _: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.clear(session)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let name = Self::name(self.request);
        if self.is_bare(step.arm) || (self.stands(step.arm) && session.answers(&name)?) {
            return Ok(false);
        }
        session.note(format!("the clone `{name}` stopped answering and was started again"));
        // Whatever is there: the next turn begins with a new one.
        session.end(&name)?;
        self.standing = Standing::Nothing;
        Ok(true)
    }

    fn arrange(&self, arms: &mut Vec<usize>, last: Option<usize>, random: &mut SplitMix) {
        *arms = by_guest(
            &self.cards,
            arms,
            |arm| last.is_some_and(|last| role(&self.cards, arm) == role(&self.cards, last)),
            random,
        );
    }
}

/// What the port is for an arm. Behind the cards is bare metal without a slice.
fn role(cards: &[ArmCard], arm: usize) -> PortRole {
    cards.get(arm).map_or(PortRole::Bare, |card| card.path.link.role())
}

/// Arms that share a guest: those that need the port in the same way.
fn batches(cards: &[ArmCard], arms: &[usize]) -> Vec<Vec<usize>> {
    let role = |arm: usize| role(cards, arm);
    let mut roles: Vec<PortRole> = arms.iter().map(|arm| role(*arm)).collect();
    roles.sort();
    roles.dedup();
    roles.into_iter().map(|one| arms.iter().copied().filter(|arm| role(*arm) == one).collect()).collect()
}

/// Arms of one guest run together, in random order, and the guests come in random order, except that the one that is there
/// goes first: else every round would boot it twice.
fn by_guest(cards: &[ArmCard], arms: &[usize], stands: impl Fn(usize) -> bool, random: &mut SplitMix) -> Vec<usize> {
    let mut groups = batches(cards, arms);
    random.shuffle(&mut groups);
    groups.sort_by_key(|group| !group.iter().any(|arm| stands(*arm)));
    groups.iter_mut().for_each(|group| random.shuffle(group));
    groups.concat()
}

#[cfg(test)]
mod tests {
    use nearmetal_results::NetPath;

    use super::*;

    fn cards() -> Vec<ArmCard> {
        let links = [
            NetPath::libvirt_default(),
            NetPath::virtio(Link::MacvtapBridge),
            NetPath::hardware(Link::VfHostdev),
            NetPath::virtio(Link::MacvtapPrivate),
            NetPath::virtio(Link::MacvtapPassthrough),
            NetPath::hardware(Link::Bare),
        ];
        let card =
            |path| ArmCard { path, mac: String::new(), tap: String::new(), lower: String::new(), function: None };
        links.into_iter().map(card).collect()
    }

    #[test]
    fn arms_that_can_share_a_guest_do_and_no_others() {
        let cards = cards();
        let mut found = batches(&cards, &[0, 1, 2, 3, 4, 5]);
        found.sort();
        assert_eq!(found, [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
        assert_eq!(batches(&cards, &[1, 5]), [vec![1], vec![5]]);
    }

    #[test]
    fn a_round_has_every_arm_once_guest_by_guest_and_goes_on_with_the_one_that_is_there() {
        let cards = cards();
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let order = by_guest(&cards, &[0, 1, 2, 3, 4, 5], |arm| arm == 4, &mut SplitMix::new(seed));
            assert_eq!(order[0], 4, "it is there");
            let mut all = order.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4, 5]);
            let at = |arm: usize| order.iter().position(|other| *other == arm).unwrap();
            assert!(at(0).abs_diff(at(2)) == 1 && at(1).abs_diff(at(3)) == 1, "{order:?}");
            orders.insert(order);
        }
        assert!(orders.len() > 10, "the order is drawn");
    }
}
