//! A matrix for people: the table, the advice, the chart; and what a plan takes from it.

use nearmetal_place::{CacheMode, MeasuredDisk};
use nearmetal_report::view::{AdviceView, RaceArm, RaceView, Rate};
use nearmetal_report::{Surface, matrix_svg};
use nearmetal_results::{Advice, ArmResult, Bus, DiskPath, Environment, LeftOut, MatrixResults, PathCache};

use super::race::{self, left_out_text};

/// The arms that would be measured.
pub(crate) fn list_text(arms: &[DiskPath], left_out: &[LeftOut], least: u32, budget: u32) -> String {
    let arms: Vec<(String, String)> = arms.iter().map(|arm| (arm.title(), arm.id())).collect();
    race::list_text(&arms, left_out, least, budget)
}

/// The table, best first, and one recommendation.
pub(crate) fn text(results: &MatrixResults) -> String {
    let race = view(results);
    let mut text = format!("{}: {}\n{}\n", results.guest, race.ways, results.workload.label());
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    text.push_str(&format!("\n  {:50} {:>8}  {:22} {:>6}\n", "arm", "IOPS", "to QEMU's default", "rounds"));
    for number in race.ordered() {
        let arm = &results.arms[number];
        let mark = race.star(number);
        let median = arm.median.map_or_else(|| "?".to_owned(), |median| format!("{median:.0}"));
        let figure = race.figure(number);
        text.push_str(&format!(
            "{mark} {:50} {median:>8}  {figure:22} {:>6}  {}\n",
            arm.path.title(),
            arm.rounds,
            race.note(number)
        ));
    }
    text.push_str(&left_out_text(&results.left_out));
    text.push('\n');
    text.push_str(&format!("{}\n{}", race.statement(), race.advice_text()));
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    text
}

fn driver_text(path: &DiskPath) -> String {
    let attributes: String =
        path.driver_attributes().iter().map(|(name, value)| format!(" {name}='{value}'")).collect();
    let head = format!("<driver name='qemu' type='{}'{attributes}", path.container.format());
    match path.iothreads {
        0 | 1 => format!("{head}/>"),
        several => {
            let each: String = (1..=several).map(|id| format!("<iothread id='{id}'/>")).collect();
            format!("{head}><iothreads>{each}</iothreads></driver>")
        }
    }
}

/// The race as a report shows it.
pub(crate) fn view(results: &MatrixResults) -> RaceView {
    let ground = &results.ground;
    let arm = |arm: &ArmResult| RaceArm {
        id: arm.id.clone(),
        title: arm.path.title(),
        read_back: race::read_back(&arm.effect),
        cannot_win: arm.cannot_win.clone(),
        fate: arm.fate,
        peer_bound: None,
        rounds: arm.rounds,
        median: arm.median.map(|value| Rate { value, unit: "IOPS".to_owned() }),
        to_reference: arm.to_default.as_ref().map(Into::into),
        to_bare: None,
    };
    RaceView {
        ways: format!("ways to a disk on `{}`, kernel {}, QEMU {}", ground.device, ground.kernel, ground.qemu),
        thing: "disk".to_owned(),
        load: Some(results.workload.label()),
        quantity: "IOPS".to_owned(),
        reference_name: "QEMU's default".to_owned(),
        reference: 0,
        winner: results.winner,
        arms: results.arms.iter().map(arm).collect(),
        looks: results.looks.clone(),
        error: results.error,
        slack: results.slack,
        took: results.took,
        advice: Some(advice(results)),
        left_out: race::left_out_rows(&results.left_out),
        effects: Vec::new(),
        ceiling: Vec::new(),
    }
}

fn advice(results: &MatrixResults) -> AdviceView {
    let advice = results.advice();
    let view = race::advice_of(&advice, |arm| arm.path.title());
    let Advice::Use(arm, _) = advice else { return view };
    let scheduler = arm
        .path
        .scheduler
        .map(|scheduler| format!("and on the host: {} as the scheduler of {}", scheduler.name(), results.slice.device));
    AdviceView {
        to_bare: results.confirmation.as_ref().and_then(|confirmation| confirmation.to_bare.as_ref()).map(Into::into),
        definition: Some(driver_text(&arm.path)),
        further: scheduler.into_iter().collect(),
        ..view
    }
}

/// What the chart and the page of a race are called.
pub(crate) fn title(results: &MatrixResults) -> String {
    format!("{} on {}: {}", results.guest, results.ground.device, results.workload.label())
}

/// The chart, as a file of its own.
pub(crate) fn chart(results: &MatrixResults) -> String {
    let lab = matches!(results.environment, Environment::Lab { .. });
    matrix_svg(&title(results), &view(results).rows(), lab, Surface::Standalone)
}

