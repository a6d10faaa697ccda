//! A matrix for people: the table, the advice, the chart; and what a plan takes from it.

use nearmetal_measure::{Advice, ArmResult, Bus, DiskPath, Effect, Environment, LeftOut, MatrixResults, PathCache};
use nearmetal_place::{CacheMode, MeasuredDisk};
use nearmetal_report::{MatrixMark, MatrixRow, Surface, matrix_svg};
use nearmetal_stats::{Fate, RatioEstimate};

/// The arms that would be measured.
pub(crate) fn list_text(arms: &[DiskPath], left_out: &[LeftOut], least: u32, budget: u32) -> String {
    let mut text = format!("{} arms:\n", arms.len());
    for arm in arms {
        text.push_str(&format!("  {:58} {}\n", arm.title(), arm.id()));
    }
    text.push_str(&left_out_text(left_out));
    text.push_str(&format!("takes at least {least} s"));
    text.push_str(&if budget < least {
        format!("; the budget is {budget} s: raise --budget, or leave arms out (--without WORD)\n")
    } else {
        format!(", and {budget} s at most\n")
    });
    text
}

pub(super) fn left_out_text(left_out: &[LeftOut]) -> String {
    let lines: String = left_out.iter().map(|left| format!("  {:58} {}\n", left.what, left.why)).collect();
    if lines.is_empty() { lines } else { format!("not measured:\n{lines}") }
}

/// The table, best first, and one recommendation.
pub(crate) fn text(results: &MatrixResults) -> String {
    let ground = &results.ground;
    let mut text = format!(
        "{}: ways to a disk on `{}`, kernel {}, QEMU {}\n{}\n",
        results.guest,
        ground.device,
        ground.kernel,
        ground.qemu,
        results.workload.label()
    );
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    text.push_str(&format!("\n  {:50} {:>8}  {:22} {:>6}\n", "arm", "IOPS", "to QEMU's default", "rounds"));
    for (number, arm) in ordered(results) {
        let mark = if results.winner == Some(number) { '*' } else { ' ' };
        let median = arm.median.map_or_else(|| "?".to_owned(), |median| format!("{median:.0}"));
        let figure = match (&arm.to_default, number) {
            (_, 0) => "1".to_owned(),
            (Some(estimate), _) => ratio_text(estimate),
            (None, _) => "not measured".to_owned(),
        };
        text.push_str(&format!(
            "{mark} {:50} {median:>8}  {figure:22} {:>6}  {}\n",
            arm.path.title(),
            arm.rounds,
            note(results, number, arm)
        ));
    }
    text.push_str(&left_out_text(&results.left_out));
    text.push('\n');
    text.push_str(&statement(results));
    text.push_str(&advice(results));
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    text
}

/// Arms with their numbers: the winner, then by ratio, those without a figure last.
fn ordered(results: &MatrixResults) -> Vec<(usize, &ArmResult)> {
    let standing = |number: usize, arm: &ArmResult| match (number, &arm.to_default) {
        _ if results.winner == Some(number) => f64::INFINITY,
        (0, _) => 1.0,
        (_, Some(estimate)) => estimate.ratio,
        _ => f64::NEG_INFINITY,
    };
    let mut arms: Vec<(usize, &ArmResult)> = results.arms.iter().enumerate().collect();
    arms.sort_by(|one, other| standing(other.0, other.1).total_cmp(&standing(one.0, one.1)));
    arms
}

pub(super) fn ratio_text(estimate: &RatioEstimate) -> String {
    let interval = estimate.interval();
    format!("{:.2}x ({:.2} to {:.2})", estimate.ratio, interval.low, interval.high)
}

fn note(results: &MatrixResults, number: usize, arm: &ArmResult) -> String {
    let rounds = |look: usize| results.looks.get(look).copied().unwrap_or(0);
    if let Effect::NotShown { why } = &arm.effect {
        return format!("did not take effect: {why}");
    }
    let fate = match arm.fate {
        _ if results.winner == Some(number) => "winner".to_owned(),
        Some(Fate::ShownWorse { look, .. }) => format!("shown worse after {} rounds", rounds(look)),
        Some(Fate::Cut { look }) => format!("cut for time after {} rounds, not shown worse", rounds(look)),
        Some(Fate::Withdrawn) => "withdrawn: its runs failed".to_owned(),
        Some(Fate::Racing) => "not told apart from the winner".to_owned(),
        None => String::new(),
    };
    match &arm.cannot_win {
        Some(why) => format!("cannot win: {why}"),
        None => fate,
    }
}

/// What may be said of the race, with its error.
fn statement(results: &MatrixResults) -> String {
    let percent = results.error * 100.0;
    match results.slack {
        Some(slack) if slack <= 1.0 => {
            format!("the race: every other arm that could win was shown worse (error {percent} %)\n")
        }
        Some(slack) => format!(
            "the race: no arm that could win is better than the winner by more than {:.0} % (error {percent} %)\n",
            (slack - 1.0) * 100.0
        ),
        None => "the race: too few rounds to say how much better another arm may be\n".to_owned(),
    }
}

