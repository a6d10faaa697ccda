//! One sample: what each side is told, when it begins, and whether it counts.

use std::time::Duration;

use nearmetal_host::TestKernel;
use nearmetal_results::Purpose;

use super::*;
use crate::appliance::PROBE_IN_GUEST;

/// Clones of two tenants that nobody boots: what is asked of them stays on the host, which is arm 0.
fn tenants() -> TestPath {
    let guest = |name: &str| Guest { name: name.into(), xml: domain(name), device: "/dev/vdb".into() };
    TestPath(["nearmetal-0", "nearmetal-1"].map(guest).to_vec())
}

fn step(purpose: Purpose) -> Step {
    let workload = FioJob::first_seed(Bytes::from_kib(4), 3, 1).into();
    Step { purpose, arm: 0, count: 2, workload, seed: 5 }
}

/// Samples both tenants on bare metal.
fn sample(
    session: &mut Session<'_>,
    purpose: Purpose,
    least_overlap: f64,
) -> Result<super::super::sample::Sample, MeasureError> {
    let tenants_of = ["nearmetal-0", "nearmetal-1"].map(|name| Tenant::new(name, slice())).to_vec();
    let mut path = tenants();
    Subject { arms: arms(), tenants: tenants_of, path: &mut path, least_overlap }.sample(&step(purpose), session)
}

#[test]
fn each_side_works_on_its_own_device_with_its_own_probe() {
    let mut machine = Machine::new();
    let runs = machine.measure(Composition { tenants: 2, design: Kind::Scaling }, None).unwrap();
    let told = machine.told.lock().unwrap();
    let mut rest = &told[..];
    for run in &runs {
        let (own, others) = rest.split_at(run.count);
        rest = others;
        let (device, probe) = if run.arm == "planned" { ("/dev/vdb", PROBE_IN_GUEST) } else { ("/dev/x", "/probe") };
        for one in own {
            assert!(one.words.contains(&format!("--filename={device}")), "{}: {one:?}", run.arm);
            let at = one.words.iter().position(|word| word == "at");
            assert_eq!(at.map(|at| one.words[at - 1].as_str()), (run.count > 1).then_some(probe), "{one:?}");
        }
    }
}

#[test]
fn tenants_have_longer_to_begin_where_counting_accesses_slows_the_machine() {
    let waited = |purpose| {
        let mut machine = Machine::new();
        let came = in_session(&mut machine, |session| Ok(sample(session, purpose, 0.0))).unwrap();
        let told = machine.told.lock().unwrap();
        let waits: Vec<i128> = told.iter().map(|told| told.moment().unwrap() - told.at).collect();
        assert_eq!(waits.len(), 2);
        (came, Duration::from_nanos(*waits.iter().max().unwrap() as u64))
    };
    let (came, of_a_pair) = waited(Purpose::Pair);
    assert!(came.is_ok() && of_a_pair <= lead(2), "{of_a_pair:?}");
    let (came, of_accesses) = waited(Purpose::Accesses);
    assert!(of_accesses > lead(2) * 2 && of_accesses <= lead(2) * 4, "{of_accesses:?}");
    // This machine counts none, and a sample without them has nothing to say.
    let why = came.err().unwrap().to_string();
    assert_eq!(why, "accesses to memory: none were counted; measure again, with longer samples");
}

#[test]
fn that_exits_are_counted_is_on_record_only_where_they_are() {
    for (purpose, counts) in [(Purpose::Pair, false), (Purpose::ExitReasons, true)] {
        let written = in_session(&mut Machine::new(), |session| {
            // This kernel has no tracepoint, and refuses.
            assert_eq!(sample(session, purpose, 0.0).is_err(), counts);
            let path = session.conditions.state.join("bench.json");
            Ok(path.exists().then(|| nearmetal_host::files::read_to_string(&path).unwrap()))
        });
        let written = written.unwrap().unwrap_or_default();
        assert_eq!(written.contains("\"counts_exits\": true"), counts, "{purpose:?}: {written}");
    }
}

#[test]
fn a_sample_counts_if_its_tenants_ran_together_for_the_least_part_that_does() {
    let beside = |least| {
        let mut machine = Machine::new();
        let mut begins = 0;
        scripted::play(move |_, _| {
            // Of 100 ms the second one misses the first 50.
            begins += 50;
            let half = json!({"iops": 1000, "bw_bytes": 4_096_000, "total_ios": 3000});
            let job = json!({"error": 0, "job_start": 1000 + begins, "job_runtime": 100, "read": half, "write": half});
            Ok(json!({ "jobs": [job] }).to_string())
        });
        let sample = in_session(&mut machine, |session| sample(session, Purpose::Pair, least)).unwrap();
        assert_eq!(sample.together.map(|together| together.overlap), Some(0.5));
        sample.thrown_away
    };
    assert_eq!([0.0, 0.4, 0.5].map(beside), [None, None, None]);
    let why = "bare slice, 2 at once: they ran together for 50.0 % of the time, and 60 % is the least that counts";
    assert_eq!(beside(0.6).as_deref(), Some(why));
}

/// A kernel that writes down what it is told, and refuses it.
#[derive(Debug, Default)]
struct Refuses(Arc<Mutex<Vec<String>>>);

impl TestKernel for Refuses {
    fn writes(&self, path: &str, value: &str) -> std::io::Result<()> {
        self.0.lock().unwrap().push(format!("{value} to {path}"));
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
}

#[test]
fn no_sample_on_the_machine_itself_profits_from_what_the_one_before_has_read() {
    settle(&Machine::new().fs).unwrap();
    let told = Arc::default();
    // What goes wrong here is said: figures from a warm cache would be another experiment.
    let why = chain(&settle(&HostFs::live().with_kernel(Refuses(Arc::clone(&told)))).unwrap_err());
    assert!(why.contains("cannot drop the page cache before a sample"), "{why}");
    assert_eq!(*told.lock().unwrap(), ["3 to /proc/sys/vm/drop_caches"]);
}
