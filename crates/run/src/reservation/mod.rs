//! Who has what: a file for each run that lives, and a lock for whoever chooses.
//!
//! A run [holds](hold) its file as long as it lives, so that the kernel gives it up however the run ends. A file that
//! nobody holds is what a run left that was killed: [`crate::recover`] gives back what it names, and removes it. Files are
//! appended to, a line of JSON at a time; the last whole line counts, and a run that dies while it writes spoils none.
//!
//! Runs of all users lie in one directory, which [`desk`] reads. What another user wrote there is hostile: it may keep PUs from
//! others, which its user could do by running a busy loop too, and nothing else.

mod desk;
mod hold;
mod room;

use nearmetal_image::ImageId;
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

use crate::function::Lent;
use crate::given::MemoryLimit;
use crate::pools::Growth;

pub use desk::{Claim, Desk, Pools, Seen, Turn};

/// Where reservations are: gone with a reboot, as what they reserve is.
pub const DIRECTORY: &str = "/run/nearmetal/runs";
/// The schema of a line.
pub const SCHEMA: &str = "nearmetal.reservation/2";
/// Characters of a path in a reservation at most: each line has that of every limit.
pub(crate) const LONGEST_PATH: usize = 1024;
/// Characters of its other texts at most.
const LONGEST_TEXT: usize = 100;

/// What a run has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of its domain.
    pub name: String,
    /// UUID of its domain.
    pub uuid: String,
    /// Its flavour.
    pub flavour: String,
    /// Process of `nearmetal run`.
    pub pid: u32,
    /// User whose run it is. Of one that was found, the owner of its file, whatever is written there.
    #[serde(default)]
    pub uid: u32,
    /// User for whom the service does it, with root's reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<u32>,
    /// When it began.
    pub since: String,
    /// PUs that are its own, those of helper threads and of whole cores included.
    pub cpus: CpuSet,
    /// Its memory by node.
    pub memory: Vec<NodeShare>,
    /// Files of the memory limits that its guest counts against.
    pub limits: Vec<String>,
    /// Device and inode of the control group of each of them; empty where they are unknown.
    #[serde(default)]
    pub limit_groups: Vec<String>,
    /// Size of its hugepages; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// Its base image.
    pub image: Option<ImageId>,
    /// PCI functions of its guest. Only root's reservations have any, whatever is written in others.
    #[serde(default)]
    pub functions: Vec<Lent>,
    /// What was added to pools for it.
    pub pools: Vec<Growth>,
}

/// Memory of a guest on a node, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeShare {
    /// Node.
    pub node: u32,
    /// How much.
    pub bytes: Bytes,
}

/// What a reservation's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Nothing yet: no line is whole. Whoever makes it has nothing but its name.
    Nothing,
    /// Something that this version does not read: what it has is unknown.
    Unknown,
    /// This, by its last whole line.
    Whole(Box<Reservation>),
}

impl Said {
    /// Reads a reservation's file.
    pub fn parse(text: &str) -> Self {
        // What stands behind the last line feed was being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let Some(last) = whole.rsplit('\n').find(|line| !line.is_empty()) else { return Self::Nothing };
        match serde_json::from_str::<Reservation>(last) {
            Ok(last) if last.is_readable() => Self::Whole(Box::new(last)),
            _ => Self::Unknown,
        }
    }
}

impl Reservation {
    /// Of a run that has nothing yet, in this process and of its user.
    pub fn empty(name: &str, uuid: &str, flavour: &str) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            flavour: flavour.to_owned(),
            pid: std::process::id(),
            uid: rustix::process::geteuid().as_raw(),
            asked_by: None,
            since: String::new(),
            cpus: CpuSet::new(),
            memory: Vec::new(),
            limits: Vec::new(),
            limit_groups: Vec::new(),
            page_size: None,
            image: None,
            functions: Vec::new(),
            pools: Vec::new(),
        }
    }

    /// Whose guest it is. Another user's file says nothing of a third.
    pub fn user(&self) -> u32 {
        if self.uid == 0 { self.asked_by.unwrap_or(0) } else { self.uid }
    }

    /// For messages: who has which PUs.
    pub fn holder(&self) -> String {
        let user = self.user();
        let user = if user == 0 { String::new() } else { format!(" of user {user}") };
        format!("`{}` (process {}{user}) has PUs {}", self.name, self.pid, self.cpus)
    }

    /// Whether its guest has a PCI function.
    pub fn has(&self, function: PciAddress) -> bool {
        self.functions.iter().any(|lent| lent.function == function)
    }

    /// Whether its guest counts against a limit. The same file is another limit in another container, and the same limit has another
    /// path there: control groups tell, where both are known.
    pub fn counts_against(&self, limit: &MemoryLimit) -> bool {
        match &limit.group {
            Some(group) if !self.limit_groups.is_empty() => self.limit_groups.contains(group),
            _ => self.limits.contains(&limit.file),
        }
    }

    /// Whether others understand it.
    fn is_readable(&self) -> bool {
        self.schema == SCHEMA && self.is_plain()
    }

    /// Whether every text of it may be shown and compared. Another user may have written it: nothing of it reaches a terminal that
    /// the terminal would obey.
    fn is_plain(&self) -> bool {
        let short = [&self.uuid, &self.flavour, &self.since].into_iter().all(|text| is_plain(text, LONGEST_TEXT));
        // A driver's name becomes a part of a path.
        let drivers = self.functions.iter().flat_map(|lent| lent.driver.iter().chain(&lent.only));
        is_name(&self.name)
            && short
            && self.functions.iter().all(|lent| is_plain(&lent.id, LONGEST_TEXT))
            && drivers.into_iter().all(|driver| is_name(driver))
            && self.limits.iter().chain(&self.limit_groups).all(|limit| is_plain(limit, LONGEST_PATH))
    }
}

pub(crate) fn is_plain(text: &str, most: usize) -> bool {
    text.len() <= most && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// Whether it may be a part of a file's name.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod desk_tests;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn reservation(name: &str, cpus: &str) -> Reservation {
        Reservation {
            pid: 7,
            uid: 0,
            cpus: cpus.parse().unwrap(),
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(256) }],
            ..Reservation::empty(name, &format!("uuid-of-{name}"), "small")
        }
    }
}