/// What a plan takes from a matrix for one disk; `Err` says in words why it takes nothing.
pub(crate) fn for_plan(
    results: &MatrixResults,
    guest: &str,
    target: &str,
    is_block: bool,
) -> Result<MeasuredDisk, String> {
    let (arm, estimate) = match results.advice() {
        Advice::Use(arm, estimate) => (arm, estimate),
        _ => return Err("it advises nothing but QEMU's default".to_owned()),
    };
    let path = &arm.path;
    let title = path.title();
    if path.container.is_file() == is_block {
        return Err(format!("its winner, {title}, is another kind of storage than disk {target}"));
    }
    let cache = match path.cache {
        PathCache::None => CacheMode::None,
        PathCache::Writeback => CacheMode::Writeback,
        other => return Err(format!("its winner, {title}, needs cache={}, which no plan sets", other.id())),
    };
    if let Some(scheduler) = path.scheduler {
        return Err(format!(
            "its winner, {title}, has a scheduler, which no plan sets: choose {} for {} on the host, and write the rest into the \
             definition yourself",
            scheduler.name(),
            results.slice.device
        ));
    }
    let extra = path.discard || path.detect_zeroes || path.block_size.is_some();
    if path.bus != Bus::VirtioBlk || path.iothreads > 1 || extra {
        return Err(format!(
            "its winner, {title}, has what no plan takes from a race of disks: write it into the definition yourself"
        ));
    }
    Ok(MeasuredDisk {
        guest: guest.to_owned(),
        target: target.to_owned(),
        cache,
        engine: path.engine,
        iothread: path.iothreads == 1,
        queues: path.queues,
        because: race::measured_text(
            (&results.created, &results.guest),
            (estimate, "QEMU's default"),
            ("drive model", &results.ground),
            &results.environment,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A matrix of the lab, as it came out; the race's runs are left out.
    const RECORDED: &str = include_str!("../../../../fixtures/results/matrix-lab-quad.json");

    fn recorded() -> MatrixResults {
        MatrixResults::parse(RECORDED).unwrap()
    }

    /// The recorded one with a winner changed by hand.
    fn with_winner(change: impl FnOnce(&mut DiskPath)) -> MatrixResults {
        let mut results = recorded();
        let winner = results.winner.unwrap();
        change(&mut results.arms[winner].path);
        results
    }

    #[test]
    fn the_table_says_what_was_shown_and_what_was_not() {
        let text = text(&recorded());
        for words in [
            "lab: emulated time (machine quad)",
            "* partition none/io_uring 2 iothreads",
            "cut for time after 3 rounds, not shown worse",
            "cannot win: the host's free memory",
            "use: partition none/io_uring 2 iothreads",
            "1.54× (1.16–2.04) of QEMU's default",
            "<iothread id='1'/><iothread id='2'/>",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        let scheduled = with_winner(|path| path.scheduler = Some(nearmetal_results::Scheduler::Kyber));
        let advice = super::text(&scheduled);
        assert!(advice.contains("and on the host: kyber as the scheduler of /dev/"), "{advice}");
        let unsure = MatrixResults { confirmation: None, ..recorded() };
        assert!(super::text(&unsure).contains("no advice"));
    }

    #[test]
    fn the_chart_has_every_arm() {
        let results = recorded();
        let svg = chart(&results);
        assert_eq!(svg.matches("<polygon").count(), results.arms.len());
        assert!(svg.contains("lab: emulated time"));
    }

    #[test]
    fn a_plan_takes_what_it_can_set_and_says_why_not_otherwise() {
        let measured = for_plan(&with_winner(|path| path.iothreads = 1), "web1", "vda", true).unwrap();
        assert_eq!((measured.cache, measured.iothread, measured.queues), (CacheMode::None, true, None));
        assert!(measured.because.contains("1.54×") && measured.because.contains("lab: emulated time"), "{measured:?}");
        let refused = |results: &MatrixResults, block| for_plan(results, "web1", "vda", block).unwrap_err();
        assert!(refused(&recorded(), true).contains("no plan takes"));
        assert!(refused(&with_winner(|path| path.iothreads = 1), false).contains("another kind of storage"));
        assert!(refused(&with_winner(|path| path.cache = PathCache::Directsync), true).contains("cache=directsync"));
        let scheduled = with_winner(|path| path.scheduler = Some(nearmetal_results::Scheduler::Kyber));
        assert!(refused(&scheduled, true).contains("choose kyber for /dev/"));
        let unsafe_one = with_winner(|path| path.cache = PathCache::Unsafe);
        assert!(refused(&unsafe_one, true).contains("QEMU's default"), "whatever a file says, unsafe is not advised");
    }

    #[test]
    fn a_list_shows_arms_reasons_and_time() {
        let left_out = [LeftOut { what: "block unsafe/threads".into(), why: "loses data".into() }];
        let arms = [DiskPath::qemu_default(nearmetal_results::Container::Partition)];
        let text = list_text(&arms, &left_out, 900, 600);
        assert!(text.contains("1 arms") && text.contains("loses data") && text.contains("raise --budget"), "{text}");
        assert!(!list_text(&arms, &[], 900, 1800).contains("raise"));
    }
}
