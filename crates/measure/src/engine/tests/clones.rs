//! Clones: where they sit, how they come up and go, and what is done about one that is dead.

use nearmetal_hypervisor::DomainState;
use nearmetal_results::Purpose;

use super::*;
use crate::appliance::PROBE_IN_GUEST;

fn clone(name: &str) -> Guest {
    Guest { name: name.into(), xml: domain(name), device: "/dev/vdb".into() }
}

/// Bare metal, and two arms with a clone each.
fn clones() -> Clones {
    Clones { guests: vec![None, Some(clone("one")), Some(clone("two"))], bare: "/dev/x".into() }
}

fn step(arm: usize) -> Step {
    let workload = FioJob::first_seed(Bytes::from_kib(4), 3, 1).into();
    Step { purpose: Purpose::Pair, arm, count: 1, workload, seed: 5 }
}

fn silent(name: &str) -> HypervisorError {
    HypervisorError::AgentNotResponding { name: name.into(), reason: "it hangs".into() }
}

/// The clones that are there, and how they are.
fn there(session: &mut Session<'_>) -> Vec<(String, DomainState)> {
    let domains = session.hypervisor.domains().unwrap();
    domains.into_iter().filter(|domain| domain.name != ORIGINAL).map(|domain| (domain.name, domain.state)).collect()
}

fn paused(names: &[&str]) -> Vec<(String, DomainState)> {
    names.iter().map(|name| ((*name).to_owned(), DomainState::Paused)).collect()
}

/// Boots of each clone so far.
fn boots(machine: &Machine, name: &str) -> usize {
    let calls = machine.fake.calls().iter();
    calls.filter(|call| call.action() == "create" && format!("{call:?}").contains(&format!("<name>{name}<"))).count()
}

#[test]
fn each_arm_works_on_its_own_device_with_the_probe_of_its_side() {
    let path = clones();
    assert_eq!(path.seat(0, 0), Seat { device: "/dev/x".into(), ..Seat::default() });
    let guest = |name: &str| Seat {
        guest: Some(name.to_owned()),
        device: "/dev/vdb".into(),
        probe: PROBE_IN_GUEST.into(),
        ..Seat::default()
    };
    assert_eq!((path.seat(1, 0), path.seat(2, 0)), (guest("one"), guest("two")));
}

