//! A fleet as it is now: a line with bars for each host, and below it what it has, where there is room.

use nearmetal_units::Bytes;

use super::paint::{Ink, Page, Style};
use crate::text::{count, grouped, one_line, shorten};
use crate::watch::{HostState, WatchAnswer, WatchGuest, WatchHost, WatchTransfer, WatchView, WatchVms};

/// Cells of a bar, at least and at most; below, figures stand alone.
const SHORTEST_BAR: usize = 4;
const LONGEST_BAR: usize = 20;
/// The longest name of a guest or an image.
const LONGEST_NAME: usize = 40;
/// VMs named in one line.
const NAMED: usize = 8;
/// Images on their way that are drawn of a host; one that nobody pushes any more stays until somebody does.
const MOST_TRANSFERS: usize = 3;

type Line = Vec<(String, Ink)>;

/// A host's lines: those that are always drawn, and those that there may be no room for.
struct Block {
    always: String,
    more: String,
    /// The lower, the sooner it is drawn where not all have room.
    rank: u8,
}

/// The picture; no line is wider than `style.width` (40 at least). With `rows`, it has no more lines than that (8 at least):
/// first what hosts have is left out, then hosts that answer and get no image, and what was left out is counted.
pub fn watch_picture(view: &WatchView, style: &Style, rows: Option<usize>) -> String {
    let head = painted(style, |page| header(page, view));
    let foot = painted(style, legend);
    let columns = Columns::of(view, style.width.max(40));
    let titles = painted(style, |page| columns.titles(page));
    let blocks: Vec<Block> = view.hosts.iter().map(|host| block(host, &columns, style)).collect();
    let whole = |with: bool| {
        let text: String =
            blocks.iter().map(|block| block.always.clone() + if with { &block.more } else { "" }).collect();
        format!("{head}{titles}{text}{foot}")
    };
    let full = whole(true);
    let Some(rows) = rows.map(|rows| rows.max(8)) else { return full };
    if lines(&full) <= rows {
        return full;
    }
    let short = whole(false);
    let left_out =
        painted(style, |page| page.wrapped("guests and images are left out: `--once` shows them", Ink::Quiet, 0));
    if lines(&short) + lines(&left_out) <= rows {
        return short + &left_out;
    }
    // Not even a line for each has room: who needs somebody comes first.
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| blocks[*at].rank);
    let mut room = rows.saturating_sub(lines(&head) + lines(&titles) + 1);
    let fits = |at: &&usize| {
        let needed = lines(&blocks[**at].always);
        let fits = needed <= room;
        room -= if fits { needed } else { 0 };
        fits
    };
    let mut shown: Vec<usize> = order.iter().filter(fits).copied().collect();
    shown.sort_unstable();
    let text: String = shown.iter().map(|at| blocks[*at].always.as_str()).collect();
    let hidden = count(blocks.len() - shown.len(), "more host");
    let rest = painted(style, |page| {
        page.line(&[(format!("and {hidden}: `--once` shows all"), Ink::Quiet)]);
    });
    // A head of many lines on a terminal of few.
    let all = format!("{head}{titles}{text}{rest}");
    all.lines().take(rows).map(|line| format!("{line}\n")).collect()
}

fn painted(style: &Style, draw: impl FnOnce(&mut Page)) -> String {
    let mut page = Page::new(*style);
    draw(&mut page);
    page.finish()
}

fn lines(text: &str) -> usize {
    text.matches('\n').count()
}

fn answers(view: &WatchView) -> impl Iterator<Item = &WatchAnswer> {
    view.hosts.iter().filter_map(|host| match &host.state {
        HostState::Answered(answer) => Some(answer),
        _ => None,
    })
}

