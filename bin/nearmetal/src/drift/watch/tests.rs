//! Nights of a host in a time of their own: guests start, stop, are saved, restored, suspended, tuned and restarted, devices
//! come and go, libvirt restarts, another nearmetal works. The hypervisor is the fake.
//!
//! Long, since every night needs the whole played host, and its parts serve nothing else.

use std::collections::VecDeque;

use nearmetal_change::journal::Work;
use nearmetal_change::verify::{Check, VERIFICATION_SCHEMA};
use nearmetal_hypervisor::{Fake, Hypervisor, Scope};

use super::*;

const GUESTS: [&str; 4] = ["web0", "web1", "web2", "web3"];
const PERIOD: Duration = Duration::from_secs(900);
/// What was promised.
const PROMISE: Duration = Duration::from_secs(5);
/// How long a look takes.
const LOOK: Duration = Duration::from_millis(300);
/// When a guest's agent is up, after a start, and how much longer a look takes that asks it before.
const AGENT_UP: Duration = Duration::from_secs(30);
const AGENT_ASKED: Duration = Duration::from_secs(2);
/// When libvirt's hook has pinned what it pins, after a start.
const HOOK: Duration = Duration::from_millis(900);

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// xorshift64*: the same nights everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

#[derive(Debug, Clone)]
enum Action {
    /// libvirt begins to start it: a process, and no event yet.
    Launch(&'static str),
    /// It runs.
    Start(&'static str),
    Destroy(&'static str),
    Suspend(&'static str),
    Resume(&'static str),
    Reboot(&'static str),
    /// libvirt begins to save it, which ends with `Destroy`.
    Save(&'static str),
    /// Its disk fails.
    DiskFails(&'static str),
    /// Somebody pins it where it is pinned already.
    Tune(&'static str),
    /// From now on each look finds another difference.
    Flicker(&'static str),
    /// Somebody pins it elsewhere, through libvirt; the definition has it so as well.
    Spoil(&'static str),
    /// … and back.
    Repair(&'static str),
    /// A guest that no plan knows.
    Stranger,
    Devices,
    /// libvirt goes: events are lost.
    LibvirtGoes,
    LibvirtComes,
    WriterBegins,
    WriterEnds,
    /// Whether another nearmetal works cannot be read any more.
    WriterUnknown,
    /// The doctor has looked.
    Examined,
    Stop,
}

/// A telling, or a figure, of one guest.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    at: Duration,
    domain: String,
    differs: bool,
    /// Whether it was so.
    was: bool,
}

struct Night {
    clock: Duration,
    fake: Fake,
    script: VecDeque<(Duration, Action)>,
    notices: VecDeque<Notice>,
    launching: BTreeSet<&'static str>,
    started: BTreeMap<&'static str, Duration>,
    connected: bool,
    writer: bool,
    writer_unknown: bool,
    flickers: Option<&'static str>,
    /// When the last thing ended that holds looks back.
    free_since: Duration,
    told: Vec<Told>,
    figures: Vec<(Duration, BTreeMap<String, bool>)>,
    /// When the doctor's findings were taken for the figures.
    examined: Vec<Duration>,
    looks: Vec<(Duration, String)>,
    patience: Vec<(Duration, String, Patience)>,
    /// How long a look takes.
    look: Duration,
    /// From when to when events come faster than they are heard.
    flood: std::ops::Range<Duration>,
    /// When each guest came to run, and whether it was spoilt then.
    starts: Vec<(Duration, &'static str, bool)>,
}

fn definition(name: &str) -> String {
    format!("<domain type='kvm'><name>{name}</name><memory unit='KiB'>1048576</memory></domain>")
}

impl Night {
    fn new(script: Vec<(Duration, Action)>) -> Self {
        let mut fake = Fake::new("");
        for name in GUESTS {
            fake = fake.with_domain(&definition(name));
            fake.pin_vcpu(name, 0, &"2".parse().unwrap(), Scope::CONFIG).unwrap();
        }
        fake.take_events();
        Self {
            clock: Duration::ZERO,
            fake,
            script: script.into(),
            notices: [Notice::Connected].into(),
            launching: BTreeSet::new(),
            started: BTreeMap::new(),
            connected: true,
            writer: false,
            writer_unknown: false,
            flickers: None,
            free_since: Duration::ZERO,
            told: Vec::new(),
            figures: Vec::new(),
            examined: Vec::new(),
            looks: Vec::new(),
            patience: Vec::new(),
            look: LOOK,
            flood: Duration::ZERO..Duration::ZERO,
            starts: Vec::new(),
        }
    }

    fn is_spoilt(&self, name: &str) -> bool {
        self.fake.config_pins(name).values().any(|cpus| cpus.to_string() != "2")
    }

    fn runs(&mut self, name: &str) -> bool {
        self.fake.domain(name).is_ok_and(|domain| domain.state == DomainState::Running)
    }

    fn act(&mut self, action: Action) {
        let pin =
            |fake: &mut Fake, name: &str, cpus: &str, scope| fake.pin_vcpu(name, 0, &cpus.parse().unwrap(), scope);
        match action {
            Action::Launch(name) => drop(self.launching.insert(name)),
            Action::Start(name) => {
                self.launching.remove(name);
                self.fake.start(name, false).unwrap();
                self.started.insert(name, self.clock);
                let spoilt = self.is_spoilt(name);
                self.starts.push((self.clock, name, spoilt));
            }
            Action::Destroy(name) => self.fake.destroy(name).unwrap(),
            Action::Suspend(name) => self.fake.suspend(name).unwrap(),
            Action::Resume(name) => self.fake.resume(name).unwrap(),
            Action::Reboot(name) => self.fake.reboot(name),
            Action::Save(name) => self.fake.pause_for(name, PauseReason::Save),
            Action::DiskFails(name) => self.fake.pause_for(name, PauseReason::IoError),
            Action::Tune(name) => {
                let now = self.fake.live_pins(name).values().next().map_or("2".to_owned(), ToString::to_string);
                pin(&mut self.fake, name, &now, Scope::LIVE).unwrap();
            }
            Action::Flicker(name) => self.flickers = Some(name),
            Action::WriterUnknown => self.writer_unknown = true,
            Action::Examined => self.notices.push_back(Notice::Findings(None)),
            Action::Spoil(name) | Action::Repair(name) => {
                let cpus = if matches!(action, Action::Spoil(_)) { "7" } else { "2" };
                let live = self.runs(name);
                pin(&mut self.fake, name, cpus, Scope { live, config: true }).unwrap();
            }
            Action::Stranger => {
                self.fake.create_transient(&definition("clone"), false).unwrap();
                self.fake.destroy("clone").unwrap();
            }
            Action::Devices => self.notices.push_back(Notice::Devices),
            Action::LibvirtGoes => {
                self.connected = false;
                self.notices.push_back(Notice::Lost("gone".to_owned()));
            }
            Action::LibvirtComes => {
                self.fake.take_events();
                self.connected = true;
                self.free_since = self.clock;
                self.notices.push_back(Notice::Connected);
            }
            Action::WriterBegins => self.writer = true,
            Action::WriterEnds => (self.writer, self.free_since) = (false, self.clock),
            Action::Stop => self.notices.push_back(Notice::Stop),
        }
        let events = self.fake.take_events();
        if self.connected {
            self.notices.extend(events.into_iter().map(Notice::Domain));
        }
    }

    /// Time goes on, and what the script says happens meanwhile.
    fn advance(&mut self, to: Duration) {
        while self.script.front().is_some_and(|(at, _)| *at <= to) {
            let Some((at, action)) = self.script.pop_front() else { return };
            self.clock = self.clock.max(at);
            self.act(action);
        }
        self.clock = self.clock.max(to);
    }
}

impl World for Night {
    fn now(&self) -> Duration {
        self.clock
    }

    fn wait(&mut self, until: Option<Duration>) -> Vec<Notice> {
        if self.flood.contains(&self.clock) {
            self.advance(self.clock + milliseconds(1));
            self.fake.reboot("web1");
            self.notices.extend(self.fake.take_events().into_iter().map(Notice::Domain));
        }
        loop {
            if !self.notices.is_empty() {
                return self.notices.drain(..).collect();
            }
            match (self.script.front().map(|(at, _)| *at), until) {
                (Some(next), until) if until.is_none_or(|until| next <= until) => self.advance(next),
                (_, Some(until)) => {
                    self.advance(until);
                    return self.notices.drain(..).collect();
                }
                (_, None) => panic!("nothing is due, and nothing will come"),
            }
        }
    }

    fn at_work(&mut self) -> Result<Option<AtWork>, String> {
        match self.writer_unknown {
            true => Err("/proc/locks cannot be read".to_owned()),
            false => Ok(self.writer.then_some(AtWork { work: Work::Measuring, pid: Some(4711) })),
        }
    }

    fn is_in_force(&mut self, domain: &str) -> bool {
        GUESTS.contains(&domain)
    }

    fn subjects(&mut self) -> Option<BTreeSet<Subject>> {
        Some(GUESTS.iter().map(|name| Subject::Guest((*name).to_owned())).collect())
    }

    fn state(&mut self, domain: &str) -> Option<(DomainState, Option<PauseReason>)> {
        if !self.connected {
            return None;
        }
        if self.launching.contains(domain) {
            return Some((DomainState::Paused, Some(PauseReason::StartingUp)));
        }
        self.fake.domain(domain).ok().map(|domain| (domain.state, domain.pause))
    }

    fn look(&mut self, subject: &Subject, patience: Patience) -> Option<Vec<Verification>> {
        let Subject::Guest(name) = subject else { return None };
        let known = GUESTS.iter().find(|guest| *guest == name).expect("a guest without a plan is looked at");
        self.patience.push((self.clock, name.clone(), patience));
        let boots = self.started.get(known).is_some_and(|at| self.clock < *at + AGENT_UP);
        let asked = if boots && patience == Patience::Usual { AGENT_ASKED } else { Duration::ZERO };
        self.advance(self.clock + self.look + asked);
        self.looks.push((self.clock, name.clone()));
        let state = self.fake.domain(name).unwrap().state;
        let hook_to_come = self.started.get(known).is_some_and(|at| self.clock < *at + HOOK);
        // Without libvirt nothing is being started, and nobody tells that a guest is paused.
        let unpinned =
            (self.connected && self.launching.contains(known)) || (state == DomainState::Running && hook_to_come);
        let spoilt = !state.is_off() && self.fake.live_pins(name).values().any(|cpus| cpus.to_string() != "2");
        let paused = self.connected && state == DomainState::Paused;
        let flickers = self.flickers == Some(*known);
        let differs = unpinned || spoilt || paused || flickers;
        let outcome = if differs { Outcome::Mismatch } else { Outcome::Ok };
        let (planned, found) = ("2".to_owned(), Some("?".to_owned()));
        let subject = format!("vCPU {}", if flickers { self.looks.len() } else { 0 });
        let check = Check { subject, kind: CheckKind::Vcpu, planned, found, outcome, place: None };
        let (schema, taken) = (VERIFICATION_SCHEMA.to_owned(), String::new());
        Some(vec![Verification { schema, guest: name.clone(), taken, checks: vec![check], guest_view: None }])
    }

    fn tell(&mut self, _: Why, verifications: &[Verification]) {
        for found in verifications {
            let (domain, differs) = (found.guest.clone(), found.mismatches() > 0);
            let was = self.is_spoilt(&domain);
            self.told.push(Told { at: self.clock, domain, differs, was });
        }
    }

    fn write(&mut self, known: Option<&[Verification]>, _: bool) -> bool {
        let known = known.expect("what is in force is always known here");
        let figures = known.iter().map(|found| (found.guest.clone(), found.mismatches() > 0)).collect();
        self.figures.push((self.clock, figures));
        true
    }

    fn examined(&mut self, _: Option<Box<Examination>>) {
        self.examined.push(self.clock);
    }

    fn say(&mut self, _: &str) {}
}

/// Eight hours of what an administrator, a backup and the weather do to a host. With `spoils`, some guests start with pins
/// that are not the plan's.
fn night(seed: u64, spoils: bool) -> Vec<(Duration, Action)> {
    let mut random = Random(seed * 2 + 1);
    let mut script = Vec::new();
    for name in GUESTS {
        // Each guest's own night: it is off at the beginning.
        let mut at = milliseconds(random.below(30_000));
        let mut spoilt = false;
        let launch = |script: &mut Vec<_>, random: &mut Random, at: &mut Duration| {
            script.push((*at, Action::Launch(name)));
            // Hugepages are faulted in; once in a while, a memory is read from a slow disk.
            *at +=
                milliseconds(200 + if random.below(20) == 0 { random.below(1_800_000) } else { random.below(20_000) });
            script.push((*at, Action::Start(name)));
            // A hook sets its weights.
            if random.below(3) == 0 {
                script.push((*at + milliseconds(random.below(600)), Action::Tune(name)));
            }
        };
        launch(&mut script, &mut random, &mut at);
        while at < Duration::from_secs(8 * 3600) {
            at += milliseconds(20_000 + random.below(600_000));
            match random.below(6) {
                // A restart, at once or later.
                0 | 1 => {
                    script.push((at, Action::Destroy(name)));
                    at += milliseconds(random.below(4000));
                    if spoils && random.below(3) == 0 {
                        spoilt = !spoilt;
                        script.push((at, if spoilt { Action::Spoil(name) } else { Action::Repair(name) }));
                    }
                    launch(&mut script, &mut random, &mut at);
                }
                // Saved, which takes up to half an hour, and restored.
                2 => {
                    script.push((at, Action::Save(name)));
                    at += milliseconds(100 + random.below(1_800_000));
                    script.push((at, Action::Destroy(name)));
                    at += milliseconds(random.below(900_000));
                    launch(&mut script, &mut random, &mut at);
                }
                3 => {
                    script.push((at, Action::Suspend(name)));
                    at += milliseconds(random.below(600_000));
                    script.push((at, Action::Resume(name)));
                }
                4 => {
                    script.push((at, Action::Reboot(name)));
                    at += milliseconds(random.below(90_000));
                    script.push((at, Action::Tune(name)));
                }
                _ => (0..random.below(5)).for_each(|_| {
                    at += milliseconds(random.below(700));
                    script.push((at, Action::Reboot(name)));
                }),
            }
        }
    }
    let mut at = Duration::ZERO;
    while at < Duration::from_secs(8 * 3600) {
        at += milliseconds(60_000 + random.below(1_200_000));
        match random.below(4) {
            0 => (0..random.below(40)).for_each(|_| {
                at += milliseconds(random.below(300));
                script.push((at, Action::Devices));
            }),
            1 => script.push((at, Action::Stranger)),
            2 => {
                script.push((at, Action::LibvirtGoes));
                at += milliseconds(random.below(9000));
                script.push((at, Action::LibvirtComes));
            }
            _ => {
                script.push((at, Action::WriterBegins));
                at += milliseconds(random.below(90_000));
                script.push((at, Action::WriterEnds));
            }
        }
    }
    script.sort_by_key(|(at, _)| *at);
    script.push((Duration::from_secs(9 * 3600), Action::Stop));
    script
}

/// Whether looks were held back, or libvirt was gone, at some time between; then the promise counts from the end of it.
fn held_back(script: &[(Duration, Action)], from: Duration, to: Duration) -> bool {
    let mut holds = false;
    for (at, action) in script {
        if *at > to {
            break;
        }
        match action {
            Action::LibvirtGoes | Action::WriterBegins => holds = true,
            Action::LibvirtComes | Action::WriterEnds => {
                if *at >= from {
                    return true;
                }
                holds = false;
            }
            _ => {}
        }
    }
    holds
}

/// Whether the guest stayed as it was for so long.
fn stays(script: &[(Duration, Action)], name: &str, from: Duration, to: Duration) -> bool {
    script.iter().filter(|(at, _)| *at > from && *at <= to).all(|(_, action)| match action {
        Action::Launch(other)
        | Action::Start(other)
        | Action::Destroy(other)
        | Action::Suspend(other)
        | Action::Save(other) => *other != name,
        Action::Spoil(other) | Action::Repair(other) => *other != name,
        _ => true,
    })
}

#[test]
fn a_night_without_drift_has_no_alarm_and_every_restart_is_looked_at_within_5_seconds() {
    let mut in_time = 0;
    for seed in 1..=60 {
        let script = night(seed, false);
        let mut night = Night::new(script.clone());
        assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Nothing), "seed {seed}");
        let alarm = night.told.iter().find(|told| told.differs);
        assert_eq!(alarm, None, "seed {seed}: a false alarm");
        assert!(night.figures.iter().all(|(_, known)| known.values().all(|differs| !differs)), "seed {seed}");
        for (at, name, _) in &night.starts {
            let limit = *at + PROMISE;
            if held_back(&script, *at, limit) || !stays(&script, name, *at, limit) {
                continue;
            }
            let seen = night.told.iter().any(|told| told.domain == *name && told.at > *at && told.at <= limit);
            assert!(seen, "seed {seed}: {name} started at {at:?} and was not told of by {limit:?}");
            in_time += 1;
        }
        // Every guest is looked at in every round, and not much more often than something happens.
        assert!(night.looks.len() > 4 * 32 && night.looks.len() < 4000, "seed {seed}: {} looks", night.looks.len());
    }
    assert!(in_time > 1000, "{in_time} starts tried");
}

#[test]
fn a_guest_that_restarts_with_spoilt_pins_is_in_the_figures_within_5_seconds() {
    let mut in_time = 0;
    for seed in 1..=60 {
        let script = night(seed, true);
        let mut night = Night::new(script.clone());
        keep(&mut night, PERIOD).unwrap();
        let lie = night.told.iter().find(|told| told.differs && !told.was);
        assert_eq!(lie, None, "seed {seed}: a false alarm");
        for (at, name, spoilt) in &night.starts {
            let limit = *at + PROMISE;
            if held_back(&script, *at, limit) || !stays(&script, name, *at, limit) || *at < Duration::from_secs(60) {
                continue;
            }
            let last = night.figures.iter().rev().find(|(written, _)| *written <= limit).unwrap();
            assert_eq!(
                last.1.get(*name),
                Some(spoilt),
                "seed {seed}: {name} started at {at:?}; figures of {:?}",
                last.0
            );
            in_time += usize::from(*spoilt);
        }
    }
    assert!(in_time > 200, "{in_time} spoilt starts tried");
}

#[test]
fn what_was_missed_while_libvirt_was_gone_is_found_when_it_is_back() {
    let script = vec![
        (milliseconds(1000), Action::Start("web1")),
        (milliseconds(60_000), Action::LibvirtGoes),
        (milliseconds(61_000), Action::Spoil("web1")),
        (milliseconds(70_000), Action::LibvirtComes),
        (milliseconds(80_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Differs));
    let told = night.told.iter().find(|told| told.differs).unwrap();
    assert!(told.domain == "web1" && told.at < milliseconds(70_000) + PROMISE, "{told:?}");
}

#[test]
fn nothing_is_looked_at_while_another_nearmetal_works_and_everything_afterwards() {
    let script = vec![
        (milliseconds(60_000), Action::WriterBegins),
        (milliseconds(61_000), Action::Start("web1")),
        (milliseconds(300_000), Action::WriterEnds),
        (milliseconds(310_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    keep(&mut night, PERIOD).unwrap();
    let between =
        |from, to| night.looks.iter().filter(|(at, _)| *at > milliseconds(from) && *at < milliseconds(to)).count();
    assert_eq!(between(60_000, 300_000), 0);
    assert!(between(300_000, 306_000) >= GUESTS.len(), "{:?}", night.looks);
}

#[test]
fn what_the_doctor_finds_while_another_nearmetal_works_is_not_written() {
    let script = vec![
        (milliseconds(50_000), Action::Examined),
        (milliseconds(60_000), Action::WriterBegins),
        (milliseconds(62_000), Action::Examined),
        (milliseconds(300_000), Action::WriterEnds),
        (milliseconds(320_000), Action::Examined),
        (milliseconds(330_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    keep(&mut night, PERIOD).unwrap();
    assert_eq!(night.examined, [milliseconds(50_000), milliseconds(320_000)]);
    let written = night.figures.iter().filter(|(at, _)| *at > milliseconds(60_000) && *at < milliseconds(300_000));
    assert_eq!(written.count(), 0, "{:?}", night.figures);
}

#[test]
fn a_guest_that_stays_paused_is_told_after_a_period() {
    let script = vec![
        (milliseconds(1000), Action::Start("web1")),
        (milliseconds(100_000), Action::Suspend("web1")),
        (milliseconds(4_000_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Differs));
    let told = night.told.iter().find(|told| told.differs).unwrap();
    assert!(told.at >= milliseconds(1_000_000) && told.at < milliseconds(1_000_000) + PROMISE, "{told:?}");
}

#[test]
fn a_storm_of_devices_makes_one_round_a_minute() {
    let storm = (0..6000).map(|count| (milliseconds(60_000 + count * 100), Action::Devices));
    let script: Vec<_> = storm.chain([(milliseconds(670_000), Action::Stop)]).collect();
    let mut night = Night::new(script);
    keep(&mut night, Duration::from_secs(86_400)).unwrap();
    let rounds = night.looks.iter().filter(|(_, name)| name == "web0").count();
    assert!((9..=14).contains(&rounds), "{rounds} rounds in ten minutes");
}

#[test]
fn half_of_the_guests_is_never_written_as_if_it_were_all() {
    let mut night = Night::new(vec![(milliseconds(900), Action::Start("web3")), (milliseconds(30_000), Action::Stop)]);
    keep(&mut night, PERIOD).unwrap();
    assert!(night.figures.iter().all(|(_, known)| known.len() == GUESTS.len()), "{:?}", night.figures);
    assert!(!night.figures.is_empty());
}

#[test]
fn a_save_and_a_restore_that_last_longer_than_the_period_are_no_drift() {
    let script = vec![
        (milliseconds(1000), Action::Start("web1")),
        (milliseconds(100_000), Action::Save("web1")),
        (milliseconds(4_000_000), Action::Destroy("web1")),
        (milliseconds(4_100_000), Action::Launch("web1")),
        (milliseconds(7_000_000), Action::Start("web1")),
        (milliseconds(7_100_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Nothing));
    assert_eq!(night.told.iter().find(|told| told.differs), None);
    assert!(night.told.iter().any(|told| told.domain == "web1" && told.at > milliseconds(7_000_000)));
}

#[test]
fn a_guest_whose_disk_failed_is_told_at_once() {
    let script = vec![
        (milliseconds(1000), Action::Start("web1")),
        (milliseconds(100_000), Action::DiskFails("web1")),
        (milliseconds(120_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Differs));
    let told = night.told.iter().find(|told| told.differs).unwrap();
    assert!(told.at < milliseconds(100_000) + PROMISE, "{told:?}");
}

#[test]
fn a_guest_that_is_tuned_while_it_is_paused_stays_paused_since_then() {
    let mut script =
        vec![(milliseconds(1000), Action::Start("web1")), (milliseconds(100_000), Action::Suspend("web1"))];
    script.extend((2..10).map(|count| (milliseconds(count * 100_000), Action::Tune("web1"))));
    script.push((milliseconds(1_100_000), Action::Stop));
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Differs));
    let told = night.told.iter().find(|told| told.differs).unwrap();
    assert!(told.at >= milliseconds(1_000_000) && told.at < milliseconds(1_000_000) + PROMISE, "{told:?}");
}

#[test]
fn what_each_look_sees_elsewhere_is_not_told_as_a_difference() {
    let script = vec![
        (milliseconds(60_000), Action::Flicker("web1")),
        (milliseconds(61_000), Action::Start("web1")),
        (milliseconds(70_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Nothing));
    assert_eq!(night.told.iter().find(|told| told.differs), None);
    assert!(
        night.told.iter().any(|told| told.domain == "web1" && told.at > milliseconds(61_000)),
        "it is told all the same"
    );
}

#[test]
fn what_a_nearmetal_does_that_begins_during_a_look_is_not_told() {
    // The first look is before the hook, the second while the other works.
    let script = vec![
        (milliseconds(60_000), Action::Start("web1")),
        (milliseconds(61_900), Action::WriterBegins),
        (milliseconds(61_950), Action::Spoil("web1")),
        (milliseconds(70_000), Action::Repair("web1")),
        (milliseconds(71_000), Action::WriterEnds),
        (milliseconds(90_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Nothing));
    assert_eq!(night.told.iter().find(|told| told.differs), None);
    assert!(
        night.looks.iter().any(|(at, _)| *at > milliseconds(61_950) && *at < milliseconds(62_200)),
        "{:?}",
        night.looks
    );
}

#[test]
fn nothing_is_looked_at_while_another_nearmetal_may_be_at_work_and_that_is_no_good_end() {
    let script = vec![(Duration::ZERO, Action::WriterUnknown), (milliseconds(100_000), Action::Stop)];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Unknown));
    assert_eq!((night.looks.len(), night.figures.len()), (0, 0));
}

#[test]
fn a_guest_that_was_left_alone_from_the_start_makes_no_good_end() {
    let script = vec![
        (Duration::ZERO, Action::Start("web1")),
        (Duration::ZERO, Action::Suspend("web1")),
        (milliseconds(30_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Unknown));
    assert!(night.looks.iter().all(|(_, name)| name != "web1") && !night.looks.is_empty(), "{:?}", night.looks);
    let mut quiet = Night::new(vec![(milliseconds(30_000), Action::Stop)]);
    assert_eq!(keep(&mut quiet, PERIOD), Ok(Ended::Nothing));
}

#[test]
fn an_end_before_everything_was_looked_at_is_no_good_end() {
    let mut night = Night::new(vec![(milliseconds(700), Action::Stop)]);
    assert_eq!(keep(&mut night, PERIOD), Ok(Ended::Unknown));
}

#[test]
fn the_agent_of_a_guest_that_is_tuned_after_its_start_is_asked_a_minute_later() {
    let script = vec![
        (milliseconds(100_000), Action::Start("web1")),
        (milliseconds(100_200), Action::Tune("web1")),
        (milliseconds(120_000), Action::Tune("web1")),
        (milliseconds(180_000), Action::Stop),
    ];
    let mut night = Night::new(script);
    keep(&mut night, PERIOD).unwrap();
    let asked: Vec<_> = night.patience.iter().filter(|(at, ..)| *at > milliseconds(100_000)).collect();
    let usual: Vec<_> = asked.iter().filter(|(.., patience)| *patience == Patience::Usual).collect();
    assert!(asked[0].0 < milliseconds(102_000) && asked[0].2 == Patience::JustStarted, "{asked:?}");
    assert!(usual.len() == 1 && usual[0].0 >= milliseconds(160_000), "{asked:?}");
}

#[test]
fn a_guest_that_is_tuned_all_the_time_is_looked_at_once_a_minute() {
    let storm = (0..600).map(|count| (milliseconds(100_000 + count * 1000), Action::Tune("web1")));
    let script = [(milliseconds(1000), Action::Start("web1"))].into_iter().chain(storm);
    let script: Vec<_> = script.chain([(milliseconds(800_000), Action::Stop)]).collect();
    let mut night = Night::new(script);
    keep(&mut night, Duration::from_secs(86_400)).unwrap();
    let at: Vec<_> = night.looks.iter().filter(|(at, name)| name == "web1" && *at >= milliseconds(100_000)).collect();
    assert!((9..=12).contains(&at.len()), "{at:?}");
    assert!(at[0].0 < milliseconds(100_000) + PROMISE, "the first is not put off: {at:?}");
}

#[test]
fn a_guest_that_restarts_all_the_time_does_not_keep_the_figures_of_the_others() {
    // Never long enough for a second look.
    let storm = (0..170).flat_map(|count| {
        let at = milliseconds(400 + count * 1200);
        [(at, Action::Start("web1")), (at + milliseconds(1190), Action::Destroy("web1"))]
    });
    let script: Vec<_> = storm.chain([(milliseconds(205_000), Action::Stop)]).collect();
    let mut night = Night::new(script);
    keep(&mut night, PERIOD).unwrap();
    let (first, figures) = &night.figures[0];
    assert!(*first < milliseconds(70_000), "{first:?}");
    assert!(["web0", "web2", "web3"].iter().all(|name| figures.contains_key(*name)), "{figures:?}");
}

#[test]
fn what_two_processes_of_a_guest_have_in_common_while_they_start_is_not_told() {
    // The first look finds one process before the hook, the second the next.
    let storm = (0..100).flat_map(|count| {
        let at = milliseconds(60_000 + count * 2000);
        [(at, Action::Start("web1")), (at + milliseconds(1990), Action::Destroy("web1"))]
    });
    let script: Vec<_> = storm.chain([(milliseconds(300_000), Action::Stop)]).collect();
    let mut night = Night::new(script);
    keep(&mut night, PERIOD).unwrap();
    assert_eq!(night.told.iter().find(|told| told.differs), None);
}

#[test]
fn guests_that_restart_faster_than_they_can_be_looked_at_do_not_keep_the_others_from_their_rounds() {
    // A slow host: before one look has ended, the other guest has restarted.
    let storm = (0..600).flat_map(|count| {
        let at = milliseconds(60_000 + count * 2000);
        ["web1", "web3"]
            .into_iter()
            .flat_map(move |name| [(at, Action::Start(name)), (at + milliseconds(1990), Action::Destroy(name))])
    });
    let mut script: Vec<_> = storm.chain([(milliseconds(1_200_000), Action::Stop)]).collect();
    script.sort_by_key(|(at, _)| *at);
    let mut night = Night::new(script);
    night.look = milliseconds(2500);
    let period = Duration::from_secs(120);
    keep(&mut night, period).unwrap();
    for name in ["web0", "web2"] {
        let at: Vec<_> = night.looks.iter().filter(|(_, looked)| looked == name).map(|(at, _)| *at).collect();
        let longest = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(longest < period + Duration::from_secs(60), "{name} was not looked at for {longest:?}: {at:?}");
        let last = at.last().unwrap();
        assert!(*last > milliseconds(1_000_000), "{name} was last looked at {last:?}");
    }
    let figures = night.figures.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
    assert!(figures < period + Duration::from_secs(60), "no figures for {figures:?}");
}

#[test]
fn events_that_come_faster_than_they_are_heard_do_not_keep_looks_from_coming() {
    let mut night = Night::new(vec![
        (milliseconds(1000), Action::Start("web1")),
        (milliseconds(70_000), Action::Start("web2")),
        (milliseconds(130_000), Action::Stop),
    ]);
    night.flood = milliseconds(60_000)..milliseconds(120_000);
    keep(&mut night, PERIOD).unwrap();
    let seen = |name: &str| night.told.iter().find(|told| told.domain == name && told.at > milliseconds(70_000));
    for name in ["web1", "web2"] {
        let told = seen(name).unwrap_or_else(|| panic!("{name} was not looked at"));
        assert!(told.at < milliseconds(70_000) + PROMISE, "{told:?}");
    }
}
