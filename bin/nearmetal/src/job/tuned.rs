//! A tune for people: the plans that raced, what each setting is worth, what to do; and what a plan takes from it.

use std::fmt::Display;

use nearmetal_domain::{DiskFacts, DomainFacts};
use nearmetal_place::{Choices, MeasuredGuest, WorkloadClass};
use nearmetal_report::view::{AdviceKind, AdviceView, EffectRow, RaceArm, RaceReadBack, RaceView, Rate};
use nearmetal_results::{
    AS_FOUND, AloneEffect, Environment, PLANNED, Results, TuneEffect, TuneFactor, TuneVerdict, TunedArm, Tuning,
};
use nearmetal_stats::Sample;

use super::race::left_out_rows;

/// The race as a report shows it; `None` of results of another experiment.
pub(super) fn view(results: &Results) -> Option<RaceView> {
    let tuning = results.tune.as_deref()?;
    let workload = results.runs.first().map(|run| &run.workload);
    let metric = workload.and_then(|workload| workload.rate()).unwrap_or_default();
    let unit = results.runs.iter().find_map(|run| run.value(&metric)).map(|metric| metric.unit.symbol().to_owned());
    let arm = |arm: &TunedArm| RaceArm {
        id: arm.id.clone(),
        title: results.title(&arm.id).to_owned(),
        read_back: RaceReadBack::Shown {
            evidence: results.arm(&arm.id).map(|arm| arm.placement.clone()).unwrap_or_default(),
        },
        cannot_win: is_no_plan(&arm.id)
            .then(|| "no plan makes it so; it is what the plans are compared with".to_owned()),
        fate: Some(arm.fate),
        peer_bound: None,
        rounds: arm.rounds,
        median: median(results, &arm.id, &metric)
            .map(|value| Rate { value, unit: unit.clone().unwrap_or_else(|| "1/s".to_owned()) }),
        to_reference: arm.to_found.as_ref().map(Into::into),
        to_bare: None,
    };
    Some(RaceView {
        ways: format!("plans of `{}`, kernel {}, within {} s", results.guest(), tuning.kernel, tuning.budget),
        thing: "VM".to_owned(),
        load: workload.map(|workload| workload.label()),
        quantity: unit.clone().unwrap_or_else(|| "Rate".to_owned()),
        reference_name: "the VM as found".to_owned(),
        reference: 0,
        winner: tuning.arms.iter().position(|arm| arm.id == tuning.winner),
        arms: tuning.arms.iter().map(arm).collect(),
        looks: tuning.looks.clone(),
        error: tuning.error,
        slack: tuning.slack,
        took: tuning.took,
        advice: Some(advice(results, tuning)),
        left_out: left_out_rows(&tuning.left_out),
        effects: tuning.effects.iter().map(|effect| effect_row(tuning, effect)).chain(alone_rows(tuning)).collect(),
        ceiling: Vec::new(),
    })
}

/// Arms that are measured and can be nobody's plan.
fn is_no_plan(id: &str) -> bool {
    [AS_FOUND, nearmetal_results::VIRT_INSTALL].contains(&id)
}

fn median(results: &Results, arm: &str, metric: &str) -> Option<f64> {
    let raced = |run: &&nearmetal_results::Run| run.purpose == nearmetal_results::Purpose::Race && run.arm == arm;
    let values = results.runs.iter().filter(raced).filter_map(|run| run.value(metric)).map(|metric| metric.value);
    Sample::new(values.collect()).ok().map(|sample| sample.median())
}

fn effect_row(tuning: &Tuning, effect: &TuneEffect) -> EffectRow {
    let factor = |place: usize| tuning.factors.get(place);
    let id = |place: usize| factor(place).map_or("?", |factor| factor.id.as_str());
    let what = match effect.of.as_slice() {
        [one] => factor(*one).map_or_else(String::new, |factor| {
            format!("{}: {} over {}", factor.id, factor.levels[1], factor.levels[0])
        }),
        several => several.iter().map(|place| id(*place)).collect::<Vec<_>>().join(" with "),
    };
    let confounded = effect.confounded.iter().map(|[one, other]| format!("{} with {}", id(*one), id(*other)));
    EffectRow { what, ratio: (&effect.ratio).into(), confounded: confounded.collect::<Vec<_>>().join(", ") }
}

