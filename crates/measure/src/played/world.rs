//! What programs do, on the machine and in its guests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use nearmetal_domain::DomainXml;
use serde_json::{Value, json};

use super::fate::Fate;
use super::kernel::Kernel;
use super::network::netperf;
use crate::barrier::now;
use crate::program::scripted::HANGS;

/// What bare metal does each second; guests do nine tenths of it.
pub(crate) const RATE: u32 = 1000;
pub(crate) const RATE_OF_GUESTS: u32 = 900;

/// The loads image of the machine.
pub(crate) const LOADS: &str = "/dev/null";

/// One run of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The domain it is in; `None`: on the host.
    pub(crate) guest: Option<String>,
    /// Its words.
    pub(crate) words: String,
    /// Hardware address of the card that is up in the guest, if one is.
    pub(crate) card: String,
    /// The arm whose turn it is in a guest that runs as one after the other.
    pub(crate) turn: Option<String>,
}

/// What becomes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    Fails,
    /// It fails before its load begins, if it prepares one.
    NeverReady,
    /// It never gets there, and goes on trying.
    StaysUnready,
    /// It never ends.
    Hangs,
    /// The guest stops answering with it, until it is started again.
    TakesTheGuestAlong,
    /// The server in the guest ends with it.
    TakesTheServerAlong,
}

type Spoiler = Box<dyn FnMut(&Sample, usize) -> End + Send>;
type Rates = Box<dyn Fn(&Sample) -> u32 + Send>;

pub(super) struct State {
    /// Names of the partitions of each divided device.
    pub(super) labels: BTreeMap<String, Vec<String>>,
    pub(super) groups: BTreeSet<String>,
    /// Interfaces that are up.
    pub(super) up: BTreeSet<String>,
    /// Interfaces in namespaces.
    pub(super) moved: Vec<(String, String)>,
    /// The ends of the one pair of virtual interfaces, if there is one.
    pub(super) pairs: BTreeSet<String>,
    /// Macvtaps as `ip` shows them.
    pub(super) macvtaps: BTreeMap<String, Value>,
    /// Hardware addresses that the port was told.
    pub(super) told: BTreeSet<String>,
    /// Servers in guests, by where they answer: the guest, and its process there.
    pub(super) servers: BTreeMap<String, (String, i64)>,
    /// The address of each guest that has one.
    pub(super) addresses: BTreeMap<String, String>,
    /// The card of each guest that is up, and those that spread what they receive.
    pub(super) cards: BTreeMap<String, String>,
    pub(super) spread: BTreeSet<String>,
    pub(super) samples: Vec<Sample>,
    pub(super) spoiler: Spoiler,
    /// What each sample does a second.
    pub(super) rates: Rates,
    /// Guests that stopped answering.
    pub(super) silent: BTreeSet<String>,
    /// Part of the names of those that never answer.
    pub(super) mute: Option<String>,
    /// Whether servers answer nobody.
    pub(super) mute_servers: bool,
    /// The next program of the host with these words fails.
    pub(super) fails_once: Option<String>,
    /// The tap that libvirt leaves out of its bridge.
    pub(super) stray_tap: Option<String>,
    /// Gates of programs that are not ready, and why.
    pub(super) unready: BTreeMap<String, End>,
    /// What runs, or ran, in guests, by its process id: `None` never ends.
    pub(super) results: BTreeMap<i64, Option<Result<String, String>>>,
    /// Definitions that libvirt keeps.
    pub(super) stored: BTreeMap<String, String>,
    /// Live definitions, and QEMU's processes.
    pub(super) domains: BTreeMap<String, (String, usize)>,
}

pub(crate) struct World {
    pub(super) kernel: Arc<Kernel>,
    pub(super) fate: Fate,
    pub(super) state: Mutex<State>,
}

impl World {
    pub(super) fn new(kernel: Arc<Kernel>, fate: Fate) -> Self {
        let state = State {
            labels: BTreeMap::new(),
            groups: BTreeSet::new(),
            up: BTreeSet::new(),
            moved: Vec::new(),
            pairs: BTreeSet::new(),
            macvtaps: BTreeMap::new(),
            told: BTreeSet::new(),
            servers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            cards: BTreeMap::new(),
            spread: BTreeSet::new(),
            samples: Vec::new(),
            spoiler: Box::new(|_, _| End::Well),
            rates: Box::new(|sample| if sample.guest.is_some() { RATE_OF_GUESTS } else { RATE }),
            silent: BTreeSet::new(),
            mute: None,
            mute_servers: false,
            fails_once: None,
            stray_tap: None,
            unready: BTreeMap::new(),
            results: BTreeMap::new(),
            stored: BTreeMap::new(),
            domains: BTreeMap::new(),
        };
        Self { kernel, fate, state: Mutex::new(state) }
    }

