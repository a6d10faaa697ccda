//! Whoever dies, and wherever: guest, reservation and pools are given back, at the latest by the next run.
//!
//! Longer than 500 lines, since all of it stands on one stage.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod kernel;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use kernel::{DRIVER, POOL, Played, Stage, lent, nothing_set_aside};
use nearmetal_change::Kernel;
use nearmetal_host::files;
use nearmetal_hypervisor::protocol::Request;
use nearmetal_hypervisor::{DomainState, Effect, Fake, Hypervisor, HypervisorError, PassedFile};
use nearmetal_place::PoolChange;
use nearmetal_run::RunError;
use nearmetal_run::course::{Course, End, Gone, Look, Step, Watch, carry_out};
use nearmetal_run::definition::Definition;
use nearmetal_run::delta::path_of;
use nearmetal_run::output::NotStarted;
use nearmetal_run::pools::{Growth, State, give_back};
use nearmetal_run::qemu_log::QemuLog;
use nearmetal_run::recover::{Recovered, end_guest, recover, release, take};
use nearmetal_run::reservation::{NodeShare, Reservation};
use nearmetal_units::{Bytes, CpuSet, PageSize};
use serde_json::json;

const NAME: &str = "run-job-1";
const UUID: &str = "11111111-2222-4333-8444-555555555555";
const XML: &str =
    "<domain type='kvm'>\n  <name>run-job-1</name>\n  <uuid>11111111-2222-4333-8444-555555555555</uuid>\n</domain>";
const NO_TIME: Duration = Duration::ZERO;

/// Sees the steps, and dies or is told to end where the test says so.
#[derive(Default)]
struct Witness {
    steps: Vec<Step>,
    killed_at: Option<Step>,
    interrupted_after: Option<Step>,
    differs: Option<Look>,
    /// Its console cannot be followed.
    unseen: bool,
    /// Signals come from the start.
    told_at_once: bool,
    /// Where no name may ever stand.
    deltas: Option<PathBuf>,
}

impl Watch for Witness {
    fn step(&mut self, step: Step) {
        self.steps.push(step);
        assert!(self.deltas.as_ref().is_none_or(|deltas| files::list(deltas).unwrap().is_empty()), "{step:?}");
        // As SIGKILL: nothing behind it is done.
        assert!(self.killed_at != Some(step), "killed");
    }

    fn begun(&mut self, _: &mut dyn Hypervisor) -> Result<(), RunError> {
        if self.unseen { Err(RunError::Console("no terminal".to_owned())) } else { Ok(()) }
    }

    fn interrupted(&mut self) -> Option<i32> {
        if self.told_at_once {
            return Some(15);
        }
        self.interrupted_after.filter(|step| self.steps.contains(step)).map(|_| 15)
    }

    fn read_back(&mut self, _: &mut dyn Hypervisor, look: Look) -> Result<(), Vec<String>> {
        if self.differs == Some(look) { Err(vec!["vCPU 0: planned 2, found 0-11".to_owned()]) } else { Ok(()) }
    }
}

/// A guest whose command ends with this status after so many looks; `None`: it never does.
fn guest(looks: Option<u32>, status: serde_json::Value) -> Fake {
    let mut fake = Fake::new("");
    let mut looked = 0;
    fake.on_agent(move |name, command| {
        Ok(match command["execute"].as_str() {
            Some("guest-exec") => json!({"pid": 700}),
            Some("guest-exec-status") => {
                looked += 1;
                if looks.is_some_and(|looks| looked > looks) { status.clone() } else { json!({"exited": false}) }
            }
            _ => return file_of(name, command),
        })
    });
    fake
}

/// The guest's files: what the command has written.
fn file_of(name: &str, command: &serde_json::Value) -> Result<serde_json::Value, HypervisorError> {
    let no_such = |path: &str| HypervisorError::AgentCommandFailed {
        name: name.into(),
        command: "guest-file-open".into(),
        message: format!("failed to open file '{path}': No such file or directory"),
    };
    let arguments = &command["arguments"];
    Ok(match command["execute"].as_str() {
        Some("guest-file-open") => match arguments["path"].as_str().unwrap() {
            "/var/tmp/nearmetal-run-job-1.out" => json!(1),
            "/var/tmp/nearmetal-run-job-1.err" => json!(2),
            "/var/tmp/nearmetal-run-job-1.done" => json!(3),
            other => return Err(no_such(other)),
        },
        // `out`, `err`, and that both are stored: `o`, `e`.
        Some("guest-file-read") => {
            let text = ["b3V0Cg==", "ZXJyCg==", "bwplCg=="][arguments["handle"].as_u64().unwrap() as usize - 1];
            json!({"count": 4, "buf-b64": text, "eof": true})
        }
        _ => json!({}),
    })
}

