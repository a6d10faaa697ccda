//! What a definition asks of the kernel's scheduler, beside what the kernel does: policy, priority and nice value of each
//! thread of a guest, weight and quota of each control group its threads are in.
//!
//! The doctor's rules and the read-back of a plan share this: they must never disagree. Pure.

use nearmetal_domain::{DomainFacts, SchedulerFacts};
use nearmetal_host::{CpuQuota, CpuTimeGroup, GuestProcess, Scheduling, SchedulingPolicy, Thread, ThreadRole};

use crate::finding::{Object, Outcome};

/// One thread or one group: what is asked for, and what is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// `vCPU 0 (thread 4712)`, `weight of control group vcpu0`, ….
    pub what: String,
    /// What the definition asks for, defaults included.
    pub wanted: String,
    /// What the kernel shows; `None` where it could not be read.
    pub found: Option<String>,
    /// Whether the two are alike; false where nothing could be read.
    pub fits: bool,
    /// Where the kernel shows it.
    pub place: String,
}

/// Policy, priority and nice value of every thread.
///
/// Threads of which a definition says nothing (vhost workers, workers of the block layer, of io_uring and of KVM) take
/// the policy of the thread that makes them, so that one that any thread of the guest is asked to have is right for them.
pub fn of_threads(facts: &DomainFacts, process: &GuestProcess) -> Vec<Scheduled> {
    let one = |thread: &Thread| {
        let (name, asked) = match thread.role {
            ThreadRole::Vcpu(number) => (format!("vCPU {number}"), asked(facts, "vcpu", number)),
            ThreadRole::Iothread(number) => (format!("iothread {number}"), asked(facts, "iothread", number)),
            ThreadRole::Emulator => ("emulator".to_owned(), asked(facts, "emulator", 0)),
            ThreadRole::Vhost => (format!("vhost worker `{}`", thread.name), inherited(facts)),
            ThreadRole::Worker | ThreadRole::Other => (format!("helper `{}`", thread.name), inherited(facts)),
        };
        Scheduled {
            what: format!("{name} (thread {})", thread.id),
            wanted: asked.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "),
            found: thread.scheduling.map(|found| found.to_string()),
            fits: thread.scheduling.is_some_and(|found| asked.iter().any(|asked| alike(*asked, found))),
            place: format!("/proc/{}/stat", thread.id),
        }
    };
    process.threads.iter().map(one).collect()
}

fn asked(facts: &DomainFacts, threads: &str, number: u32) -> Vec<Scheduling> {
    vec![facts.scheduling.scheduler(threads, number).map_or(Scheduling::DEFAULT, as_scheduling)]
}

fn inherited(facts: &DomainFacts) -> Vec<Scheduling> {
    let mut all = vec![Scheduling::DEFAULT];
    for asked in facts.scheduling.schedulers.iter().map(as_scheduling) {
        if !all.contains(&asked) {
            all.push(asked);
        }
    }
    all
}

/// libvirt's words (virDomainSchedulerParse): batch, idle, fifo, rr.
fn as_scheduling(entry: &SchedulerFacts) -> Scheduling {
    let policy = match entry.scheduler.as_str() {
        "batch" => SchedulingPolicy::Batch,
        "idle" => SchedulingPolicy::Idle,
        "fifo" => SchedulingPolicy::Fifo,
        "rr" => SchedulingPolicy::RoundRobin,
        _ => SchedulingPolicy::Other,
    };
    Scheduling { policy, priority: entry.priority.filter(|_| entry.is_real_time()).unwrap_or(0), nice: 0 }
}

/// Nice means nothing to a real-time thread, nor to one of SCHED_IDLE.
fn alike(asked: Scheduling, found: Scheduling) -> bool {
    let nice_counts = matches!(found.policy, SchedulingPolicy::Other | SchedulingPolicy::Batch);
    asked.policy == found.policy && asked.priority == found.priority && (!nice_counts || asked.nice == found.nice)
}

/// What a control group is to libvirt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Above the guest: the host's, which no definition speaks of.
    Above,
    /// The guest's own: a scope, with systemd's group for libvirt in it, or libvirt's alone.
    Guest,
    /// libvirt's group in systemd's scope.
    Nested,
    Vcpu,
    Emulator,
    Iothread,
}

