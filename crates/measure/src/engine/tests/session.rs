//! What a session says of itself, and the memory it takes for its clones.

use std::path::{Path, PathBuf};

use nearmetal_host::TestKernel;
use nearmetal_host::files;
use nearmetal_units::PageSize;

use super::*;
use crate::played::on_scratch;

const POOL: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB";

/// A kernel that gives the huge pages it is asked for, and writes down how many.
#[derive(Debug)]
struct Pages {
    root: PathBuf,
    asked: Arc<Mutex<Vec<u64>>>,
}

impl TestKernel for Pages {
    fn writes(&self, path: &str, value: &str) -> std::io::Result<()> {
        assert_eq!(path, format!("{POOL}/nr_hugepages"));
        let below = |file: &str| self.root.join(POOL.trim_start_matches('/')).join(file);
        let count = |file: &str| -> u64 { files::read_to_string(&below(file)).unwrap().trim().parse().unwrap() };
        let wanted: u64 = value.parse().unwrap();
        let free = count("free_hugepages") + wanted - count("nr_hugepages");
        files::write(&below("nr_hugepages"), format!("{wanted}\n")).unwrap();
        files::write(&below("free_hugepages"), format!("{free}\n")).unwrap();
        self.asked.lock().unwrap().push(wanted);
        Ok(())
    }
}

/// One node whose pool has 100 pages, 60 of them in use.
fn with_a_pool(root: &Path) -> (HostFs, Arc<Mutex<Vec<u64>>>) {
    // Else the session would mount them.
    let mounted = |kind: &str, place: &str| format!("36 35 0:7 / /sys/kernel/{place} rw - {kind} {kind} rw");
    for (path, text) in [
        ("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000"),
        (
            "/proc/self/mountinfo",
            format!("{}\n{}", mounted("debugfs", "debug"), mounted("tracefs", "tracing")).as_str(),
        ),
        ("/sys/devices/system/node/online", "0"),
        ("/sys/devices/system/node/node0/cpulist", "0-3"),
        ("/sys/devices/system/cpu/online", "0-3"),
        (format!("{POOL}/nr_hugepages").as_str(), "100"),
        (format!("{POOL}/free_hugepages").as_str(), "40"),
        (format!("{POOL}/surplus_hugepages").as_str(), "0"),
    ] {
        let path = root.join(path.trim_start_matches('/'));
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write(&path, format!("{text}\n")).unwrap();
    }
    let asked = Arc::default();
    let kernel = Pages { root: root.to_owned(), asked: Arc::clone(&asked) };
    (HostFs::at(root).unwrap().with_kernel(kernel), asked)
}

#[test]
fn a_pool_is_grown_by_what_is_missing_and_shrinks_to_what_it_was_first() {
    let root = tempfile::tempdir().unwrap();
    let (fs, asked) = with_a_pool(root.path());
    let mut machine = Machine { fs, ..Machine::new() };
    let mut placement = on_scratch().placement;
    assert_eq!((placement.memory.pages, placement.memory.page_size), (256, Some(PageSize::HUGE_2M)));
    in_session(&mut machine, |session| {
        session.grow_pools(&placement, 1)?;
        session.grow_pools(&placement, 1)?;
        session.grow_pools(&placement, 2)?;
        placement.memory.page_size = None;
        session.grow_pools(&placement, 9)
    })
    .unwrap();
    // 60 in use and 256; once more is enough; 60 and 512; what it had before the first.
    assert_eq!(*asked.lock().unwrap(), [316, 572, 100]);
}

