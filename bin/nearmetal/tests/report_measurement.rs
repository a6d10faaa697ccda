//! `nearmetal report` on one document of `bench`, of every kind, and on what is none.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

mod documents;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_host::files;
use nearmetal_load::{FioJob, Workload};
use nearmetal_results::{Outcome, Store, Turn};
use nearmetal_units::Bytes;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

fn fio() -> Workload {
    Workload::Fio(FioJob::first_seed(Bytes::from_kib(4), 5, 1))
}

/// A directory with one document in it.
struct Given {
    directory: TempDir,
}

impl Given {
    fn document(document: &impl Serialize) -> Self {
        Self::text(&serde_json::to_string(document).unwrap())
    }

    fn text(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        files::write(&directory.path().join("found.json"), text).unwrap();
        Self { directory }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("found.json")
    }

    fn report(&self, arguments: &[&str]) -> (i32, String, String) {
        run(&[&[self.file().to_str().unwrap()], arguments].concat())
    }

    /// What stands beside the document after a report that worked: the page, and the names of all files.
    fn page(&self) -> (String, Vec<String>) {
        let (code, stdout, stderr) = self.report(&[]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains("lab: emulated time") || stdout.contains("lab: a machine in software"), "{stdout}");
        let directory = self.directory.path().join("found-report");
        assert!(stderr.contains(directory.join("report.html").to_str().unwrap()), "{stderr}");
        let names = files::list(&directory).unwrap();
        let names = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        (read(&directory.join("report.html")), names)
    }
}

fn read(path: &Path) -> String {
    files::read_to_string(path).unwrap()
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nearmetal")).arg("report").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Every piece is in the page, and nothing that only a job has.
fn holds(page: &str, words: &[&str]) {
    for words in words {
        assert!(page.contains(words), "`{words}` is not in the page");
    }
    assert!(page.contains("<h1>") && page.contains("lab: emulated time") && page.contains("id=\"provenance\""));
    for foreign in ["id=\"plan\"", "id=\"readback\"", "id=\"slice\"", "Rolled back", "nothing was proven"] {
        assert!(!page.contains(foreign), "`{foreign}` is of a job");
    }
    // What limits the figures stands above them.
    if let (Some(caveats), Some(figures)) = (page.find("id=\"caveats\""), page.find("<figure")) {
        assert!(caveats < figures, "the caveats stand below the first chart");
    }
}

#[test]
fn a_guest_against_its_bare_slice_has_headline_chart_costs_and_where_it_ran() {
    for experiment in ["inside", "drive", "slice"] {
        let (page, files) = Given::document(&documents::pairs(experiment)).page();
        holds(
            &page,
            &[
                "web1 does </span>",
                "of bare metal on the same slice",
                "The arm `planned` is incomplete: 1 of its 4 samples failed",
                "the agent timed out",
                "Arms against bare metal",
                "the drive was empty before",
                "exits by KVM",
                "CPU 0&#x2f;KVM (4711): PU 2",
                "&#x2f;dev&#x2f;nvme1n1",
                "6.12.41",
            ],
        );
        assert_eq!(files, ["arms-fio-randrw-4k-iops.svg", "report.html"], "{experiment}");
        assert_eq!(page.contains("Quick mode"), experiment == "slice");
    }
}

#[test]
fn documents_of_earlier_versions_are_reported_too() {
    let first = include_str!("../../../fixtures/results/job-sample/results.json");
    let (page, files) = Given::text(first).page();
    holds(&page, &["web1", "as found", "id=\"memory\""]);
    assert!(files.len() > 2, "{files:?}");
    let side = |side: &'static str, rate: f64| {
        let parts = json!([{"guest": "w0", "rate": rate, "window": {"began": 0.0, "ended": 9.0}},
            {"guest": "w1", "rate": rate, "window": {"began": 0.0, "ended": 9.0}}]);
        move |round: u32| json!({"round": round, "count": 2, "side": side, "started": "", "members": parts, "overlap": 1.0, "clocks_within": 0.5})
    };
    let (bare, guests) = (side("bare", 100.0), side("guests", 40.0));
    let member = |name: &str| {
        json!({"guest": name, "placement": [], "slice": {"cpus": "1", "nodes": "0", "page_size": null,
        "device": "/dev/x", "region": 1024, "cpus_on_top": ""}})
    };
    let older = json!({
        "schema": "nearmetal.together/3", "created": "then", "version": "0", "environment": {"kind": "lab", "machine": "quad"},
        "seed": 1, "members": [member("w0"), member("w1")], "least_overlap": 0.8, "caveats": [], "provenance": {},
        "load": {"kind": "disk", "job": FioJob::first_seed(Bytes::from_kib(4), 5, 1)},
        "samples": [bare(0), guests(0), bare(1), guests(1)],
    });
    let (page, _) = Given::document(&older).page();
    holds(&page, &["w0 and w1 at once do </span>", "2 guests at once", "0.40×"]);
}