/// Weight and quota of every group the guest's threads are in, and the quotas of those above.
///
/// A weight above the guest shares between guests and the rest of the host, which is the host's own business; a quota
/// there holds the guest back as its own would.
pub fn of_groups(facts: &DomainFacts, process: &GuestProcess) -> Vec<Scheduled> {
    let mut all = Vec::new();
    for group in &process.time_groups {
        let kind = kind(&group.path);
        let name = group.path.rsplit('/').next().unwrap_or_default();
        if kind != Kind::Above {
            let default = if group.version == 1 { 1024 } else { 100 };
            let wanted = facts.scheduling.shares.filter(|_| kind == Kind::Guest).unwrap_or(default);
            all.push(Scheduled {
                what: format!("weight of control group `{name}`"),
                wanted: wanted.to_string(),
                found: group.weight.map(|weight| weight.to_string()),
                fits: group.weight == Some(wanted),
                place: format!("{}/{}", directory(group), if group.version == 1 { "cpu.shares" } else { "cpu.weight" }),
            });
        }
        let asked = match kind {
            Kind::Above => None,
            Kind::Guest | Kind::Nested => facts.scheduling.quota("global_"),
            Kind::Vcpu => facts.scheduling.quota(""),
            Kind::Emulator => facts.scheduling.quota("emulator_"),
            Kind::Iothread => facts.scheduling.quota("iothread_"),
        };
        let wanted = asked.map_or(CpuQuota::Unlimited, |(quota, period)| CpuQuota::Limited { quota, period });
        // Which of a guest's two groups has the limit of the whole guest depends on the version of libvirt.
        let either = matches!(kind, Kind::Guest | Kind::Nested) && group.quota == Some(CpuQuota::Unlimited);
        all.push(Scheduled {
            what: format!("quota of control group `{name}`"),
            wanted: wanted.to_string(),
            found: group.quota.map(|quota| quota.to_string()),
            fits: group.quota == Some(wanted) || either,
            place: format!("{}/{}", directory(group), if group.version == 1 { "cpu.cfs_quota_us" } else { "cpu.max" }),
        });
    }
    all
}

/// The answer of a rule: what does not fit is an object, what could not be read is missing.
pub(crate) fn outcome(all: Vec<Scheduled>) -> Outcome {
    let mut missing: Vec<String> =
        all.iter().filter(|state| state.found.is_none()).map(|state| state.place.clone()).collect();
    missing.dedup();
    if all.is_empty() {
        return Outcome::unknown("control groups of the guest with the CPU controller");
    }
    let odd = all.into_iter().filter(|state| !state.fits);
    let objects: Vec<Object> =
        odd.filter_map(|state| Some(Object::new(state.what, state.found?, state.wanted))).collect();
    if objects.is_empty() && !missing.is_empty() { Outcome::CannotTell(missing) } else { Outcome::of(objects) }
}

fn directory(group: &CpuTimeGroup) -> String {
    let root = if group.version == 1 { "/sys/fs/cgroup/cpu" } else { "/sys/fs/cgroup" };
    format!("{root}{}", group.path)
}

