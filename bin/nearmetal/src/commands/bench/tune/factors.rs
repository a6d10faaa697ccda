//! What a plan can decide in two ways, and why it cannot here.

use nearmetal_domain::DomainFacts;
use nearmetal_host::Host;
use nearmetal_place::{
    Choices, DiskEngine, GuestRequest, HelperOn, InterfaceQueues, Pins, Polling, Siblings, WorkloadClass,
    no_shared_queues,
};
use nearmetal_results::LeftOut;

use crate::job::tuned::QUEUES;

/// One factor.
pub(super) struct Factor {
    /// Its word, as `--without` takes it.
    pub(super) id: &'static str,
    /// What it decides.
    pub(super) about: &'static str,
    /// The rules' level and the other one, for people, or why there is but one here.
    pub(super) levels: fn(&Situation<'_>) -> Result<[String; 2], String>,
    /// How choices are turned to the other level.
    pub(super) turn: Turn,
    /// Subject of the planner's reason for not doing what the other level asks for, if it gives one.
    pub(super) subject: Option<&'static str>,
    /// Whether its other level takes the rules' level of another factor: then no fraction can cross it, and it races alone.
    pub(super) is_nested: bool,
}

/// Turns choices to a factor's other level.
pub(super) type Turn = fn(Choices, &Situation<'_>) -> Choices;

/// What decides whether a factor has two levels.
pub(super) struct Situation<'a> {
    pub(super) host: &'a Host,
    /// The choices of the plan by rule.
    pub(super) by_rule: Choices,
    /// The engine beside that of the rules.
    pub(super) other: Option<DiskEngine>,
    /// Whether the plan by rule has cells: those that the definition shows.
    pub(super) has_cells: bool,
    /// What is asked of the planner.
    pub(super) request: &'a GuestRequest,
    /// The definition by rule.
    pub(super) facts: &'a DomainFacts,
    /// Whether the VM itself runs a command, over its own interfaces.
    pub(super) is_itself: bool,
}

impl Situation<'_> {
    /// The most queues that an interface has by rule, of those that vhost-net carries.
    fn queues(&self) -> u32 {
        let by_vhost = self.facts.interfaces.iter().filter(|own| own.is_virtio_tap());
        let by_vhost = by_vhost.filter(|own| own.driver_name.as_deref() != Some("qemu"));
        by_vhost.filter_map(|own| own.queues).max().unwrap_or(1)
    }

    /// Whether the definition tells the guest that its PUs are its own.
    fn guest_polls(&self) -> bool {
        self.facts.features.kvm_state("hint-dedicated") == Some("on")
    }
}

/// How many factors there are.
pub(super) const ALL: usize = 11;

