//! Trees for tests: built file by file, or copied from the fixtures.
#![allow(clippy::disallowed_methods, reason = "tests build the trees that HostFs reads")]
#![allow(clippy::unwrap_used, reason = "a tree that cannot be built is a failed test")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nearmetal_host::{HostFs, tree_text};

/// A directory that goes away with the test.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    /// An empty `sys` and `proc`.
    pub(crate) fn new() -> Self {
        // In memory where there is such a place: a fixture is thousands of files, and disks take a minute for all of them.
        let memory = Path::new("/dev/shm");
        let directory = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir_all(directory.path().join("sys")).unwrap();
        fs::create_dir_all(directory.path().join("proc")).unwrap();
        Self { directory }
    }

    /// A copy of a fixture, kept as a directory or as one text.
    pub(crate) fn of_fixture(name: &str) -> Self {
        let tree = Self::new();
        let fixture = fixtures().join(name);
        match fs::read_to_string(fixture.join("tree.txt")) {
            Ok(text) => tree_text::unpack(&text, tree.directory.path()).unwrap(),
            Err(_) => copy(&fixture, tree.directory.path()),
        }
        tree
    }

    /// The tree of a text.
    pub(crate) fn of_text(text: &str) -> Self {
        let tree = Self::new();
        tree_text::unpack(text, tree.directory.path()).unwrap();
        tree
    }

    /// Writes a file and the directories above it.
    pub(crate) fn file(&self, path: &str, contents: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self
    }

    /// Several files of one directory.
    pub(crate) fn files(&self, directory: &str, files: &[(&str, &str)]) -> &Self {
        for (name, contents) in files {
            self.file(&format!("{directory}/{name}"), contents);
        }
        self
    }

    /// Makes a link, replacing what is there.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
        self
    }

    /// Makes a directory.
    pub(crate) fn directory(&self, path: &str) -> &Self {
        fs::create_dir_all(self.path(path)).unwrap();
        self
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap()
    }

    /// The gate to it.
    pub(crate) fn fs(&self) -> HostFs {
        HostFs::at(self.directory.path()).unwrap()
    }

    /// Every regular file under `sys` and `proc`, as a path inside the host.
    pub(crate) fn all_files(&self) -> Vec<String> {
        let mut found = Vec::new();
        for top in ["sys", "proc"] {
            walk(&self.directory.path().join(top), &format!("/{top}"), &mut found);
        }
        found.sort();
        found
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path.trim_start_matches('/'))
    }
}

/// The folder of fixtures.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts")
}

fn walk(directory: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(&entry.path(), &name, found);
        } else if kind.is_file() {
            found.push(name);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(entry.path()).unwrap(), target).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
