//! The slice of a run: what it was given, without what other runs have, as the planner deals it.

use nearmetal_host::Host;
use nearmetal_host::assignable::Assignable;
use nearmetal_place::{
    Allowed, DiskRequest, GuestRequest, NetworkRequest, Occupied, Placement, Planned, Policy, WorkloadClass, plan,
};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};

use crate::RunError;
use crate::flavour::{Flavour, Network};
use crate::function;
use crate::given::Given;
use crate::promised::without_what_is_promised;
use crate::reservation::{NodeShare, Reservation};
use nearmetal_domain::DiskBus;

/// What a slice is chosen from.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'a> {
    /// The guest wanted.
    pub flavour: &'a Flavour,
    /// Name of its domain.
    pub name: &'a str,
    /// UUID of its domain.
    pub uuid: &'a str,
    /// The machine, read while nobody else chooses.
    pub host: &'a Host,
    /// What this process was given of it.
    pub given: &'a Given,
    /// What other runs have.
    pub others: &'a [Reservation],
    /// Functions that guests could be given: of a flavour with one.
    pub functions: &'a [Assignable],
    /// Whether it has a disk.
    pub has_disk: bool,
    /// Memory that its programs need beside the guest's below the same limits; none where they are not below them.
    pub beside: Bytes,
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The plan of this one guest.
    pub planned: Planned,
    /// PUs that are its own: those of its threads, and of the rest of its cores where it wants whole ones.
    pub cpus: CpuSet,
    /// Its memory by node, at most.
    pub memory: Vec<NodeShare>,
    /// The PCI function that is its own.
    pub function: Option<PciAddress>,
}

impl Chosen {
    /// Where its threads and pages go.
    pub fn placement(&self) -> &Placement {
        // There is one: a plan without is an error of `choose`.
        &self.planned.plan.placements[0]
    }
}