/// All factors. Where the time is short the first four make the fraction.
pub(super) const FACTORS: [Factor; ALL] = [
    Factor {
        id: "pages",
        about: "huge pages of a pool, or the kernel's own",
        levels: |here| match here.by_rule.huge {
            true => two("huge", "small"),
            false => Err("the rules plan no huge pages here: no node has a pool of 2 MiB pages with room".to_owned()),
        },
        turn: |choices, _| Choices { huge: false, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "pins",
        about: "a PU for each vCPU, the PUs of its node for all, or floating",
        levels: |_| two("a PU each", "the node's PUs"),
        turn: |choices, _| Choices { pins: Pins::Node, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "engine",
        about: "io_uring, Linux AIO or threads, with cache none",
        levels: |here| match here.by_rule.engine.zip(here.other) {
            Some((rule, other)) => two(rule.name(), other.name()),
            None => Err(format!(
                "one engine is left: io_uring_disabled is {}",
                here.host.system.io_uring_disabled.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
            )),
        },
        turn: |choices, here| Choices { engine: here.other, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "iothread",
        about: "an iothread with a PU of its own, or QEMU's main loop",
        levels: |here| match here.by_rule.iothread {
            true => two("iothread", "main loop"),
            false => Err("the rules plan none here".to_owned()),
        },
        turn: |choices, _| Choices { iothread: false, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "emulator",
        about: "a PU for QEMU's other threads, or all free PUs of its node",
        levels: |_| two("a PU", "the node's free PUs"),
        turn: |choices, _| Choices { emulator: HelperOn::Node, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "smt",
        about: "vCPUs on all PUs of a core, or a core for each",
        levels: |here| match here.host.cores.iter().any(|core| core.cpus.intersection(&here.host.online()).len() > 1) {
            true => two("siblings used", "a core each"),
            false => Err("each core of this machine has one PU: it takes one with SMT".to_owned()),
        },
        turn: |choices, _| Choices { siblings: Siblings::Spare, ..choices },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "cells",
        about: "the VM sees the nodes that it lies on, with a socket for each, or one node",
        levels: |here| match here.has_cells {
            true => Err("its definition shows it cells, which the plan by rule deals to its nodes".to_owned()),
            false => two("not shown", "cells"),
        },
        turn: |choices, _| Choices { cells: true, ..choices },
        subject: Some("guest cells"),
        is_nested: false,
    },
    Factor {
        id: QUEUES,
        about: "queues of the VM's interfaces: one for each vCPU, or one in all",
        levels: network,
        turn: |choices, here| Choices {
            interface_queues: if here.queues() > 1 { InterfaceQueues::One } else { InterfaceQueues::EachVcpu },
            ..choices
        },
        subject: None,
        is_nested: false,
    },
    Factor {
        id: "iothread-pu",
        about: "the iothread on a PU of its own, or on all free PUs of its node",
        levels: |here| match here.by_rule.iothread {
            true => two("a PU", "the node's free PUs"),
            false => Err("the rules plan no iothread here".to_owned()),
        },
        turn: |choices, _| Choices { iothread_on: HelperOn::Node, ..choices },
        subject: None,
        is_nested: true,
    },
    Factor {
        id: "iothreads",
        about: "one iothread, or two that take the disk's queues in turns",
        levels: iothreads,
        turn: |choices, _| Choices { two_iothreads: true, ..choices },
        subject: Some("further iothreads"),
        is_nested: true,
    },
    Factor {
        id: "polling",
        about: "who polls before a vCPU sleeps: the host, or the guest itself",
        levels: polling,
        turn: |choices, here| Choices {
            polling: if here.guest_polls() { Polling::Host } else { Polling::Guest },
            ..choices
        },
        subject: Some("halt polling"),
        is_nested: true,
    },
];

fn network(here: &Situation<'_>) -> Result<[String; 2], String> {
    match (here.is_itself, here.request.networks.iter().any(|own| own.uses_vhost)) {
        (false, _) => Err("the load works on the disk; `bench net race` measures ways to the network".to_owned()),
        (true, false) => Err("it has no interface that vhost-net carries".to_owned()),
        (true, true) if here.request.vcpus < 2 => Err("it has one vCPU, so an interface has one queue".to_owned()),
        (true, true) if here.queues() > 1 => two(&format!("{} queues", here.queues()), "one queue"),
        (true, true) => two("one queue", "a queue for each vCPU"),
    }
}

fn iothreads(here: &Situation<'_>) -> Result<[String; 2], String> {
    if !here.by_rule.iothread {
        return Err("the rules plan no iothread here".to_owned());
    }
    if here.request.vcpus < 2 {
        return Err("it has one vCPU, so its disk has one queue".to_owned());
    }
    match no_shared_queues(&here.host.system) {
        Some(why) => Err(why),
        None => two("one", "two share the queues"),
    }
}

fn polling(here: &Situation<'_>) -> Result<[String; 2], String> {
    let is_x86 = matches!(here.facts.boot.architecture.as_deref(), None | Some("x86_64" | "i686"));
    if here.facts.kind != "kvm" || !is_x86 {
        return Err("only KVM on x86 lets a guest poll for the host".to_owned());
    }
    if here.request.class == WorkloadClass::Windows {
        return Err("Windows does not poll so".to_owned());
    }
    match here.guest_polls() {
        true if here.request.class == WorkloadClass::Latency => {
            Err("the rules tell a guest of the class latency that its PUs are its own (hint-dedicated)".to_owned())
        }
        true => two("the guest", "the host"),
        false => two("the host", "the guest"),
    }
}

fn two(rule: &str, other: &str) -> Result<[String; 2], String> {
    Ok([rule.to_owned(), other.to_owned()])
}

/// The disk that is measured: the first writable virtio disk.
pub(super) fn disk_of(request: &GuestRequest) -> Option<String> {
    let disk = request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only);
    disk.map(|disk| disk.target.clone())
}

/// Engines that the kernel lets QEMU use, best first by rule.
pub(super) fn engines(host: &Host, request: &GuestRequest) -> Vec<DiskEngine> {
    let mut engines = Vec::new();
    if host.system.io_uring_disabled.is_none_or(|value| value == 0) {
        engines.push(DiskEngine::IoUring);
    }
    let is_block =
        request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only).is_some_and(|disk| disk.is_block);
    // On a file that is not allocated yet, Linux AIO blocks: correctness of its speed is no matter of taste there.
    if is_block {
        engines.push(DiskEngine::Native);
    }
    engines.push(DiskEngine::Threads);
    engines
}

pub(super) fn other_engine(host: &Host, request: &GuestRequest, rule: DiskEngine) -> Option<DiskEngine> {
    engines(host, request).into_iter().find(|engine| *engine != rule)
}

/// What a plan could decide and no tune measures yet.
pub(super) fn standing_left_out() -> Vec<LeftOut> {
    let one = |what: &str, why: &str| LeftOut { what: what.to_owned(), why: why.to_owned() };
    vec![
        one(
            "cache modes other than none",
            "the rules decide: a second copy in the host's memory; `bench disk race` measures them",
        ),
        one("how long the host polls (halt_poll_ns)", "a setting of the whole host, which no plan of one VM makes"),
    ]
}
