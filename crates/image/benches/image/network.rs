//! One network namespace for each host, joined by a bridge, each with a shaped link both ways.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Options;
use crate::openssh::stand_in;

/// Namespaces, files and stand-ins of a rig; all gone when it is dropped.
pub(crate) struct Network {
    pub(crate) directory: PathBuf,
    prefix: String,
    pub(crate) hosts: usize,
    mbit: u64,
    daemons: Vec<Child>,
}

/// The last number of a node's address: 1 is the source, hosts follow, 250 is the proxy.
pub(crate) const SOURCE: usize = 1;
pub(crate) const PROXY: usize = 250;

pub(crate) fn address(node: usize) -> String {
    format!("10.77.0.{node}")
}

pub(crate) fn run(words: &str) -> bool {
    let mut words = words.split(' ');
    let program = words.next().unwrap_or_default();
    Command::new(program).args(words).stderr(Stdio::inherit()).status().is_ok_and(|status| status.success())
}

fn must(words: &str) {
    if !run(words) {
        // Not an exit: what was made so far is taken down on the way out.
        panic!("`{words}` failed");
    }
}

impl Network {
    pub(crate) fn up(options: &Options) -> Self {
        let prefix = format!("nmi{}", std::process::id());
        let directory = PathBuf::from(format!("/tmp/{prefix}"));
        fs::create_dir_all(directory.join("bin")).unwrap();
        // Memory, so that one disk is not shared by all "hosts".
        must(&format!("mount -t tmpfs -o size=90% {prefix} {}", directory.display()));
        for name in ["bin", "images"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let mut network = Self { directory, prefix, hosts: options.hosts, mbit: options.mbit, daemons: Vec::new() };
        let bridge = network.namespace(0);
        must(&format!("ip netns add {bridge}"));
        must(&format!("ip -n {bridge} link add name br0 type bridge"));
        must(&format!("ip -n {bridge} link set br0 up"));
        for node in network.nodes() {
            let name = network.namespace(node);
            must(&format!("ip netns add {name}"));
            must(&format!("ip -n {name} link add eth0 type veth peer name p{node} netns {bridge}"));
            must(&format!("ip -n {name} address add {}/24 dev eth0", address(node)));
            must(&format!("ip -n {name} link set lo up"));
            must(&format!("ip -n {name} link set eth0 up"));
            must(&format!("ip -n {bridge} link set p{node} master br0 up"));
            if node != PROXY {
                network.shape(node, options.mbit);
            }
        }
        let rig = std::env::current_exe().unwrap();
        stand_in(&network, &rig);
        std::os::unix::fs::symlink(&options.program, network.directory.join("bin/nearmetal")).unwrap();
        must(&format!("chmod 755 {}", network.directory.join("bin/ssh").display()));
        for host in 1..=options.hosts {
            fs::create_dir_all(network.store(host)).unwrap();
            network.daemons.push(network.start_sshd(host, &rig));
        }
        network
    }

    fn nodes(&self) -> Vec<usize> {
        (SOURCE..=self.hosts + 1).chain([PROXY]).collect()
    }

    pub(crate) fn namespace(&self, node: usize) -> String {
        format!("{}-{node}", self.prefix)
    }

    /// Where a host keeps images; it sees the directory as `images`.
    pub(crate) fn store(&self, host: usize) -> PathBuf {
        self.directory.join(format!("host-{host}"))
    }

    /// Egress at the host's end is its uplink, egress at the bridge's end its downlink.
    fn shape(&self, node: usize, mbit: u64) {
        let tbf = |change: &str| format!("{change} root tbf rate {mbit}mbit burst 128kb latency 50ms");
        let (own, bridge) = (self.namespace(node), self.namespace(0));
        must(&format!("tc -n {own} qdisc {}", tbf("replace dev eth0")));
        must(&format!("tc -n {bridge} qdisc {}", tbf(&format!("replace dev p{node}"))));
    }

    pub(crate) fn slow_down(&self, host: usize, mbit: u64) {
        self.shape(host + 1, mbit);
    }

    pub(crate) fn full_speed(&self, host: usize) {
        self.shape(host + 1, self.mbit);
    }

    /// Cuts or mends the source's link.
    pub(crate) fn source_link(&self, up: bool) {
        must(&format!("ip -n {} link set p{SOURCE} {}", self.namespace(0), if up { "up" } else { "down" }));
    }

    /// A process whose mounts are the host's.
    pub(crate) fn mounts_of(&self, host: usize) -> u32 {
        self.daemons[host - 1].id()
    }

    /// A command in a node's namespace.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(node)]).arg(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.directory.join("bin").display()));
        command
    }

    /// A command of a host's, whose words follow. It sees its own store at the same place as the others: `ip netns exec` gives it mounts
    /// of its own.
    pub(crate) fn command_of_host(&self, host: usize) -> Command {
        let mut command = self.command(host + 1, Path::new("sh"));
        let (store, images) = (self.store(host), self.directory.join("images"));
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        command.args(["-c", script, "sh"]).args([&store, &images]);
        command
    }

    fn start_sshd(&self, host: usize, rig: &Path) -> Child {
        let pid_file = self.directory.join(format!("host-{host}.pid"));
        let mut command = self.command_of_host(host);
        command.arg(rig).arg("sshd").arg(address(host + 1)).arg(pid_file).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// Waits until something listens on this port of a host; `what` is ss(8)'s word for the protocol.
    pub(crate) fn listens(&self, host: usize, what: &str, port: u16) {
        for _ in 0..200 {
            let mut command = self.command(host + 1, Path::new("ss"));
            let found = command.args([what, &format!("sport = :{port}")]).output().unwrap().stdout;
            if !found.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("nothing listens on port {port} of host {host}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for node in self.nodes().into_iter().chain([0]) {
            run(&format!("ip netns delete {}", self.namespace(node)));
        }
        run(&format!("umount -l {}", self.directory.display()));
        let _ = fs::remove_dir_all(&self.directory);
    }
}
