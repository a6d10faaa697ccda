//! The experiments as they are asked for, small.

use nearmetal_domain::DomainXml;
use nearmetal_load::{
    CommandJob, FioJob, JavaPages, JvmJob, MemoryJob, MemoryLatency, NetTest, OltpJob, Pattern, ProbePages, Scale,
    TileRole as Role, WebJob, WorkJob, Workload,
};
use nearmetal_place::{MemoryPlacement, Placement, VcpuPin};
use nearmetal_results::{NetPath, PLANNED, RoleLimits, TuneFactor};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};

use super::{LOADS, Machine, Sample};
use crate::conditions::Conditions;
use crate::decisions::DecisionsRequest;
use crate::drive::DriveRequest;
use crate::experiment::Experiment;
use crate::inside::InsideRequest;
use crate::matrix::MatrixRequest;
use crate::modes::{Mode, ModesRequest, NodePart};
use crate::net::NetMatrixRequest;
use crate::pages::PagesRequest;
use crate::pairing::Pairing;
use crate::slice::{SliceArm, SliceRequest};
use crate::stand::OnScratch;
use crate::tiles::{TileWay, TilesRequest};
use crate::together::{Member, Over, TogetherRequest};
use crate::tune::{TuneArm, TuneOn, TuneRequest};

const DEFINITION: &str = include_str!("../../../../fixtures/domains/hand-written-minimal.xml");

/// One of the experiments, and the domains it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Slice,
    /// With guests that stay up.
    SliceQuick,
    /// With a program of the loads image.
    SliceOfJava,
    /// With a web server of the loads image, whose files are on the device.
    SliceOfWeb,
    Decisions,
    /// With a database of the loads image, which is then offered parts of what bare metal did.
    Pages,
    Tune,
    /// The guest itself, which is shut down and started with each plan, and runs a command.
    TuneOfACommand,
    Inside,
    Drive,
    Modes,
    /// With a JVM on each node.
    ModesOfJava,
    /// With one JVM over all nodes.
    ModesOfOneJvm,
    TogetherOverScratch,
    TogetherOverDrives,
    DiskRace,
    /// Among files in a directory.
    DiskRaceOfFiles,
    TogetherOverABridge,
    TogetherOverFunctions,
    NetRace,
    /// Two tiles of a guest each, over a bridge and over functions.
    TilesBothWays,
    /// Two tiles of two guests each, over a bridge alone.
    TilesOverABridge,
}

impl Kind {
    pub(super) const ALL: [Self; 22] = [
        Self::Slice,
        Self::SliceQuick,
        Self::SliceOfJava,
        Self::SliceOfWeb,
        Self::Decisions,
        Self::Pages,
        Self::Tune,
        Self::TuneOfACommand,
        Self::Inside,
        Self::Drive,
        Self::Modes,
        Self::ModesOfJava,
        Self::ModesOfOneJvm,
        Self::TogetherOverScratch,
        Self::TogetherOverDrives,
        Self::DiskRace,
        Self::DiskRaceOfFiles,
        Self::TogetherOverABridge,
        Self::TogetherOverFunctions,
        Self::NetRace,
        Self::TilesBothWays,
        Self::TilesOverABridge,
    ];

    /// Whether guests are spread over nodes, and booted for their turn.
    pub(super) fn spreads(self) -> bool {
        matches!(self, Self::Modes | Self::ModesOfJava | Self::ModesOfOneJvm)
    }

    /// Whether arms race: what runs next then hangs on the figures.
    pub(super) fn races(self) -> bool {
        matches!(self, Self::DiskRace | Self::DiskRaceOfFiles | Self::NetRace)
    }

    /// Whether guests are the user's own, and nobody starts clones again.
    pub(super) fn is_the_users(self) -> bool {
        matches!(self, Self::Inside | Self::TuneOfACommand)
    }

    /// Whether anything runs on bare metal.
    pub(super) fn has_bare_metal(self) -> bool {
        self != Self::TuneOfACommand
    }

    /// Whether guests serve, and programs of the host ask them.
    pub(super) fn serves(self) -> bool {
        matches!(self, Self::TilesBothWays | Self::TilesOverABridge)
    }

