//! A network matrix for people: the table, the ceiling, the advice, the chart.

use nearmetal_load::{NetTest, Unit};
use nearmetal_report::view::{AdviceKind, AdviceView, CeilingRow, RaceArm, RaceView, Rate};
use nearmetal_report::{Surface, matrix_svg_of};
use nearmetal_results::{
    Advice, Ceiling, CostsOf, Effect, Environment, LeftOut, Link, NetArmResult, NetCostRow, NetFigure,
    NetMatrixResults, NetPath, cost_figures, lift_text, net_cost_table,
};

use super::race::{self, left_out_text};

/// The arms that would be measured, and what the peer must run for the tests.
pub(crate) fn list_text(arms: &[NetPath], left_out: &[LeftOut], tests: &[NetTest], least: u32, budget: u32) -> String {
    let arms: Vec<(String, String)> = arms.iter().map(|arm| (arm.title(), arm.id())).collect();
    race::list_text(&arms, left_out, least, budget) + &format!("on the peer: {}\n", on_the_peer(tests))
}

/// The commands that must run on the peer.
fn on_the_peer(tests: &[NetTest]) -> String {
    let mut commands = vec!["`netserver`".to_owned()];
    commands.extend(tests.iter().filter_map(|test| test.server()).map(|server| format!("`{server}`")));
    commands.join(" and ")
}

/// A value in a unit people read, with the unit.
fn shown(value: f64, unit: Unit) -> String {
    match unit {
        Unit::BitsPerSecond => format!("{:.1} Mbit/s", value / 1e6),
        Unit::TransactionsPerSecond => format!("{value:.0} trans/s"),
        Unit::Nanoseconds if value >= 1e6 => format!("{:.2} ms", value / 1e6),
        Unit::Nanoseconds | Unit::CpuNanosecondsPerTransaction => format!("{:.0} µs", value / 1e3),
        Unit::CpuSecondsPerGigabit => format!("{value:.2} s/Gbit"),
        other => format!("{value:.0} {}", other.symbol()),
    }
}

fn decided_unit(results: &NetMatrixResults) -> Unit {
    if results.decided_by().is_stream() { Unit::BitsPerSecond } else { Unit::TransactionsPerSecond }
}

/// The table, best first, and one recommendation.
pub(crate) fn text(results: &NetMatrixResults) -> String {
    let race = view(results);
    let mut text = format!(
        "{}: {}\nthe race: {}, {} s a run\n",
        results.guest,
        race.ways,
        results.decided_by().label(),
        results.seconds
    );
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    text.push_str("\nwithout a guest (the ceiling; a figure from 90 % of it on is marked peer-bound):\n");
    for ceiling in &results.ceiling {
        let values = |values: &[f64]| {
            let each: Vec<String> = values.iter().map(|value| shown(*value, ceiling.unit)).collect();
            if each.is_empty() { "not measured".to_owned() } else { each.join(", ") }
        };
        text.push_str(&format!("  {:34} all PUs    {}\n", ceiling.test.label(), values(&ceiling.unconfined)));
        text.push_str(&format!("  {:34} the slice  {}\n", "", values(&ceiling.confined)));
    }
    text.push_str(&format!(
        "\n  {:42} {:>16}  {:22} {:22} {:>6}\n",
        "arm",
        "median",
        &format!("to {}", reference(results)),
        "to bare metal",
        "rounds"
    ));
    for number in race.ordered() {
        let arm = &results.arms[number];
        let mark = race.star(number);
        let median = arm.median.map_or_else(|| "?".to_owned(), |median| shown(median, decided_unit(results)));
        let figure = race.figure(number);
        let bare = arm.to_bare.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        text.push_str(&format!(
            "{mark} {:42} {median:>16}  {figure:22} {bare:22} {:>6}  {}\n",
            arm.path.title(),
            arm.rounds,
            race.note(number)
        ));
        if let Effect::Shown { evidence } = &arm.effect {
            text.push_str(&evidence.iter().map(|line| format!("      {line}\n")).collect::<String>());
        }
    }
    text.push_str(&left_out_text(&results.left_out));
    text.push_str(&fresh(results));
    text.push_str(&costs(results));
    text.push('\n');
    text.push_str(&format!("{}\n{}", race.statement(), race.advice_text()));
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    text
}

/// Every path with what showed it, or what was found instead.
pub(crate) fn paths_text(results: &NetMatrixResults) -> String {
    let mut text = format!("{}: ways to `{}` ({}), read back\n", results.guest, results.port, results.ground.device);
    for arm in &results.arms {
        match &arm.effect {
            Effect::Shown { evidence } => {
                text.push_str(&format!("✓ {:42} {}\n", arm.path.title(), arm.id));
                text.push_str(&evidence.iter().map(|line| format!("      {line}\n")).collect::<String>());
            }
            Effect::NotShown { why } => {
                text.push_str(&format!("✗ {:42} {}\n      did not take effect: {why}\n", arm.path.title(), arm.id));
            }
        }
    }
    text.push_str(&left_out_text(&results.left_out));
    text
}