/// What the shell says before it becomes the command: `+`.
const PLACE: &str = "Kwo=";

fn seven() -> serde_json::Value {
    json!({"exited": true, "exitcode": 7, "out-data": PLACE})
}

fn reservation() -> Reservation {
    Reservation {
        cpus: "1-2".parse().unwrap(),
        memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(64) }],
        page_size: Some(PageSize::HUGE_2M),
        functions: vec![lent()],
        ..Reservation::empty(NAME, UUID, "job")
    }
}

/// Ends guests of dead runs as a run in system mode does: by libvirt.
fn by(fake: &mut Fake) -> impl FnMut(&Reservation) -> Result<(), RunError> {
    |dead| end_guest(fake, &dead.name, &dead.uuid)
}

impl Stage {
    fn new() -> Self {
        Self::of(1000)
    }

    /// A whole run, as the command makes it.
    fn run(&self, fake: &mut Fake, watch: &mut Witness, limit: Option<Duration>) -> Result<End, RunError> {
        let claim = {
            let turn = self.desk.turn()?;
            recover(&turn, &self.kernel, &mut by(fake), &nothing_set_aside, NO_TIME)?;
            let pool = PoolChange { node: 0, size: PageSize::HUGE_2M, before: 16, after: 48 };
            take(&turn, &self.kernel, reservation(), &[pool], NO_TIME)?
        };
        // Handed over as the command does it, by the way through this process. Not made by mtools: a program that starts has
        // the locks of all tests for a moment. `killed_while_it_makes_user_data.rs` makes it so.
        files::create_dir_all(&self.deltas())?;
        let seed = tempfile::tempfile_in(self.deltas()).unwrap();
        let files = vec![PassedFile { group: "seed".into(), path: path_of(&seed), writable: false }];
        let xml = XML.replace("</domain>", "<devices><disk><source fdgroup='seed'/></disk></devices></domain>");
        let definition = Definition { xml, files, seed: Some("vda".to_owned()) };
        watch.deltas = Some(self.deltas());
        let command = ["/bin/job".to_owned()];
        let (boot_limit, grace) = (Duration::from_secs(30), Duration::from_secs(5));
        let (name, uuid) = (NAME, UUID);
        let log = QemuLog::Stays("/var/log/libvirt/qemu/run-job-1.log".into());
        let (definition, command, log) = (&definition, &command, &log);
        let course = Course { name, uuid, definition, command, boot_limit, time_limit: limit, grace, log };
        // As libvirt does when it starts the guest; it is never there to give the function back.
        self.kernel.bind("vfio-pci");
        let Gone { end, guest } = carry_out(&course, fake, watch);
        // What follows then is what the kernel and libvirt do when this process ends.
        guest?;
        release(&self.desk, claim, &self.kernel, NO_TIME)?;
        end
    }

    fn deltas(&self) -> PathBuf {
        self._directory.path().join("deltas")
    }

    /// What the next run finds, once it has looked.
    fn check_nothing_is_left(&self, fake: &mut Fake, why: &str) {
        fake.clear_faults();
        fake.end_connection();
        let turn = self.desk.turn().unwrap();
        let recovered = recover(&turn, &self.kernel, &mut by(fake), &nothing_set_aside, NO_TIME).unwrap();
        assert!(recovered.problems.is_empty(), "{why}: {recovered:?}");
        assert!(turn.look().unwrap().is_empty(), "{why}");
        assert_eq!(self.kernel.pages(), 16, "{why}");
        assert_eq!(self.kernel.driver(), DRIVER, "{why}");
        assert!(fake.domains().unwrap().is_empty(), "{why}");
        assert!(files::list(&self.deltas()).unwrap_or_default().is_empty(), "{why}");
    }
}

#[test]
fn a_run_returns_its_commands_own_code_and_output_and_gives_everything_back_itself() {
    let (stage, mut fake, mut watch) = (Stage::new(), guest(Some(3), seven()), Witness::default());
    let end = stage.run(&mut fake, &mut watch, None).unwrap();
    assert_eq!(end.code().unwrap(), 7);
    let End::Command(output) = end else { panic!("{end:?}") };
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(watch.steps, [Step::Started, Step::ReadBack, Step::Agent, Step::CommandStarted, Step::Ended]);
    // Without any help of the next run.
    assert!(stage.desk.turn().unwrap().look().unwrap().is_empty());
    assert_eq!(stage.kernel.pages(), 16);
    assert_eq!(stage.kernel.driver(), DRIVER);
    assert!(fake.domains().unwrap().is_empty());
}