    fn guests(self) -> &'static [&'static str] {
        match self {
            Self::TilesOverABridge => &["web1", "web2", "web3", "web4"],
            Self::TilesBothWays
            | Self::TogetherOverScratch
            | Self::TogetherOverDrives
            | Self::TogetherOverABridge
            | Self::TogetherOverFunctions => &["web1", "web2"],
            _ => &["web1"],
        }
    }

    /// A machine of its own, and the experiment there.
    pub(crate) fn set_up(self) -> (Machine, Experiment) {
        let defined = |guest: &&str| if self == Self::Inside { planned(guest) } else { found(guest) };
        let machine = Machine::with(&self.guests().iter().map(defined).collect::<Vec<_>>());
        if self.races() {
            machine.rates(racing);
        }
        let experiment = self.experiment(&machine);
        (machine, experiment)
    }

    /// The same, to go on with a measurement in the store.
    pub(super) fn experiment(self, machine: &Machine) -> Experiment {
        let conditions = machine.conditions();
        let guest = "web1".to_owned();
        let port = |way| Over::Port {
            way,
            test: NetTest::TcpRr,
            seconds: 3,
            port: "enp57s0".into(),
            peer: "192.0.2.1".parse().unwrap(),
            address: "192.0.2.10/24".into(),
        };
        let race = |scratch: String, without: &[&str]| {
            Experiment::Disk(Box::new(MatrixRequest {
                guest: "web1".to_owned(),
                placement: self::placement("web1"),
                xml: planned("web1"),
                scratch: vec![scratch],
                unsafe_allowed: false,
                without: without.iter().map(|word| (*word).to_owned()).collect(),
                job: job(50),
                files: None,
                budget: 1_000_000,
                error: 0.05,
                pairs: 2,
                conditions: conditions.clone(),
            }))
        };
        let (placement, xml_planned) = (placement("web1"), planned("web1"));
        let members = self.guests().iter().map(|guest| Member {
            guest: (*guest).to_owned(),
            placement: self::placement(guest),
            xml_planned: planned(guest),
        });
        let together = |over| {
            Experiment::Together(Box::new(TogetherRequest {
                members: members.clone().collect(),
                over,
                pairs: 2,
                same_arm_pairs: 1,
                resolve: None,
                scaling: true,
                least_overlap: 0.5,
                conditions: conditions.clone(),
            }))
        };
        match self {
            Self::Slice | Self::SliceQuick => Experiment::Slice(Box::new(SliceRequest {
                on: OnScratch { pairing: pairing(self == Self::SliceQuick, 50), ..on_scratch() },
                arms: SliceArm::ALL.to_vec(),
                conditions,
            })),
            Self::SliceOfJava => Experiment::Slice(Box::new(SliceRequest {
                on: OnScratch { pairing: Pairing { paired: vec![java().into()], ..pairing(true, 50) }, ..on_scratch() },
                arms: SliceArm::ALL.to_vec(),
                conditions: with_the_image(conditions),
            })),
            Self::SliceOfWeb => Experiment::Slice(Box::new(SliceRequest {
                on: OnScratch { pairing: Pairing { paired: vec![site().into()], ..pairing(true, 50) }, ..on_scratch() },
                arms: SliceArm::ALL.to_vec(),
                conditions: with_the_image(conditions),
            })),
            Self::Decisions => Experiment::Decisions(Box::new(DecisionsRequest { on: on_scratch(), conditions })),
            Self::Pages => Experiment::Pages(Box::new(PagesRequest {
                on: OnScratch {
                    pairing: Pairing { paired: vec![database().into()], ..pairing(true, 50) },
                    ..in_huge_pages()
                },
                conditions: with_the_image(conditions),
            })),
            Self::Tune => Experiment::Tune(Box::new(tune(conditions, &[PLANNED, "node.huge.rule.iothread"], 1))),
            Self::TuneOfACommand => {
                let request = tune(conditions, &[PLANNED, "node.huge.rule.iothread"], 1);
                Experiment::Tune(Box::new(TuneRequest { on: itself(), ..request }))
            }
            Self::Inside => Experiment::Inside(Box::new(InsideRequest {
                guest,
                placement,
                pairing: pairing(true, 100),
                conditions,
            })),
            Self::Drive => Experiment::Drive(Box::new(DriveRequest {
                guest,
                placement,
                xml_planned,
                function: function(0),
                namespace: None,
                pairing: pairing(true, 50),
                conditions,
            })),
            Self::Modes | Self::ModesOfJava | Self::ModesOfOneJvm => Experiment::Modes(Box::new(ModesRequest {
                guest,
                xml: found("web1"),
                memory: Bytes::from_mib(384),
                parts: [0, 2].map(part).to_vec(),
                counts: vec![1, 2],
                modes: Mode::WITH_GUESTS.to_vec(),
                workload: match self {
                    Self::Modes => WorkJob { threads: 1, each: Bytes::from_mib(16), seconds: 3 }.into(),
                    _ => java().into(),
                },
                single: self == Self::ModesOfOneJvm,
                pairs: 2,
                same_arm_pairs: 1,
                least_overlap: 0.5,
                quick: true,
                conditions: if self == Self::Modes { conditions } else { with_the_image(conditions) },
            })),
            Self::TogetherOverScratch => {
                together(Over::Scratch { job: job(50), devices: vec!["/dev/nvme8n1".into(), "/dev/nvme9n1".into()] })
            }
            Self::TogetherOverDrives => {
                together(Over::Drives { job: job(50), functions: vec![function(0), function(1)], namespace: None })
            }
            Self::TogetherOverABridge => together(port(NetPath::of_several(2)[0])),
            Self::TogetherOverFunctions => together(port(*NetPath::of_several(2).last().unwrap())),
            Self::NetRace => Experiment::Net(Box::new(NetMatrixRequest {
                guest,
                placement,
                xml: xml_planned,
                port: "enp57s0".into(),
                peer: "192.0.2.1".parse().unwrap(),
                address: "192.0.2.10/24".into(),
                tests: vec![NetTest::TcpRr, NetTest::TcpStream],
                seconds: 3,
                without: ["no-offloads", "multiqueue"].map(str::to_owned).to_vec(),
                budget: 1_000_000,
                error: 0.05,
                pairs: 2,
                conditions,
                race: true,
            })),
            Self::TilesBothWays | Self::TilesOverABridge => Experiment::Tiles(Box::new(TilesRequest {
                roles: if self == Self::TilesBothWays { vec![Role::Web] } else { vec![Role::Web, Role::Idle] },
                members: members.collect(),
                ways: TileWay::ALL.into_iter().take(if self == Self::TilesBothWays { 2 } else { 1 }).collect(),
                port: "enp57s0".into(),
                scale: Scale::try_from(0.01).unwrap(),
                seconds: 3,
                ramp: 1,
                samples: if self == Self::TilesBothWays { 3 } else { 5 },
                limits: RoleLimits::usual(),
                least_overlap: 0.5,
                conditions: with_the_image(conditions),
            })),
            Self::DiskRace => race("/dev/nvme8n1".into(), &FEW),
            Self::DiskRaceOfFiles => {
                let files = ["qcow2-metadata", "qcow2-falloc", "qcow2-snapshot", "discard"];
                race(machine.scratch_directory(), &[&FEW[..], &files[..]].concat())
            }
        }
    }
}