#[test]
fn several_guests_have_a_ratio_for_each_number_of_them_and_for_each_guest() {
    let (page, files) = Given::document(&documents::together(fio())).page();
    holds(
        &page,
        &[
            "w0 and w1 at once do </span>",
            "of their bare slices at once",
            "1 guest alone",
            "2 guests at once",
            "Side by side: 93 % or more of every sample that counts; 80 % is the limit",
            "w1: read back while it ran",
        ],
    );
    // Overall about a half; the second guest less than the first.
    let rows = &page[page.find("id=\"together\"").unwrap()..];
    let rows = &rows[rows.find("<tbody>").unwrap()..];
    let of = |name: &str| {
        let row = &rows[rows.find(name).unwrap()..];
        row[row.find("data-label=\"ratio\">").unwrap() + 19..]
            .chars()
            .take(4)
            .collect::<String>()
            .parse::<f64>()
            .unwrap()
    };
    let (all, first, second) = (of(">2 guests at once<"), of(">w0<"), of(">w1<"));
    assert!(second < all && all < first && (all - 0.5).abs() < 0.05, "{first} {second} {all}");
    assert_eq!(files, ["arms-fio-randrw-4k-iops.svg", "report.html", "together.svg"]);
    let (page, _) = Given::document(&documents::together_over_a_port()).page();
    assert!(!page.contains("confined to PUs"), "several slices, and one arm that has none");
    holds(
        &page,
        &[
            "guests do less than bare slices",
            "in all guests together",
            "The ceiling: 1,050 Mbit&#x2f;s",
            "TCP stream to the peer",
            "peer-bound",
            "Mbit&#x2f;s",
        ],
    );
}

#[test]
fn tiles_say_how_many_each_way_held_what_ended_it_and_that_all_of_it_is_emulated() {
    let given = Given::document(&documents::tiles());
    let (page, files) = given.page();
    holds(
        &page,
        &[
            "Emulated, at 0.01 times the usual rates",
            "virtio on a bridge held ",
            "1 tile",
            "virtual functions held ",
            "all 2 tiles",
            "with 2 tiles quality of service failed in 2 of 2 samples",
            "of tile 1 answered 25.0 % within 5 s, and 99 % is the limit",
            "50.0 % of what it was asked",
            "failed in 2 of 2 samples",
            "150.0",
            "web server 0.50, idle guest 0.50",
            "lab: emulated time",
        ],
    );
    assert_eq!(files, ["report.html", "tiles.svg"]);
}

#[test]
fn a_part_of_a_tile_with_a_value_that_cannot_be_is_refused_by_its_place() {
    let mut document = serde_json::to_value(documents::tiles()).unwrap();
    document["runs"][3]["together"]["parts"][1]["metrics"][0]["value"] = json!(0);
    let (code, _, said) = Given::document(&document).report(&[]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("runs[3].together.parts[1].metrics[0].value"), "{said}");
}

#[test]
fn a_race_of_disks_says_what_to_use_and_what_became_of_every_way() {
    let recorded = include_str!("../../../fixtures/results/matrix-lab-quad.json");
    let (page, files) = Given::text(recorded).page();
    holds(
        &page,
        &[
            "web1: partition none&#x2f;io_uring 2 iothreads does </span>",
            "1.54×",
            "of QEMU&#x27;s default",
            "Use: partition none&#x2f;io_uring 2 iothreads",
            "&lt;iothread id=&#x27;1&#x27;&#x2f;&gt;",
            "cut for time after 3 rounds, not shown worse",
            "cannot win: the host&#x27;s free memory",
            "Not measured",
            "Measured again",
            "id=\"race\"",
        ],
    );
    assert!(
        files.contains(&"race.svg".to_owned()) && files.contains(&"arms-fio-randrw-4k-iops.svg".to_owned()),
        "{files:?}"
    );
}