#[test]
fn a_run_that_is_killed_at_any_step_leaves_nothing_to_the_next() {
    for step in [Step::Started, Step::ReadBack, Step::Agent, Step::CommandStarted, Step::Ended] {
        let (stage, mut fake) = (Stage::new(), guest(Some(1), seven()));
        let mut watch = Witness { killed_at: Some(step), ..Witness::default() };
        let killed = catch_unwind(AssertUnwindSafe(|| stage.run(&mut fake, &mut watch, None).map(drop)));
        assert!(killed.is_err(), "{step:?}");
        assert_eq!((stage.kernel.pages(), stage.kernel.driver()), (48, kernel::TAKEN), "{step:?}");
        stage.check_nothing_is_left(&mut fake, &format!("{step:?}"));
    }
}

/// As in session mode when run and daemon are killed at once: nobody is left to end QEMU.
#[test]
fn a_guest_without_a_master_keeps_its_pus_from_other_users_until_its_own_user_runs_again() {
    for step in [Step::Started, Step::ReadBack, Step::Agent, Step::CommandStarted, Step::Ended] {
        let (stage, mut fake) = (Stage::new(), guest(Some(1), seven()));
        let mut watch = Witness { killed_at: Some(step), ..Witness::default() };
        let killed = catch_unwind(AssertUnwindSafe(|| stage.run(&mut fake, &mut watch, None).map(drop)));
        assert!(killed.is_err(), "{step:?}");
        let lives = Cell::new(true);
        {
            let turn = stage.desk.clone().seen_by(4_000_000_000).turn().unwrap();
            // Neither the guest of another user is ended, nor a pool set by what stands in that user's reservation.
            let mut nobody = |dead: &Reservation| panic!("{dead:?} is ended");
            assert_eq!(
                recover(&turn, &stage.kernel, &mut nobody, &nothing_set_aside, NO_TIME).unwrap(),
                Recovered::default()
            );
            let others = |lives: bool| turn.others(&|dead| dead.uuid == UUID && lives).unwrap();
            assert_eq!(others(lives.get())[0].cpus.to_string(), "1-2");
            assert!(others(false).is_empty());
        }
        assert_eq!(stage.kernel.pages(), 48);
        let turn = stage.desk.turn().unwrap();
        // While it cannot be ended, what it has stays its own.
        let busy = |_: &Reservation| Err(RunError::Session("busy".to_owned()));
        let recovered = recover(&turn, &stage.kernel, &mut { busy }, &nothing_set_aside, NO_TIME).unwrap();
        assert!(recovered.names.is_empty() && recovered.problems[0].contains("busy"), "{recovered:?}");
        assert_eq!(turn.others(&|_| false).unwrap().len(), 1);
        let mut end = |dead: &Reservation| {
            assert_eq!(dead.uuid, UUID);
            lives.set(false);
            Ok(())
        };
        assert_eq!(recover(&turn, &stage.kernel, &mut end, &nothing_set_aside, NO_TIME).unwrap().names, [NAME]);
        assert!(!lives.get() && turn.look().unwrap().is_empty() && stage.kernel.pages() == 16);
    }
}

#[test]
fn a_run_that_is_killed_at_any_write_leaves_the_owners_pages_and_the_functions_driver() {
    // The pool grows; the function is unbound, kept for its driver, probed, and kept for it no more; the pool shrinks.
    const WRITES: u32 = 6;
    let whole = Stage::new();
    whole.run(&mut guest(Some(1), seven()), &mut Witness::default(), None).unwrap();
    assert_eq!(whole.kernel.writes.get(), WRITES);
    for (write, done) in (1..=WRITES).flat_map(|write| [(write, false), (write, true)]) {
        let why = format!("at write {write}, done: {done}");
        let (stage, mut fake) = (Stage::new(), guest(Some(1), seven()));
        stage.kernel.dies.set(Some((write, done)));
        let run = || stage.run(&mut fake, &mut Witness::default(), None).map(drop);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{why}");
        stage.check_nothing_is_left(&mut fake, &why);
        // Another look finds nothing to do.
        stage.check_nothing_is_left(&mut fake, &why);
    }
}

