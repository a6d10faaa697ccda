//! docs/reference/flavours.md is what the parser knows, docs/reference/runs.md what is written of runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::path::Path;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_host::files;
use nearmetal_image::ImageId;
use nearmetal_run::event::{Event, EventKind, Outcome, SCHEMA};
use nearmetal_run::flavour::{EXAMPLE, TABLES};
use nearmetal_run::function::Lent;
use nearmetal_run::offer::{Offer, OfferedFlavour, OfferedFunction, OfferedImage, OfferedNode};
use nearmetal_run::pools::{Growth, State};
use nearmetal_run::reservation::{NodeShare, Reservation};
use nearmetal_units::{Bytes, PageSize};
use serde_json::{Value, json};

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/runs.md"));

const HEAD: &str = "\
# The flavours file

Generated from the parser's own list of keys; `UPDATE_GOLDENS=1 cargo test -p nearmetal-run reference` rewrites it.

A flavours file says which guests `nearmetal run` may start. It is `/etc/nearmetal/flavours.toml`, or what `--flavours` names.
It is TOML: `key = value` on a line of its own, `[[flavour]]` for each of several, `#` for remarks.

- **Amounts** are texts with a binary unit: \"512 MiB\", \"16 GiB\". Whole numbers only.
- **Lengths of time** are texts: a whole number and s, m or h: \"30s\", \"10m\", \"2h\".
- A key that is not listed here is a mistake, and so is one that contradicts another: nothing is ignored.
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn flavours() -> String {
    let mut text = HEAD.to_owned();
    for table in TABLES {
        let columns = "| key | value | without it | meaning | example |\n|---|---|---|---|---|";
        write!(text, "\n## {}\n\n{}\n\n{columns}\n", table.head, table.about).unwrap();
        for key in table.keys {
            let (kind, default, about) = (cell(key.kind), cell(key.default), cell(key.about));
            writeln!(text, "| `{}` | {kind} | {default} | {about} | `{}` |", key.name, cell(key.example)).unwrap();
        }
    }
    write!(text, "\n## All of it in use\n\n```toml\n{EXAMPLE}```\n").unwrap();
    text
}

#[test]
fn the_reference_of_flavours_says_what_the_parser_knows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flavours.md");
    let text = flavours();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        files::write(&path, &text).unwrap();
    }
    assert!(
        files::read_to_string(&path).unwrap_or_default() == text,
        "{} is stale: UPDATE_GOLDENS=1 cargo test -p nearmetal-run reference",
        path.display()
    );
}

fn image() -> ImageId {
    ImageId::from_bytes([7; 32])
}

fn events() -> Vec<EventKind> {
    let text = || vec!["text".to_owned()];
    let ended = |outcome| EventKind::Ended { outcome, code: 7, reason: Some("text".to_owned()) };
    let mut events = vec![
        EventKind::Recovered { names: text(), problems: text() },
        EventKind::Reserved {
            cpus: "1-2".parse().unwrap(),
            nodes: "0".parse().unwrap(),
            memory: Bytes::from_mib(256),
            page_size: Some(PageSize::HUGE_2M),
            functions: vec!["0000:39:10.0".parse().unwrap()],
        },
        EventKind::Delta { image: image() },
        EventKind::UserData { instance_id: "text".to_owned() },
        EventKind::Daemon { program: "text".to_owned() },
        EventKind::Started,
        EventKind::ReadBack { checks: 7, untold: 1 },
        EventKind::Agent,
        EventKind::CommandStarted,
        EventKind::CommandEnded,
        EventKind::GivenBack,
    ];
    let ends = [Outcome::Exited, Outcome::Signal, Outcome::NotStarted, Outcome::TimeLimit, Outcome::Interrupted];
    let outcomes = ends.into_iter().chain([Outcome::Failed]);
    events.extend(outcomes.map(ended));
    events
}

#[test]
fn the_reference_of_runs_names_every_event_and_every_field() {
    let line = |kind| serde_json::to_value(Event { schema: SCHEMA, seconds: 0.5, run: None, kind }).unwrap();
    let lines = Value::Array(events().into_iter().map(line).collect());
    PAGE.have(&Fields::of(&json!({ "lines": lines })).below(&["lines[]"]), "## Events");
    let document = json!({ "lines": lines });
    PAGE.explain(&document, "lines[].event", 12, "## Events");
    PAGE.explain(&document, "lines[].outcome", 6, "## Events");
    assert!(PAGE.section("## Events").contains(SCHEMA));
}

#[test]
fn the_reference_of_runs_names_every_field_of_the_list() {
    let run = Reservation {
        schema: nearmetal_run::reservation::SCHEMA.to_owned(),
        name: "run-tiny-1a2b3c4d".to_owned(),
        uuid: "text".to_owned(),
        flavour: "tiny".to_owned(),
        pid: 7,
        uid: 0,
        asked_by: Some(1000),
        since: "text".to_owned(),
        cpus: "1".parse().unwrap(),
        memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(256) }],
        limits: vec!["text".to_owned()],
        limit_groups: vec!["text".to_owned()],
        page_size: Some(PageSize::HUGE_2M),
        image: Some(image()),
        functions: vec![Lent {
            function: "0000:39:10.0".parse().unwrap(),
            id: "0x8086:0x10ca".to_owned(),
            driver: Some("igbvf".to_owned()),
            only: Some("igbvf".to_owned()),
        }],
        pools: vec![Growth {
            node: 0,
            size: PageSize::HUGE_2M,
            before: 0,
            after: 7,
            state: State::Grown,
            back_to: Some(0),
        }],
    };
    let document = json!({"schema": "nearmetal.runs/1", "runs": [run], "dead": [],
        "unknown": [{"path": "text", "uid": 1000, "held": true}]});
    PAGE.have(&Fields::of(&document), "## Runs in progress");
    assert!(PAGE.section("## Runs in progress").contains("Schema `nearmetal.runs/1`"));
    assert!(PAGE.section("## A dry run").contains("Schema `nearmetal.run-plan/1`"));
}

#[test]
fn the_reference_of_runs_names_every_field_of_an_offer() {
    let text = || "text".to_owned();
    let offer = Offer {
        schema: nearmetal_run::offer::SCHEMA,
        host: Some(text()),
        cpus: Some("1".parse().unwrap()),
        free_cpus: Some("1".parse().unwrap()),
        nodes: vec![OfferedNode {
            node: 0,
            cpus: "1".parse().unwrap(),
            memory: Some(Bytes::from_mib(256)),
            memory_free: Some(Bytes::from_mib(256)),
        }],
        flavours: Some(vec![OfferedFlavour {
            name: text(),
            vcpus: 1,
            memory: Bytes::from_mib(256),
            page_size: Some(PageSize::HUGE_2M),
            image: Some(text()),
            open_to: Some("text".to_owned()),
            session: true,
            fit: Some(1),
            fit_now: Some(1),
            problem: Some(text()),
        }]),
        images: Some(vec![OfferedImage { image: text(), name: Some(text()) }]),
        functions: vec![OfferedFunction {
            function: "0000:39:10.0".parse().unwrap(),
            kind: text(),
            node: Some(1),
            is_virtual: true,
        }],
        unknown: vec![text()],
    };
    PAGE.have(&Fields::of(&serde_json::to_value(&offer).unwrap()), "## An offer");
    assert!(PAGE.section("## An offer").contains("Schema `nearmetal.offer/1`"));
    let section = PAGE.section("## An offer in the words of engines");
    for line in offer.classad().lines() {
        let name = line.split(' ').next().unwrap();
        assert!(section.contains(&format!("`{name}`")), "{name}");
    }
}