/// web1 with these plans, whose definitions are alike.
pub(super) fn tune(conditions: Conditions, plans: &[&str], looks: u32) -> TuneRequest {
    let arm = |(place, id): (usize, &&str)| TuneArm {
        id: (*id).to_owned(),
        title: (*id).to_owned(),
        description: "test".to_owned(),
        xml: planned("web1"),
        levels: Some(vec![place == 1]).filter(|_| place < 2),
    };
    TuneRequest {
        on: TuneOn::Scratch(on_scratch()),
        factors: vec![TuneFactor { id: "pins".into(), levels: ["a PU each".into(), "the node's PUs".into()] }],
        alone: Vec::new(),
        arms: plans.iter().enumerate().map(arm).collect(),
        left_out: Vec::new(),
        budget: 1_000_000,
        error: 0.05,
        looks,
        conditions,
    }
}

/// web1 itself, under a command.
pub(super) fn itself() -> TuneOn {
    TuneOn::Itself {
        guest: "web1".to_owned(),
        placement: placement("web1"),
        xml_found: found("web1"),
        command: CommandJob { command: "make".to_owned(), limit: 60 },
        rounds: 4,
        quick: true,
    }
}

/// Words without which a race has about ten arms.
const FEW: [&str; 9] = [
    "writeback",
    "writethrough",
    "directsync",
    "threads",
    "main-loop",
    "2-iothreads",
    "virtio-scsi",
    "q1",
    "sectors-4096",
];

/// The third disk of a guest that has several is twice as fast as the others, and all scatter by their seed.
fn racing(sample: &Sample) -> u32 {
    let word = |prefix: &str| sample.words.split(' ').find_map(|word| word.strip_prefix(prefix)).unwrap_or_default();
    let seed: u32 = word("--randseed=").parse().unwrap_or_default();
    let alone = sample.guest.as_ref().is_some_and(|guest| guest.ends_with("-winner"));
    let fast = word("--filename=") == "/dev/vdc" || alone || sample.card.ends_with(":01");
    let rate = if fast { 2000 } else { 1000 };
    rate + seed % 7 * rate / 100 + (seed / 7 + word("--filename=").len() as u32) % 5 * rate / 200
}