/// What all is compared with, in words.
pub(super) fn reference(results: &NetMatrixResults) -> String {
    match results.arms.get(results.reference) {
        Some(arm) if results.reference != 0 => arm.path.title(),
        _ => "libvirt's default".to_owned(),
    }
}

/// Where the time goes, a line for each test, arm and group.
fn costs(results: &NetMatrixResults) -> String {
    let rows = net_cost_table(results);
    let mut text = String::new();
    let mut at = 0;
    while let Some(first) = rows.get(at) {
        let same = |row: &&NetCostRow| (row.test, row.arm, row.cost) == (first.test, first.arm, first.cost);
        let line: Vec<(&str, f64)> =
            rows[at..].iter().take_while(same).map(|row| (row.name.as_str(), row.each)).collect();
        at += line.len();
        let each = if first.test.is_stream() { "Gbit" } else { "transaction" };
        let title = results.arms.get(first.arm).map_or_else(String::new, |arm| arm.path.title());
        let group = format!("{}/{each}", first.cost.title());
        text.push_str(&format!("  {:12} {title:42} {group:28} {}\n", first.test.id(), cost_figures(first.cost, &line)));
    }
    if text.is_empty() {
        return text;
    }
    let title = "where the time goes (in the race, for arms that were not measured again)";
    format!("\n{title}:\n{text}{}", lifts(results, &rows))
}

/// What would lift the guests of the arms, in the test that decides.
fn lifts(results: &NetMatrixResults, rows: &[NetCostRow]) -> String {
    let guest = |(number, arm): (usize, &NetArmResult)| {
        let own = rows.iter().filter(|row| (row.test, row.arm) == (results.decided_by(), number));
        CostsOf { who: arm.path.title(), costs: own.map(|row| (row.cost, row.name.as_str(), row.each)).collect() }
    };
    lift_text(&results.arms.iter().enumerate().map(guest).collect::<Vec<_>>())
}

/// The fresh rounds: every metric of winner, reference and bare slice.
fn fresh(results: &NetMatrixResults) -> String {
    let Some(confirmation) = &results.confirmation else { return String::new() };
    let rounds = confirmation.turns.iter().map(|turn| turn.round + 1).max().unwrap_or(0);
    let mut text = format!(
        "\nagain in {rounds} fresh rounds, each guest booted for its run, with this card alone:\n  {:22} {:>16} {:>16} {:>16}  {:22} {:22} {:22}\n",
        "", "winner", "reference", "bare slice", "to reference", "to bare", "reference to bare"
    );
    for figure in &confirmation.figures {
        text.push_str(&line(results, figure));
    }
    text
}

fn line(results: &NetMatrixResults, figure: &NetFigure) -> String {
    let bare = results.arms.iter().position(|arm| arm.path.link == Link::Bare);
    let median = |arm: Option<usize>| {
        let found = figure.medians.iter().find(|(number, _)| Some(*number) == arm);
        found.map_or_else(|| "?".to_owned(), |(_, value)| shown(*value, figure.unit))
    };
    let estimate = |estimate: &Option<nearmetal_stats::RatioEstimate>| {
        estimate.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
    };
    format!(
        "  {:22} {:>16} {:>16} {:>16}  {:22} {:22} {:22}{}\n",
        figure.metric,
        median(results.winner),
        median(Some(results.reference)),
        median(bare),
        estimate(&figure.to_default),
        estimate(&figure.to_bare),
        estimate(&figure.default_to_bare),
        if figure.peer_bound == Some(true) { " winner peer-bound" } else { "" }
    )
}

/// Whether the ways were raced, and not only read back: both leave the same document.
pub(super) fn was_raced(results: &NetMatrixResults) -> bool {
    !results.turns.is_empty() || results.winner.is_some()
}

/// The race as a report shows it.
pub(crate) fn view(results: &NetMatrixResults) -> RaceView {
    let ground = &results.ground;
    let rate = |value: f64, unit: Unit| {
        let (symbol, scale) = super::metrics::on_screen(unit);
        Rate { value: value * scale, unit: symbol.to_owned() }
    };
    let arm = |arm: &NetArmResult| RaceArm {
        id: arm.id.clone(),
        title: arm.path.title(),
        read_back: race::read_back(&arm.effect),
        cannot_win: arm.cannot_win.clone(),
        fate: arm.fate,
        peer_bound: arm.peer_bound,
        rounds: arm.rounds,
        median: arm.median.map(|median| rate(median, decided_unit(results))),
        to_reference: arm.to_default.as_ref().map(Into::into),
        to_bare: arm.to_bare.as_ref().map(Into::into),
    };
    let ceiling = |row: &Ceiling| {
        let (symbol, scale) = super::metrics::on_screen(row.unit);
        let shown = |values: &[f64]| values.iter().map(|value| value * scale).collect();
        CeilingRow {
            test: row.test.label().to_owned(),
            unit: symbol.to_owned(),
            unconfined: shown(&row.unconfined),
            confined: shown(&row.confined),
        }
    };
    let raced = was_raced(results);
    RaceView {
        ways: format!(
            "ways to `{}` ({}), kernel {}, QEMU {}, peer {}",
            results.port, ground.device, ground.kernel, ground.qemu, results.peer
        ),
        thing: "card".to_owned(),
        load: raced.then(|| format!("{}, {} s a run", results.decided_by().label(), results.seconds)),
        quantity: if results.decided_by().is_stream() { "Bits a second" } else { "Transactions a second" }.to_owned(),
        reference_name: reference(results),
        reference: results.reference,
        winner: results.winner,
        arms: results.arms.iter().map(arm).collect(),
        looks: results.looks.clone(),
        error: results.error,
        slack: results.slack,
        took: results.took,
        advice: raced.then(|| advice(results)),
        left_out: race::left_out_rows(&results.left_out),
        effects: Vec::new(),
        ceiling: results.ceiling.iter().map(ceiling).collect(),
    }
}

