//! One push in the rig: what it told, and what is on each host afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::network::{Network, SOURCE};

/// What a push told.
pub(crate) struct Told {
    pub(crate) code: i32,
    /// Seconds from the first order to each host that has the image.
    pub(crate) stored: BTreeMap<usize, f64>,
    pub(crate) failed: BTreeMap<usize, String>,
    pub(crate) received: BTreeMap<usize, u64>,
    pub(crate) notes: Vec<String>,
    pub(crate) events: Vec<(String, usize)>,
    pub(crate) source_sent: u64,
}

impl Told {
    /// When the last host but these had it.
    pub(crate) fn last_but(&self, but: &[usize]) -> f64 {
        self.stored.iter().filter(|(host, _)| !but.contains(host)).map(|(_, at)| *at).fold(0.0, f64::max)
    }

    pub(crate) fn count(&self, event: &str) -> usize {
        self.events.iter().filter(|(name, _)| name == event).count()
    }
}

/// When something is to be done.
pub(crate) enum When<'a> {
    /// A host has so much of the image.
    Has { host: usize, share: f64 },
    /// All hosts but these have all of it.
    AllBut(&'a [usize]),
}

/// What to do, once.
pub(crate) struct Trigger<'a> {
    pub(crate) when: When<'a>,
    pub(crate) act: &'a mut dyn FnMut(),
}

/// Pushes to all hosts.
pub(crate) fn push(network: &Network, file: &Path, more: &[&str], mut trigger: Option<Trigger<'_>>) -> Told {
    let mut command = network.command(SOURCE, &network.directory.join("bin/nearmetal"));
    command.args(["image", "push", "--format=json", "--port=7700"]).arg(file);
    command.arg("--directory").arg(network.directory.join("images")).args(more);
    for host in 1..=network.hosts {
        command.args(["--host", &format!("h{host}")]);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut told = Told {
        code: 0,
        stored: BTreeMap::new(),
        failed: BTreeMap::new(),
        received: BTreeMap::new(),
        notes: Vec::new(),
        events: Vec::new(),
        source_sent: 0,
    };
    let (mut pieces, mut first) = (1.0, None);
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        let seconds = event["seconds"].as_f64().unwrap_or(0.0);
        let host = event["host"].as_str().and_then(|name| name[1..].parse::<usize>().ok()).unwrap_or(0);
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        let name = text("event");
        match name.as_str() {
            "named" => pieces = event["pieces"].as_f64().unwrap_or(1.0),
            "order" => drop(first.get_or_insert(seconds)),
            "stored" => {
                told.stored.insert(host, seconds - first.unwrap_or(seconds));
                told.received.insert(host, event["received"].as_u64().unwrap_or(0));
            }
            "failed" => drop(told.failed.insert(host, text("reason"))),
            "note" => told.notes.push(format!("h{host}: {}", text("text"))),
            "finished" => told.source_sent = event["source_sent"].as_u64().unwrap_or(0),
            _ => {}
        }
        let has = event["pieces"].as_f64().filter(|_| name == "progress").unwrap_or(0.0) / pieces;
        let due = trigger.take_if(|trigger| match trigger.when {
            When::Has { host: whose, share } => whose == host && has >= share,
            When::AllBut(those) => {
                (1..=network.hosts).all(|host| those.contains(&host) || told.stored.contains_key(&host))
            }
        });
        if let Some(due) = due {
            (due.act)();
        }
        told.events.push((name, host));
    }
    told.code = child.wait().ok().and_then(|status| status.code()).unwrap_or(-1);
    told
}

/// What a host has under a final name: whether it equals the file. `None`: nothing.
pub(crate) fn has(network: &Network, host: usize, file: &Path) -> Option<bool> {
    let path = final_path(network, host)?;
    Some(same(&path, file))
}

/// The path of the only image of a host.
pub(crate) fn final_path(network: &Network, host: usize) -> Option<PathBuf> {
    images(network, host).pop()
}

/// What a host has under final names.
pub(crate) fn images(network: &Network, host: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(network.store(host)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.file_name().is_some_and(|name| name.len() == 64)).collect()
}

pub(crate) fn same(a: &Path, b: &Path) -> bool {
    use std::io::Read;
    let (mut a, mut b) = (fs::File::open(a).unwrap(), fs::File::open(b).unwrap());
    if a.metadata().unwrap().len() != b.metadata().unwrap().len() {
        return false;
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let count = a.read(&mut left).unwrap();
        if count == 0 {
            return true;
        }
        b.read_exact(&mut right[..count]).unwrap();
        if left[..count] != right[..count] {
            return false;
        }
    }
}

/// Empties every host's store.
pub(crate) fn clear(network: &Network) {
    for host in 1..=network.hosts {
        for entry in fs::read_dir(network.store(host)).unwrap().flatten() {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// The receiver that runs on a host.
pub(crate) fn signal(network: &Network, host: usize, signal: rustix::process::Signal) {
    let pid = fs::read_to_string(network.directory.join(format!("host-{host}.pid"))).unwrap_or_default();
    if let Some(pid) = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