/// Factors beside the fraction whose worth could be told.
fn alone_rows(tuning: &Tuning) -> impl Iterator<Item = EffectRow> {
    let row = |own: &AloneEffect| {
        let TuneFactor { id, levels: [rule, other] } = &own.of.factor;
        let what = format!("{id}: {other} over {rule}, all else by rule");
        Some(EffectRow { what, ratio: own.ratio.as_ref()?.into(), confounded: String::new() })
    };
    tuning.alone.iter().filter_map(row)
}

fn advice(results: &Results, tuning: &Tuning) -> AdviceView {
    let (kind, arm) = match (&tuning.verdict, &tuning.to_found) {
        (TuneVerdict::Use { arm }, _) => (AdviceKind::Use, arm.as_str()),
        (TuneVerdict::Leave, Some(_)) => (AdviceKind::NoneFaster, tuning.winner.as_str()),
        (TuneVerdict::Leave, None) => (AdviceKind::Unknown, tuning.winner.as_str()),
    };
    // The rules' plan may be advised instead of the winner.
    let is_winner = arm == tuning.winner;
    let (to_reference, to_bare) = match is_winner {
        true => (&tuning.to_found, &tuning.to_bare),
        false => (&tuning.rule_to_found, &tuning.rule_to_bare),
    };
    let mut further = Vec::new();
    if let (Some(to_rule), true) = (&tuning.to_rule, is_winner) {
        further.push(format!("against the plan by rule it did {to_rule} in {} fresh pairs", to_rule.n));
    }
    if !is_winner {
        let winner = results.title(&tuning.winner);
        let is_worse = tuning.to_rule.as_ref().is_some_and(|to_rule| to_rule.interval().high < 1.0);
        further.push(match is_worse {
            true => format!("{winner} won the race, and the plan by rule was shown better than it in fresh pairs"),
            false => format!("{winner} won the race, and fresh pairs did not show it faster than the VM as found"),
        });
    }
    AdviceView {
        kind,
        arm: Some(results.title(arm).to_owned()),
        to_reference: to_reference.as_ref().map(Into::into),
        to_bare: to_bare.as_ref().map(Into::into),
        definition: None,
        further,
    }
}

/// The race, the effects and what to do, for a terminal; empty of results of another experiment.
pub(super) fn text(results: &Results) -> String {
    let (Some(race), Some(tuning)) = (view(results), results.tune.as_deref()) else { return String::new() };
    let mut text = format!("{}: {}\n", results.guest(), race.ways);
    text.push_str(&format!("{}\n\n", race.load.as_deref().unwrap_or_default()));
    text.push_str(&format!("  {:62} {:>8}  {:22} {:>6}\n", "plan", race.quantity, "to the VM as found", "rounds"));
    for number in race.ordered() {
        let arm = &race.arms[number];
        let median = nearmetal_report::value(arm.median.as_ref().map(|rate| rate.value));
        text.push_str(&format!(
            "{} {:62} {median:>8}  {:22} {:>6}  {}\n",
            race.star(number),
            arm.title,
            race.figure(number),
            arm.rounds,
            race.note(number)
        ));
    }
    if !race.effects.is_empty() {
        text.push_str("\nwhat each setting is worth:\n");
    }
    for row in &race.effects {
        let not_told = if row.confounded.is_empty() { String::new() } else { format!("or {}", row.confounded) };
        text.push_str(&format!("  {:62} {:22}  {not_told}\n", row.what, row.ratio.to_string()));
    }
    text.push_str(&super::race::left_out_text(&tuning.left_out));
    text.push_str(&format!(
        "\n{}\n{}it took {:.0} of {} s\n\nin fresh pairs:\n",
        race.statement(),
        race.advice_text(),
        tuning.took,
        tuning.budget
    ));
    text
}