    /// A program of the host.
    pub(super) fn program(&self, words: &[String], input: &str) -> Result<String, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.fate.step(&words.join(" "));
        let is_meant = |spoiled: &mut String| words.join(" ").contains(spoiled.as_str());
        let spoiled = self.state.lock().unwrap().fails_once.take_if(is_meant);
        if let Some(spoiled) = spoiled {
            return Err(format!("`{spoiled}` was spoiled by the test"));
        }
        self.on_the_host(&words, input)
    }

    fn on_the_host(&self, words: &[&str], input: &str) -> Result<String, String> {
        let nothing = || Ok(String::new());
        match words {
            [_, "bind", "--cpus", _, "--nodes", _, "--", rest @ ..] => self.on_the_host(rest, input),
            ["ip", "netns", "exec", _, "cat", _] => Ok("1\n".to_owned()),
            [_, "reach", "--address", address, ..] => match self.server_at(address) {
                Some(_) => nothing(),
                None => Err(format!("{address} did not answer")),
            },

            ["ip", "netns", "exec", _, rest @ ..] => self.on_the_host(rest, input),
            ["ip", rest @ ..] => self.ip(rest),
            ["bridge", "fdb", what, mac, "dev", _, "self"] => {
                let told = &mut self.state.lock().unwrap().told;
                let _ = if *what == "add" { told.insert((*mac).to_owned()) } else { told.remove(*mac) };
                nothing()
            }
            ["bridge", "fdb", ..] => nothing(),
            ["ldd", _] => Ok("\tstatically linked\n".to_owned()),
            ["modprobe", "--show-depends", "--", name] => Ok(format!("builtin {name}\n")),
            ["modprobe", ..] => nothing(),
            ["sha256sum", "--", image] => Ok(format!("{}  {image}\n", "1f".repeat(32))),
            ["udevadm", ..] | ["dd", ..] | ["qemu-img", ..] => nothing(),
            ["fio", "--name=fill", ..] => nothing(),
            ["mount", "-t", kind, _, place] => {
                let mounts = self.kernel.text("/proc/self/mountinfo");
                let line = format!("{mounts}\n36 35 0:7 / {place} rw shared:5 - {kind} {kind} rw");
                self.kernel.put("/proc/self/mountinfo", &line);
                nothing()
            }
            ["umount", "--lazy", place] => {
                let mounts = self.kernel.text("/proc/self/mountinfo");
                let kept: Vec<&str> = mounts.lines().filter(|line| !line.contains(&format!(" {place} "))).collect();
                self.kernel.put("/proc/self/mountinfo", &kept.join("\n"));
                nothing()
            }
            ["sfdisk", .., device] => {
                let names = input.lines().filter_map(|line| line.split_once("name=")).map(|(_, name)| name.to_owned());
                self.divide(device, names.collect());
                nothing()
            }
            ["lsblk", .., "PARTLABEL", device] => {
                let state = self.state.lock().unwrap();
                Ok(state.labels.get(*device).map(|names| names.join("\n")).unwrap_or_default())
            }
            ["lsblk", .., "MOUNTPOINTS", _] => nothing(),
            ["wipefs", "--noheadings", .., device] => {
                let divided = self.state.lock().unwrap().labels.contains_key(*device);
                Ok(if divided { "gpt\n".to_owned() } else { String::new() })
            }
            // What is wiped is still in the kernel's and udev's memory.
            ["wipefs", "--quiet", "--all", ..] => nothing(),
            ["blockdev", "--rereadpt", device] => {
                let state = self.state.lock().unwrap();
                let open = state.domains.values().any(|(xml, _)| xml.contains(device));
                if open || (!state.groups.is_empty() && state.labels.contains_key(*device)) {
                    return Err("BLKRRPART: Device or resource busy".to_owned());
                }
                drop(state);
                self.divide(device, Vec::new());
                nothing()
            }
            ["lvm", "version", ..] => nothing(),
            ["lvm", "vgcreate", rest @ ..] => {
                let group = rest.iter().find(|word| word.starts_with("nearmetal-scratch")).copied();
                self.state.lock().unwrap().groups.insert(group.unwrap_or_default().to_owned());
                nothing()
            }
            ["lvm", "lvcreate", ..] => nothing(),
            ["lvm", "vgs", .., group] => match self.state.lock().unwrap().groups.contains(*group) {
                true => nothing(),
                false => Err(format!("Volume group \"{group}\" not found")),
            },
            ["lvm", "vgremove", .., group] => {
                self.state.lock().unwrap().groups.remove(*group);
                nothing()
            }
            words => self.anywhere(None, words),
        }
    }

    /// Gives a drive these partitions, of a gibibyte each.
    fn divide(&self, device: &str, names: Vec<String>) {
        let drive = device.trim_start_matches("/dev/");
        let place = format!("devices/pci0000:00/0000:00:0{}.0/nvme/nvme{0}/{drive}", &drive[4..5]);
        let mut state = self.state.lock().unwrap();
        for number in 1..=state.labels.remove(device).map_or(0, |old| old.len()) {
            self.kernel.remove(&format!("/sys/class/block/{drive}p{number}"));
            self.kernel.remove(&format!("/sys/{place}/{drive}p{number}"));
        }
        for number in 1..=names.len() {
            let partition = format!("{place}/{drive}p{number}");
            for (file, text) in [("partition", number), ("start", number << 21), ("size", 1 << 21)] {
                self.kernel.put(&format!("/sys/{partition}/{file}"), &text.to_string());
            }
            self.kernel.link(&format!("/sys/class/block/{drive}p{number}"), &format!("../../{partition}"));
        }
        if !names.is_empty() {
            state.labels.insert(device.to_owned(), names);
        }
    }

    /// What runs on both sides.
    pub(super) fn anywhere(&self, guest: Option<&str>, words: &[&str]) -> Result<String, String> {
        match words {
            [_, "at", "--nanoseconds", _, "--stamp", "--", rest @ ..] => {
                let (began, text) = (now(), self.anywhere(guest, rest)?);
                Ok(format!("{text}BEGAN={began}\nENDED={}\n", began + 3_100_000_000))
            }
            [_, "at", "--nanoseconds", _, "--", rest @ ..] => self.anywhere(guest, rest),
            [_, "gate", "wait", gate, "--seconds", _] => match self.state.lock().unwrap().unready.get(*gate) {
                Some(End::StaysUnready) => Err(HANGS.to_owned()),
                Some(_) => Err(format!("the gate `{gate}` is gone: the program ended before it was ready")),
                None => Ok(String::new()),
            },
            [_, "gate", "open" | "close", _] => Ok(String::new()),
            [_, "load", what, rest @ ..] if rest.contains(&"--address") => {
                let place = rest.iter().position(|word| *word == "--address").unwrap_or_default();
                self.asked(what, rest[place + 1], words)
            }
            ["netperf", .., "-l", "-20", "-P", "0"] => Ok(String::new()),
            // A second of work shows who moves the packets.
            ["netperf", _, _, _, _, "-l", "1", ..] => {
                guest.into_iter().for_each(|guest| self.packets(guest));
                Ok(String::new())
            }
            ["netperf", _, _, _, test, ..] => {
                let stream = !test.ends_with("_RR");
                self.sample(guest, words, |rate| netperf(rate, stream))
            }
            ["fio", "--version"] => Ok("fio-3.39\n".to_owned()),
            [_, "file-systems"] => Ok(json!({"result": {"usable": ["ext4"], "missing": []}}).to_string()),
            ["fio", rest @ ..] if rest.contains(&"--output-format=json") => self.sample(guest, words, fio),
            [_, "memory", "latency", ..] => self.sample(guest, words, |rate| {
                json!({"schema": "nearmetal-probe", "schema_version": 1, "command": "memory latency",
                    "result": {"backing": {"asked": "thp", "got": "thp"}, "latency": {"median": rate}}})
                .to_string()
            }),
            [_, "memory", "work", ..] => self.sample(guest, words, work),
            [_, "programs", "--image", image, rest @ ..] => self.in_the_image(guest, image, rest, words),
            other => panic!("nobody plays `{}` in {guest:?}", other.join(" ")),
        }
    }

    /// A program of the loads image, which both sides have by their own names.
    fn in_the_image(&self, guest: Option<&str>, image: &str, rest: &[&str], words: &[&str]) -> Result<String, String> {
        let there = match guest {
            None => image == LOADS,
            Some(guest) => {
                let state = self.state.lock().unwrap();
                let has = |xml: &str| xml.contains(LOADS) && xml.contains("<serial>nearmetal-loads</serial>");
                image == "serial:nearmetal-loads" && state.domains.get(guest).is_some_and(|(xml, _)| has(xml))
            }
        };
        if !there {
            return Err(format!("find {image}: No such file or directory"));
        }
        let program = rest.iter().skip_while(|word| **word != "--").nth(1).copied().unwrap_or_default();
        match program.rsplit('/').next() {
            Some("java") => self.sample(guest, words, |rate| warehouses(rate, words)),
            Some("load") => self.sample(guest, words, |rate| site(words, rate)),
            Some("oltp") => self.sample(guest, words, |rate| database(words, rate)),
            other => panic!("nobody plays {other:?} of the image"),
        }
    }

    /// The guest whose server answers there; a paused one is not asked by anybody.
    fn server_at(&self, address: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        let (guest, _) = state.servers.get(address)?;
        let is_there = state.domains.contains_key(guest) && !state.silent.contains(guest) && !state.mute_servers;
        is_there.then(|| guest.clone())
    }

    /// A program of the host asks a guest: the sample is the guest's.
    fn asked(&self, what: &str, address: &str, words: &[&str]) -> Result<String, String> {
        let guest = self.server_at(address).ok_or_else(|| format!("{address}: connection refused"))?;
        self.sample(Some(&guest), words, |rate| load(what, rate, words))
    }

    pub(super) fn sample(
        &self,
        guest: Option<&str>,
        words: &[&str],
        told: impl FnOnce(u32) -> String,
    ) -> Result<String, String> {
        let mut state = self.state.lock().unwrap();
        let card = guest.and_then(|guest| state.cards.get(guest).cloned()).unwrap_or_default();
        let live = guest.and_then(|guest| state.domains.get(guest));
        let turn = live.and_then(|(xml, _)| DomainXml::parse(xml).unwrap().turn().unwrap());
        let sample = Sample { guest: guest.map(str::to_owned), words: words.join(" "), card, turn };
        state.samples.push(sample.clone());
        let number = state.samples.len() - 1;
        match (state.spoiler)(&sample, number) {
            End::Well => Ok(told((state.rates)(&sample))),
            End::Fails => Err("spoiled by the test".to_owned()),
            end @ (End::NeverReady | End::StaysUnready) => {
                let gate = words.iter().position(|word| *word == "--gate").and_then(|place| words.get(place + 1));
                state.unready.extend(gate.map(|gate| ((*gate).to_owned(), end)));
                Err(if end == End::NeverReady { "no room for the database" } else { HANGS }.to_owned())
            }
            End::Hangs => Err(HANGS.to_owned()),
            End::TakesTheServerAlong => {
                let ended = state.servers.values().find(|(own, _)| Some(own.as_str()) == guest).map(|(_, pid)| *pid);
                state.servers.retain(|_, (own, _)| Some(own.as_str()) != guest);
                state.results.extend(ended.map(|pid| (pid, Some(Err("it ran out of memory".to_owned())))));
                Err("the connection was closed".to_owned())
            }
            End::TakesTheGuestAlong => {
                state.silent.extend(guest.map(str::to_owned));
                Err(HANGS.to_owned())
            }
        }
    }
}