#[test]
fn a_race_of_networks_shows_the_ceiling_and_names_the_way_that_took_no_effect() {
    let (page, files) = Given::document(&documents::net_race()).page();
    holds(
        &page,
        &[
            "net1: VF given to the guest",
            "1 of 4 ways did not take effect and has no figures: ",
            "did not take effect: the peer did not answer",
            "The ceiling: without a guest",
            "2,500, 2,600 trans&#x2f;s",
            "To bare metal",
            "Its price: the guest cannot move",
            "&lt;interface type=&#x27;hostdev&#x27;",
            "bridge with multiqueue",
            "the guest moves to no other host",
            "exits by KVM",
            "99th percentile of a round trip",
        ],
    );
    assert_eq!(files, ["arms-tcp-rr-p99.svg", "arms-tcp-rr-rate.svg", "race.svg", "report.html"]);
}

#[test]
fn a_sample_of_a_race_that_was_made_good_by_another_try_is_not_lost() {
    let mut net = documents::net_race();
    let failed = Turn { outcome: Outcome::Failed { why: "`stress` ran".into() }, ..net.turns[0].clone() };
    net.turns.insert(0, failed);
    assert!(!Given::document(&net).page().0.contains("is incomplete"));
    // Without the other try it is.
    net.turns.remove(1);
    holds(&Given::document(&net).page().0, &["is incomplete: 1 of its 3 samples failed"]);
}

#[test]
fn ways_that_were_only_read_back_are_not_called_a_race() {
    let mut net = documents::net_race();
    (net.turns, net.winner, net.confirmation, net.ceiling) = (vec![], None, None, vec![]);
    for arm in &mut net.arms {
        (arm.rounds, arm.median, arm.to_default, arm.to_bare, arm.fate) = (0, None, None, None, None);
    }
    let directory = Given::document(&net);
    let (code, stdout, stderr) = directory.report(&["--format", "html"]);
    assert_eq!(code, 0, "{stderr}");
    holds(&stdout, &["3 of 4 ways", " took effect; nothing was raced", "The ways, read back"]);
    assert!(!stdout.contains("What to use") && !stdout.contains("The race"));
    let (page, files) = Given::document(&documents::paths()).page();
    holds(&page, &["1 of 2 ways", "the engine was threads", "O_DIRECT off", "no directory was named"]);
    assert_eq!(files, ["report.html"]);
}

#[test]
fn markup_in_names_stays_text() {
    const HOSTILE: &str = "</style><script>alert(1)</script>\u{1b}[31m";
    fn poison(value: &mut Value, key: &str) {
        const TEXTS: [&str; 14] = [
            "guest",
            "title",
            "description",
            "region",
            "why",
            "device",
            "kernel",
            "qemu",
            "source",
            "created",
            "what",
            "cannot_win",
            "machine",
            "port",
        ];
        match value {
            Value::String(text) if TEXTS.contains(&key) => text.push_str(HOSTILE),
            Value::Array(values) => values.iter_mut().for_each(|value| poison(value, key)),
            Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| poison(value, key)),
            _ => {}
        }
    }
    let table = serde_json::to_value(documents::paths()).unwrap();
    let net = serde_json::to_value(documents::net_race()).unwrap();
    let several = serde_json::to_value(documents::together(fio())).unwrap();
    let one = serde_json::to_value(documents::pairs("inside")).unwrap();
    let tiles = serde_json::to_value(documents::tiles()).unwrap();
    let disk: Value = serde_json::from_str(include_str!("../../../fixtures/results/matrix-lab-quad.json")).unwrap();
    for mut document in [table, net, several, one, tiles, disk] {
        poison(&mut document, "");
        let given = Given::document(&document);
        let (page, files) = given.page();
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script") && !page.contains('\u{1b}'), "{document}");
        assert_eq!(page.matches("</style>").count(), 1);
        for file in files.iter().filter(|file| file.ends_with(".svg")) {
            let picture = read(&given.directory.path().join("found-report").join(file));
            assert!(!picture.contains("<script") && !picture.contains('\u{1b}'), "{file}");
        }
    }
}