/// By the names libvirt gives (virCgroupNewMachine, virCgroupNewThread): with systemd
/// `machine-qemu….scope/libvirt/vcpu0`, without it `qemu-1-web1.libvirt-qemu/vcpu0`.
fn kind(path: &str) -> Kind {
    let mut names = path.rsplit('/');
    let (own, parent) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let is_guest =
        |name: &str| name.ends_with(".libvirt-qemu") || name.starts_with("machine-qemu") && name.ends_with(".scope");
    if is_guest(own) {
        return Kind::Guest;
    }
    if own == "libvirt" && is_guest(parent) {
        return Kind::Nested;
    }
    if parent != "libvirt" && !is_guest(parent) {
        return Kind::Above;
    }
    let numbered = |prefix: &str| own.strip_prefix(prefix).is_some_and(|number| number.parse::<u32>().is_ok());
    match own {
        "emulator" => Kind::Emulator,
        _ if numbered("vcpu") => Kind::Vcpu,
        _ if numbered("iothread") => Kind::Iothread,
        _ => Kind::Above,
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_domain::DomainXml;

    use super::*;

    fn facts(tune: &str) -> DomainFacts {
        let text = format!(
            "<domain type='kvm'><name>a</name><memory>1024</memory><vcpu>2</vcpu><cputune>{tune}</cputune></domain>"
        );
        DomainXml::parse(&text).unwrap().facts().unwrap()
    }

    fn process(role: ThreadRole, policy: SchedulingPolicy, priority: u32, nice: i32) -> GuestProcess {
        let scheduling = Some(Scheduling { policy, priority, nice });
        let thread = Thread { id: 7, name: "x".to_owned(), role, affinity: None, scheduling };
        GuestProcess { threads: vec![thread], ..GuestProcess::default() }
    }

    #[test]
    fn a_thread_has_what_its_definition_asks_for_or_the_default() {
        use SchedulingPolicy::{Batch, Fifo, Idle, Other};
        let fifo = "<vcpusched vcpus='0' scheduler='fifo' priority='1'/><emulatorsched scheduler='batch'/>";
        let table = [
            ("", ThreadRole::Vcpu(0), Other, 0, 0, true),
            ("", ThreadRole::Vcpu(0), Idle, 0, 0, false),
            ("", ThreadRole::Vcpu(0), Other, 0, 5, false),
            ("", ThreadRole::Vhost, Other, 0, -5, false),
            (fifo, ThreadRole::Vcpu(0), Fifo, 1, 0, true),
            (fifo, ThreadRole::Vcpu(0), Fifo, 1, 7, true),
            (fifo, ThreadRole::Vcpu(0), Fifo, 2, 0, false),
            (fifo, ThreadRole::Vcpu(0), Other, 0, 0, false),
            (fifo, ThreadRole::Vcpu(1), Other, 0, 0, true),
            (fifo, ThreadRole::Emulator, Batch, 0, 0, true),
            (fifo, ThreadRole::Emulator, Other, 0, 0, false),
            (fifo, ThreadRole::Other, Batch, 0, 0, true),
            (fifo, ThreadRole::Other, Idle, 0, 0, false),
        ];
        for (tune, role, policy, priority, nice, fits) in table {
            let found = of_threads(&facts(tune), &process(role.clone(), policy, priority, nice));
            assert_eq!(found[0].fits, fits, "{role:?}: {found:?}");
        }
        let mut unread = process(ThreadRole::Vcpu(0), Other, 0, 0);
        unread.threads[0].scheduling = None;
        let found = of_threads(&facts(""), &unread);
        assert_eq!((found[0].found.as_deref(), found[0].fits), (None, false));
    }

    #[test]
    fn groups_are_known_by_libvirts_names() {
        for (path, expected) in [
            ("/machine.slice", Kind::Above),
            (r"/machine.slice/machine-qemu\x2d1\x2da.scope", Kind::Guest),
            (r"/machine.slice/machine-qemu\x2d1\x2da.scope/libvirt", Kind::Nested),
            (r"/machine.slice/machine-qemu\x2d1\x2da.scope/libvirt/vcpu12", Kind::Vcpu),
            ("/machine/qemu-1-a.libvirt-qemu", Kind::Guest),
            ("/machine/qemu-1-a.libvirt-qemu/emulator", Kind::Emulator),
            ("/machine/qemu-1-a.libvirt-qemu/iothread1", Kind::Iothread),
            ("/user.slice/vcpu0", Kind::Above),
            ("/machine/qemu-1-a.libvirt-qemu/vcpux", Kind::Above),
        ] {
            assert_eq!(kind(path), expected, "{path}");
        }
    }

    #[test]
    fn weights_and_quotas_are_those_of_the_definition() {
        let group = |path: &str, weight, quota| CpuTimeGroup {
            path: path.to_owned(),
            version: 2,
            threads: vec![],
            weight,
            quota,
        };
        let own = "/machine/qemu-1-a.libvirt-qemu";
        let half = CpuQuota::Limited { quota: 50_000, period: 100_000 };
        let wrong = |tune: &str, group: CpuTimeGroup| -> Vec<String> {
            let process = GuestProcess { time_groups: vec![group], ..GuestProcess::default() };
            let odd = of_groups(&facts(tune), &process).into_iter().filter(|state| !state.fits);
            odd.map(|state| format!("{}: {:?}, wanted {}", state.what, state.found, state.wanted)).collect()
        };
        let free = Some(CpuQuota::Unlimited);
        assert_eq!(wrong("", group(own, Some(100), free)), [""; 0]);
        assert_eq!(wrong("<shares>512</shares>", group(own, Some(512), free)), [""; 0]);
        let expected = "weight of control group `qemu-1-a.libvirt-qemu`: Some(\"1\"), wanted 100";
        assert_eq!(wrong("", group(own, Some(1), free)), [expected]);
        let vcpu = format!("{own}/vcpu0");
        let expected = "quota of control group `vcpu0`: Some(\"50000 of each 100000 µs\"), wanted no quota";
        assert_eq!(wrong("", group(&vcpu, Some(100), Some(half))), [expected]);
        assert_eq!(wrong("<quota>50000</quota>", group(&vcpu, Some(100), Some(half))), [""; 0]);
        assert_eq!(wrong("<quota>50000</quota>", group(&vcpu, Some(100), free)).len(), 1);
        assert_eq!(wrong("<quota>50000</quota><period>20000</period>", group(&vcpu, Some(100), Some(half))).len(), 1);
        // Shares are the whole guest's; a slice above may weigh what it likes, and may not throttle.
        assert_eq!(wrong("<shares>512</shares>", group(&vcpu, Some(100), free)), [""; 0]);
        assert_eq!(wrong("", group("/machine", Some(7), free)), [""; 0]);
        assert_eq!(wrong("", group("/machine", Some(100), Some(half))).len(), 1);
        assert_eq!(wrong("", group(&vcpu, None, None)).len(), 2);
    }
}