/// What the probe's `memory work` says.
fn work(rate: u32) -> String {
    let began = now() / 1_000_000;
    json!({"result": {"loads_per_second": rate, "began_ms": began, "ended_ms": began + 60_000}}).to_string()
}

/// What the warehouses in Java say.
fn warehouses(rate: u32, words: &[&str]) -> String {
    let began = now() / 1_000_000;
    let word = |prefix: &str| words.iter().find_map(|word| word.strip_prefix(prefix)).unwrap_or_default();
    let mib: u64 = word("-Xmx").trim_end_matches('m').parse().unwrap();
    let heap = (mib << 20).to_string();
    json!({"schema": "nearmetal-jvm", "schema_version": 1, "began_ms": began, "ended_ms": began + 60_000,
        "ready_seconds": 1.0, "warm_up": {"interval_seconds": 1.0, "transactions": [rate, rate, rate, rate]},
        "points": [{"warehouses": 1, "seconds": 3.0, "transactions": rate * 3}],
        "pages": {"resident_kib": 4096, "large_kib": 0}, "vm": "OpenJDK 64-Bit Server VM 21",
        "flags": {"InitialHeapSize": heap, "MaxHeapSize": heap, "UseParallelGC": "true", "AlwaysPreTouch": "true",
            "ActiveProcessorCount": word("-XX:ActiveProcessorCount="), "UseNUMA": "true"}})
    .to_string()
}