#[test]
fn a_reservation_that_was_given_back_but_for_its_name_takes_no_page_from_the_owner() {
    let stage = Stage::new();
    let pool = PoolChange { node: 0, size: PageSize::HUGE_2M, before: 16, after: 48 };
    let turn = stage.desk.turn().unwrap();
    let mut claim = take(&turn, &stage.kernel, reservation(), &[pool], NO_TIME).unwrap();
    give_back(&stage.kernel, &mut claim, NO_TIME).unwrap();
    // As SIGKILL: the file stays.
    drop((claim, turn));
    stage.check_nothing_is_left(&mut Fake::new(""), "killed before the file was removed");
}

#[test]
fn a_run_that_ends_beside_one_that_was_killed_while_its_pool_changed_leaves_the_owners_pages() {
    for (write, done) in [(1, false), (1, true), (2, false), (2, true)] {
        let (stage, pool) =
            (Stage::new(), |before, after| PoolChange { node: 0, size: PageSize::HUGE_2M, before, after });
        let first = take(&stage.desk.turn().unwrap(), &stage.kernel, reservation(), &[pool(16, 48)], NO_TIME).unwrap();
        stage.kernel.dies.set(Some((write, done)));
        let second = Reservation { name: "run-job-2".into(), ..reservation() };
        let killed = catch_unwind(AssertUnwindSafe(|| {
            let claim = take(&stage.desk.turn().unwrap(), &stage.kernel, second, &[pool(48, 90)], NO_TIME).unwrap();
            release(&stage.desk, claim, &stage.kernel, NO_TIME).unwrap();
        }));
        assert!(killed.is_err());
        release(&stage.desk, first, &stage.kernel, NO_TIME).unwrap();
        stage.check_nothing_is_left(&mut Fake::new(""), &format!("at write {write}, done: {done}"));
    }
}

#[test]
fn libvirt_that_is_lost_at_any_request_leaves_nothing_to_the_next_run() {
    let lost = || HypervisorError::ConnectionLost {
        uri: "fake:///system".into(),
        action: "ask".into(),
        name: NAME.into(),
        reason: "end of file".into(),
    };
    let mut requests = 0;
    for effect in [Effect::Nothing, Effect::Done] {
        for number in 1.. {
            let (stage, mut fake) = (Stage::new(), guest(Some(2), seven()));
            // Once lost it stays lost: the connection is never made anew.
            fake.fail_when(effect, lost(), move |count, _| count >= number);
            let ended = stage.run(&mut fake, &mut Witness::default(), None);
            let calls = fake.calls().len();
            stage.check_nothing_is_left(&mut fake, &format!("{effect:?} at request {number}"));
            match ended {
                Ok(end) => {
                    assert_eq!(end.code().unwrap(), 7);
                    break;
                }
                Err(error) => assert!(error.lost_libvirt(), "{error}"),
            }
            requests = requests.max(calls);
        }
    }
    assert!(requests > 6, "{requests}");
}

#[test]
fn a_guest_that_is_not_as_planned_is_an_error_and_nothing_is_left() {
    for look in [Look::Started, Look::Booted] {
        let (stage, mut fake) = (Stage::new(), guest(Some(0), seven()));
        let mut watch = Witness { differs: Some(look), ..Witness::default() };
        let error = stage.run(&mut fake, &mut watch, None).unwrap_err();
        assert!(error.to_string().contains("planned 2, found 0-11"), "{error}");
        let asked =
            |call: &Request| matches!(call, Request::Agent { command, .. } if command["execute"] == "guest-exec");
        assert!(!fake.calls().iter().any(asked), "the command was run");
        assert!(fake.domains().unwrap().is_empty() && stage.kernel.pages() == 16);
    }
}

#[test]
fn a_guest_whose_console_cannot_be_followed_is_ended() {
    let (stage, mut fake) = (Stage::new(), guest(Some(0), seven()));
    let mut watch = Witness { unseen: true, ..Witness::default() };
    let error = stage.run(&mut fake, &mut watch, None).unwrap_err();
    assert!(matches!(error, RunError::Console(_)) && watch.steps.is_empty(), "{error}");
    assert!(fake.domains().unwrap().is_empty() && stage.kernel.pages() == 16);
}

