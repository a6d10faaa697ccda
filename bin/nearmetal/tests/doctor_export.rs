//! `nearmetal doctor export` over a file and a capture: what is written, for whom, and where nothing is.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]
#![allow(clippy::disallowed_methods, reason = "modes of files are looked at, which `files` does not do")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_host::files;
use tempfile::TempDir;

/// A capture with one setting that is wrong, a definition with one that is, and a directory that is not there yet.
struct Stage {
    directory: TempDir,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("host/proc/cmdline", "ro quiet elevator=noop\n"),
            ("host/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("host/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never\n"),
            ("host/sys/devices/system/cpu/online", "0\n"),
            ("host/sys/devices/system/node/online", "0\n"),
        ] {
            let path = directory.path().join(path);
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write(&path, text).unwrap();
        }
        let gpu = include_str!("../../../fixtures/rules/gpu.xml");
        let limited = gpu.replace("<numatune>", "<memtune><hard_limit unit='GiB'>4</hard_limit></memtune><numatune>");
        assert_ne!(limited, gpu);
        files::write(&directory.path().join("gpu.xml"), limited).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `doctor` with these arguments, which may name files of the stage as `@name`. Exit code, stdout, stderr.
    fn run(&self, arguments: &str) -> (i32, String, String) {
        let argument = |word: &str| match word.strip_prefix('@') {
            Some(name) => self.path(name).to_str().unwrap().to_owned(),
            None => word.to_owned(),
        };
        let words = arguments.split_whitespace().map(argument);
        let output = Command::cargo_bin("nearmetal").unwrap().arg("doctor").args(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const ALL: &str = "export @out --capture @host --xml @gpu.xml";

#[test]
fn settings_arguments_and_definitions_are_written_and_listed() {
    let stage = Stage::new();
    let (code, stdout, stderr) = stage.run(ALL);
    assert_eq!(code, 0, "{stderr}");
    for (path, text) in [
        ("tuned/nearmetal/tuned.conf", "transparent_hugepage.defrag=madvise"),
        ("tmpfiles.d/nearmetal.conf", "w /sys/kernel/mm/transparent_hugepage/defrag - - - - madvise"),
        ("kernel-arguments.txt", "- elevator=noop"),
        ("domains/gpu.diff", "-  <memtune><hard_limit unit='GiB'>4</hard_limit></memtune>"),
        ("README.txt", "host"),
    ] {
        let written = files::read_to_string(&stage.path("out").join(path)).unwrap();
        assert!(written.contains(text), "{path}: {written}");
        assert!(stdout.contains(path), "{stdout}");
    }
    assert!(stderr.contains("nothing has changed yet"), "{stderr}");
}

#[test]
fn definitions_are_for_their_owner_alone() {
    let stage = Stage::new();
    assert_eq!(stage.run(ALL).0, 0);
    for name in ["domains/gpu.xml", "domains/gpu.diff"] {
        assert_eq!(mode(&stage.path("out").join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&stage.path("out/README.txt")) & 0o400, 0o400);
    let new = files::read_to_string(&stage.path("out/domains/gpu.xml")).unwrap();
    assert!(new.contains("<hard_limit unit='KiB'>5242880<") && new.contains("<name>gpu</name>"), "{new}");
}

#[test]
fn selection_goes_before_the_word_or_behind_it() {
    let stage = Stage::new();
    assert_eq!(stage.run("--capture @host --only thp-defrag-policy export @out").0, 0);
    assert!(stage.path("out/tmpfiles.d/nearmetal.conf").exists());
    assert!(!stage.path("out/kernel-arguments.txt").exists(), "only one rule was asked for");
}

#[test]
fn what_an_earlier_export_wrote_goes() {
    let stage = Stage::new();
    assert_eq!(stage.run(ALL).0, 0);
    assert!(stage.path("out/kernel-arguments.txt").exists());
    assert_eq!(stage.run(&format!("{ALL} --only thp-defrag-policy")).0, 0);
    assert!(!stage.path("out/kernel-arguments.txt").exists());
    assert!(!stage.path("out/domains/gpu.xml").exists());
    assert!(stage.path("out/tuned/nearmetal/tuned.conf").exists());
}

#[test]
fn a_directory_with_somebody_elses_file_is_left_alone() {
    let stage = Stage::new();
    assert_eq!(stage.run(ALL).0, 0);
    files::write(&stage.path("out/domains/notes.txt"), "mine").unwrap();
    let before = files::read_to_string(&stage.path("out/README.txt")).unwrap();
    let (code, _, stderr) = stage.run(&format!("{ALL} --only thp-defrag-policy"));
    assert_eq!(code, 2);
    assert!(stderr.contains("`domains/notes.txt`") && stderr.contains("a new or empty directory"), "{stderr}");
    assert_eq!(files::read_to_string(&stage.path("out/README.txt")).unwrap(), before);
    files::create_dir_all(&stage.path("other")).unwrap();
    files::write(&stage.path("other/README.txt"), "mine").unwrap();
    assert_eq!(stage.run("export @other --capture @host").0, 2);
    assert_eq!(files::read_to_string(&stage.path("other/README.txt")).unwrap(), "mine");
}

#[test]
fn a_list_that_names_files_elsewhere_removes_nothing_there() {
    let stage = Stage::new();
    files::create_dir_all(&stage.path("out")).unwrap();
    files::write(&stage.path("precious"), "mine").unwrap();
    files::write(&stage.path("out/.nearmetal-export"), "../precious\n").unwrap();
    assert_eq!(stage.run(ALL).0, 0);
    assert_eq!(files::read_to_string(&stage.path("precious")).unwrap(), "mine");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let stage = Stage::new();
    files::write(&stage.path("out"), "a file").unwrap();
    let (code, _, stderr) = stage.run(ALL);
    assert_eq!(code, 2);
    assert!(stderr.contains("/out`"), "{stderr}");
}