/// What a database under load says; it does what is offered as long as it can.
fn database(words: &[&str], rate: u32) -> String {
    let program = words.iter().position(|word| word.ends_with("/oltp")).unwrap_or_default();
    let [pool, tables, rows, _, _, _, seconds, _, _, rates] = words[program + 1..] else {
        panic!("not the arguments of a database: {words:?}")
    };
    let number = |word: &str| word.parse::<u32>().unwrap();
    let began = now() / 1_000_000;
    let ended = began + i128::from(number(seconds)) * 1000;
    let settings = "setting.innodb_flush_log_at_trx_commit 1\nsetting.innodb_flush_method O_DIRECT\n\
                    setting.innodb_data_file_buffering OFF\nsetting.innodb_doublewrite ON\n";
    let mut said = format!("{settings}setting.innodb_buffer_pool_size {pool}\nprepared_hundredths 100\n");
    for offered in rates.split(',') {
        let offered = number(offered);
        let done = if offered == 0 { rate } else { rate.min(offered) };
        let all = done * number(seconds);
        let report = format!(
            "    transactions:                        {all} ({done}.00 per sec.)\n    \
             ignored errors:                      0      (0.00 per sec.)\n    reconnects:                          0\n"
        );
        said.push_str(&format!(
            "offered {offered}\nbegan_ms {began}\n{report}       1.000 |**** {all}\n{report}ended_ms {ended}\n"
        ));
    }
    format!("{said}rows {}\n", number(tables) * number(rows))
}