fn header(page: &mut Page, view: &WatchView) {
    let hosts = count(view.hosts.len(), "host");
    page.wrapped(&format!("{} · {hosts} · {}", shorten(&one_line(&view.title), 60), view.time), Ink::Strong, 0);
    let silent = view.hosts.iter().filter(|host| matches!(host.state, HostState::Silent { .. })).count();
    if silent > 0 {
        let words =
            if silent == 1 { "1 host does not answer".to_owned() } else { format!("{silent} hosts do not answer") };
        page.wrapped(&words, Ink::Bad, 0);
    }
    let sum = |of: &dyn Fn(&WatchAnswer) -> Option<u64>| -> Option<u64> {
        answers(view).map(of).try_fold(0_u64, |sum, one| Some(sum.saturating_add(one?)))
    };
    let shown = |amount: Option<u64>| amount.map_or("?".to_owned(), |amount| grouped(amount as f64));
    let pus = shown(sum(&|answer| answer.pus.map(|pus| pus as u64)));
    let taken = shown(sum(&|answer| taken(answer).map(|taken| taken as u64)));
    let bytes = |amount: Option<u64>| amount.map_or("?".to_owned(), |amount| Bytes::new(amount).to_string());
    let free = bytes(sum(&|answer| answer.memory_free.map(Bytes::get)));
    let memory = bytes(sum(&|answer| answer.memory.map(Bytes::get)));
    let guests = || answers(view).flat_map(|answer| &answer.guests).filter(|guest| guest.running);
    let runs = guests().filter(|guest| guest.is_run).count() as u64;
    let runs = shown(answers(view).all(|answer| answer.runs.is_some()).then_some(runs));
    let moving = answers(view).flat_map(|answer| answer.transfers.iter().flatten()).filter(|one| one.running).count();
    let mut parts = vec![
        format!("{taken} of {pus} PUs taken"),
        format!("{free} of {memory} memory free"),
        format!("{} ({runs} of `nearmetal run`)", count(guests().count(), "guest")),
    ];
    if moving > 0 {
        parts.push(format!("{} on the way", count(moving, "image")));
    }
    page.wrapped(&parts.join(" · "), Ink::Plain, 0);
    if let Some(vms) = &view.vms {
        let unheard = view.hosts.iter().filter(|host| !matches!(host.state, HostState::Answered(_))).count();
        wanted(page, vms, unheard > 0);
    }
    page.blank();
}

/// The VMs of the file, and those that something is wrong with.
fn wanted(page: &mut Page, vms: &WatchVms, some_unheard: bool) {
    let running = vms.wanted.saturating_sub(vms.missing.len());
    let mut words = format!("{} of {} of the file run", grouped(running as f64), count(vms.wanted, "VM"));
    if !vms.missing.is_empty() {
        let seen =
            if some_unheard { "; not seen to run, and some hosts have not answered: " } else { "; not running: " };
        let names: Vec<String> =
            vms.missing.iter().take(NAMED).map(|name| shorten(&one_line(name), LONGEST_NAME)).collect();
        let more = vms.missing.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {} more", grouped(more as f64)) } else { String::new() };
        words = format!("{words}{seen}{}{more}", names.join(", "));
    }
    page.wrapped(&words, if vms.missing.is_empty() { Ink::Plain } else { Ink::Unsure }, 0);
    for (name, hosts) in vms.several.iter().take(NAMED) {
        let name = shorten(&one_line(name), LONGEST_NAME);
        page.wrapped(&format!("✗ `{name}` runs on several hosts: {}", hosts.join(", ")), Ink::Bad, 0);
    }
}

/// Widths of the columns.
struct Columns {
    name: usize,
    bar: usize,
    pus: usize,
    memory: usize,
    guests: usize,
    images: usize,
    runs: bool,
}

impl Columns {
    fn of(view: &WatchView, width: usize) -> Self {
        let widest = |least: usize, each: &dyn Fn(&WatchAnswer) -> String| {
            answers(view).map(|answer| each(answer).chars().count()).max().unwrap_or(0).max(least)
        };
        let names = view.hosts.iter().map(|host| one_line(&host.name).chars().count()).max().unwrap_or(0);
        let runs = width >= 80;
        let mut columns = Self {
            name: names.clamp(4, (width / 5).clamp(10, 24)),
            bar: 0,
            pus: widest(3, &pus),
            memory: widest(4, &|answer| amount(answer.memory_free)),
            guests: widest(6, &|answer| guests(answer, runs)),
            images: widest(6, &images),
            runs,
        };
        let fixed = columns.name + columns.pus + columns.memory + columns.guests + columns.images + 4 * 2;
        let bar = (width.saturating_sub(fixed) / 2).saturating_sub(1).min(LONGEST_BAR);
        columns.bar = if bar < SHORTEST_BAR { 0 } else { bar };
        columns
    }

    /// What a bar and the space behind it take.
    fn barred(&self, figure: usize) -> usize {
        figure + if self.bar > 0 { self.bar + 1 } else { 0 }
    }

