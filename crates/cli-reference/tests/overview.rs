//! docs/reference/documents.md lists every document that a program of this repository writes.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nearmetal_host::files;

const OVERVIEW: &str = include_str!("../../../docs/reference/documents.md");

/// What stands before the schema of a document that is written.
const WRITTEN: [&str; 3] = ["SCHEMA: &str = \"", "schema: \"", "\"schema\": \""];

/// Put together from a store of an earlier version, and brought to this one's form before anybody sees it.
const EARLIER: &str = "nearmetal.results/1";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for path in files::list(directory).unwrap() {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The schemas that a source writes; its tests write those of other versions too.
fn schemas(text: &str) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]").next().unwrap();
    let values = WRITTEN.iter().flat_map(|before| text.split(before).skip(1));
    let values = values.filter_map(|rest| rest.split('"').next());
    values.filter(|value| value.starts_with("nearmetal")).map(str::to_owned).collect()
}

fn written() -> BTreeSet<String> {
    let mut found = Vec::new();
    for group in ["crates", "bin"] {
        for package in files::list(&root().join(group)).unwrap() {
            // A workspace of its own, which prints the record of a benchmark.
            if !package.ends_with("fleet-exact") {
                sources(&package.join("src"), &mut found);
            }
        }
    }
    sources(&root().join("lab/src"), &mut found);
    sources(&root().join("lab/cases/src"), &mut found);
    // Modules of tests in files of their own, and what plays the machine for them.
    let of_tests = |part: std::path::Component<'_>| ["tests", "played"].iter().any(|name| part.as_os_str() == *name);
    found.retain(|path| !path.components().any(of_tests) && !path.ends_with("tests.rs"));
    let mut written: BTreeSet<String> =
        found.iter().flat_map(|path| schemas(&files::read_to_string(path).unwrap())).collect();
    assert!(written.remove(EARLIER), "{EARLIER} need not be left out any more");
    written
}

#[test]
fn the_overview_lists_every_schema_that_is_written_and_no_other() {
    let rows = OVERVIEW.lines().filter_map(|line| line.strip_prefix("| `nearmetal")?.split('`').next());
    let listed: BTreeSet<String> = rows.map(|rest| format!("nearmetal{rest}")).collect();
    let written = written();
    assert!(written.len() > 20, "the sources were found: {written:?}");
    let missing: Vec<_> = written.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&written).collect();
    assert_eq!((missing, gone), (vec![], vec![]), "(not in the overview, written by no source)");
}

#[test]
fn every_page_of_the_overview_is_there() {
    let (table, _) = OVERVIEW.split_once("## What holds for all of them").unwrap();
    let links = table.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for link in links {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let file = if file.is_empty() { "documents.md" } else { file };
        let page = files::read_to_string(&root().join("docs/reference").join(file)).unwrap();
        let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
        let mut anchors = headings.map(|heading| heading.to_lowercase().replace(' ', "-"));
        assert!(anchor.is_empty() || anchors.any(|known| known == anchor), "{link}");
    }
}

#[test]
fn a_schema_is_seen_in_each_way_it_is_written() {
    let text = "const SCHEMA: &str = \"nearmetal.a/1\"; Document { schema: \"nearmetal.b/1\" } json!({ \"schema\": \
                \"nearmetal.c/2\", \"d\": \"nearmetal.d/1\" })\n#[cfg(test)] \"schema\": \"nearmetal.e/1\"";
    assert_eq!(schemas(text).into_iter().collect::<Vec<_>>(), ["nearmetal.a/1", "nearmetal.b/1", "nearmetal.c/2"]);
}