#[test]
fn a_run_that_is_told_to_end_before_it_has_a_guest_starts_none() {
    let (stage, mut fake) = (Stage::new(), guest(Some(0), seven()));
    let mut watch = Witness { told_at_once: true, ..Witness::default() };
    assert_eq!(stage.run(&mut fake, &mut watch, None).unwrap().code().unwrap(), 143);
    assert!(!fake.calls().iter().any(|call| matches!(call, Request::CreateTied { .. })));
    assert!(watch.steps.is_empty() && stage.kernel.pages() == 16);
    // And one that is told while its guest boots runs no command, even if the agent answers at once.
    let mut watch = Witness { interrupted_after: Some(Step::Started), ..Witness::default() };
    assert_eq!(stage.run(&mut fake, &mut watch, None).unwrap().code().unwrap(), 143);
    assert_eq!(watch.steps, [Step::Started, Step::ReadBack]);
}

#[test]
fn a_command_that_has_ended_keeps_its_code_and_output_if_its_guest_cannot_be_ended_or_its_pool_not_set() {
    let (stage, mut fake) = (Stage::new(), guest(Some(0), seven()));
    let busy = HypervisorError::Refused {
        action: "end".into(),
        name: NAME.into(),
        domain: 10,
        code: 38,
        message: "Device or resource busy".into(),
    };
    fake.fail_when(Effect::Nothing, busy, |_, request| matches!(request, Request::Destroy { .. }));
    let definition = Definition { xml: XML.to_owned(), files: Vec::new(), seed: None };
    let (command, limit) = (["/bin/job".to_owned()], Duration::from_secs(30));
    let (name, uuid, definition, command) = (NAME, UUID, &definition, &command);
    let log = &QemuLog::Goes("/nowhere".into());
    let course = Course { name, uuid, definition, command, boot_limit: limit, time_limit: None, grace: limit, log };
    let gone = carry_out(&course, &mut fake, &mut Witness::default());
    assert!(matches!(&gone.guest, Err(RunError::NotGivenBack { .. })), "{:?}", gone.guest);
    let End::Command(output) = gone.end.unwrap() else { panic!("the command's end is lost") };
    assert_eq!((output.stdout.as_slice(), output.missing), (&b"out\n"[..], None));
    fake.clear_faults();
    stage.check_nothing_is_left(&mut fake, "a guest that could not be ended at first");
}

#[test]
fn a_command_runs_through_a_shell_of_the_guest_with_its_words_as_they_are() {
    let (stage, mut fake) = (Stage::new(), guest(Some(0), seven()));
    let started = |fake: &Fake| -> Vec<Vec<String>> {
        let words = |call: &Request| match call {
            Request::Agent { command, .. } if command["execute"] == "guest-exec" => {
                let (path, arguments) = (&command["arguments"]["path"], &command["arguments"]["arg"]);
                let all = std::iter::once(path).chain(arguments.as_array().unwrap());
                Some(all.map(|word| word.as_str().unwrap().to_owned()).collect())
            }
            _ => None,
        };
        fake.calls().iter().filter_map(words).collect()
    };
    stage.run(&mut fake, &mut Witness::default(), None).unwrap();
    let [words] = started(&fake).try_into().unwrap();
    assert_eq!((words[0].as_str(), words[1].as_str()), ("/bin/sh", "-c"));
    assert_eq!(&words[3..], ["/var/tmp/nearmetal-run-job-1", "/bin/job"]);
    assert!(!words[2].contains("/bin/job"));
}

#[test]
fn output_that_cannot_be_read_on_leaves_the_code_and_what_was_read() {
    let (stage, mut fake) = (Stage::new(), Fake::new(""));
    let mut reads = 0;
    fake.on_agent(move |name, command| match command["execute"].as_str() {
        Some("guest-exec") => Ok(json!({"pid": 700})),
        Some("guest-exec-status") => Ok(seven()),
        Some(file @ "guest-file-read") if command["arguments"]["handle"] == 1 => {
            reads += 1;
            if reads == 1 {
                return Ok(json!({"count": 4, "buf-b64": "b3V0Cg==", "eof": false}));
            }
            let message = "failed to read file: Input/output error".into();
            Err(HypervisorError::AgentCommandFailed { name: name.into(), command: file.into(), message })
        }
        _ => file_of(name, command),
    });
    let end = stage.run(&mut fake, &mut Witness::default(), None).unwrap();
    assert_eq!(end.code().unwrap(), 7);
    let End::Command(output) = end else { panic!("{end:?}") };
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    let missing = output.missing.unwrap();
    assert!(missing.contains("stdout after 4 bytes cannot be read") && missing.contains("Input/output"), "{missing}");
}

