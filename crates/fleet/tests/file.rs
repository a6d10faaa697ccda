//! Fleet files, good ones and bad ones.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use nearmetal_fleet::file::{EXAMPLE, FleetFile, TABLES};
use nearmetal_host::files;

fn fixtures(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fleets").join(path)
}

fn toml_files(path: &str) -> Vec<PathBuf> {
    let mut found = files::list(&fixtures(path)).unwrap();
    found.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn the_example_is_understood_and_uses_every_key() {
    let file = FleetFile::parse("example", EXAMPLE).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((file.hosts.len(), file.vms.len()), (4, 25));
    for key in TABLES.iter().flat_map(|table| table.keys) {
        let in_use = EXAMPLE.lines().any(|line| {
            let line = line.split('#').next().unwrap_or_default();
            line.contains(&format!("{} =", key.name)) || line.contains(&format!("{}]", key.name))
        });
        assert!(in_use, "the example does not use `{}`", key.name);
    }
}

/// One golden for each ten files, so that a person reads them all.
#[test]
fn every_bad_file_is_refused_with_its_place_and_a_message_a_stranger_understands() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let all = toml_files("bad");
    assert!(all.len() >= 100, "{} bad files", all.len());
    for chunk in all.chunks(10) {
        let mut text = String::new();
        for path in chunk {
            let errors = FleetFile::parse(&name(path), &files::read_to_string(path).unwrap()).err();
            let errors = errors.unwrap_or_else(|| panic!("{} is accepted", name(path)));
            for problem in &errors.problems {
                assert!(problem.line > 0 && problem.column > 0 && !problem.help.is_empty(), "{problem:?}");
            }
            text.push_str(&format!("{errors}\n\n"));
        }
        let number = |path: &Path| name(path)[..3].to_owned();
        let golden = format!("{}-{}.expected", number(&chunk[0]), number(&chunk[chunk.len() - 1]));
        let golden = fixtures("bad").join(golden);
        assert!(text.len() < 20_000, "{} is too long to be read", golden.display());
        if update {
            files::write(&golden, &text).unwrap();
        }
        let expected = files::read_to_string(&golden).unwrap_or_default();
        assert!(text == expected, "{} says otherwise; UPDATE_GOLDENS=1 rewrites it:\n{text}", golden.display());
    }
}

#[test]
fn every_good_file_is_understood() {
    let all = toml_files(".");
    assert!(!all.is_empty());
    for path in all {
        let text = files::read_to_string(&path).unwrap();
        let file = FleetFile::parse(&name(&path), &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(!file.hosts.is_empty(), "{}", name(&path));
    }
}
