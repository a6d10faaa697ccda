//! A tree of files held in memory: a capture that was unpacked, or a description in another format turned into files.
//!
//! Nothing of it ever touches a disk, and its links lead nowhere but into the tree itself. Links resolve as the kernel
//! does it with `openat2(RESOLVE_BENEATH)`, the way captured directories are read: an absolute link, and `..` above the
//! top, are refused (EXDEV), and so are more than 40 links on one path (ELOOP).

use std::collections::BTreeMap;

use rustix::io::Errno;

/// Links followed on one path, as the kernel does (MAXSYMLINKS).
const MOST_LINKS: usize = 40;
/// The most one file may hold. The readers accept no larger one.
pub const LARGEST_FILE: usize = 16 << 20;

/// What a tree may hold. A capture of a 256-node machine is below a tenth of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files, directories and links.
    pub entries: usize,
    /// Contents of all files, in bytes.
    pub bytes: usize,
    /// Length of a path, in bytes (the kernel's PATH_MAX).
    pub path: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 2_000_000, bytes: 512 << 20, path: 4096 }
    }
}

/// Why something was not put into a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Absolute, upwards, or empty.
    #[error("`{path}` is not a path inside a tree: {reason}")]
    Path {
        /// The path as given, cut to 200 characters.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The tree is full.
    #[error("more than {limit} {what}: this is not a capture of a machine, or it is damaged")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A regular file and its bytes.
    File(Vec<u8>),
    /// A symbolic link, as written. Kept as it is, followed only inside the tree.
    Link(String),
    /// What the captured machine did not let its reader read.
    Denied,
    /// What the captured machine could not read, and its reason.
    Failed(String),
}

#[derive(Debug, Clone)]
struct Node {
    entry: Entry,
    children: BTreeMap<String, usize>,
}

impl Node {
    fn new(entry: Entry) -> Self {
        Self { entry, children: BTreeMap::new() }
    }
}

/// The tree.
#[derive(Debug, Clone)]
pub struct MemoryTree {
    nodes: Vec<Node>,
    /// The node that `/` names.
    top: usize,
    limits: Limits,
    bytes: usize,
}

impl Default for MemoryTree {
    fn default() -> Self {
        Self::with_limits(Limits::default())
    }
}

