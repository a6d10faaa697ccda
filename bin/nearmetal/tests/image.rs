//! `nearmetal image`, on a fleet of three hosts that are this machine in three directories, over a stand-in for ssh.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_host::files;
use serde_json::Value;
use tempfile::TempDir;

const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/images.md"));

struct Fleet {
    directory: TempDir,
}

impl Fleet {
    /// Each host has a directory of its own: the stand-in for ssh puts the host's name behind that of the store.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("ssh");
        let program = env!("CARGO_BIN_EXE_nearmetal");
        let text = format!(
            "host=$3\n[ ! -e {}/$host-is-away ] || {{ echo \"$host: No route to host\" >&2; exit 255; }}\ncommand=$(printf %s \"$4\" | sed \"s|^nearmetal|{program}|; s|/images|/images-$host|\")\n\
             SSH_CONNECTION='127.0.0.1 50000 127.0.0.1 22' exec sh -c \"exec $command\"\n",
            directory.path().display()
        );
        files::write(&script, text).unwrap();
        let host = |name: &str| {
            format!("[[host]]\nname = \"{name}\"\nssh = \"{name}\"\nssh-command = \"sh {}\"\n", script.display())
        };
        let fleet = ["a", "b", "c"].map(host).concat();
        files::write(&directory.path().join("fleet.toml"), fleet).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn image(&self, name: &str, bytes: &[u8]) -> PathBuf {
        files::write(&self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
        command.arg("image").args(words).arg("--fleet").arg(self.path("fleet.toml"));
        command.arg("--directory").arg(self.path("images")).output().unwrap()
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let output = self.run(&[words, &["--format=json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What `fleet watch` prints once.
    fn watch(&self, format: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
        command.args(["fleet", "watch", "--once", format]).arg(self.path("fleet.toml"));
        command.arg("--directory").arg(self.path("images")).output().unwrap()
    }

    fn push(&self, file: &Path, code: i32) -> Vec<Value> {
        let output = self.run(&["push", file.to_str().unwrap(), "--format=json"]);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn received(events: &[Value]) -> Vec<(String, u64)> {
    let stored = events.iter().filter(|event| event["event"] == "stored");
    let mut all: Vec<_> =
        stored.map(|event| (event["host"].as_str().unwrap().to_owned(), event["received"].as_u64().unwrap())).collect();
    all.sort();
    all
}

fn same(document: &Value, heading: &str, more: &[&str]) {
    let mut fields = Fields::of(document);
    let schema = document["schema"].as_str().unwrap();
    assert!(PAGE.section(heading).contains(&format!("Schema `{schema}`")), "{schema}");
    if !more.is_empty() {
        fields = fields.without(more);
    }
    PAGE.have(&fields, heading);
}

#[test]
fn an_image_goes_to_all_hosts_is_mended_where_it_is_damaged_and_spared_where_it_is_used() {
    let fleet = Fleet::new();
    let bytes = content(3_000_000);
    let file = fleet.image("debian.qcow2", &bytes);
    let events = fleet.push(&file, 0);
    let named = events.iter().find(|event| event["event"] == "named").unwrap();
    let hash = named["image"].as_str().unwrap().to_owned();
    for host in ["a", "b", "c"] {
        let stored = fleet.path(&format!("images-{host}")).join(&hash);
        assert!(files::read(&stored).unwrap() == bytes, "{host}");
    }
    let orders = events.iter().filter(|event| event["event"] == "order").map(|event| event["from"].as_str().unwrap());
    assert_eq!(orders.collect::<Vec<_>>(), ["source", "a", "b"]);

    let listed = fleet.json(&["list"], 0);
    assert_eq!(listed["hosts"][2]["answer"][0]["name"], "debian.qcow2");
    same(&listed, "## Images listed", &[]);

    let damaged = fleet.path("images-b").join(&hash);
    let mut wrong = bytes.clone();
    wrong[600_000] ^= 1;
    files::remove(&damaged).unwrap();
    files::write(&damaged, wrong).unwrap();
    let verified = fleet.json(&["verify", "debian.qcow2"], 1);
    let place = 600_000 / (256 << 10) * (256 << 10);
    assert_eq!(verified["hosts"][1]["answer"][0]["damaged"], serde_json::json!([place]));
    assert_eq!(verified["hosts"][0]["answer"][0]["right"], true);
    same(&verified, "## Images verified", &[]);

    let mended = received(&fleet.push(&file, 0));
    assert_eq!(mended, [("a".to_owned(), 0), ("b".to_owned(), 256 << 10), ("c".to_owned(), 0)]);

    let mut delta = b"QFI\xfb\0\0\0\x03".to_vec();
    let backing = format!("/anywhere/{hash}");
    delta.extend_from_slice(&112_u64.to_be_bytes());
    delta.extend_from_slice(&(backing.len() as u32).to_be_bytes());
    delta.resize(112, 0);
    delta.extend_from_slice(backing.as_bytes());
    files::write(&fleet.path("images-c").join("web1.qcow2"), delta).unwrap();
    let removed = fleet.json(&["remove", "debian.qcow2"], 3);
    assert_eq!(removed["hosts"][0]["answer"]["removed"], true);
    assert_eq!(removed["hosts"][2]["answer"]["users"][0]["kind"], "delta");
    assert!(!fleet.path("images-a").join(&hash).exists() && fleet.path("images-c").join(&hash).exists());
    let named = PAGE.section("## Images removed");
    assert!(["delta", "process", "definition", "loop"].iter().all(|kind| named.contains(&format!("`{kind}`"))));
}

#[test]
fn of_a_rebuilt_image_only_new_blocks_are_sent_and_through_ssh_alone_it_works_too() {
    let fleet = Fleet::new();
    let old = content(4 << 20);
    fleet.push(&fleet.image("old", &old), 0);
    // Moved by three blocks, and one of them changed.
    let mut new = [vec![7; 3 * 4096], old].concat();
    new[2 << 20] ^= 1;
    let file = fleet.image("new", &new);
    let sent = received(&fleet.push(&file, 0));
    // Three blocks of sevens are three; and the one that changed.
    assert!(sent.iter().all(|(_, bytes)| *bytes == 4 * 4096), "{sent:?}");

    let star = Fleet::new();
    let file = star.image("new", &new);
    let output = star.run(&["push", file.to_str().unwrap(), "--star"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = star.json(&["list"], 0);
    assert!(listed["hosts"].as_array().unwrap().iter().all(|host| host["answer"][0]["name"] == "new"));
}

#[test]
fn a_host_without_room_or_without_nearmetal_is_named_and_the_others_have_the_image() {
    let fleet = Fleet::new();
    // A file where the store should be.
    files::write(&fleet.path("images-b"), "in the way").unwrap();
    let events = fleet.push(&fleet.image("image", &content(700_000)), 3);
    let failed: Vec<_> = events.iter().filter(|event| event["event"] == "failed").collect();
    assert_eq!((failed.len(), failed[0]["host"].as_str()), (1, Some("b")));
    assert_eq!(received(&events).len(), 2);
}

#[test]
fn what_cannot_be_pushed_is_a_mistake_in_use() {
    let fleet = Fleet::new();
    assert_eq!(fleet.run(&["push", "/nowhere"]).status.code(), Some(2));
    let nothing = Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(["image", "push", "/dev/null"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2), "{}", String::from_utf8_lossy(&nothing.stderr));
}

#[test]
fn without_hosts_the_image_goes_into_the_store_of_this_machine() {
    let fleet = Fleet::new();
    let bytes = content(700_000);
    let (file, store) = (fleet.image("debian.qcow2", &bytes), fleet.path("images-here"));
    let image = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
        command.arg("image").args(words).arg("--directory").arg(&store).output().unwrap()
    };
    let pushed = image(&["push", file.to_str().unwrap()]);
    assert_eq!(pushed.status.code(), Some(0), "{}", String::from_utf8_lossy(&pushed.stderr));
    let listed = String::from_utf8(image(&["list"]).stdout).unwrap();
    assert!(listed.contains("debian.qcow2"), "{listed}");
    assert_eq!(image(&["verify", "debian.qcow2"]).status.code(), Some(0));
}

/// A real push, slowed down, is in the picture of whoever watches; a host that is away stays in it, with the reason.
#[test]
fn a_push_under_way_is_watched_and_a_host_that_is_away_stays_in_the_picture() {
    let fleet = Fleet::new();
    let file = fleet.image("debian.qcow2", &content(12_000_000));
    let mut push = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
    push.args(["image", "push", "--quiet", "--bandwidth", "1", "--fleet"]).arg(fleet.path("fleet.toml"));
    let mut push = push.arg("--directory").arg(fleet.path("images")).arg(&file).spawn().unwrap();
    let seen = loop {
        let ended = push.try_wait().unwrap();
        let look = fleet.watch("--format=json");
        let look: Value = serde_json::from_slice(&look.stdout).unwrap();
        let transfer = look["hosts"][0]["answer"]["transfers"][0].clone();
        let have = transfer["progress"]["have"].as_u64().unwrap_or_default();
        if have > 0 || ended.is_some() {
            break transfer;
        }
    };
    files::write(&fleet.path("c-is-away"), "").unwrap();
    let picture = fleet.watch("--format=text");
    push.kill().unwrap();
    push.wait().unwrap();
    assert_eq!(seen["motion"], "running", "{seen}");
    let (have, pieces) = (seen["progress"]["have"].as_u64().unwrap(), seen["progress"]["pieces"].as_u64().unwrap());
    assert!(have < pieces && pieces == 12_000_000_u64.div_ceil(256 << 10), "{seen}");
    let text = String::from_utf8(picture.stdout).unwrap();
    assert!(text.contains("→ debian.qcow2 ") && text.contains("No route to host"), "{text}");
    assert_eq!(picture.status.code(), Some(3), "one host did not answer");
}
