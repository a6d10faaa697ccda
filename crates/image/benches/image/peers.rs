//! What others distribute files with, on the same rig and for the same image: `scp` to each host at once, a chain of `mbuffer`,
//! `uftp`'s multicast, and a swarm of libtorrent's. None is asked to bear a fault.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::network::{Network, SOURCE, address};
use crate::openssh::{OpenSsh, PACKAGE};
use crate::run::same;

/// A package of Debian's, and a file of it.
#[derive(Clone, Copy)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
}

impl Package {
    pub(crate) fn is_here(&self) -> bool {
        Path::new(self.file).exists()
    }
}

/// One of them.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) package: Package,
    run: fn(&Copying<'_>) -> f64,
}

pub(crate) const PEERS: [Peer; 4] = [
    Peer { name: "scp to all at once", package: PACKAGE, run: scp },
    Peer { name: "a chain of mbuffer", package: Package { name: "mbuffer", file: "/usr/bin/mbuffer" }, run: mbuffer },
    Peer { name: "uftp, multicast", package: Package { name: "uftp", file: "/usr/bin/uftp" }, run: uftp },
    Peer {
        name: "libtorrent, a swarm",
        package: Package { name: "python3-libtorrent", file: "/usr/share/doc/python3-libtorrent" },
        run: libtorrent,
    },
];

impl Peer {
    /// Seconds until every host has the file, which is compared. `None`: its package is not installed.
    pub(crate) fn seconds(&self, network: &Network, file: &Path, mbit: u64) -> Option<f64> {
        if !self.package.is_here() {
            return None;
        }
        let copying = Copying { network, file, mbit };
        let seconds = (self.run)(&copying);
        for host in 1..=network.hosts {
            assert!(same(&copying.at(host), file), "{}: host {host} has something else", self.name);
        }
        Some(seconds)
    }
}

struct Copying<'a> {
    network: &'a Network,
    file: &'a Path,
    mbit: u64,
}

/// Processes that end with the copy.
struct Running(Vec<Child>);