impl MemoryTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty tree that may hold this much.
    pub fn with_limits(limits: Limits) -> Self {
        Self { nodes: vec![Node::new(Entry::Directory)], top: 0, limits, bytes: 0 }
    }

    /// Puts an entry at a path; directories on the way are made. An entry that is there already is replaced, but a
    /// directory stays one, and nothing is put below a file or a link: links are not followed while a tree is built.
    ///
    /// # Errors
    /// [`TreeError::Path`] for `..`, an empty name, a NUL, or a way through a file or link; [`TreeError::Limit`].
    pub fn put(&mut self, path: &str, entry: Entry) -> Result<(), TreeError> {
        let wrong = |reason| TreeError::Path { path: path.chars().take(200).collect(), reason };
        if path.len() > self.limits.path {
            return Err(TreeError::Limit { what: "bytes in a path", limit: self.limits.path });
        }
        if path.contains('\0') {
            return Err(wrong("a NUL is in it"));
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(wrong("`..` is in it"));
        }
        let Some((name, parents)) = parts.split_last() else {
            return if entry == Entry::Directory { Ok(()) } else { Err(wrong("it is the top")) };
        };
        let mut at = self.top;
        for part in parents {
            at = match self.nodes[at].children.get(*part) {
                Some(child) => *child,
                None => self.add(at, part, Entry::Directory)?,
            };
            if !matches!(self.nodes[at].entry, Entry::Directory) {
                return Err(wrong("its path leads through something that is not a directory"));
            }
        }
        let more = size(&entry);
        match self.nodes[at].children.get(*name).copied() {
            None => {
                self.room_for(more)?;
                self.add(at, name, entry)?;
                self.bytes += more;
            }
            Some(old) if self.nodes[old].entry == Entry::Directory && !self.nodes[old].children.is_empty() => {
                if entry != Entry::Directory {
                    return Err(wrong("it is a directory already"));
                }
            }
            Some(old) => {
                let less = size(&self.nodes[old].entry);
                self.room_for(more.saturating_sub(less))?;
                self.bytes = self.bytes - less + more;
                self.nodes[old].entry = entry;
            }
        }
        Ok(())
    }

    /// What is at a path, links not followed.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.index(path).map(|index| &self.nodes[index].entry)
    }

    /// Takes what is at a path out of the tree, with all below it.
    pub fn remove(&mut self, path: &str) {
        let path = path.trim_end_matches('/');
        let Some((parent, name)) = path.rsplit_once('/') else { return };
        if let Some(parent) = self.index(parent) {
            self.nodes[parent].children.remove(name);
        }
    }

    /// The tree below one of its directories, which becomes the top; `None` if there is no such directory.
    pub fn below(mut self, path: &str) -> Option<Self> {
        self.top = self.index(path).filter(|index| self.nodes[*index].entry == Entry::Directory)?;
        Some(self)
    }

    /// Every entry but the top, parents before children, by path.
    pub fn entries(&self) -> Vec<(String, &Entry)> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), self.top)];
        while let Some((path, index)) = open.pop() {
            if index != self.top {
                found.push((path.clone(), &self.nodes[index].entry));
            }
            open.extend(
                self.nodes[index].children.iter().rev().map(|(name, child)| (format!("{path}/{name}"), *child)),
            );
        }
        found
    }

    /// The entry a path leads to, links followed; with `last` a link at its end too.
    pub(crate) fn resolve(&self, path: &str, last: bool) -> Result<&Entry, Errno> {
        self.walk(path, last).map(|index| &self.nodes[index].entry)
    }

    /// Names in a directory.
    pub(crate) fn names(&self, path: &str) -> Result<Vec<String>, Errno> {
        let node = &self.nodes[self.walk(path, true)?];
        match &node.entry {
            Entry::Directory => Ok(node.children.keys().cloned().collect()),
            Entry::Denied => Err(Errno::ACCESS),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn walk(&self, path: &str, last: bool) -> Result<usize, Errno> {
        // A path that ends in `/` or `/.` names a directory; its last link is followed in any case.
        let directory = path.ends_with('/') || path.ends_with("/.");
        let mut trail = vec![self.top];
        let mut ahead: Vec<String> = reversed(path);
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            let here = trail[trail.len() - 1];
            if part == ".." {
                if trail.len() == 1 {
                    return Err(Errno::XDEV);
                }
                trail.pop();
                continue;
            }
            match &self.nodes[here].entry {
                Entry::Directory => {}
                Entry::Denied => return Err(Errno::ACCESS),
                _ => return Err(Errno::NOTDIR),
            }
            let child = *self.nodes[here].children.get(&part).ok_or(Errno::NOENT)?;
            match &self.nodes[child].entry {
                Entry::Link(target) if last || directory || !ahead.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    if target.starts_with('/') {
                        return Err(Errno::XDEV);
                    }
                    ahead.extend(reversed(target));
                }
                _ => trail.push(child),
            }
        }
        let end = trail[trail.len() - 1];
        match &self.nodes[end].entry {
            Entry::File(_) | Entry::Failed(_) if directory => Err(Errno::NOTDIR),
            _ => Ok(end),
        }
    }

    fn index(&self, path: &str) -> Option<usize> {
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        parts.into_iter().try_fold(self.top, |at, part| self.nodes[at].children.get(part).copied())
    }

    fn add(&mut self, parent: usize, name: &str, entry: Entry) -> Result<usize, TreeError> {
        if self.nodes.len() > self.limits.entries {
            return Err(TreeError::Limit { what: "files", limit: self.limits.entries });
        }
        let index = self.nodes.len();
        self.nodes.push(Node::new(entry));
        self.nodes[parent].children.insert(name.to_owned(), index);
        Ok(index)
    }

    fn room_for(&self, more: usize) -> Result<(), TreeError> {
        if self.bytes.saturating_add(more) > self.limits.bytes {
            return Err(TreeError::Limit { what: "bytes in all files", limit: self.limits.bytes });
        }
        Ok(())
    }
}

fn size(entry: &Entry) -> usize {
    match entry {
        Entry::File(bytes) => bytes.len(),
        Entry::Link(text) | Entry::Failed(text) => text.len(),
        Entry::Directory | Entry::Denied => 0,
    }
}