fn advice(results: &MatrixResults) -> String {
    match results.advice() {
        Advice::Use(arm, estimate) => {
            let bare = results.confirmation.as_ref().and_then(|confirmation| confirmation.to_bare.as_ref());
            let bare = bare.map_or_else(String::new, |bare| format!(", {} of bare metal", ratio_text(bare)));
            let scheduler = arm.path.scheduler.map_or_else(String::new, |scheduler| {
                format!("  and on the host: {} as the scheduler of {}\n", scheduler.name(), results.slice.device)
            });
            format!(
                "use: {}\n  because it did {} of QEMU's default{bare} in {} fresh pairs\n  as libvirt writes it: {}\n{scheduler}",
                arm.path.title(),
                ratio_text(estimate),
                estimate.n,
                driver_text(&arm.path)
            )
        }
        Advice::NoneFaster(arm, estimate) => format!(
            "leave the disk as it is: the best arm, {}, did {} of QEMU's default in {} fresh pairs\n",
            arm.path.title(),
            ratio_text(estimate),
            estimate.n
        ),
        Advice::Default => "leave the disk as it is: QEMU's default was the best\n".to_owned(),
        Advice::Unknown => "no advice: the race has no winner that was measured again\n".to_owned(),
    }
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

/// The chart, as a file of its own.
pub(crate) fn chart(results: &MatrixResults) -> String {
    let row = |(number, arm): (usize, &ArmResult)| MatrixRow {
        name: arm.path.title(),
        ratio: if number == 0 { Some(1.0) } else { arm.to_default.as_ref().map(|estimate| estimate.ratio) },
        interval: arm.to_default.as_ref().map(|estimate| (estimate.interval().low, estimate.interval().high)),
        note: note(results, number, arm),
        mark: match number {
            _ if results.winner == Some(number) => MatrixMark::Winner,
            0 => MatrixMark::Default,
            _ => MatrixMark::Other,
        },
    };
    let rows: Vec<MatrixRow> = ordered(results).into_iter().map(row).collect();
    let title = format!("{} on {}: {}", results.guest, results.ground.device, results.workload.label());
    matrix_svg(&title, &rows, matches!(results.environment, Environment::Lab { .. }), Surface::Standalone)
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
    let extra = path.discard || path.detect_zeroes || path.block_size.is_some() || path.scheduler.is_some();
    if path.bus != Bus::VirtioBlk || path.iothreads > 1 || extra {
        return Err(format!("its winner, {title}, has what no plan sets: write it into the definition yourself"));
    }
    let lab = match &results.environment {
        Environment::Lab { .. } => " (lab: emulated time)",
        Environment::Silicon => "",
    };
    Ok(MeasuredDisk {
        guest: guest.to_owned(),
        target: target.to_owned(),
        cache,
        engine: path.engine,
        iothread: path.iothreads == 1,
        queues: path.queues,
        because: format!(
            "measured {} in {}: {} of QEMU's default in {} fresh pairs, on the same drive model ({}) and kernel ({}){lab}",
            results.created,
            results.guest,
            ratio_text(estimate),
            estimate.n,
            results.ground.device,
            results.ground.kernel
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
            "1.54x (1.16 to 2.04) of QEMU's default",
            "<iothread id='1'/><iothread id='2'/>",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        let scheduled = with_winner(|path| path.scheduler = Some(nearmetal_measure::Scheduler::Kyber));
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
        assert!(measured.because.contains("1.54x") && measured.because.contains("lab: emulated time"), "{measured:?}");
        let refused = |results: &MatrixResults, block| for_plan(results, "web1", "vda", block).unwrap_err();
        assert!(refused(&recorded(), true).contains("no plan sets"));
        assert!(refused(&with_winner(|path| path.iothreads = 1), false).contains("another kind of storage"));
        assert!(refused(&with_winner(|path| path.cache = PathCache::Directsync), true).contains("cache=directsync"));
        let unsafe_one = with_winner(|path| path.cache = PathCache::Unsafe);
        assert!(refused(&unsafe_one, true).contains("QEMU's default"), "whatever a file says, unsafe is not advised");
    }

    #[test]
    fn a_list_shows_arms_reasons_and_time() {
        let left_out = [LeftOut { what: "block unsafe/threads".into(), why: "loses data".into() }];
        let arms = [DiskPath::qemu_default(nearmetal_measure::Container::Partition)];
        let text = list_text(&arms, &left_out, 900, 600);
        assert!(text.contains("1 arms") && text.contains("loses data") && text.contains("raise --budget"), "{text}");
        assert!(!list_text(&arms, &[], 900, 1800).contains("raise"));
    }
}