#[test]
fn a_cell_takes_its_pages_of_its_node() {
    let root = tempfile::tempdir().unwrap();
    let (fs, asked) = with_a_pool(root.path());
    let mut machine = Machine { fs, ..Machine::new() };
    let placement = on_scratch().placement;
    let xml = |more: &str| {
        format!(
            "<domain type='kvm'><name>web1</name><memory unit='MiB'>384</memory>{more}<vcpu>4</vcpu><cpu><numa>\
             <cell id='0' cpus='0-2' memory='300' unit='MiB'/><cell id='1' cpus='3' memory='84' unit='MiB'/></numa></cpu>\
             <numatune><memnode cellid='0' mode='strict' nodeset='0'/><memnode cellid='1' mode='strict' nodeset='0'/></numatune></domain>"
        )
    };
    let huge = "<memoryBacking><hugepages><page size='2' unit='M'/></hugepages></memoryBacking>";
    let own = |xml: &str| crate::clones::in_its_cells(xml, "web1", &placement).unwrap();
    assert_eq!(own(&xml("")), None, "small pages come from no pool");
    assert_eq!(
        own(&xml(huge).replace("nodeset='0'/></", "nodeset='0-1'/></")),
        None,
        "a cell of two nodes takes of either"
    );
    let own = own(&xml(huge)).unwrap();
    in_session(&mut machine, |session| session.grow_pools(&own, 1)).unwrap();
    // 60 in use, 150 and 42, where the whole guest as placed takes 256; and what it had.
    assert_eq!(*asked.lock().unwrap(), [252, 100]);
}

/// A kernel that writes down what it is set to.
#[derive(Debug)]
struct Set(Arc<Mutex<Vec<String>>>);

impl TestKernel for Set {
    fn writes(&self, path: &str, value: &str) -> std::io::Result<()> {
        assert_eq!(path, crate::leftovers::THP);
        self.0.lock().unwrap().push(value.to_owned());
        Ok(())
    }
}

#[test]
fn transparent_pages_are_as_they_were_found_unless_an_arm_has_them_off() {
    let set = |found: &str, asked: &[bool]| {
        // Else the session would mount them.
        let mounted = |kind: &str, place: &str| format!("36 35 0:7 / /sys/kernel/{place} rw - {kind} {kind} rw\n");
        let mounts = mounted("debugfs", "debug") + &mounted("tracefs", "tracing");
        let files = [("/proc/self/mountinfo", mounts.as_str()), (crate::leftovers::THP, found)];
        let values = Arc::default();
        let fs = Machine::with_files(&files).fs.with_kernel(Set(Arc::clone(&values)));
        let mut machine = Machine { fs, ..Machine::new() };
        in_session(&mut machine, |session| asked.iter().try_for_each(|off| session.transparent_pages_off(*off)))
            .unwrap();
        let values: Vec<String> = values.lock().unwrap().clone();
        values
    };
    // What is behind the last value asked for is what the session gives back.
    let found = "always [madvise] never\n";
    assert_eq!(set(found, &[false, true, false]), ["never", "madvise", "madvise"]);
    assert_eq!(set(found, &[false]), Vec::<String>::new(), "nothing was changed");
    assert_eq!(set("always madvise [never]\n", &[true, false]), Vec::<String>::new(), "they are off anyway");
}

#[test]
fn a_node_without_a_pool_of_that_size_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (fs, asked) = with_a_pool(root.path());
    let mut machine = Machine { fs, ..Machine::new() };
    let mut placement = on_scratch().placement;
    placement.memory.page_size = Some(PageSize::HUGE_1G);
    let error = in_session(&mut machine, |session| session.grow_pools(&placement, 1)).unwrap_err().to_string();
    assert!(error.contains("node 0 has no pool of 1 GiB pages"), "{error}");
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn what_a_reader_must_know_is_said_once() {
    let notes = in_session(&mut Machine::new(), |session| {
        ["first", "second", "first"].into_iter().for_each(|note| session.note(note.to_owned()));
        Ok(session.notes.clone())
    });
    assert_eq!(notes.unwrap(), ["first", "second"]);
}