/// The factor whose levels are queues of interfaces.
pub(crate) const QUEUES: &str = "network";

/// Why a plan takes nothing from a tune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// The VM was measured best as it is: whoever plans it all the same must know.
    LeaveIt(String),
    /// The plan by rule is what the tune found, or the tune was of another VM.
    For(String),
}

/// What a plan takes from a tune. `then` is the definition that was tuned, `now` the one that is to be planned.
pub(crate) fn for_plan(
    id: i64,
    results: &Results,
    then: &DomainFacts,
    now: &DomainFacts,
) -> Result<MeasuredGuest, NotTaken> {
    let not_for = |why: &str| NotTaken::For(why.to_owned());
    let tuning = results.tune.as_deref().ok_or_else(|| not_for("its document has no outcome"))?;
    if let Some(why) = changed(then, now) {
        return Err(NotTaken::For(why));
    }
    let arm = match &tuning.verdict {
        TuneVerdict::Use { arm } => arm,
        TuneVerdict::Leave => {
            return Err(NotTaken::LeaveIt("no plan was shown faster than the VM as found".to_owned()));
        }
    };
    if arm == PLANNED {
        return Err(not_for("the plan by rule was the best, and this is it"));
    }
    let choices = arm.parse::<Choices>().map_err(|error| NotTaken::For(error.to_string()))?;
    let disk = now
        .first_writable_virtio_disk()
        .ok_or_else(|| not_for("the VM has no writable virtio disk now"))?
        .target
        .clone();
    let lab = match results.environment {
        Environment::Lab { .. } => " (lab: emulated time)",
        Environment::Silicon => "",
    };
    let faster = tuning.to_found.as_ref().filter(|_| *arm == tuning.winner);
    let faster =
        faster.map_or_else(String::new, |ratio| format!(": {ratio} of the VM as found in {} fresh pairs", ratio.n));
    let under = results.runs.first().map(|run| format!(" under {}", run.workload.label())).unwrap_or_default();
    let because =
        format!("measured by tune run {id} on {}{under}{faster}, on kernel {}{lab}", results.created, tuning.kernel);
    let mut raced = tuning.factors.iter().chain(tuning.alone.iter().map(|own| &own.of.factor));
    let has_raced_queues = raced.any(|factor| factor.id == QUEUES);
    Ok(MeasuredGuest { guest: now.name.clone(), choices, disk, has_raced_queues, because })
}