#[test]
fn what_is_no_document_is_refused_with_its_name() {
    let mut bad_value = serde_json::to_value(documents::net_race()).unwrap();
    bad_value["turns"][0]["outcome"]["metrics"][0]["value"] = json!(-1.0);
    let mut bad_field = serde_json::to_value(documents::pairs("drive")).unwrap();
    bad_field["tenants"][0]["slice"]["cpus"] = json!("5-4");
    let mut bad_winner = serde_json::to_value(documents::net_race()).unwrap();
    bad_winner["winner"] = json!(7);
    let mut bare_winner = bad_winner.clone();
    bare_winner["winner"] = json!(3);
    let mut bad_xml = documents::pairs("slice");
    bad_xml.arms[1].xml = Some("<domain".to_owned());
    for (given, words) in [
        (Given::text("no JSON"), "is not JSON"),
        (Given::text("[1]"), "`missing`"),
        (Given::text(r#"{"schema": "nearmetal.results/9"}"#), "`nearmetal.results/9`"),
        (Given::document(&bad_value), "`turns[0].metrics[0].value`"),
        (Given::document(&bad_field), "`tenants[0].slice.cpus`"),
        (Given::document(&bad_winner), "`winner`"),
        (Given::document(&bare_winner), "no arm that a guest can use"),
        (Given::document(&bad_xml), "`arms[1].xml`"),
    ] {
        let (code, stdout, stderr) = given.report(&[]);
        assert_eq!((code, stdout.as_str()), (2, ""), "{words}: {stderr}");
        assert!(stderr.contains(words) && stderr.contains("found.json"), "{words} is not in {stderr}");
        assert!(!given.directory.path().join("found-report").exists(), "{words}: nothing is written");
    }
    let (code, _, stderr) = run(&["/nowhere/found.json"]);
    assert!(code == 2 && stderr.contains("does not exist"), "{stderr}");
    // Larger than any measurement: refused by its size alone, before it is read.
    let given = Given::text("");
    std::fs::File::options().write(true).open(given.file()).unwrap().set_len(65 << 20).unwrap();
    let (code, _, stderr) = given.report(&[]);
    assert!(code == 2 && stderr.contains("bytes; the limit is"), "{stderr}");
    let (code, _, stderr) = Given::document(&documents::pairs("drive")).report(&["--domain", "web1"]);
    assert!(code == 2 && stderr.contains("--domain"), "{stderr}");
}

#[test]
fn the_message_of_an_unknown_schema_names_those_that_are_read() {
    let (_, _, stderr) = Given::text(r#"{"schema": "nearmetal.plan/1"}"#).report(&[]);
    for schema in [
        nearmetal_results::SCHEMA,
        nearmetal_results::MATRIX_SCHEMA,
        nearmetal_results::NET_MATRIX_SCHEMA,
        nearmetal_results::PATHS_SCHEMA,
    ] {
        assert!(stderr.contains(&format!("`{schema}`")), "{schema} is not in {stderr}");
    }
}

#[test]
fn a_measurement_of_the_store_is_reported_by_its_number() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("results.sqlite");
    let at = |path: &Path| path.to_str().unwrap().to_owned();
    let (code, _, stderr) = run(&["--measurement", "1", "--store", &at(&store)]);
    assert!(code == 2 && stderr.contains("no results store"), "{stderr}");
    let id = Store::open(&store).unwrap().keep_net_matrix(&documents::net_race()).unwrap().to_string();
    let page = directory.path().join("page");
    let (code, stdout, stderr) = run(&["--measurement", &id, "--store", &at(&store), "-o", &at(&page)]);
    assert!(code == 0 && stdout.contains("net1: ways to `enp57s0`"), "{stderr}");
    holds(&read(&page.join("report.html")), &["What to use"]);
    let (code, _, stderr) = run(&["--measurement", "99", "--store", &at(&store), "-o", &at(&page)]);
    assert!(code == 2 && stderr.contains("99"), "{stderr}");
    let (code, _, stderr) = run(&["found.json", "--store", &at(&store)]);
    assert!(code == 2 && stderr.contains("--measurement"), "{stderr}");
}
