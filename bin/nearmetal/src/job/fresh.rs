//! The fresh rounds of a race as results of arms in pairs, so that they are compared and shown as all others are.

use nearmetal_load::{NetJob, NetTest, Workload};
use nearmetal_results::{
    Arm, ArmName, Link, MatrixResults, NetMatrixResults, Outcome, PLANNED, Purpose, Results, Role, Run, SCHEMA, Tenant,
    Turn,
};

/// Those of a disk; `None` if the winner was not measured again.
pub(super) fn of_disk(results: &MatrixResults) -> Option<Results> {
    let confirmation = results.confirmation.as_ref()?;
    let winner = &results.arms.get(results.winner?)?;
    // Documents from before 0.2 call the winner `planned` and QEMU's default `as-found`.
    let older = confirmation.runs.iter().any(|run| run.arm == PLANNED);
    let (subject, reference) = if older { (PLANNED, nearmetal_results::AS_FOUND) } else { ("winner", "qemu-default") };
    let arms = vec![
        arm(ArmName::bare_slice(), "the host itself, confined to the slice", ""),
        arm(ArmName::new(reference, "QEMU's default", Role::AsFound), "what the winner is compared with", ""),
        arm(ArmName::new(subject, &winner.path.title(), Role::Planned), "the winner", &winner.source),
    ];
    let all = empty(results.seed, &results.guest, &results.slice, &results.environment);
    Some(Results { arms, runs: confirmation.runs.clone(), ..all })
}

/// Those of a network: every test is a workload of its own.
pub(super) fn of_net(results: &NetMatrixResults) -> Option<Results> {
    let confirmation = results.confirmation.as_ref()?;
    let winner = results.winner?;
    let bare = results.arms.iter().position(|arm| arm.path.link == Link::Bare);
    let id = |number: usize| match number {
        _ if number == winner => Some("winner"),
        _ if number == results.reference => Some("reference"),
        _ if Some(number) == bare => Some("bare-slice"),
        _ => None,
    };
    let of = |number: usize, name: ArmName, what: &str| {
        let found = results.arms.get(number)?;
        Some(arm(ArmName { title: found.path.title(), ..name }, what, &found.source))
    };
    let arms = [
        bare.and_then(|bare| of(bare, ArmName::bare_slice(), "the host itself, confined to the slice")),
        (results.reference != winner)
            .then(|| {
                of(results.reference, ArmName::new("reference", "", Role::AsFound), "what the winner is compared with")
            })
            .flatten(),
        of(winner, ArmName::new("winner", "", Role::Planned), "the winner"),
    ];
    let run = |turn: &Turn, test: NetTest| {
        let prefix = format!("{}.", test.id());
        let outcome = match &turn.outcome {
            Outcome::Measured { metrics, .. } => {
                let own = metrics.iter().filter(|one| one.name.starts_with(&prefix) && !one.name.contains(".cost."));
                Outcome::Measured { metrics: own.cloned().collect(), notes: Vec::new() }
            }
            failed @ Outcome::Failed { .. } => failed.clone(),
        };
        Some(Run {
            round: turn.round,
            position: turn.position,
            purpose: Purpose::Pair,
            arm: id(turn.arm)?.to_owned(),
            count: 1,
            workload: Workload::Net(NetJob { test, peer: results.peer, seconds: results.seconds }),
            seed: turn.seed,
            started: turn.started.clone(),
            seconds: turn.seconds,
            outcome,
            together: None,
        })
    };
    let runs = results.tests.iter().flat_map(|test| confirmation.turns.iter().filter_map(|turn| run(turn, *test)));
    let all = empty(results.seed, &results.guest, &results.slice, &results.environment);
    Some(Results { arms: arms.into_iter().flatten().collect(), runs: runs.collect(), ..all })
}

fn arm(name: ArmName, description: &str, region: &str) -> Arm {
    Arm {
        name,
        description: description.to_owned(),
        region: region.to_owned(),
        xml: None,
        command_line: None,
        placement: Vec::new(),
    }
}

fn empty(
    seed: u64,
    guest: &str,
    slice: &nearmetal_results::Slice,
    environment: &nearmetal_results::Environment,
) -> Results {
    Results {
        schema: SCHEMA.to_owned(),
        experiment: "race".to_owned(),
        created: String::new(),
        version: String::new(),
        environment: environment.clone(),
        quick: false,
        seed,
        tenants: vec![Tenant { guest: guest.to_owned(), slice: slice.clone(), placement: Vec::new(), load: None }],
        least_overlap: None,
        arms: Vec::new(),
        runs: Vec::new(),
        caveats: Vec::new(),
        provenance: Default::default(),
        tune: None,
        tiles: None,
    }
}