    fn titles(&self, page: &mut Page) {
        let (name, pus, memory) = (self.name, self.barred(self.pus), self.barred(self.memory));
        let short = self.bar == 0;
        let (first, second) = if short { ("PUs", "free") } else { ("PUs taken", "memory free") };
        let line = format!(
            "{:name$}  {first:pus$}  {second:memory$}  {:guests$}  images",
            "host",
            "guests",
            guests = self.guests
        );
        page.line(&[(line, Ink::Quiet)]);
    }
}

/// PUs that guests have; `None`: not known.
fn taken(answer: &WatchAnswer) -> Option<usize> {
    Some(answer.runs? + answer.bound)
}

fn pus(answer: &WatchAnswer) -> String {
    let shown = |pus: Option<usize>| pus.map_or("?".to_owned(), |pus| pus.to_string());
    format!("{}/{}", shown(taken(answer)), shown(answer.pus))
}

fn amount(amount: Option<Bytes>) -> String {
    amount.map_or("?".to_owned(), |amount| amount.to_string())
}

fn guests(answer: &WatchAnswer, with_runs: bool) -> String {
    let running = || answer.guests.iter().filter(|guest| guest.running);
    let runs = running().filter(|guest| guest.is_run).count();
    let all = running().count();
    match runs {
        _ if with_runs && all > 0 && answer.runs.is_none() => format!("{all}, ? runs"),
        0 => all.to_string(),
        _ if !with_runs => all.to_string(),
        1 => format!("{all}, 1 run"),
        _ => format!("{all}, {runs} runs"),
    }
}

fn images(answer: &WatchAnswer) -> String {
    answer.images.as_ref().map_or("?".to_owned(), |images| images.len().to_string())
}

fn block(host: &WatchHost, columns: &Columns, style: &Style) -> Block {
    let width = columns.name;
    let name = (format!("{:width$}  ", shorten(&one_line(&host.name), width)), Ink::Strong);
    match &host.state {
        HostState::Asked => {
            let line = [name, ("asked, no answer yet".to_owned(), Ink::Quiet)];
            Block { always: painted(style, |page| page.line(&line)), more: String::new(), rank: 2 }
        }
        HostState::Silent { problem, answered } => {
            let answered = match answered {
                Some(time) => format!("answered last at {time}"),
                None => "never answered".to_owned(),
            };
            let words = format!("✗ {}; {answered}", one_line(problem));
            let room = style.width.max(40).saturating_sub(width + 2);
            let always = painted(style, |page| {
                if words.chars().count() <= room {
                    page.line(&[name, (words, Ink::Bad)]);
                } else {
                    page.line(&[name, (format!("✗ {answered}"), Ink::Bad)]);
                    page.wrapped(&shorten(problem, 240), Ink::Plain, 2);
                }
            });
            Block { always, more: String::new(), rank: 0 }
        }
        HostState::Answered(answer) => {
            let transfers = answer.transfers.as_deref().unwrap_or_default();
            let always = painted(style, |page| {
                page.line(&figures(name, answer, columns));
                let (moving, stopped): (Vec<_>, Vec<_>) = transfers.iter().partition(|transfer| transfer.running);
                let drawn = moving.iter().chain(&stopped).take(MOST_TRANSFERS);
                drawn.for_each(|transfer| page.line(&on_its_way(transfer, page.width())));
                if let Some(more) = transfers.len().checked_sub(MOST_TRANSFERS).filter(|more| *more > 0) {
                    page.wrapped(&format!("→ and {}", count(more, "more image")), Ink::Plain, 2);
                }
            });
            let rank = if transfers.iter().any(|transfer| transfer.running) { 1 } else { 3 };
            Block { always, more: painted(style, |page| details(page, answer)), rank }
        }
    }
}

