use super::*;
use crate::{FioJob, OltpJob, Workload};

const SAID: &str = include_str!("said.txt");

fn shape(mib: u64, emulated: bool) -> Shape {
    Shape { memory: Bytes::from_mib(mib), emulated, ..Shape::of_a_lab() }
}

fn job(pages: JavaPages) -> JvmJob {
    JvmJob::of(&shape(384, true), pages)
}

#[test]
fn its_score_and_its_moments_are_read() {
    let Measured { metrics, notes } = job(JavaPages::OfTheMachine).read(SAID).unwrap();
    assert_eq!((metrics[0].name.as_str(), metrics[0].value), ("score", 101.0));
    assert_eq!(
        notes,
        ["OpenJDK 64-Bit Server VM 21.0.12", "ready after 1.5 s", "128 MiB of its memory in large pages"]
    );
    assert_eq!(job(JavaPages::OfTheMachine).window(SAID, 0.5).unwrap(), Window { began: 14_999.5, ended: 19_999.5 });
}

#[test]
fn what_was_done_in_a_part_is_read_from_the_moments_around_it() {
    let done = |began, ended, ahead| job(JavaPages::OfTheMachine).done(SAID, Window { began, ended }, ahead);
    assert_eq!(done(15_000.0, 20_000.0, 0.0), Some(505.0));
    assert_eq!(done(15_500.0, 17_000.0, 0.0), Some(50.0), "it stood still for a second");
    assert_eq!(done(17_000.0, 18_000.0, 0.0), Some(135.0));
    assert_eq!(done(16_000.0, 17_000.0, 1_000.0), Some(135.0), "its clock is a second before the host's");
    assert_eq!(done(16_100.0, 16_900.0, 0.0), None, "nothing was done");
    assert_eq!(done(14_999.0, 17_000.0, 0.0), None, "before it began");
    assert_eq!(done(17_000.0, 20_001.0, 0.0), None);
    let earlier = SAID.replace("\"began_ms\":15000,\"moments\"", "\"moments_of_another_kind\"");
    let part = Window { began: 16_000.0, ended: 18_000.0 };
    assert_eq!(job(JavaPages::OfTheMachine).done(&earlier, part, 0.0), None, "an image of before");
    assert!(job(JavaPages::OfTheMachine).read(&earlier).is_ok());
}

#[test]
fn a_jvm_that_was_still_getting_faster_is_named() {
    let cold = SAID.replace("[10,40,50,50]", "[10,20,30,40]");
    let notes = job(JavaPages::OfTheMachine).read(&cold).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("still getting faster: 80 transactions/s")), "{notes:?}");
}

#[test]
fn pages_other_than_those_asked_for_are_a_failure_with_its_reason() {
    let none = SAID.replace("131072", "0");
    let few = SAID.replace("131072", "2048");
    assert!(job(JavaPages::Large).read(SAID).is_ok() && job(JavaPages::Small).read(&none).is_ok());
    for (pages, said, asked) in
        [(JavaPages::Large, &none, "large"), (JavaPages::Large, &few, "large"), (JavaPages::Small, &few, "small")]
    {
        let why = job(pages).read(said).unwrap_err().to_string();
        assert!(why.contains(&format!("asked for {asked} pages")) && why.contains("128 MiB heap"), "{why}");
    }
}

#[test]
fn a_jvm_that_ran_with_other_flags_is_a_failure_and_one_that_saw_one_node_says_so() {
    for (told, found) in [
        (r#""MaxHeapSize":"134217728""#, r#""MaxHeapSize":"67108864""#),
        (r#""UseParallelGC":"true""#, r#""UseParallelGC":"false""#),
    ] {
        let why = job(JavaPages::OfTheMachine).read(&SAID.replace(told, found)).unwrap_err().to_string();
        assert!(why.contains("it was told") && why.contains("and ran with"), "{why}");
    }
    let over_two = JvmJob { numa: true, ..job(JavaPages::OfTheMachine) };
    assert!(over_two.read(SAID).unwrap().notes.iter().any(|note| note.contains("sees one node")));
}

#[test]
fn junk_is_an_error_and_never_a_figure() {
    let cut = &SAID[..SAID.len() / 2];
    let zero = SAID.replace(":505", ":0");
    let timeless = SAID.replace("5.0", "0");
    let blind = SAID.replace("large_kib", "x");
    let other = SAID.replace("nearmetal-jvm", "other");
    for junk in ["", "{}", cut, &zero, &timeless, &blind, &other] {
        assert!(job(JavaPages::OfTheMachine).read(junk).is_err(), "{junk}");
    }
    assert!(job(JavaPages::OfTheMachine).window(&SAID.replace("began_ms", "x"), 0.0).is_err());
}

#[test]
fn nothing_is_left_to_what_a_jvm_finds() {
    let at = At { loads: "/dev/vdb", ..At::probe("p") };
    let words = JvmJob::of(&Shape { nodes: 2, ..shape(65_536, false) }, JavaPages::Large).command(&at, 7).join(" ");
    let begin = "p programs --image /dev/vdb -- /usr/lib/nearmetal/java/runtime/bin/java -Xms2048m -Xmx2048m ";
    assert!(words.starts_with(begin), "{words}");
    let end = " -cp /usr/lib/nearmetal/java/classes warehouses.Main --seed 7 --items 20000 --threads 2 --warm-up-ms 15000 \
               --points 2 --each-ms 5000";
    assert!(words.ends_with(end), "{words}");
    for flag in ["AlwaysPreTouch", "UseParallelGC", "ActiveProcessorCount=2", "UseNUMA", "UseTransparentHugePages"] {
        assert!(words.contains(flag), "{words}");
    }
    let small = job(JavaPages::Small).command(&at, 7).join(" ");
    assert!(small.contains("--image /dev/vdb --small-pages -- ") && small.contains("TieredStopAtLevel=1"), "{small}");
    assert!(!small.contains("UseTransparentHugePages") && !small.contains("UseNUMA"), "{small}");
}

#[test]
fn a_heap_takes_half_of_the_memory_at_most() {
    let heap = |mib, emulated| JvmJob::of(&shape(mib, emulated), JavaPages::OfTheMachine).heap;
    assert_eq!(heap(384, true), Bytes::from_mib(128));
    assert_eq!(heap(200, true), Bytes::from_mib(100));
    assert_eq!(heap(1 << 20, false), Bytes::from_mib(2048));
}

#[test]
fn costs_are_counted_while_it_measures() {
    let job = job(JavaPages::OfTheMachine);
    let (middle, _) = job.middle().unwrap();
    assert!(middle.begins > Duration::from_secs(job.warm_up.into()) && middle.ends < job.length().unwrap());
    assert!(job.limit() > job.length().unwrap());
}

#[test]
fn half_of_the_warm_up_is_for_the_start_and_it_is_no_shorter_than_what_is_measured() {
    let job = JvmJob::of(&shape(4096, true), JavaPages::OfTheMachine);
    let within = |seconds: u32| job.starting_within(seconds);
    assert_eq!(within(30), JvmJob { warm_up: 60, ..job.clone() });
    assert_eq!(within(1).warm_up, job.seconds.max(2));
    let asked = Workload::from(job.clone()).starting_within(30);
    assert_eq!(asked, Some(within(30).into()));
    assert_eq!(
        Workload::from(OltpJob::small()).starting_within(75),
        Some(OltpJob { prepare: 75, ..OltpJob::small() }.into())
    );
    assert_eq!(Workload::from(FioJob::first_seed(Bytes::from_kib(4), 1, 0)).starting_within(30), None);
}