impl Choice<'_> {
    /// Chooses. Pure: the same machine and the same others give the same slice.
    ///
    /// # Errors
    /// It does not fit into what was given and is left, with the numbers and who has the rest.
    pub fn choose(&self) -> Result<Chosen, RunError> {
        let (flavour, given) = (self.flavour, self.given);
        for limit in &given.memory {
            let beside: Vec<_> = self.others.iter().filter(|other| other.counts_against(limit)).collect();
            // What all of its kind need below a limit that they share.
            let guests = beside.iter().flat_map(|other| &other.memory).map(|share| share.bytes);
            let taken = guests.chain(beside.iter().map(|_| self.beside));
            let left = taken.fold(limit.bytes, Bytes::less);
            let wanted = flavour.memory.plus(self.beside);
            if left < wanted {
                return Err(RunError::MemoryLimit {
                    flavour: flavour.name.clone(),
                    memory: flavour.memory,
                    beside: self.beside,
                    wanted,
                    limit: limit.bytes,
                    left,
                    file: limit.file.clone(),
                });
            }
        }
        let function = function::choose(flavour, self.functions, self.others)?;
        let taken = self.others.iter().fold(CpuSet::new(), |all, other| all.union(&other.cpus));
        let online = self.host.online();
        let free = given.cpus.intersection(&online).difference(&taken);
        let occupied = Occupied::from_guests::<&str>(self.host, &[]);
        let cpus = if flavour.whole_cores { self.whole_cores(&free, &occupied)? } else { free };
        let policy = Policy {
            hugepages: flavour.page_size.is_some(),
            gigantic_pages: flavour.page_size == Some(PageSize::HUGE_1G),
            place_interrupts: false,
            allowed: Allowed { cpus: Some(cpus), nodes: Some(given.nodes.clone()) },
            ..Policy::default()
        };
        let host = without_what_is_promised(self.host, self.others);
        let planned = plan(&host, &occupied, &[self.request(function)], &policy);
        if let Some(blocked) = planned.plan.blocked.first() {
            return Err(RunError::NoRoom {
                flavour: flavour.name.clone(),
                problem: blocked.problem.clone(),
                holders: self.holders(),
                remedy: blocked.remedy.clone(),
            });
        }
        let Some(placement) = planned.plan.placements.first() else {
            let (problem, remedy) = ("the planner gave no answer".to_owned(), "another flavour".to_owned());
            let holders = String::new();
            return Err(RunError::NoRoom { flavour: flavour.name.clone(), problem, holders, remedy });
        };
        if placement.memory.page_size != flavour.page_size {
            let wanted = flavour.page_size.unwrap_or(PageSize::SMALL).bytes();
            return Err(RunError::NoPool { flavour: flavour.name.clone(), wanted });
        }
        let threads = threads(placement);
        let cpus = match flavour.whole_cores {
            true => self.cores_of(&threads),
            false => threads,
        };
        let memory = shares(flavour, placement, &planned);
        Ok(Chosen { planned, cpus, memory, function })
    }

    /// The guest in the planner's words.
    fn request(&self, function: Option<PciAddress>) -> GuestRequest {
        let virtio = self.flavour.bus == DiskBus::Virtio;
        let disk = DiskRequest {
            target: target(self.flavour).to_owned(),
            // It has no name; the planner only asks whether there is one.
            source: Some("delta".to_owned()),
            block_device: None,
            is_block: false,
            is_virtio_blk: virtio,
            is_read_only: false,
        };
        let network = NetworkRequest {
            mac: String::new(),
            host_interface: match &self.flavour.network {
                Network::Bridge(bridge) => Some(bridge.clone()),
                _ => None,
            },
            uses_vhost: matches!(self.flavour.network, Network::Bridge(_)),
        };
        GuestRequest {
            name: self.name.to_owned(),
            uuid: self.uuid.to_owned(),
            vcpus: self.flavour.vcpus,
            memory: self.flavour.memory,
            class: if self.flavour.class == WorkloadClass::Density {
                WorkloadClass::General
            } else {
                self.flavour.class
            },
            disks: if self.has_disk { vec![disk] } else { Vec::new() },
            networks: match self.flavour.network {
                Network::None | Network::Function(_) => Vec::new(),
                Network::User | Network::Bridge(_) => vec![network],
            },
            passthrough: function.into_iter().collect(),
            shows: Default::default(),
        }
    }

    /// PUs of the cores that were given whole, and of which nobody uses one.
    fn whole_cores(&self, free: &CpuSet, occupied: &Occupied) -> Result<CpuSet, RunError> {
        let online = self.host.online();
        let used = occupied.vcpus().union(&occupied.helpers());
        let left = free.difference(&used);
        let cores = self.host.cores.iter().map(|core| core.cpus.intersection(&online));
        let whole = cores.filter(|core| !core.is_empty() && core.is_subset(&left));
        let whole = whole.fold(CpuSet::new(), |all, core| all.union(&core));
        if whole.len() < self.flavour.vcpus as usize {
            return Err(RunError::WholeCores {
                flavour: self.flavour.name.clone(),
                wanted: self.flavour.vcpus,
                given: self.given.cpus.to_string(),
                whole: whole.len(),
                holders: self.holders(),
            });
        }
        Ok(whole)
    }

    /// These PUs and all others of their cores.
    fn cores_of(&self, cpus: &CpuSet) -> CpuSet {
        let online = self.host.online();
        let cores = self.host.cores.iter().map(|core| core.cpus.intersection(&online));
        cores.filter(|core| !core.is_disjoint(cpus)).fold(cpus.clone(), |all, core| all.union(&core))
    }

    /// Which other runs have something of what was given.
    fn holders(&self) -> String {
        let others = self.others.iter().filter(|other| !other.cpus.is_disjoint(&self.given.cpus));
        let others: Vec<String> = others.map(Reservation::holder).collect();
        if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) }
    }
}

/// The name of a run's disk in the guest.
pub(crate) fn target(flavour: &Flavour) -> &'static str {
    match flavour.bus {
        DiskBus::Virtio => "vda",
        DiskBus::Scsi => "sda",
    }
}

/// PUs of all threads that a placement pins.
fn threads(placement: &Placement) -> CpuSet {
    let vcpus = placement.vcpus.iter().map(|pin| &pin.cpus);
    vcpus.chain(&placement.iothreads).fold(placement.emulator.clone(), |all, cpus| all.union(cpus))
}