#[test]
fn figures_are_told_with_what_they_were_measured_by() {
    let workload: Workload = FioJob::first_seed(Bytes::from_kib(4), 3, 1).into();
    let mut machine = Machine::new();
    scripted::play(|_, _| Ok("fio-3.39\n".to_owned()));
    let told = in_session(&mut machine, |session| Ok(session.provenance([&workload]))).unwrap();
    for (what, value) in [
        ("host kernel", "6.12.41"),
        ("libvirt", "9.0.0"),
        ("hypervisor", "QEMU 7.2.0"),
        ("seed", "7"),
        ("fio", "fio-3.39"),
        ("processor", "unknown"),
    ] {
        assert_eq!(told.get(what).map(String::as_str), Some(value), "{what} in {told:?}");
    }
}

#[test]
fn a_fio_in_the_clones_that_is_not_the_hosts_is_told_of_once() {
    let clone = |name: &str| Guest { name: name.into(), xml: domain(name), device: "/dev/vdb".into() };
    let notes = |inside: &'static str, without: bool| {
        let mut machine = Machine::new();
        scripted::play(|_, _| Ok("fio-3.39\n".to_owned()));
        machine.fake.on_agent(move |_, command| {
            Ok(match command["execute"].as_str().unwrap() {
                "guest-exec" => json!({"pid": 77}),
                "guest-exec-status" => json!({"exited": true, "exitcode": 0, "out-data": base64(inside)}),
                _ => json!({}),
            })
        });
        let names = ["nearmetal-0", "nearmetal-1"];
        in_session(&mut machine, |session| {
            if without {
                session.without_fio();
            }
            session.will_clone(names.map(str::to_owned))?;
            names.iter().try_for_each(|name| session.boot(&clone(name)))?;
            Ok(session.notes.clone())
        })
        .unwrap()
    };
    assert_eq!(notes("fio-3.36\n", false), ["the clones have fio-3.36, the host fio-3.39: not the same program"]);
    assert_eq!(notes("fio-3.39\n", false), Vec::<String>::new());
    assert_eq!(notes("fio-3.36\n", true), Vec::<String>::new(), "nothing that runs there is of fio");
}

#[test]
fn a_command_that_fails_in_a_guest_is_told_in_its_own_words() {
    for (stderr, stdout, why) in [("no such device\n", "half\n", "no such device"), ("\n", "said here\n", "said here")]
    {
        let mut machine = Machine::new();
        let (stderr, stdout) = (base64(stderr), base64(stdout));
        machine.fake.on_agent(move |_, command| {
            Ok(match command["execute"].as_str().unwrap() {
                "guest-exec" => json!({"pid": 77}),
                "guest-exec-status" => {
                    json!({"exited": true, "exitcode": 1, "out-data": stdout, "err-data": stderr})
                }
                _ => json!({}),
            })
        });
        let second = std::time::Duration::from_secs(1);
        let asked = in_session(&mut machine, |session| session.ask(ORIGINAL, &["blkid", "/dev/vdb"], second));
        let error = asked.unwrap_err().to_string();
        assert_eq!(error, format!("`blkid /dev/vdb` in `web1` failed: {why}"));
    }
}

#[test]
fn a_measuring_process_moves_off_the_slice_and_only_on_the_machine_itself() {
    use rustix::thread::{sched_getaffinity, sched_setaffinity};
    let before = sched_getaffinity(None).unwrap();
    // Of this thread.
    let may_run_on = || -> Vec<usize> {
        let now = sched_getaffinity(None).unwrap();
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|pu| now.is_set(*pu)).collect()
    };
    let all = may_run_on();
    // A machine in memory has PUs that this one may have, too.
    let files = [("/sys/devices/system/cpu/online", "0-3\n"), ("/sys/devices/system/cpu/present", "0-3\n")];
    in_session(&mut Machine::with_files(&files), |session| {
        assert!(session.host.online().contains(0), "{}", session.host.online());
        session.stay_off(&[slice()])
    })
    .unwrap();
    assert_eq!(may_run_on(), all);
    in_session(&mut Machine::new(), |session| {
        session.fs = Box::leak(Box::new(HostFs::live()));
        session.host = nearmetal_host::Host::read(session.fs);
        let online = session.host.online();
        let measured = Slice { cpus: CpuSet::one(all[0] as u32), ..slice() };
        session.stay_off(&[measured, Slice { cpus: CpuSet::new(), ..slice() }])?;
        // With a single PU there is nowhere else to be.
        assert_eq!(may_run_on().contains(&all[0]), online.iter().count() == 1, "PU {} of {online}", all[0]);
        sched_setaffinity(None, &before).unwrap();
        session.stay_off(&[Slice { cpus: online, ..slice() }])
    })
    .unwrap();
    assert_eq!(may_run_on(), all, "there is nowhere to go");
}