/// What makes a VM another one than was tuned, in words. What a plan changes itself does not.
fn changed(then: &DomainFacts, now: &DomainFacts) -> Option<String> {
    let had = |what: &str, then: &dyn Display, now: &dyn Display| {
        Some(format!("the VM had {what} {then} then, and has {now} now: tune it again"))
    };
    let class = |facts: &DomainFacts| facts.class.clone().unwrap_or_else(|| WorkloadClass::default().word().to_owned());
    let uuid = |facts: &DomainFacts| facts.uuid.clone().unwrap_or_else(|| "none".to_owned());
    let behind = |facts: &DomainFacts| {
        let of = |disk: &DiskFacts| disk.source.clone().unwrap_or_else(|| "nothing".to_owned());
        facts.first_writable_virtio_disk().map_or_else(|| "no disk".to_owned(), of)
    };
    match () {
        () if uuid(then) != uuid(now) => had("the UUID", &uuid(then), &uuid(now)),
        () if then.vcpus.maximum != now.vcpus.maximum => had("vCPUs:", &then.vcpus.maximum, &now.vcpus.maximum),
        () if then.memory != now.memory => had("memory of", &then.memory, &now.memory),
        () if class(then) != class(now) => had("the class", &class(then), &class(now)),
        () if behind(then) != behind(now) => had("behind its first disk", &behind(then), &behind(now)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_load::{FioJob, Metric, Unit};
    use nearmetal_results::{Arm, ArmName, Outcome, Purpose, Role, Run, Slice, Tenant, TuneFactor};
    use nearmetal_stats::{Fate, Pair, RatioEstimate, ratio};
    use nearmetal_units::{Bytes, CpuSet, NodeSet};

    use nearmetal_results::AloneFactor;

    use super::*;

    const WINNER: &str = "node.small.none-native.main-loop";

    fn about(centre: f64) -> Option<RatioEstimate> {
        let pairs: Vec<Pair> =
            (0..6).map(|pair| Pair { subject: centre * (1.0 + 0.01 * f64::from(pair % 3)), reference: 1.01 }).collect();
        ratio(&pairs, 0.95, 1).ok()
    }

    /// A tune of invented values that says to use an arm, or to leave the VM as it is.
    fn results(verdict: TuneVerdict) -> Results {
        let arm = |name: ArmName| Arm {
            name,
            description: "test".into(),
            region: "/dev/x1".into(),
            xml: None,
            command_line: None,
            placement: vec!["vCPU 0 (thread 7): PU 2".into()],
        };
        let run = |id: &str| Run {
            round: 0,
            position: 0,
            purpose: Purpose::Race,
            arm: id.into(),
            count: 1,
            workload: FioJob::first_seed(Bytes::from_kib(4), 3, 1).into(),
            seed: 1,
            started: "2026-01-01T00:00:00Z".into(),
            seconds: 12.0,
            outcome: Outcome::Measured {
                metrics: Metric::new("iops", Unit::Iops, 1000.0).into_iter().collect(),
                notes: vec![],
            },
            together: None,
        };
        let tuned = |id: &str, fate, to_found| TunedArm { id: id.into(), levels: None, fate, rounds: 3, to_found };
        let slice = Slice {
            cpus: CpuSet::one(2),
            nodes: NodeSet::one(0),
            page_size: None,
            device: "/dev/x".into(),
            region: Bytes::from_mib(256),
            cpus_on_top: CpuSet::one(3),
        };
        Results {
            schema: nearmetal_results::SCHEMA.into(),
            experiment: "tune".into(),
            created: "2026-01-01T00:00:00Z".into(),
            version: "0".into(),
            environment: Environment::Lab { machine: "quad".into() },
            quick: true,
            seed: 1,
            tenants: vec![Tenant { guest: "web1".into(), slice, placement: vec![], load: None }],
            least_overlap: None,
            arms: vec![
                arm(ArmName::as_found()),
                arm(ArmName::new(PLANNED, "by rule", Role::Other)),
                arm(ArmName::new(WINNER, "the other one", Role::Planned)),
            ],
            runs: [AS_FOUND, PLANNED, WINNER].map(run).to_vec(),
            caveats: vec![],
            provenance: Default::default(),
            tiles: None,
            tune: Some(Box::new(Tuning {
                kernel: "6.12".into(),
                budget: 1800,
                took: 1500.0,
                error: 0.05,
                looks: vec![3],
                factors: vec![TuneFactor { id: "pages".into(), levels: ["huge".into(), "small".into()] }],
                left_out: vec![nearmetal_results::LeftOut { what: "pins".into(), why: "--without".into() }],
                arms: vec![
                    tuned(AS_FOUND, Fate::Racing, None),
                    tuned(PLANNED, Fate::Racing, about(1.2)),
                    tuned(WINNER, Fate::Racing, about(1.5)),
                ],
                effects: about(1.25)
                    .map(|ratio| TuneEffect { of: vec![0], confounded: vec![], ratio })
                    .into_iter()
                    .collect(),
                alone: about(1.1)
                    .map(|ratio| AloneEffect {
                        of: AloneFactor {
                            factor: TuneFactor { id: "smt".into(), levels: ["used".into(), "a core each".into()] },
                            arm: WINNER.into(),
                        },
                        ratio: Some(ratio),
                    })
                    .into_iter()
                    .collect(),
                winner: WINNER.into(),
                slack: Some(1.0),
                to_found: about(1.5),
                to_rule: about(1.25),
                to_bare: about(0.8),
                rule_to_found: about(1.3),
                rule_to_bare: about(0.7),
                verdict,
            })),
        }
    }

    fn facts() -> DomainFacts {
        let xml = include_str!("../../../../fixtures/domains/hand-written-minimal.xml");
        nearmetal_domain::DomainXml::parse(xml).unwrap().facts().unwrap()
    }

    #[test]
    fn a_plan_takes_the_winner_and_names_the_run_and_says_why_not_otherwise() {
        let wins = || TuneVerdict::Use { arm: WINNER.into() };
        let measured = for_plan(12, &results(wins()), &facts(), &facts()).unwrap();
        assert_eq!((measured.choices.to_string().as_str(), measured.disk.as_str()), (WINNER, "vda"));
        for words in ["tune run 12 on 2026-01-01", "of the VM as found in 6 fresh pairs", "lab: emulated time"] {
            assert!(measured.because.contains(words), "{}", measured.because);
        }
        let mut queues = results(wins());
        let tuning = queues.tune.as_deref_mut().unwrap();
        tuning.alone[0].of.factor.id = QUEUES.to_owned();
        let with_queues = for_plan(12, &queues, &facts(), &facts()).unwrap();
        assert!(with_queues.has_raced_queues && !measured.has_raced_queues);
        let refused = |verdict, now: &DomainFacts| for_plan(12, &results(verdict), &facts(), now).unwrap_err();
        let for_this = |arm: &str| match refused(TuneVerdict::Use { arm: arm.into() }, &facts()) {
            NotTaken::For(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(for_this("junk").contains("names no choices"));
        assert!(for_this(PLANNED).contains("by rule was the best"));
        assert!(matches!(refused(TuneVerdict::Leave, &facts()), NotTaken::LeaveIt(_)));
    }

    #[test]
    fn a_vm_that_is_another_now_takes_nothing_not_even_the_advice_to_leave_it() {
        let with = |change: &dyn Fn(&mut DomainFacts)| {
            let mut now = facts();
            change(&mut now);
            for verdict in [TuneVerdict::Use { arm: WINNER.into() }, TuneVerdict::Leave] {
                let refused = for_plan(12, &results(verdict), &facts(), &now).unwrap_err();
                assert_eq!(refused, NotTaken::For(changed(&facts(), &now).unwrap()));
            }
            changed(&facts(), &now).unwrap()
        };
        let vcpus = with(&|now| now.vcpus.maximum = 77);
        assert!(vcpus.contains("then, and has 77 now: tune it again"), "{vcpus}");
        assert!(with(&|now| now.memory = now.memory.times(2)).contains("memory of"));
        assert!(with(&|now| now.uuid = Some("another".into())).contains("UUID"));
        assert!(with(&|now| now.class = Some("latency".into())).contains("class"));
        let other = with(&|now| now.disks.iter_mut().for_each(|disk| disk.source = Some("/dev/other".into())));
        assert!(other.contains("/dev/other"), "{other}");
        // A plan pins it and gives it huge pages.
        let mut planned = facts();
        planned.vcpu_pins = vec![(0, CpuSet::one(2))];
        assert_eq!(changed(&facts(), &planned), None);
    }

    #[test]
    fn the_text_says_what_won_what_each_setting_is_worth_and_what_to_do() {
        let text = text(&results(TuneVerdict::Use { arm: WINNER.into() }));
        for words in [
            "* the other one",
            "pages: small over huge",
            "1.25×",
            "smt: a core each over used, all else by rule",
            "1.10×",
            "use: the other one",
            "cannot win",
            "--without",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        let left = super::text(&results(TuneVerdict::Leave));
        assert!(left.contains("leave the VM as it is"), "{left}");
        let mut document = results(TuneVerdict::Use { arm: PLANNED.into() });
        let not_faster = super::text(&document);
        for words in
            ["use: by rule", "it did 1.30×", "the other one won the race, and fresh pairs did not show it faster"]
        {
            assert!(not_faster.contains(words), "`{words}` is not in:\n{not_faster}");
        }
        document.tune.as_deref_mut().unwrap().to_rule = about(0.9);
        assert!(super::text(&document).contains("the plan by rule was shown better than it"), "{not_faster}");
    }
}