/// Memory by node, at most: where several nodes share it, the kernel decides how much each gives.
fn shares(flavour: &Flavour, placement: &Placement, planned: &Planned) -> Vec<NodeShare> {
    let nodes = &placement.memory.nodes;
    let one = |node: u32| {
        let report = planned.report.nodes.iter().find(|report| report.node == node);
        let taken = report.and_then(|report| Some(report.memory_before?.less(report.memory_after?)));
        let several = nodes.len() > 1 && placement.memory.page_size.is_none();
        let bytes = taken.filter(|_| several).unwrap_or(flavour.memory);
        NodeShare { node, bytes }
    };
    nodes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavours;
    use crate::function::Lent;
    use crate::given::MemoryLimit;
    use nearmetal_host::synthetic::Synthetic;
    use proptest::prelude::*;

    fn flavour(keys: &str) -> Flavour {
        let text = format!("[[flavour]]\nname = \"job\"\n{keys}\n");
        Flavours::parse("test", &text).unwrap().all()[0].clone()
    }

    fn given(cpus: &str, nodes: &str) -> Given {
        Given { cpus: cpus.parse().unwrap(), nodes: nodes.parse().unwrap(), memory: Vec::new() }
    }

    /// Two nodes of four cores with two threads each, PUs 0-15.
    fn host() -> Host {
        let machine = Synthetic::new().packages(2).cores_per_node(4).threads(2);
        machine.memory_per_node(Bytes::from_mib(8192)).pool(PageSize::HUGE_2M, 0).build()
    }

    fn choose(flavour: &Flavour, given: &Given, others: &[Reservation]) -> Result<Chosen, RunError> {
        let host = host();
        let choice = Choice {
            flavour,
            name: "run-job-1",
            uuid: "u",
            host: &host,
            given,
            others,
            functions: &[],
            has_disk: true,
            beside: Bytes::ZERO,
        };
        choice.choose()
    }

    fn reserved(number: usize, flavour: &Flavour, chosen: &Chosen) -> Reservation {
        Reservation {
            cpus: chosen.cpus.clone(),
            memory: chosen.memory.clone(),
            page_size: flavour.page_size,
            functions: chosen.function.into_iter().map(Lent::nothing_known).collect(),
            ..Reservation::empty(&format!("run-job-{number}"), &format!("uuid-{number}"), &flavour.name)
        }
    }

    #[test]
    fn a_run_stays_inside_what_it_was_given() {
        let chosen = choose(&flavour("vcpus = 2\nmemory = \"1 GiB\""), &given("9-12", "1"), &[]).unwrap();
        assert!(chosen.cpus.is_subset(&"9-12".parse().unwrap()), "{}", chosen.cpus);
        assert_eq!(chosen.placement().memory.nodes.to_string(), "1");
    }

    #[test]
    fn too_little_memory_too_few_pus_and_no_whole_core_are_refused_with_the_numbers() {
        let small = flavour("vcpus = 2\nmemory = \"1 GiB\"");
        let limit =
            MemoryLimit { bytes: Bytes::from_mib(512), file: "/sys/fs/cgroup/job/memory.max".to_owned(), group: None };
        let error =
            choose(&small, &Given { memory: vec![limit], ..given("0-15", "0-1") }, &[]).unwrap_err().to_string();
        assert!(error.contains("1 GiB") && error.contains("512 MiB") && error.contains("job/memory.max"), "{error}");
        // Guests of other runs count against the limits that they name, and against no other.
        let limit = |file: &str| MemoryLimit { bytes: Bytes::from_mib(1536), file: file.to_owned(), group: None };
        let other = Reservation {
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(1024) }],
            limits: vec!["/sys/fs/cgroup/job/memory.max".to_owned()],
            ..crate::reservation::tests::reservation("run-a", "15")
        };
        let beside = |file: &str| {
            choose(&small, &Given { memory: vec![limit(file)], ..given("0-15", "0-1") }, std::slice::from_ref(&other))
        };
        let error = beside("/sys/fs/cgroup/job/memory.max").unwrap_err().to_string();
        assert!(error.contains("leave 512 MiB"), "{error}");
        beside("/sys/fs/cgroup/other/memory.max").unwrap();
        // QEMU and its daemon beside the guest, below the limit of the job.
        let machine = host();
        let choice = |beside, bytes| {
            let limit = MemoryLimit {
                bytes: Bytes::from_mib(bytes),
                file: "/sys/fs/cgroup/job/memory.max".to_owned(),
                group: None,
            };
            let given = Given { memory: vec![limit], ..given("0-15", "0-1") };
            let (flavour, name, uuid) = (&small, "run-job-1", "u");
            Choice {
                flavour,
                name,
                uuid,
                host: &machine,
                given: &given,
                others: &[],
                functions: &[],
                has_disk: true,
                beside,
            }
            .choose()
        };
        choice(Bytes::from_mib(256), 1280).unwrap();
        let error = choice(Bytes::from_mib(256), 1279).unwrap_err().to_string();
        assert!(error.contains("1 GiB of memory and needs 256 MiB beside it"), "{error}");
        let error = choose(&small, &given("3", "0-1"), &[]).unwrap_err().to_string();
        assert!(error.contains("2 PUs") && error.contains("1 of the 1 allowed (PUs 3)"), "{error}");
        let whole = flavour("vcpus = 2\nmemory = \"1 GiB\"\nwhole-cores = true");
        let halves: CpuSet = host().cores.iter().filter_map(|core| core.cpus.first()).collect();
        let error = choose(&whole, &given(&halves.to_string(), "0-1"), &[]).unwrap_err().to_string();
        assert!(error.contains("2 PUs in whole cores") && error.contains(" 0 are"), "{error}");
    }

    #[test]
    fn a_container_with_a_limit_at_the_same_path_is_another_one_and_the_same_limit_at_another_path_is_not() {
        let small = flavour("vcpus = 2\nmemory = \"1 GiB\"");
        let limit = |file: &str, group: Option<&str>| MemoryLimit {
            bytes: Bytes::from_mib(1536),
            file: file.to_owned(),
            group: group.map(str::to_owned),
        };
        let (inside, outside) = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/kubepods/pod7/memory.max");
        let pod = Reservation {
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(1024) }],
            limits: vec![inside.to_owned()],
            limit_groups: vec!["28:700".to_owned()],
            ..crate::reservation::tests::reservation("run-a", "15")
        };
        let fits = |limit, other: &Reservation| {
            let given = Given { memory: vec![limit], ..given("0-15", "0-1") };
            choose(&small, &given, std::slice::from_ref(other)).is_ok()
        };
        assert!(fits(limit(inside, Some("28:800")), &pod), "a second pod of the node");
        assert!(!fits(limit(inside, Some("28:700")), &pod), "the same pod");
        assert!(!fits(limit(outside, Some("28:700")), &pod), "the pod as the node sees it");
        // Where one of them is unknown, the path has to do.
        assert!(!fits(limit(inside, None), &pod));
        let unknown = Reservation { limit_groups: Vec::new(), ..pod };
        assert!(!fits(limit(inside, Some("28:800")), &unknown));
    }

    #[test]
    fn whole_cores_are_reserved_whole() {
        let whole = flavour("vcpus = 1\nmemory = \"1 GiB\"\nwhole-cores = true");
        let chosen = choose(&whole, &given("0-15", "0-1"), &[]).unwrap();
        for core in host().cores.iter().filter(|core| !core.cpus.is_disjoint(&chosen.cpus)) {
            assert!(core.cpus.is_subset(&chosen.cpus), "{} of {}", core.cpus, chosen.cpus);
        }
    }

    #[test]
    fn who_has_the_rest_is_named() {
        let large = flavour("vcpus = 6\nmemory = \"1 GiB\"");
        let first = choose(&large, &given("0-7", "0"), &[]).unwrap();
        let others = [reserved(1, &large, &first)];
        let error = choose(&large, &given("0-7", "0"), &others).unwrap_err().to_string();
        let holder = format!("`run-job-1` (process {}) has PUs", std::process::id());
        assert!(error.contains(&holder), "{error}");
    }

    #[test]
    fn memory_that_was_promised_and_is_not_taken_yet_is_not_promised_twice() {
        for keys in ["vcpus = 1\nmemory = \"5 GiB\"", "vcpus = 1\nmemory = \"5 GiB\"\npage-size = \"2 MiB\""] {
            let half = flavour(keys);
            let mut others = Vec::new();
            while let Ok(chosen) = choose(&half, &given("0-15", "0-1"), &others) {
                others.push(reserved(others.len(), &half, &chosen));
                assert!(others.len() < 4, "{others:?}");
            }
            assert!(!others.is_empty() && others.len() <= 3, "{keys}: {}", others.len());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn no_two_runs_share_a_pu_whatever_they_were_given_and_whoever_ends(
            steps in prop::collection::vec((1u32..5, any::<bool>(), 0u32..16, 1u32..16, any::<bool>(), any::<prop::sample::Index>()), 1..20),
        ) {
            let host = host();
            let mut living: Vec<Reservation> = Vec::new();
            for (number, (vcpus, whole, first, count, end, which)) in steps.into_iter().enumerate() {
                if end && !living.is_empty() {
                    living.remove(which.index(living.len()));
                    continue;
                }
                let cpus: CpuSet = (first..(first + count).min(16)).collect();
                let given = Given { cpus: cpus.clone(), nodes: "0-1".parse().unwrap(), memory: Vec::new() };
                let flavour = flavour(&format!("vcpus = {vcpus}\nmemory = \"256 MiB\"\nwhole-cores = {whole}"));
                let (name, uuid) = (format!("run-job-{number}"), format!("uuid-{number}"));
                let choice = Choice {
                    flavour: &flavour, name: &name, uuid: &uuid, host: &host, given: &given, others: &living,
                    functions: &[], has_disk: true,
                    beside: Bytes::ZERO,
                };
                let Ok(chosen) = choice.choose() else { continue };
                prop_assert!(threads(chosen.placement()).is_subset(&cpus), "{} beyond {cpus}", chosen.cpus);
                prop_assert!(threads(chosen.placement()).is_subset(&chosen.cpus));
                for other in &living {
                    prop_assert!(chosen.cpus.is_disjoint(&other.cpus), "{} and {}", chosen.cpus, other.cpus);
                }
                living.push(reserved(number, &flavour, &chosen));
            }
        }
    }
}