fn figures(name: (String, Ink), answer: &WatchAnswer, columns: &Columns) -> Line {
    let mut line = vec![name];
    let runs = answer.runs.map(|runs| runs as u64);
    let taken = [('█', Ink::Planned, runs.unwrap_or(0)), ('▓', Ink::Found, answer.bound as u64)];
    line.extend(bar(&taken, answer.pus.map(|pus| pus as u64).filter(|_| runs.is_some()), columns.bar));
    line.push((format!("{:<width$}  ", pus(answer), width = columns.pus), Ink::Plain));
    let bytes = |amount: Option<Bytes>| amount.map(Bytes::get);
    let total = bytes(answer.memory);
    let used = total.zip(bytes(answer.memory_free)).map(|(total, free)| total.saturating_sub(free));
    let memory = used.map(|used| {
        // Guests that have not touched all of theirs yet: what is used is the most that is theirs.
        let theirs = bytes(answer.memory_guests).unwrap_or(0).min(used);
        [('█', Ink::Planned, theirs), ('▒', Ink::Quiet, used - theirs)]
    });
    line.extend(bar(memory.as_ref().map_or(&[], |parts| parts), total.filter(|_| used.is_some()), columns.bar));
    line.push((format!("{:<width$}  ", amount(answer.memory_free), width = columns.memory), Ink::Plain));
    line.push((format!("{:<width$}  ", guests(answer, columns.runs), width = columns.guests), Ink::Plain));
    line.push((format!("{:<width$}", images(answer), width = columns.images), Ink::Plain));
    line
}

/// Parts of a whole in so many cells: a part that is there has one at least, and a whole that is not full shows it.
fn bar(parts: &[(char, Ink, u64)], whole: Option<u64>, cells: usize) -> Line {
    if cells == 0 {
        return Line::new();
    }
    let Some(whole) = whole.filter(|whole| *whole > 0) else { return vec![("?".repeat(cells) + " ", Ink::Quiet)] };
    let taken = parts.iter().fold(0_u64, |sum, (.., part)| sum.saturating_add(*part));
    let mut left = if taken < whole { cells - 1 } else { cells };
    let mut line = Line::new();
    for (letter, ink, part) in parts.iter().filter(|(.., part)| *part > 0) {
        let share = (*part as f64 / whole as f64).min(1.0);
        let own = ((share * cells as f64).round() as usize).max(1).min(left);
        left -= own;
        line.push((letter.to_string().repeat(own), *ink));
    }
    let drawn: usize = line.iter().map(|(text, _)| text.chars().count()).sum();
    line.push(("░".repeat(cells - drawn) + " ", Ink::Quiet));
    line
}

fn on_its_way(transfer: &WatchTransfer, width: usize) -> Line {
    let cells = (width / 5).clamp(8, 24);
    let name = shorten(&one_line(&transfer.name), (width / 4).clamp(10, LONGEST_NAME));
    // Cut, not rounded: 100 % is said of what is whole.
    let share = transfer.share.map(|share| (share.clamp(0.0, 1.0) * 1000.0).floor() as u64);
    let percent = share.map_or("  ? %".to_owned(), |share| format!("{:>3} %", share / 10));
    let ink = if transfer.running { Ink::Good } else { Ink::Unsure };
    let mut line = vec![(format!("  → {name} "), Ink::Plain)];
    line.extend(bar(&[('█', ink, share.unwrap_or(0))], share.map(|_| 1000), cells));
    let taken = "  → ".chars().count() + name.chars().count() + 1 + cells + 1;
    let words = format!("{percent}  {}", one_line(&transfer.words));
    line.push((shorten(&words, width.saturating_sub(taken)), Ink::Plain));
    line
}

fn details(page: &mut Page, answer: &WatchAnswer) {
    let guest = |guest: &WatchGuest| format!("{} ({})", shorten(&one_line(&guest.name), LONGEST_NAME), guest.words);
    if !answer.guests.is_empty() {
        let all: Vec<String> = answer.guests.iter().map(guest).collect();
        page.wrapped(&format!("- guests: {}", all.join("; ")), Ink::Plain, 2);
    }
    if let Some(images) = answer.images.as_ref().filter(|images| !images.is_empty()) {
        let all: Vec<String> = images.iter().map(|name| shorten(&one_line(name), LONGEST_NAME)).collect();
        page.wrapped(&format!("- images: {}", all.join("; ")), Ink::Plain, 2);
    }
    for note in &answer.notes {
        page.wrapped(&format!("- {}", shorten(note, 400)), Ink::Unsure, 2);
    }
}

fn legend(page: &mut Page) {
    page.blank();
    page.wrapped("PUs: █ runs ▓ other guests ░ free · memory: █ guests ▒ the host ░ free", Ink::Quiet, 0);
}
