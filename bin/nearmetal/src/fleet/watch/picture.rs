//! A look in the words of the picture, and the picture in its place on the terminal.

use nearmetal_image::{Motion, Stage, Transfer};
use nearmetal_report::Style;
use nearmetal_report::watch::{
    HostState, WatchAnswer, WatchGuest, WatchHost, WatchTransfer, WatchView, WatchVms, picture as drawn,
};
use nearmetal_units::Bytes;

use super::{Look, VmSeen};
use crate::fleet::now::{GuestKind, GuestNow, HostNow};

/// The picture of a look; with `rows`, it fits them.
pub(crate) fn picture(
    title: &str,
    time: &str,
    look: &Look<'_>,
    vms: &[VmSeen<'_>],
    style: &Style,
    rows: Option<usize>,
) -> String {
    let host = |(name, seen): &(&str, Option<super::Seen<HostNow>>)| {
        let state = match seen.as_ref().map(|seen| (&seen.answer, &seen.answered)) {
            None => HostState::Asked,
            Some((Err(problem), answered)) => {
                HostState::Silent { problem: problem.clone(), answered: answered.clone() }
            }
            Some((Ok(now), _)) => HostState::Answered(answer(now)),
        };
        WatchHost { name: (*name).to_owned(), state }
    };
    let hosts = look.iter().map(host).collect();
    let view = WatchView { title: title.to_owned(), time: time.to_owned(), hosts, vms: wanted(vms) };
    drawn(&view, style, rows)
}

fn wanted(vms: &[VmSeen<'_>]) -> Option<WatchVms> {
    let several = vms.iter().filter(|vm| vm.hosts.len() > 1);
    let owned = |vm: &VmSeen<'_>| (vm.vm.to_owned(), vm.hosts.iter().map(|host| (*host).to_owned()).collect());
    (!vms.is_empty()).then(|| WatchVms {
        wanted: vms.len(),
        missing: vms.iter().filter(|vm| vm.hosts.is_empty()).map(|vm| vm.vm.to_owned()).collect(),
        several: several.map(owned).collect(),
    })
}

fn answer(now: &HostNow) -> WatchAnswer {
    let named = |image: &nearmetal_image::StoredImage| image.name.clone().unwrap_or_else(|| image.image.short());
    let images = now.images.as_ref().map(|images| images.iter().map(named).collect());
    let transfers = now.transfers.as_ref().map(|transfers| transfers.iter().map(transfer).collect());
    WatchAnswer {
        pus: now.online.as_ref().map(|online| online.len()),
        runs: now.runs.as_ref().map(|runs| runs.len()),
        bound: now.bound.len(),
        memory: now.memory.total,
        memory_free: now.memory.free,
        memory_guests: now.memory.guests,
        guests: now.guests.iter().map(guest).collect(),
        images,
        transfers,
        notes: now.notes.clone(),
    }
}

fn guest(guest: &GuestNow) -> WatchGuest {
    let process = || guest.pid.map_or("?".to_owned(), |pid| format!("process {pid}"));
    let mut words = Vec::new();
    match guest.kind {
        Some(GuestKind::Run) => words.push("run".to_owned()),
        Some(GuestKind::Plan) => words.push("planned".to_owned()),
        Some(GuestKind::Other) => {}
        None => words.push("whose is not known".to_owned()),
    }
    match (guest.pid, guest.kind) {
        (None, Some(GuestKind::Run)) => words.push("not started yet".to_owned()),
        (None, _) => words.push("off".to_owned()),
        _ => {}
    }
    let count = |number: u32| if number == 1 { "1 vCPU".to_owned() } else { format!("{number} vCPUs") };
    words.extend(guest.vcpus.map(count));
    if let Some(cpus) = guest.cpus.as_ref().filter(|cpus| !cpus.is_empty()) {
        words.push(format!("{} {cpus}", if cpus.contains([',', '-']) { "PUs" } else { "PU" }));
    }
    match (guest.floating, guest.vcpus) {
        (Some(floating), Some(all)) if floating > 0 && floating == all => words.push("floats".to_owned()),
        (Some(floating), _) if floating > 0 => words.push(format!("{} of them float", count(floating))),
        (None, _) if guest.pid.is_some() => words.push("where is not known".to_owned()),
        _ => {}
    }
    words.extend(guest.memory.map(|memory| memory.to_string()));
    WatchGuest {
        name: guest.name.clone().unwrap_or_else(process),
        words: words.join(", "),
        running: guest.pid.is_some(),
        is_run: guest.kind == Some(GuestKind::Run),
    }
}

fn transfer(transfer: &Transfer) -> WatchTransfer {
    let progress = transfer.progress.as_ref();
    let mut words = vec![match (transfer.motion, progress.map(|progress| progress.stage)) {
        (Motion::Stopped, _) => "stopped; push it again to go on".to_owned(),
        (Motion::Unknown, _) => "whether its push runs is not known".to_owned(),
        (Motion::Running, None) => "under way".to_owned(),
        (Motion::Running, Some(Stage::Waiting)) => "waits".to_owned(),
        (Motion::Running, Some(Stage::Looking)) => "looks for what is there".to_owned(),
        (Motion::Running, Some(Stage::Fetching)) => "fetches".to_owned(),
        (Motion::Running, Some(Stage::Syncing)) => "writes to the disk".to_owned(),
    }];
    if let Some(progress) = progress {
        let (received, reused) = (Bytes::new(progress.received), Bytes::new(progress.reused));
        words.extend((received > Bytes::ZERO).then(|| format!("{received} sent")));
        words.extend((reused > Bytes::ZERO).then(|| format!("{reused} were there")));
    }
    let share = progress.filter(|progress| progress.pieces > 0);
    WatchTransfer {
        name: progress.map_or_else(|| transfer.image.short(), |progress| progress.name.clone()),
        share: share.map(|progress| progress.have as f64 / progress.pieces as f64),
        words: words.join(", "),
        running: transfer.motion == Motion::Running,
    }
}

/// The place of the picture on a terminal: each is drawn over the one before it. Nothing of the terminal is changed beyond
/// that, so that whoever ends the program, in whichever way, finds it as it was, with the last picture on it.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Lines of the last picture, and the size of the terminal then.
    last: Option<(usize, (usize, usize))>,
}

impl Frame {
    /// What to print to draw the next picture over the last one. `size`: columns and rows.
    pub(crate) fn next(&mut self, picture: &str, size: (usize, usize)) -> String {
        let begin = match self.last {
            Some((lines, before)) if before == size => format!("\u{1b}[{lines}A\r"),
            // What it was drawn on has moved: nobody knows where.
            Some(_) => "\u{1b}[H\u{1b}[2J".to_owned(),
            None => String::new(),
        };
        let lines = picture.matches('\n').count();
        self.last = Some((lines, size));
        // A character may be wider than it counts: lines end at the edge, and never go on below it.
        let body = picture.replace('\n', "\u{1b}[K\n");
        format!("{begin}\u{1b}[?7l{body}\u{1b}[J\u{1b}[?7h")
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{guest as guest_of, host, image, seen, transfer as transfer_of};
    use super::super::vms;
    use super::*;

    const PLAIN: Style = Style { width: 100, colour: false, ascii: false };

    fn farm() -> Vec<(&'static str, Option<super::super::Seen<HostNow>>)> {
        let gib = |gib: u64| Some(Bytes::from_mib(gib << 10));
        let mut busy = host();
        busy.runs = "1-2,33-34".parse().ok();
        busy.bound = "8-23".parse().unwrap();
        (busy.memory.free, busy.memory.guests) = (gib(100), gib(130));
        busy.guests = vec![
            guest_of("run-batch-1a2b", GuestKind::Run, "1-2,33-34", 2),
            guest_of("web1", GuestKind::Plan, "8-23", 64),
            guest_of("floats", GuestKind::Other, "", 64),
            GuestNow {
                pid: None,
                vcpus: None,
                floating: None,
                cpus: None,
                memory: None,
                ..guest_of("db", GuestKind::Plan, "", 0)
            },
        ];
        busy.images = Some(vec![image("debian-13.qcow2"), image("alma-10.qcow2")]);
        let mut fetching = host();
        fetching.transfers = Some(vec![
            transfer_of("debian-14.qcow2", Motion::Running, Stage::Fetching, 5_100),
            transfer_of("old.raw", Motion::Stopped, Stage::Fetching, 160),
        ]);
        let mut blind = host();
        (blind.online, blind.memory.free) = (None, None);
        (blind.images, blind.transfers, blind.runs) = (None, None, None);
        blind.guests = vec![GuestNow { name: None, kind: None, floating: None, ..guest_of("", GuestKind::Run, "", 1) }];
        blind.notes = vec!["runs are not known: cannot list `/run/nearmetal/runs`: Permission denied".to_owned()];
        let hostile = "\u{1b}[2J\u{202e}evil\nname";
        let mut named = host();
        named.guests = vec![guest_of(hostile, GuestKind::Other, "5", 1)];
        named.images = Some(vec![image(hostile)]);
        vec![
            ("alpha", seen(Ok(busy), Some("t"))),
            ("beta", seen(Ok(fetching), Some("t"))),
            ("gamma", seen(Err("no answer within 10 s"), Some("2026-11-25T14:03:07Z"))),
            (
                "delta",
                seen(
                    Err(
                        "not asked: only the capture delta.tar.gz describes it; give it an `ssh` key in the fleet file",
                    ),
                    None,
                ),
            ),
            ("epsilon", None),
            ("zeta", seen(Ok(blind), Some("t"))),
            (hostile, seen(Ok(named), Some("t"))),
        ]
    }

    fn draw(style: &Style, rows: Option<usize>) -> String {
        let look = farm();
        let names = ["web1", "db", "cache"].map(str::to_owned);
        picture("fleet.toml", "2026-11-25T14:03:22Z", &look, &vms(&names, &look), style, rows)
    }

    #[test]
    fn a_farm_is_drawn_as_its_golden() {
        let found = draw(&PLAIN, None);
        assert_eq!(
            found,
            include_str!("../../../tests/golden/watch-100.txt"),
            "tests/golden/watch-100.txt differs; found:\n{found}"
        );
        let narrow = draw(&Style { width: 60, colour: false, ascii: true }, None);
        assert_eq!(
            narrow,
            include_str!("../../../tests/golden/watch-60-ascii.txt"),
            "tests/golden/watch-60-ascii.txt differs; found:\n{narrow}"
        );
    }

    #[test]
    fn nothing_is_wider_than_the_terminal_nor_moves_its_cursor_and_no_host_is_left_out() {
        for width in [40, 60, 79, 80, 133, 250] {
            let text = draw(&Style { width, ..PLAIN }, None);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{width}");
            for name in ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "evil"] {
                assert!(text.contains(name), "{name} at {width}:\n{text}");
            }
        }
        let coloured = draw(&Style { colour: true, ..PLAIN }, None);
        assert!(!coloured.contains("\u{1b}[2J") && coloured.contains("\u{1b}[31;1m✗ no answer within 10 s"));
    }

    #[test]
    fn on_a_terminal_of_few_rows_those_come_first_who_need_somebody() {
        let fits = |rows| {
            let text = draw(&PLAIN, Some(rows));
            assert!(text.lines().count() <= rows, "{rows}:\n{text}");
            text
        };
        assert_eq!(fits(200), draw(&PLAIN, None));
        let short = fits(20);
        assert!(
            !short.contains("- guests:") && short.contains("`--once` shows them") && short.contains("zeta"),
            "{short}"
        );
        let few = fits(13);
        assert!(few.contains("gamma") && few.contains("delta") && few.contains("more hosts"), "{few}");
        assert!(!few.contains("alpha"), "{few}");
        for rows in 0..30 {
            let text = draw(&Style { width: 40, ..PLAIN }, Some(rows));
            assert!(text.lines().count() <= rows.max(8), "{rows}:\n{text}");
        }
    }

    #[test]
    fn many_pushes_that_nobody_ended_hide_neither_those_that_run_nor_other_hosts() {
        let stopped = |at: usize| transfer_of(&format!("old-{at}.raw"), Motion::Stopped, Stage::Fetching, 9);
        let mut left = host();
        left.transfers = Some((0..30).map(stopped).collect());
        left.transfers.as_mut().unwrap().push(transfer_of("new.raw", Motion::Running, Stage::Fetching, 9));
        let look = [("alpha", seen(Ok(left), Some("t"))), ("beta", seen(Ok(host()), Some("t")))];
        let text = picture("farm", "t", &look, &[], &PLAIN, Some(12));
        assert!(text.contains("→ new.raw") && text.contains("→ and 28 more images") && text.contains("beta"), "{text}");
    }

    #[test]
    fn a_thousand_hosts_are_one_picture() {
        let names: Vec<String> = (0..1000).map(|at| format!("host-{at:04}")).collect();
        let look: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(at, name)| {
                (name.as_str(), if at % 100 == 7 { seen(Err("gone"), None) } else { seen(Ok(host()), Some("t")) })
            })
            .collect();
        let all = picture("farm", "t", &look, &[], &PLAIN, None);
        assert!(names.iter().all(|name| all.contains(name.as_str())) && all.contains("10 hosts do not answer"));
        let some = picture("farm", "t", &look, &[], &PLAIN, Some(40));
        assert!(some.lines().count() <= 40 && some.contains("host-0907") && some.contains("more hosts"), "{some}");
    }

    #[test]
    fn a_picture_is_drawn_over_the_last_one_or_anew_where_the_terminal_has_another_size() {
        let mut frame = Frame::default();
        assert_eq!(frame.next("a\nb\n", (80, 24)), "\u{1b}[?7la\u{1b}[K\nb\u{1b}[K\n\u{1b}[J\u{1b}[?7h");
        assert!(frame.next("c\n", (80, 24)).starts_with("\u{1b}[2A\r"));
        assert!(frame.next("c\n", (60, 24)).starts_with("\u{1b}[H\u{1b}[2J"));
    }
}