#[test]
fn an_agent_that_may_run_programs_but_open_or_read_no_files_keeps_the_output_itself() {
    for disabled in ["guest-file-open", "guest-file-read"] {
        let (stage, mut fake) = (Stage::new(), Fake::new(""));
        fake.on_agent(move |name, command| match command["execute"].as_str() {
            Some("guest-exec") => {
                assert_eq!(command["arguments"]["path"], "/bin/job");
                Ok(json!({"pid": 700}))
            }
            Some("guest-exec-status") => Ok(json!({"exited": true, "exitcode": 7, "out-data": "b3V0Cg=="})),
            Some(asked) if asked == disabled => Err(HypervisorError::AgentCommandFailed {
                name: name.into(),
                command: asked.into(),
                message: format!("Command {asked} has been disabled"),
            }),
            _ => file_of(name, command),
        });
        let End::Command(output) = stage.run(&mut fake, &mut Witness::default(), None).unwrap() else { panic!() };
        assert_eq!((output.stdout.as_slice(), output.missing), (&b"out\n"[..], None), "{disabled}");
    }
}

#[test]
fn a_program_that_is_not_in_the_guest_gives_127_with_or_without_a_shell() {
    let stage = Stage::new();
    // base64 of: `job`: no such program in the guest
    let said = "YGpvYmA6IG5vIHN1Y2ggcHJvZ3JhbSBpbiB0aGUgZ3Vlc3QK";
    let mut fake = guest(Some(0), json!({"exited": true, "exitcode": 127, "out-data": "Pwo=", "err-data": said}));
    let end = stage.run(&mut fake, &mut Witness::default(), None).unwrap();
    let why = "`job`: no such program in the guest".to_owned();
    assert_eq!((end.code().unwrap(), end), (127, End::NotStarted(NotStarted { why, code: 127 })));

    let refused = |name: &str| HypervisorError::AgentCommandFailed {
        name: name.into(),
        command: "guest-exec".into(),
        message: "Failed to execute child process (No such file or directory)".into(),
    };
    for has_program in [false, true] {
        let mut fake = Fake::new("");
        fake.on_agent(move |name, command| match command["execute"].as_str() {
            Some("guest-exec") if !has_program || command["arguments"]["path"] == "/bin/sh" => Err(refused(name)),
            Some("guest-exec") => Ok(json!({"pid": 700})),
            // The agent keeps the output itself.
            Some("guest-exec-status") => Ok(json!({"exited": true, "exitcode": 7, "out-data": "b3V0Cg=="})),
            _ => file_of(name, command),
        });
        let end = stage.run(&mut fake, &mut Witness::default(), None).unwrap();
        assert_eq!(end.code().unwrap(), if has_program { 7 } else { 127 });
        match end {
            End::NotStarted(NotStarted { why, .. }) => assert!(!has_program && why.contains("No such file"), "{why}"),
            End::Command(output) => assert_eq!(output.stdout, b"out\n"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn qemu_that_is_killed_is_a_failure_with_a_sentence() {
    for looks in [0, 3] {
        let stage = Stage::new();
        let mut fake = Fake::new("");
        let mut asked = 0;
        fake.on_agent(move |name, command| {
            asked += 1;
            // What libvirt says of a guest that ends while its agent is asked.
            if asked > looks {
                return Err(HypervisorError::AgentNotResponding {
                    name: name.into(),
                    reason: "connection closed".into(),
                });
            }
            Ok(if command["execute"] == "guest-exec" { json!({"pid": 700}) } else { json!({"exited": false}) })
        });
        let mut dead = 0;
        let gone = HypervisorError::NoSuchDomain { name: NAME.into(), existing: Vec::new() };
        fake.fail_when(Effect::Nothing, gone, move |_, request| {
            dead += u32::from(matches!(request, Request::Agent { .. }));
            dead > looks && matches!(request, Request::Domain { .. })
        });
        let error = stage.run(&mut fake, &mut Witness::default(), None).unwrap_err();
        assert!(matches!(error, RunError::GuestEnded { .. }), "{error}");
        assert!(error.to_string().contains("QEMU was killed"), "{error}");
    }
}

#[test]
fn time_limit_and_signals_shut_the_guest_down_and_then_end_it() {
    for obeys in [Some(1), None] {
        let (stage, mut fake) = (Stage::new(), guest(None, seven()));
        let end = stage.run(&mut fake, &mut Witness::default(), Some(Duration::from_secs(9))).unwrap();
        assert_eq!((end.code().unwrap(), &end), (124, &End::TimeLimit(Duration::from_secs(9))));
        assert!(fake.calls().iter().any(|call| matches!(call, Request::Shutdown { .. })));
        assert!(fake.domains().unwrap().is_empty());

        let mut fake = guest(None, seven());
        fake.set_shutdown(NAME, obeys);
        let mut watch = Witness { interrupted_after: Some(Step::CommandStarted), ..Witness::default() };
        let end = stage.run(&mut fake, &mut watch, None).unwrap();
        assert_eq!(end.code().unwrap(), 143);
        assert!(fake.domains().unwrap().is_empty() && stage.kernel.pages() == 16);
    }
}

#[test]
fn a_signal_that_takes_libvirt_along_is_a_signal() {
    let (stage, mut fake) = (Stage::new(), guest(None, seven()));
    let lost = HypervisorError::ConnectionLost {
        uri: "fake:///system".into(),
        action: "ask".into(),
        name: NAME.into(),
        reason: "end of file".into(),
    };
    fake.fail_when(
        Effect::Nothing,
        lost,
        |_, request| matches!(request, Request::Agent { command, .. } if command["execute"] == "guest-exec-status"),
    );
    let mut watch = Witness { interrupted_after: Some(Step::CommandStarted), ..Witness::default() };
    assert_eq!(stage.run(&mut fake, &mut watch, None).unwrap(), End::Interrupted(15));
}

/// As a batch system does that sends a signal to all processes of a job, QEMU and libvirt's daemon of a session among them: this
/// process may hear of it last.
#[test]
fn a_signal_that_is_heard_only_after_the_guest_is_gone_is_a_signal() {
    /// And by which of its looks it hears of it.
    struct Late(Witness, u32, u32);
    impl Watch for Late {
        fn step(&mut self, step: Step) {
            self.0.step(step);
        }

        fn begun(&mut self, hypervisor: &mut dyn Hypervisor) -> Result<(), RunError> {
            self.0.begun(hypervisor)
        }

        fn interrupted(&mut self) -> Option<i32> {
            self.1 += 1;
            (self.1 >= self.2).then_some(15)
        }

        fn read_back(&mut self, hypervisor: &mut dyn Hypervisor, look: Look) -> Result<(), Vec<String>> {
            self.0.read_back(hypervisor, look)
        }
    }
    let stopped = HypervisorError::HelperStopped {
        action: "ask".into(),
        name: NAME.into(),
        status: "signal: 15".into(),
        output: "nothing".into(),
    };
    let refused = HypervisorError::Refused {
        action: "create".into(),
        name: NAME.into(),
        domain: 10,
        code: 1,
        message: "internal error: process exited while connecting to monitor".into(),
    };
    let definition = Definition { xml: XML.to_owned(), files: Vec::new(), seed: None };
    let (command, log) = (["/bin/job".to_owned()], QemuLog::Goes("/nowhere".into()));
    let course = Course {
        name: NAME,
        uuid: UUID,
        definition: &definition,
        command: &command,
        boot_limit: Duration::from_secs(30),
        time_limit: None,
        grace: Duration::from_secs(5),
        log: &log,
    };
    // The last look is the one after something was found to have gone wrong: the agent, the start, the read-back.
    let ends = |fake: &mut Fake, differs: Option<Look>, looks: u32| {
        let mut watch = Late(Witness { differs, ..Witness::default() }, 0, looks);
        let Gone { end, .. } = carry_out(&course, fake, &mut watch);
        assert_eq!((end.unwrap(), watch.1), (End::Interrupted(15), looks));
    };
    let mut fake = guest(None, seven());
    fake.fail_when(Effect::Nothing, stopped, |_, request| matches!(request, Request::Agent { .. }));
    ends(&mut fake, None, 3);
    let mut fake = guest(None, seven());
    fake.fail_when(Effect::Nothing, refused, |_, request| matches!(request, Request::CreateTied { .. }));
    ends(&mut fake, None, 2);
    ends(&mut guest(None, seven()), Some(Look::Started), 2);
}

#[test]
fn a_guest_without_an_answer_a_code_or_a_memory_of_its_command_is_told_in_words() {
    let stage = Stage::new();
    let silent = |name: &str| HypervisorError::AgentNotResponding { name: name.into(), reason: "timeout".into() };
    let mut fake = Fake::new("");
    fake.on_agent(move |name, _| Err(silent(name)));
    let error = stage.run(&mut fake, &mut Witness::default(), None).unwrap_err();
    assert!(matches!(error, RunError::NoAgent { seconds: 30, .. }), "{error}");

    let mut fake = Fake::new("");
    fake.on_agent(|name, command| match command["execute"].as_str() {
        Some("guest-exec") => Ok(json!({"pid": 700})),
        Some("guest-exec-status") => Err(HypervisorError::AgentCommandFailed {
            name: name.into(),
            command: "guest-exec-status".into(),
            message: "PID 700 does not exist".into(),
        }),
        _ => file_of(name, command),
    });
    let error = stage.run(&mut fake, &mut Witness::default(), None).unwrap_err();
    assert!(matches!(error, RunError::NoCode(_)) && error.to_string().contains("did the guest reboot"), "{error}");

    let mut fake = guest(Some(0), json!({"exited": true, "exitcode": 3221225477_i64, "out-data": PLACE}));
    let end = stage.run(&mut fake, &mut Witness::default(), None).unwrap();
    assert!(end.code().unwrap_err().to_string().contains("3221225477"));
    let mut fake = guest(Some(0), json!({"exited": true, "signal": 9, "out-data": PLACE}));
    assert_eq!(stage.run(&mut fake, &mut Witness::default(), None).unwrap().code().unwrap(), 137);
}

#[test]
fn a_pool_that_does_not_grow_is_set_back_at_once() {
    let stage = Stage { kernel: Played::new(30), ..Stage::new() };
    let mut fake = guest(Some(0), seven());
    let error = stage.run(&mut fake, &mut Witness::default(), None).unwrap_err();
    assert!(matches!(error, RunError::Change(_)), "{error}");
    assert_eq!(stage.kernel.pages(), 16);
    assert!(stage.desk.turn().unwrap().look().unwrap().is_empty());
}

#[test]
fn a_run_that_is_killed_while_its_pool_grows_is_set_right_by_the_next() {
    let stage = Stage::new();
    let growing =
        Growth { node: 0, size: PageSize::HUGE_2M, before: 16, after: 48, state: State::Growing, back_to: None };
    for reached in [16, 30, 48] {
        drop(
            stage.desk.turn().unwrap().reserve(Reservation { pools: vec![growing.clone()], ..reservation() }).unwrap(),
        );
        stage.kernel.write(&format!("{POOL}/nr_hugepages"), &reached.to_string()).unwrap();
        stage.check_nothing_is_left(&mut Fake::new(""), &format!("grown to {reached}"));
    }
}

#[test]
fn a_domain_that_was_stored_for_a_moment_when_its_run_was_killed_is_removed_and_another_of_its_name_is_not() {
    let stage = Stage::new();
    drop(stage.desk.turn().unwrap().reserve(reservation()).unwrap());
    let mut fake = Fake::new("").with_domain(XML);
    stage.check_nothing_is_left(&mut fake, "stored");

    drop(stage.desk.turn().unwrap().reserve(reservation()).unwrap());
    let mut fake = Fake::new("").with_running_domain(&XML.replace("11111111", "99999999"));
    recover(&stage.desk.turn().unwrap(), &stage.kernel, &mut by(&mut fake), &nothing_set_aside, NO_TIME).unwrap();
    assert_eq!(fake.domain(NAME).unwrap().state, DomainState::Running);
    assert!(stage.desk.turn().unwrap().look().unwrap().is_empty());
}

#[test]
fn runs_that_choose_at_once_do_so_one_after_the_other() {
    let stage = Stage::new();
    let taken = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (stage, taken) = (&stage.desk, &taken);
            scope.spawn(move || {
                let turn = stage.turn().unwrap();
                let used = turn.others(&|_| false).unwrap().into_iter();
                let used = used.fold(CpuSet::new(), |all, other| all.union(&other.cpus));
                let free = (0..).find(|cpu| !used.contains(*cpu)).unwrap();
                let own = Reservation { name: format!("run-{number}"), cpus: CpuSet::one(free), ..reservation() };
                taken.lock().unwrap().push(turn.reserve(own).unwrap());
            });
        }
    });
    let mut cpus: Vec<u32> =
        taken.lock().unwrap().iter().filter_map(|claim| claim.reservation().cpus.first()).collect();
    cpus.sort_unstable();
    assert_eq!(cpus, (0..8).collect::<Vec<_>>());
}