fn advice(results: &NetMatrixResults) -> AdviceView {
    let advice = results.advice();
    let view = race::advice_of(&advice, |arm| arm.path.title());
    match advice {
        Advice::Use(arm, _) => {
            let figure =
                results.confirmation.as_ref().and_then(|confirmation| confirmation.of_test(results.decided_by()));
            let function = (arm.path.link == Link::VfHostdev).then(|| arm.source.parse().ok()).flatten();
            let further = [in_the_guest(&arm.path), price(arm.path.link)].map(|line| line.trim().to_owned());
            AdviceView {
                to_bare: figure.and_then(|figure| figure.to_bare.as_ref()).map(Into::into),
                definition: Some(arm.path.lines_for_libvirt(&arm.source, function)),
                further: further.into_iter().filter(|line| !line.is_empty()).collect(),
                ..view
            }
        }
        Advice::Default if results.reference != 0 => {
            AdviceView { kind: AdviceKind::Reference, arm: Some(reference(results)), ..view }
        }
        _ => view,
    }
}

/// What the guest itself has to do, which no definition says.
pub(super) fn in_the_guest(path: &NetPath) -> &'static str {
    if path.rps {
        "  and in the guest, for each receive queue of the card: the mask of all its vCPUs into queues/rx-N/rps_cpus\n"
    } else {
        ""
    }
}

/// What a winner costs in other ways, which no figure here shows.
pub(super) fn price(link: Link) -> &'static str {
    match link {
        Link::VfHostdev => {
            "  its price: the guest cannot move to another host while it has the function, and needs its driver\n"
        }
        Link::MacvtapBridge | Link::MacvtapPrivate => {
            "  its price: the host itself does not reach the guest through that port (a limit of macvtap)\n"
        }
        Link::MacvtapPassthrough => "  its price: the port belongs to this guest alone, and the host has none of it\n",
        Link::VfMacvtapPassthrough => "  its price: the virtual function belongs to this guest alone\n",
        Link::Bridge | Link::Bare => "",
    }
}

/// What the chart and the page of a race are called.
pub(crate) fn title(results: &NetMatrixResults) -> String {
    format!("{} on {}: {}", results.guest, results.port, results.decided_by().label())
}

/// The chart, as a file of its own.
pub(crate) fn chart(results: &NetMatrixResults) -> String {
    let race = view(results);
    let axis = format!("{} as a ratio to {}", race.quantity, race.reference_name);
    let lab = matches!(results.environment, Environment::Lab { .. });
    matrix_svg_of(&title(results), &axis, &race.rows(), lab, Surface::Standalone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::net_for_plan::tests::results;

    fn user_space() -> NetMatrixResults {
        results(NetPath::over_a_bridge(2)[1], "eth0", 1.2)
    }

    #[test]
    fn the_table_says_what_it_compares_with_and_what_to_use() {
        let results = user_space();
        let text = text(&results);
        for words in [
            "lab: emulated time (machine quad)",
            "to libvirt's default",
            "use: virtio in user space, bridge",
            "of libvirt's default",
            "<driver name='qemu'/>",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
        assert!(chart(&results).contains("as a ratio to libvirt") && paths_text(&results).contains("✓"));
    }

    #[test]
    fn what_lifts_a_guest_names_rules_there_are() {
        for id in nearmetal_results::lift_rules() {
            assert!(nearmetal_rules::rule(id).is_some(), "there is no rule `{id}`");
        }
    }

    #[test]
    fn another_reference_is_named_everywhere() {
        let results = NetMatrixResults { reference: 1, ..user_space() };
        let text = text(&results);
        assert!(text.contains("to virtio in user space, bridge"), "{text}");
        assert!(
            text.contains("use: virtio in user space, bridge") && text.contains("libvirt's default took none"),
            "{text}"
        );
        assert!(chart(&results).contains("as a ratio to virtio in user space, bridge"));
    }
}