fn reversed(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(text: &str) -> Entry {
        Entry::File(text.as_bytes().to_vec())
    }

    fn tree(entries: &[(&str, Entry)]) -> MemoryTree {
        let mut tree = MemoryTree::new();
        for (path, entry) in entries {
            tree.put(path, entry.clone()).unwrap();
        }
        tree
    }

    #[test]
    fn links_lead_inside_or_nowhere() {
        let tree = tree(&[
            ("/sys/devices/pci/vendor", file("0x8086\n")),
            ("/sys/class/block/sda", Entry::Link("../../devices/pci".to_owned())),
            ("/sys/out", Entry::Link("../../../etc/passwd".to_owned())),
            ("/sys/absolute", Entry::Link("/sys/devices/pci/vendor".to_owned())),
            ("/sys/circle", Entry::Link("circle".to_owned())),
            ("/sys/dangling", Entry::Link("nowhere".to_owned())),
        ]);
        assert_eq!(tree.resolve("/sys/class/block/sda/vendor", true), Ok(&file("0x8086\n")));
        assert_eq!(tree.resolve("/sys/class/block/sda/../pci/vendor", true), Ok(&file("0x8086\n")));
        for (path, errno) in [
            ("/sys/out", Errno::XDEV),
            ("/sys/absolute", Errno::XDEV),
            ("/sys/circle", Errno::LOOP),
            ("/sys/dangling", Errno::NOENT),
            ("/..", Errno::XDEV),
            ("/sys/devices/pci/vendor/x", Errno::NOTDIR),
            ("/sys/devices/pci/vendor/.", Errno::NOTDIR),
        ] {
            assert_eq!(tree.resolve(path, true), Err(errno), "{path}");
        }
        assert!(matches!(tree.resolve("/sys/out", false), Ok(Entry::Link(_))));
        assert_eq!(tree.names("/sys/class/block/sda/").unwrap(), ["vendor"]);
    }

    #[test]
    fn what_would_lead_out_is_not_put_in() {
        let mut tree = tree(&[("/sys/link", Entry::Link("..".to_owned())), ("/sys/file", file("x"))]);
        for path in ["../etc", "/sys/../../etc", "/sys/link/below", "/sys/file/below", "/a\0b", ""] {
            assert!(tree.put(path, file("x")).is_err(), "{path}");
        }
        assert!(tree.put("/sys", file("x")).is_err(), "a directory with files in it stays");
        assert!(tree.put(&"x/".repeat(3000), file("x")).is_err());
    }

    #[test]
    fn a_tree_has_an_end() {
        let mut tree = MemoryTree::with_limits(Limits { entries: 4, bytes: 10, path: 100 });
        tree.put("/a", file("12345")).unwrap();
        assert!(matches!(tree.put("/b", file("123456")), Err(TreeError::Limit { limit: 10, .. })));
        tree.put("/a", file("1234567890")).unwrap();
        for name in ["/c", "/d", "/e"] {
            tree.put(name, Entry::Directory).unwrap();
        }
        assert!(matches!(tree.put("/f", Entry::Directory), Err(TreeError::Limit { limit: 4, .. })));
    }

    #[test]
    fn entries_come_parents_first() {
        let mut tree = tree(&[("/b/c", file("1")), ("/a", file("2")), ("/b/a/x", file("3"))]);
        let paths = |tree: &MemoryTree| tree.entries().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(paths(&tree), ["/a", "/b", "/b/a", "/b/a/x", "/b/c"]);
        tree.remove("/b/a");
        assert_eq!(paths(&tree), ["/a", "/b", "/b/c"]);
        assert!(tree.clone().below("/a").is_none() && tree.clone().below("/z").is_none());
        let below = tree.below("/b").unwrap();
        assert_eq!(paths(&below), ["/c"]);
        assert_eq!(below.resolve("/../a", true), Err(Errno::XDEV), "what lies above is out of reach");
    }

    proptest! {
        #[test]
        fn no_path_panics(links in proptest::collection::vec(("[a-c./]{1,8}", "[a-c./]{0,8}"), 0..8), path in "[a-c./]{0,16}") {
            let mut tree = MemoryTree::new();
            for (at, target) in links {
                let _ = tree.put(&at, Entry::Link(target));
            }
            let _ = (tree.resolve(&path, true), tree.resolve(&path, false), tree.names(&path), tree.get(&path));
        }
    }
}