/// web1, on a device of its own.
pub(crate) fn on_scratch() -> OnScratch {
    OnScratch {
        guest: "web1".to_owned(),
        placement: placement("web1"),
        xml_found: found("web1"),
        xml_planned: planned("web1"),
        scratch: "/dev/nvme8n1".into(),
        pairing: pairing(true, 50),
    }
}

/// The same, planned in huge pages.
pub(crate) fn in_huge_pages() -> OnScratch {
    let on = on_scratch();
    let mut xml = DomainXml::parse(&on.xml_planned).unwrap();
    xml.set_hugepages(PageSize::HUGE_2M).unwrap();
    xml.set_numatune_strict(&"0".parse().unwrap()).unwrap();
    OnScratch { xml_planned: xml.as_str().to_owned(), ..on }
}

fn database() -> OltpJob {
    OltpJob { prepare: 0, ramp: 0, seconds: 1, ..OltpJob::small() }
}

fn site() -> WebJob {
    WebJob { prepare: 0, ramp: 0, seconds: 1, ..WebJob::small() }
}

/// A part of one vCPU; the machine has one node.
fn part(first: u32) -> NodePart {
    NodePart { node: 0, cpus: CpuSet::one(first), beside: CpuSet::one(first + 1) }
}

fn function(number: usize) -> PciAddress {
    ["0000:51:00.0", "0000:52:00.0"][number].parse().unwrap()
}

fn job(read_percent: u8) -> FioJob {
    let span = Some(Bytes::from_mib(128));
    FioJob { read_percent, span, ..FioJob::first_seed(Bytes::from_kib(4), 3, 1) }
}

/// Two warehouses on pages as they come.
fn java() -> JvmJob {
    JvmJob {
        warehouses: 2,
        items: 100,
        heap: Bytes::from_mib(64),
        warm_up: 2,
        seconds: 3,
        pages: JavaPages::OfTheMachine,
        numa: false,
        emulated: false,
    }
}

fn with_the_image(conditions: Conditions) -> Conditions {
    Conditions { loads: Some(LOADS.into()), ..conditions }
}

fn pairing(quick: bool, read_percent: u8) -> Pairing {
    let memory = MemoryJob { size: Bytes::from_mib(64), pages: ProbePages::Small, pattern: Pattern::Page };
    Pairing {
        paired: vec![job(read_percent).into()],
        rounds: 3,
        resolve: None,
        same_arm_pairs: 1,
        single_shot: vec![],
        memory: vec![Workload::from(MemoryLatency(memory))],
        quick,
        accesses: true,
        reasons: true,
    }
}

/// web1 has PUs 0 and 1, web2 has 4 and 5, and so on.
fn placement(guest: &str) -> Placement {
    let first = 4 * u32::from(guest.as_bytes()[3] - b'1');
    let pin = |vcpu: u32| VcpuPin { vcpu, cpus: CpuSet::one(first + vcpu) };
    Placement {
        guest: guest.to_owned(),
        uuid: String::new(),
        vcpus: vec![pin(0), pin(1)],
        emulator: CpuSet::one(first + 2),
        iothreads: Vec::new(),
        memory: MemoryPlacement { nodes: "0".parse().unwrap(), page_size: Some(PageSize::HUGE_2M), pages: 256 },
        disks: Vec::new(),
        networks: Vec::new(),
        cells: Vec::new(),
        devices: Vec::new(),
        vhost: Vec::new(),
        interrupts: CpuSet::new(),
        threads_per_core: None,
        guest_polls: None,
        reasons: Vec::new(),
    }
}

fn found(guest: &str) -> String {
    let mut xml = DomainXml::parse(DEFINITION).unwrap();
    xml.set_name(guest).unwrap();
    xml.set_uuid(&format!("11111111-1111-4111-8111-0000000000{:02}", guest.len() + guest.as_bytes()[3] as usize))
        .unwrap();
    xml.as_str().replace("/dev/nvme0n1", "/dev/sda")
}

fn planned(guest: &str) -> String {
    let placement = placement(guest);
    let mut xml = DomainXml::parse(&found(guest)).unwrap();
    let pins: Vec<(u32, CpuSet)> = placement.vcpus.iter().map(|pin| (pin.vcpu, pin.cpus.clone())).collect();
    xml.set_vcpu_pins(&pins).unwrap();
    xml.set_emulator_pin(&placement.emulator).unwrap();
    xml.as_str().to_owned()
}
