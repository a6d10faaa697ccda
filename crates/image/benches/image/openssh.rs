//! OpenSSH itself, in place of the rig's stand-in: an sshd for each host, and the configuration that reaches it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::network::{Network, address};
use crate::peers::Package;

pub(crate) const PACKAGE: Package = Package { name: "openssh-server", file: "/usr/sbin/sshd" };
const PORT: u16 = 7022;

/// The daemons; they end with it.
pub(crate) struct OpenSsh {
    daemons: Vec<Child>,
    pub(crate) config: PathBuf,
}

impl OpenSsh {
    /// Starts them, and waits until all of them listen.
    pub(crate) fn up(network: &Network) -> Self {
        let directory = network.directory.join("openssh");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let at = |name: &str| directory.join(name).display().to_string();
        if !directory.join("key").exists() {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at("key")]).status();
            assert!(made.unwrap().success(), "ssh-keygen");
            fs::copy(directory.join("key.pub"), directory.join("authorized")).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", network.directory.join("bin").display());
        let server = format!(
            "ListenAddress 0.0.0.0:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPidFile none\n\
             Subsystem sftp internal-sftp\nPermitRootLogin prohibit-password\nSetEnv PATH={path}\n",
            at("key"),
            at("authorized")
        );
        fs::write(directory.join("sshd_config"), server).unwrap();
        let mut client = String::new();
        for host in 1..=network.hosts {
            let _ = writeln!(client, "Host h{host}\n    HostName {}", address(host + 1));
        }
        let _ = write!(
            client,
            "Host *\n    User root\n    Port {PORT}\n    IdentityFile {}\n    StrictHostKeyChecking no\n    \
             UserKnownHostsFile /dev/null\n    LogLevel ERROR\n",
            at("key")
        );
        let config = directory.join("config");
        fs::write(&config, client).unwrap();
        let daemon = |host| {
            let mut command = network.command_of_host(host);
            command
                .args([PACKAGE.file, "-D", "-e", "-f", &at("sshd_config")])
                .stdin(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let daemons = (1..=network.hosts).map(daemon).collect();
        (1..=network.hosts).for_each(|host| network.listens(host, "-Hltn", PORT));
        Self { daemons, config }
    }

    /// Has `ssh` be OpenSSH's for what the rig starts, until the daemons end.
    pub(crate) fn in_place_of_the_stand_in(&self, network: &Network) {
        fs::write(ssh(network), format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", self.config.display())).unwrap();
    }
}

fn ssh(network: &Network) -> PathBuf {
    network.directory.join("bin/ssh")
}

/// The rig's own, which knows where each host's receiver is.
pub(crate) fn stand_in(network: &Network, rig: &Path) {
    fs::write(ssh(network), format!("#!/bin/sh\nexec {} ssh \"$@\"\n", rig.display())).unwrap();
}

impl Drop for OpenSsh {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