#[test]
fn a_running_original_is_paused_only_where_that_is_allowed_and_runs_again_afterwards() {
    use nearmetal_hypervisor::DomainState;
    let mut machine = Machine::new();
    let state = in_session(&mut machine, |session| {
        session.conditions.pause = false;
        let refused = session.pause_original(ORIGINAL).unwrap_err().to_string();
        assert!(refused.contains("`web1` is running") && refused.contains("--pause"), "{refused}");
        assert_eq!(session.hypervisor.domain(ORIGINAL).unwrap().state, DomainState::Running);
        session.conditions.pause = true;
        session.pause_original(ORIGINAL)?;
        Ok(session.hypervisor.domain(ORIGINAL).unwrap().state)
    });
    assert_eq!(state.unwrap(), DomainState::Paused);
    assert!(machine.is_as_before());
    // One that is off, or paused by its owner, stays so.
    for state in [DomainState::ShutOff, DomainState::Paused] {
        machine.fake.set_state(ORIGINAL, state);
        in_session(&mut machine, |session| {
            session.conditions.pause = false;
            session.pause_original(ORIGINAL)
        })
        .unwrap();
        assert_eq!(machine.fake.domain(ORIGINAL).unwrap().state, state);
    }
}

#[test]
fn an_id_is_the_kernels_and_a_process_is_found_by_that_of_its_domain() {
    let mut machine = Machine::new();
    let uuid = machine.fake.domain(ORIGINAL).unwrap().uuid;
    let line = format!("qemu-system-x86_64\0-name\0guest=web1\0-uuid\0{uuid}\0");
    let files =
        [("/proc/sys/kernel/random/uuid", "6c1f0e6c-0000-4000-8000-000000000000\n"), ("/proc/4711/cmdline", &line)];
    machine.fs = Machine::with_files(&files).fs;
    in_session(&mut machine, |session| {
        assert_eq!(session.new_uuid()?, "6c1f0e6c-0000-4000-8000-000000000000");
        assert_eq!((session.process(ORIGINAL)?, session.must_have_process(ORIGINAL)?), (Some(4711), 4711));
        Ok(())
    })
    .unwrap();
    machine.fs = Machine::new().fs;
    in_session(&mut machine, |session| {
        assert_eq!(session.process(ORIGINAL)?, None);
        let why = session.must_have_process(ORIGINAL).unwrap_err().to_string();
        assert!(why.contains("`web1` has no QEMU process"), "{why}");
        let why = chain(&session.new_uuid().unwrap_err());
        assert!(why.contains("cannot make a UUID"), "{why}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_command_of_the_probe_is_bound_to_the_slice() {
    let mut machine = Machine::new();
    scripted::play(|words, _| Ok(words.join(" ")));
    let slice = Slice { cpus: "2-3,7".parse().unwrap(), nodes: "0-1".parse().unwrap(), ..slice() };
    let said = in_session(&mut machine, |session| session.on_the_slice(&slice, &["memory", "latency"])).unwrap();
    assert_eq!(said, "/probe bind --cpus 2-3,7 --nodes 0-1 -- /probe memory latency");
}
