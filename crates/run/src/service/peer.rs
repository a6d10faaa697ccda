//! Who asks, by the kernel's word: SO_PEERCRED of unix(7), and /proc/PID/status (proc.rst).

use std::os::fd::AsFd;

use nearmetal_host::HostFs;

use crate::RunError;
use crate::given::Given;

/// The process that connected, and its user and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its groups, its own first.
    pub groups: Vec<u32>,
}

impl Peer {
    /// Of a connection.
    ///
    /// # Errors
    /// The kernel does not say, or the process is gone, not to be seen from here, or another user's by now.
    pub fn of(fs: &HostFs, connection: impl AsFd) -> Result<Self, RunError> {
        let peer = rustix::net::sockopt::socket_peercred(connection)
            .map_err(|errno| RunError::Service(format!("cannot tell who asks: {errno}")))?;
        let pid = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        let mut this = Self { pid, uid: peer.uid.as_raw(), groups: vec![peer.gid.as_raw()] };
        this.groups.extend(this.check(fs)?);
        Ok(this)
    }

    /// What it was given of the machine.
    ///
    /// # Errors
    /// It cannot be told, or the process with this number is another user's by now.
    pub fn given(&self, fs: &HostFs) -> Result<Given, RunError> {
        let given = Given::of(fs, &self.pid.to_string())?;
        // After what was read: a process of somebody else had been given another part of the machine.
        self.check(fs)?;
        Ok(given)
    }

    /// Its other groups, if it is this user's still.
    fn check(&self, fs: &HostFs) -> Result<Vec<u32>, RunError> {
        let path = format!("/proc/{}/status", self.pid);
        let status = fs.read(&path).map_err(|error| {
            RunError::Service(format!(
                "cannot see the process that asks ({error}): it has ended, or is in a container that the host does not see into"
            ))
        })?;
        let (uid, groups) = user_and_groups(&status)
            .ok_or_else(|| RunError::Service(format!("`{path}` does not say whose process it is")))?;
        if uid != self.uid {
            return Err(RunError::Service("the process that asked has ended".to_owned()));
        }
        Ok(groups)
    }
}

/// The effective user of a process with this status, which is who connected, and its supplementary groups.
pub(crate) fn user_and_groups(status: &str) -> Option<(u32, Vec<u32>)> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // Real, effective, saved, and for files.
    let uid = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let groups = field("Groups:")?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((uid, groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::{Entry, MemoryTree};
    use std::os::unix::net::UnixStream;

    #[test]
    fn whose_a_process_is_and_its_groups() {
        let status = "Name:\tUid:\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t5\t5\t5\nGroups:\t5 27 108 \n";
        assert_eq!(user_and_groups(status), Some((1001, vec![5, 27, 108])));
        assert_eq!(user_and_groups("Uid:\t0\t0\t0\t0\nGroups:\t \n"), Some((0, Vec::new())));
        for broken in ["", "Uid:\t1\nGroups:\n", "Uid:\t1\t1\nGroups:\tx\n", "Groups:\t1\n"] {
            assert_eq!(user_and_groups(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_kernel_says_who_asks_and_what_that_process_was_given() {
        let (_other, connection) = UnixStream::pair().unwrap();
        let own = (std::process::id(), rustix::process::geteuid().as_raw());
        let status = |uid: u32| {
            format!("Name:\tx\nUid:\t0\t{uid}\t0\t0\nGroups:\t27\nCpus_allowed_list:\t2-5\nMems_allowed_list:\t1\n")
        };
        let host = |uid: u32| {
            let mut tree = MemoryTree::new();
            tree.put(&format!("/proc/{}/status", own.0), Entry::File(status(uid).into_bytes())).unwrap();
            tree.put(&format!("/proc/{}/cgroup", own.0), Entry::File(b"0::/\n".to_vec())).unwrap();
            HostFs::of_tree(tree, "test")
        };
        let fs = host(own.1);
        let peer = Peer::of(&fs, &connection).unwrap();
        assert_eq!((peer.pid, peer.uid), own);
        assert!(peer.groups.contains(&27) && peer.groups.contains(&rustix::process::getegid().as_raw()));
        assert_eq!(peer.given(&fs).unwrap().cpus.to_string(), "2-5");
        // Its number is another user's process by now.
        assert!(Peer::of(&host(own.1 + 1), &connection).unwrap_err().to_string().contains("has ended"));
        let gone = peer.given(&HostFs::of_tree(MemoryTree::new(), "test")).unwrap_err().to_string();
        assert!(gone.contains("status"), "{gone}");
    }
}