impl Running {
    fn wait(mut self) {
        for child in self.0.drain(..) {
            let ended = child.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Copying<'_> {
    fn name(&self) -> &str {
        self.file.file_name().and_then(|name| name.to_str()).unwrap()
    }

    /// Where a host's copy belongs.
    fn at(&self, host: usize) -> PathBuf {
        self.network.store(host).join(self.name())
    }

    fn start(&self, node: usize, program: &str, words: &[&str]) -> Child {
        let mut command = self.network.command(node, Path::new(program));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn hosts(copying: &Copying<'_>) -> std::ops::RangeInclusive<usize> {
    1..=copying.network.hosts
}

fn scp(copying: &Copying<'_>) -> f64 {
    let daemons = OpenSsh::up(copying.network);
    let (config, file) = (daemons.config.display().to_string(), copying.file.display().to_string());
    let begun = Instant::now();
    let copies = hosts(copying).map(|host| {
        let to = format!("h{host}:{}", copying.at(host).display());
        // The rig's own `ssh` stands first in PATH.
        copying.start(SOURCE, "scp", &["-S", "/usr/bin/ssh", "-q", "-B", "-F", &config, &file, &to])
    });
    Running(copies.collect()).wait();
    begun.elapsed().as_secs_f64()
}

/// Its own 10 KiB are too little for a disk image, and its own 2 MiB for so many members.
const BLOCK: &str = "128k";
const BUFFER: &str = "32M";

fn mbuffer(copying: &Copying<'_>) -> f64 {
    let last = copying.network.hosts;
    let mut members = Vec::new();
    // From the end: each connects to the next as it starts.
    for host in hosts(copying).rev() {
        let (to, next) = (copying.at(host).display().to_string(), format!("{}:7100", address(host + 2)));
        let mut words = vec!["-q", "-s", BLOCK, "-m", BUFFER, "-I", "7100", "-o", &to];
        if host != last {
            words.extend(["-O", &next]);
        }
        members.push(copying.start(host + 1, "mbuffer", &words));
        copying.network.listens(host, "-Hltn", 7100);
    }
    let begun = Instant::now();
    let (file, first) = (copying.file.display().to_string(), format!("{}:7100", address(2)));
    members.push(copying.start(SOURCE, "mbuffer", &["-q", "-s", BLOCK, "-m", BUFFER, "-i", &file, "-O", &first]));
    Running(members).wait();
    begun.elapsed().as_secs_f64()
}

fn uftp(copying: &Copying<'_>) -> f64 {
    let daemons = hosts(copying).map(|host| {
        let to = copying.network.store(host).display().to_string();
        copying.start(host + 1, "uftpd", &["-d", "-I", "eth0", "-D", &to])
    });
    let daemons = Running(daemons.collect());
    hosts(copying).for_each(|host| copying.network.listens(host, "-Hlun", 1044));
    // kbit/s of payload and uftp's own headers: what a link carries beside IP's and Ethernet's.
    let rate = (copying.mbit * 1000 * 95 / 100).to_string();
    let begun = Instant::now();
    let file = copying.file.display().to_string();
    Running(vec![copying.start(SOURCE, "uftp", &["-q", "-I", "eth0", "-R", &rate, &file])]).wait();
    let took = begun.elapsed().as_secs_f64();
    drop(daemons);
    took
}

/// Its time has Python's start in it. Each host knows all that come before it; no tracker, no DHT, no local discovery. Ends when its file is whole; the source's ends
/// with its input.
const SWARM: &str = r#"
import libtorrent as lt, sys, time
own, torrent, directory, seed, others = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "seed", sys.argv[5:]
session = lt.session({"listen_interfaces": own + ":7200", "enable_dht": False, "enable_lsd": False, "enable_upnp": False,
    "enable_natpmp": False, "enable_incoming_utp": False, "enable_outgoing_utp": False, "send_buffer_watermark": 4 << 20,
    "send_buffer_watermark_factor": 200, "allow_multiple_connections_per_ip": True, "in_enc_policy": 2, "out_enc_policy": 2, "alert_mask": 0})
parameters = lt.add_torrent_params()
parameters.ti, parameters.save_path = lt.torrent_info(torrent), directory
parameters.flags &= ~(lt.torrent_flags.auto_managed | lt.torrent_flags.paused)
if seed:
    parameters.flags |= lt.torrent_flags.seed_mode
handle = session.add_torrent(parameters)
for other in others:
    handle.connect_peer((other, 7200))
done = directory + "/done"
while True:
    if not seed and handle.status().is_seeding:
        open(done, "w").close()
    time.sleep(0.05)
"#;
const TORRENT: &str = r"
import libtorrent as lt, os, sys
path, made = sys.argv[1:]
files = lt.file_storage()
lt.add_files(files, path)
torrent = lt.create_torrent(files, piece_size=256 * 1024, flags=lt.create_torrent.v1_only)
lt.set_piece_hashes(torrent, os.path.dirname(path))
open(made, 'wb').write(lt.bencode(torrent.generate()))
";

fn libtorrent(copying: &Copying<'_>) -> f64 {
    let made = copying.network.directory.join("image.torrent");
    let status = Command::new("/usr/bin/python3").args(["-c", TORRENT]).arg(copying.file).arg(&made).status();
    assert!(status.unwrap().success(), "the torrent");
    let made = made.display().to_string();
    let member = |node: usize, directory: &Path, role: &str| {
        let (own, directory) = (address(node), directory.display().to_string());
        let before: Vec<String> = (SOURCE..node).map(address).collect();
        let mut words = vec!["-c", SWARM, &own, &made, &directory, role];
        words.extend(before.iter().map(String::as_str));
        copying.start(node, "/usr/bin/python3", &words)
    };
    let begun = Instant::now();
    let source = member(SOURCE, copying.file.parent().unwrap(), "seed");
    let mut members = vec![source];
    members.extend(hosts(copying).map(|host| member(host + 1, &copying.network.store(host), "get")));
    let mut members = Running(members);
    while !hosts(copying).all(|host| copying.network.store(host).join("done").exists()) {
        for member in &mut members.0 {
            assert!(member.try_wait().unwrap().is_none(), "a member of the swarm has ended");
        }
        assert!(begun.elapsed() < Duration::from_secs(600), "the swarm does not end");
        thread::sleep(Duration::from_millis(20));
    }
    let took = begun.elapsed().as_secs_f64();
    drop(members);
    took
}