/// What a web server under load says.
fn site(words: &[&str], rate: u32) -> String {
    let program = words.iter().position(|word| word.ends_with("/web/load")).unwrap_or_default();
    let [workers, _, _, _, _, seconds, _] = words[program + 1..] else {
        panic!("not the arguments of a web server: {words:?}")
    };
    let seconds: u32 = seconds.parse().unwrap();
    let proof = json!({"command": "load http", "result": {"failures": [], "lost": [], "finished": 9}});
    let all = rate * seconds;
    let part = format!(
        "ended_ms {}\nduration_us {seconds}000000\nrequests {all}\nbytes {all}000\nerrors.connect 0\nerrors.read 0\n\
         errors.write 0\nerrors.status 0\nerrors.timeout 0\ntimes {all}\ntime_us.p50 90\ntime_us.p95 95\ntime_us.p99 99\n",
        now() / 1_000_000 + i128::from(seconds) * 1000
    );
    let settings: String =
        nearmetal_load::OF_ITS_NETWORK.iter().map(|(name, asked)| format!("setting.{name} {asked}\n")).collect();
    format!("{settings}{proof}\nserver.workers {workers}\nload ramp\n{part}load measured\n{part}other_answers 0\n")
}

/// What the probe's `load` says; whoever answers fewer than 500 a second answers half of them too late.
fn load(protocol: &str, rate: u32, words: &[&str]) -> String {
    let began = now() / 1_000_000;
    let after = |name: &'static str| {
        words.iter().zip(&words[1..]).filter(move |(word, _)| **word == name).map(|(_, value)| *value)
    };
    let seconds: u32 = after("--seconds").next().and_then(|text| text.parse().ok()).unwrap_or_default();
    let due = rate * seconds;
    let share = if rate < 500 { 0.5 } else { 1.0 };
    let limit = |limit: &str| json!({"limit_ms": limit.parse::<u32>().unwrap(), "count": (f64::from(due) * share) as u32, "share": share});
    let latency = json!({"unit": "ns", "count": due, "unanswered": 0, "error_bound": 0.0078125, "minimum": 1000, "mean": 2000,
        "p50": 2000, "p90": 3000, "p95": 4000, "p99": 5000, "p99_9": 6000, "maximum": 7000});
    json!({"schema": "nearmetal-probe", "schema_version": 1, "command": format!("load {protocol}"), "result": {
        "protocol": protocol, "pace": "open", "rate": after("--rate").next().and_then(|text| text.parse::<f64>().ok()), "seconds": seconds, "began_ms": began, "ended_ms": began + 60_000,
        "finished": due, "finished_per_second": rate, "bytes_per_second": 1.0, "reconnects": 0,
        "offered": due, "answered": due, "late": 0, "dropped": 0, "failed": 0, "latency": latency, "lost": [], "address": after("--address").next(),
        "within": after("--within").map(limit).collect::<Vec<_>>(), "classes": [], "failures": [],
        "generator": {"lag": latency, "most_lag_ms": 5, "ceiling_per_second": null}}})
    .to_string()
}

/// What fio says.
pub(crate) fn fio(rate: u32) -> String {
    let began = now() / 1_000_000;
    let half = |rate: u32| json!({"iops": rate, "bw_bytes": rate * 4096, "total_ios": rate * 3});
    json!({"jobs": [{"error": 0, "job_start": began, "job_runtime": 60_000, "read": half(rate), "write": half(0)}]})
        .to_string()
}