#[test]
fn only_the_clones_of_the_arms_to_come_are_up_and_they_are_paused() {
    in_session(&mut Machine::new(), |session| {
        let mut path = clones();
        session.will_clone(["one", "two"].map(str::to_owned))?;
        for (arms, up) in
            [(vec![0, 1, 2], vec!["one", "two"]), (vec![2], vec!["two"]), (vec![0, 1], vec!["one"]), (vec![0], vec![])]
        {
            path.refresh(&arms, session)?;
            assert_eq!(there(session), paused(&up), "arms {arms:?}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_clone_that_stopped_answering_is_started_again_and_one_that_answers_is_left_alone() {
    let mut machine = Machine::new();
    let dead = Arc::new(Mutex::new(false));
    let is_dead = Arc::clone(&dead);
    machine.fake.fail_when(Effect::Nothing, silent("two"), move |_, request| {
        let mut is_dead = is_dead.lock().unwrap();
        *is_dead &= request.action() != "create";
        *is_dead && request.subject() == "two" && request.action() == "ask the guest agent of"
    });
    in_session(&mut machine, |session| {
        let mut path = clones();
        session.without_fio();
        session.will_clone(["one", "two"].map(str::to_owned))?;
        path.refresh(&[0, 1, 2], session)?;
        assert_eq!([0, 1, 2].map(|arm| path.revive(&step(arm), session).unwrap()), [false; 3]);
        assert_eq!((there(session), session.notes.len()), (paused(&["one", "two"]), 0));
        *dead.lock().unwrap() = true;
        assert_eq!([0, 1, 2].map(|arm| path.revive(&step(arm), session).unwrap()), [false, false, true]);
        assert_eq!(there(session), paused(&["one", "two"]));
        assert_eq!(session.notes, ["the clone `two` stopped answering and was started again"]);
        Ok(())
    })
    .unwrap();
    assert_eq!((boots(&machine, "one"), boots(&machine, "two")), (1, 2));
}

#[test]
fn a_clone_that_never_answers_is_booted_twice_and_then_named() {
    let mut machine = Machine::new();
    machine.fake.fail_when(Effect::Nothing, silent("one"), |_, request| request.action() == "ask the guest agent of");
    let (booted, notes) = in_session(&mut machine, |session| {
        session.will_clone(["one".to_owned()])?;
        let booted = session.boot(&clone("one"));
        Ok((booted, session.notes.clone()))
    })
    .unwrap();
    let why = chain(&booted.unwrap_err());
    assert!(why.contains("`one`") && why.contains("it hangs"), "{why}");
    assert_eq!(notes, ["the clone `one` was booted again: its agent did not answer within 180 s"]);
    assert_eq!(boots(&machine, "one"), 2);
    assert!(machine.is_as_before());
}

#[test]
fn a_clone_whose_boot_fails_for_another_reason_is_not_booted_again() {
    let mut machine = Machine::new();
    machine.fake.fail_when(Effect::Nothing, broken(), |_, request| request.action() == "ask the guest agent of");
    let booted = in_session(&mut machine, |session| {
        session.will_clone(["one".to_owned()])?;
        session.boot(&clone("one"))
    });
    assert!(chain(&booted.unwrap_err()).contains("the connection is gone"));
    assert_eq!(boots(&machine, "one"), 1);
}

#[test]
fn a_guest_that_is_gone_or_has_crashed_does_not_answer_and_a_libvirt_that_is_gone_is_no_answer() {
    let mut machine = Machine::new();
    in_session(&mut machine, |session| {
        session.will_clone(["one".to_owned()])?;
        assert!(!session.answers("one")?, "there is none");
        session.boot_paused(&clone("one"))?;
        assert!(session.answers("one")?);
        assert_eq!(there(session), paused(&["one"]));
        // A turn that failed half way has left it running.
        session.hypervisor.resume("one").unwrap();
        assert!(session.answers("one")?);
        assert_eq!(there(session), paused(&["one"]));
        Ok(())
    })
    .unwrap();
    // Nobody says now whether one lives, and that there is none to end is known all the same.
    machine.fake.fail_when(Effect::Nothing, broken(), |_, request| request.action() == "look up");
    let asked = in_session(&mut machine, |session| session.answers("one"));
    assert!(chain(&asked.unwrap_err()).contains("the connection is gone"));
    in_session(&mut machine, |session| session.end("one")).unwrap();
    machine.fake.clear_faults();
    machine.fake.set_state(ORIGINAL, DomainState::Crashed);
    assert!(!in_session(&mut machine, |session| session.answers(ORIGINAL)).unwrap());
    // What QEMU keeps of it for whoever looks for the cause stays as it is.
    assert_eq!(machine.fake.domain(ORIGINAL).unwrap().state, DomainState::Crashed);
}

#[test]
fn a_paused_guest_is_asked_and_paused_again_whatever_it_said() {
    let mut machine = Machine::new();
    in_session(&mut machine, |session| {
        session.will_clone(["one".to_owned()])?;
        session.boot_paused(&clone("one"))?;
        let second = std::time::Duration::from_secs(1);
        assert!(session.ask_paused("one", &["fio", "--output-format=json"], second)?.contains("job_start"));
        assert_eq!(there(session), paused(&["one"]));
        Ok(())
    })
    .unwrap();
    machine.fake.on_agent(|_, command| match command["execute"].as_str() {
        Some("guest-exec") => Ok(json!({"pid": 77})),
        Some("guest-exec-status") => Ok(json!({"exited": true, "exitcode": 1, "err-data": base64("no such device")})),
        _ => Ok(json!({})),
    });
    in_session(&mut machine, |session| {
        session.will_clone(["one".to_owned()])?;
        session.without_fio();
        session.boot_paused(&clone("one"))?;
        let asked = session.ask_paused("one", &["blkid"], std::time::Duration::from_secs(1));
        assert_eq!(asked.unwrap_err().to_string(), "`blkid` in `one` failed: no such device");
        assert_eq!(there(session), paused(&["one"]));
        Ok(())
    })
    .unwrap();
}
