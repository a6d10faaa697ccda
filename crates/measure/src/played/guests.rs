//! Guests: their agents, what runs in them, and the QEMU process of each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nearmetal_domain::DomainXml;
use nearmetal_hypervisor::HypervisorError;
use nearmetal_hypervisor::protocol::Request;
use serde_json::{Value, json};

use super::world::World;
use crate::barrier::now;
use crate::program::scripted::HANGS;

/// The port at which a command serves; `None`: it is none of a server.
fn served<'w>(words: &[&'w str]) -> Option<&'w str> {
    let after = |name: &str| words.get(words.iter().position(|word| *word == name)? + 1).copied();
    match words {
        [_, "load", "respond", ..] => after("--listen")?.rsplit(':').next(),
        [.., port] if words.iter().any(|word| word.ends_with("/database/serve")) => Some(*port),
        words if words.contains(&"shop.Main") => after("shop.Main"),
        words => words.contains(&"serve").then(|| after("--port"))?,
    }
}

impl World {
    /// One command of the agent.
    pub(super) fn agent(&self, name: &str, command: &Value) -> Result<Value, HypervisorError> {
        let is_dead = |state: &super::world::State| {
            state.silent.contains(name) || state.mute.as_deref().is_some_and(|mute| name.contains(mute))
        };
        if is_dead(&self.state.lock().unwrap()) {
            return Err(HypervisorError::AgentNotResponding { name: name.into(), reason: "the guest is dead".into() });
        }
        let arguments = &command["arguments"];
        Ok(match command["execute"].as_str().unwrap_or_default() {
            "guest-get-time" => json!(now() as i64),
            "guest-file-open" => json!(1000),
            "guest-file-write" => {
                let bytes = STANDARD.decode(arguments["buf-b64"].as_str().unwrap_or_default()).unwrap_or_default();
                json!({"count": bytes.len(), "eof": false})
            }
            "guest-exec" => {
                let rest = arguments["arg"].as_array().map(Vec::as_slice).unwrap_or_default();
                let words: Vec<&str> =
                    arguments["path"].as_str().into_iter().chain(rest.iter().filter_map(Value::as_str)).collect();
                let result = self.in_a_guest(name, &words);
                let mut state = self.state.lock().unwrap();
                let pid = 100 + state.results.len() as i64;
                if let (Some(port), Some(address)) = (served(&words), state.addresses.get(name)) {
                    let at = format!("{address}:{port}");
                    state.servers.insert(at, (name.to_owned(), pid));
                }
                state.results.insert(pid, Some(result).filter(|result| *result != Err(HANGS.to_owned())));
                json!({"pid": pid})
            }
            "guest-exec-status" => {
                let state = self.state.lock().unwrap();
                match state.results.get(&arguments["pid"].as_i64().unwrap_or_default()) {
                    Some(Some(Ok(text))) => json!({"exited": true, "exitcode": 0, "out-data": STANDARD.encode(text)}),
                    Some(Some(Err(why))) => json!({"exited": true, "exitcode": 1, "err-data": STANDARD.encode(why)}),
                    _ => json!({"exited": false}),
                }
            }
            _ => json!({}),
        })
    }

    fn in_a_guest(&self, name: &str, words: &[&str]) -> Result<String, String> {
        let has = |function: &str| {
            let bus = format!("bus='0x{}'", &function[5..7]);
            self.state.lock().unwrap().domains.get(name).is_some_and(|(xml, _)| xml.contains(&bus))
        };
        match words {
            ["rm", ..] | ["chmod", ..] | ["kill", ..] => Ok(String::new()),
            ["sh", "-c", _, "up", mac, _, _] => {
                self.state.lock().unwrap().cards.insert(name.to_owned(), (*mac).to_owned());
                Ok(String::new())
            }
            ["sh", "-c", _, "carrier", mac, address] => {
                let mut state = self.state.lock().unwrap();
                state.cards.insert(name.to_owned(), (*mac).to_owned());
                let address = address.split('/').next().unwrap_or_default();
                state.addresses.insert(name.to_owned(), address.to_owned());
                Ok(String::new())
            }
            ["sh", "-c", _, "spread", mac, _] => {
                self.state.lock().unwrap().spread.insert((*mac).to_owned());
                Ok(String::new())
            }
            ["sh", "-c", "exit 0"] => Ok(String::new()),
            ["sh", "-c", _, "nearmetal", _] => self.sample(Some(name), words, |rate| {
                format!("nearmetal-timed 100.00 {:.9}\n", 100.0 + 3600.0 / f64::from(rate))
            }),
            ["sh", "-c", script] if script.contains("addr flush") => {
                self.state.lock().unwrap().cards.remove(name);
                Ok(String::new())
            }
            ["sh", "-c", script] if script.contains("xps_cpus") => Ok(self.cards_of(name)),
            ["sh", "-c", script] if script.contains("/size") => {
                Ok("/sys/block/vda/size:2097152\n/sys/block/sr0/size:0\n".to_owned())
            }
            ["sh", "-c", script] if script.contains("nsid") => {
                let there = ["0000:51:00.0", "0000:52:00.0"].iter().any(|function| has(function));
                Ok(if there { "/sys/block/nvme0n1/nsid:1\n".to_owned() } else { String::new() })
            }
            ["sh", "-c", script] if script.contains("write_cache") => Ok(self.disks_of(name)),
            ["taskset", _, rest @ ..] => self.in_a_guest(name, rest),
            [_, "bind", "--cpus", _, "--nodes", _, "--", rest @ ..] => self.in_a_guest(name, rest),
            ["dd", input, _, _, count, "iflag=direct"] => {
                let requests = count.trim_start_matches("count=").parse().unwrap_or_default();
                self.read_of(name, input.trim_start_matches("if=/dev/"), requests);
                Ok(String::new())
            }
            ["dd", ..] => Ok(String::new()),
            ["blkdiscard", "-o", _, "-l", length, _] => {
                const STAT: &str = "/sys/class/block/nvme8n1/stat";
                let text = self.kernel.text(STAT);
                let mut fields: Vec<u64> = text.split(' ').filter_map(|field| field.parse().ok()).collect();
                fields[13] += length.parse::<u64>().unwrap_or_default() / 512;
                self.kernel.put(STAT, &fields.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
                Ok(String::new())
            }
            words if served(words).is_some() => Err(HANGS.to_owned()),
            words => self.anywhere(Some(name), words),
        }
    }

    /// What a request did beside what libvirt itself keeps.
    pub(super) fn follow(&self, request: &Request) {
        let mut state = self.state.lock().unwrap();
        match request {
            Request::CreateTransient { xml, .. } => {
                drop(state);
                self.starts(xml);
            }
            Request::Start { name, .. } => {
                let Some(xml) = state.stored.get(name).cloned() else { return };
                drop(state);
                self.starts(&xml);
            }
            Request::Destroy { name } | Request::Shutdown { name, .. } => {
                let Some((xml, pid)) = state.domains.remove(name) else { return };
                state.cards.remove(name);
                state.addresses.remove(name);
                state.servers.retain(|_, (guest, _)| guest != name);
                drop(state);
                self.kernel.remove(&format!("/proc/{pid}"));
                self.kernel.remove(&format!("/proc/{}", pid + 90));
                self.part(&DomainXml::parse(&xml).and_then(|xml| xml.facts()).unwrap());
            }
            Request::AttachDevice { name, xml } => {
                if let Some((text, _)) = state.domains.get_mut(name) {
                    *text = text.replacen("</devices>", &format!("{xml}</devices>"), 1);
                }
            }
            Request::DetachDevice { name, xml } => {
                if let Some((text, _)) = state.domains.get_mut(name) {
                    *text = text.replacen(xml, "", 1);
                }
            }
            _ => {}
        }
    }

    /// A domain that libvirt keeps, and that runs.
    pub(super) fn is_stored_and_runs(&self, xml: &str) {
        let name = DomainXml::parse(xml).and_then(|xml| xml.facts()).unwrap().name;
        self.state.lock().unwrap().stored.insert(name, xml.to_owned());
        self.starts(xml);
    }

    fn starts(&self, xml: &str) {
        let Ok(facts) = DomainXml::parse(xml).and_then(|xml| xml.facts()) else { return };
        self.state.lock().unwrap().silent.remove(&facts.name);
        let pid = self.run_qemu(xml);
        self.join(&facts, pid);
        self.state.lock().unwrap().domains.insert(facts.name, (xml.to_owned(), pid));
    }

    /// The disks of a guest as its kernel has them, in the form of the script that lists them.
    fn disks_of(&self, name: &str) -> String {
        let xml = self.state.lock().unwrap().domains.get(name).map(|(xml, _)| xml.clone()).unwrap_or_default();
        let facts = DomainXml::parse(&xml).and_then(|xml| xml.facts()).unwrap();
        let line = |disk: &nearmetal_domain::DiskFacts| {
            let through = matches!(disk.driver.cache.as_deref(), Some("directsync" | "writethrough"));
            let (serial, cache) = (disk.serial.clone().unwrap_or_default(), if through { "through" } else { "back" });
            let queues = disk.driver.queues.unwrap_or(facts.vcpus.current);
            format!("{}|{serial}|write {cache}|{queues}|512|512|512|virtio_blk\n", disk.target)
        };
        facts.disks.iter().map(line).collect()
    }

    /// A guest reads one of its disks: what serves it moves, by its definition.
    fn read_of(&self, name: &str, target: &str, requests: u64) {
        let Some((xml, pid)) = self.state.lock().unwrap().domains.get(name).cloned() else { return };
        let facts = DomainXml::parse(&xml).and_then(|xml| xml.facts()).unwrap();
        let Some(disk) = facts.disks.iter().find(|disk| disk.target == target) else { return };
        let add = |path: &str, field: &str, more: u64| {
            let one = |line: &str| match line.strip_prefix(field) {
                Some(rest) => {
                    let (count, behind) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
                    format!("{field}{} {behind}", count.parse::<u64>().unwrap() + more).trim_end().to_owned()
                }
                None => line.to_owned(),
            };
            let text = self.kernel.text(path).lines().map(one).collect::<Vec<_>>().join("\n");
            self.kernel.put(path, &text);
        };
        let root = format!("/proc/{pid}");
        let thread = |wanted: &str| {
            let tasks = self.kernel.names(&format!("{root}/task"));
            let found = tasks.into_iter().find(|id| self.kernel.text(&format!("{root}/task/{id}/comm")) == wanted);
            format!("{root}/task/{}", found.unwrap())
        };
        match disk.driver.io.as_deref() {
            Some("io_uring") => add(&format!("{root}/fdinfo/900"), "CqTail:\t", requests),
            Some("native") => {}
            _ => add(&format!("{}/io", thread("worker")), "rchar: ", requests * 4096),
        }
        if let Some(iothread) = disk.driver.iothread {
            add(&format!("{}/schedstat", thread(&format!("IO iothread{iothread}"))), "", requests * 1000);
        }
    }

    /// The process of a domain: threads with the pins of its definition, its disks open. Gives its id.
    fn run_qemu(&self, xml: &str) -> usize {
        let facts = DomainXml::parse(xml).and_then(|xml| xml.facts()).unwrap();
        let pid = (5000..).step_by(100).find(|pid| !self.kernel.exists(&format!("/proc/{pid}"))).unwrap();
        let line =
            ["qemu-system-x86_64", "-name", &format!("guest={}", facts.name), "-uuid", &facts.uuid.unwrap_or_default()]
                .join("\0");
        let root = format!("/proc/{pid}");
        self.kernel.put(&format!("{root}/cmdline"), &format!("{line}\0"));
        self.kernel.put(
            &format!("{root}/stat"),
            &format!("{pid} (qemu-system-x86) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 0 0 0"),
        );
        self.kernel.put(&format!("{root}/status"), "Name:\tqemu-system-x86\nVmSwap:\t0 kB");
        let memory = "7f1200000000-7f1200100000 rw-s 00000000 00:0f 4711 /dev/x";
        let aio = "7f1300000000-7f1300001000 rw-s 00000000 00:0f 4712 /[aio] (deleted)";
        self.kernel.put(&format!("{root}/maps"), &format!("{memory}\n{aio}"));
        let ring = "flags:\t02\nSqMask:\t0x7f\nSqHead:\t0\nSqTail:\t0\nCqMask:\t0xff\nCqHead:\t0\nCqTail:\t0";
        self.kernel.link(&format!("{root}/fd/900"), "anon_inode:[io_uring]");
        self.kernel.put(&format!("{root}/fdinfo/900"), ring);
        for (number, disk) in facts.disks.iter().enumerate() {
            let Some(source) = &disk.source else { continue };
            let direct = matches!(disk.driver.cache.as_deref(), Some("none" | "directsync"));
            self.kernel.link(&format!("{root}/fd/{}", 10 + number), source);
            let flags = if direct { "02140002" } else { "02100002" };
            self.kernel.put(&format!("{root}/fdinfo/{}", 10 + number), &format!("pos:\t0\nflags:\t{flags}"));
        }
        let in_a_pool = if facts.hugepages.is_some() { 393_216 } else { 0 };
        // The kernel makes pages large as they are touched, unless it is told not to before.
        let setting = self.kernel.text("/sys/kernel/mm/transparent_hugepage/enabled");
        let large = if setting.contains("[never]") { 0 } else { 2048 };
        let rollup =
            format!("Rss: 4096 kB\nAnonHugePages: {large} kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: {in_a_pool} kB");
        self.kernel.put(&format!("{root}/smaps_rollup"), &rollup);
        self.kernel.put(&format!("{root}/numa_maps"), "7f1200000000 bind:0 anon=256 N0=256 kernelpagesize_kB=4");
        let everywhere = || "0-15".to_owned();
        let mut threads =
            vec![("qemu-system-x86".to_owned(), facts.emulator_pin.map_or_else(everywhere, |cpus| cpus.to_string()))];
        for vcpu in 0..facts.vcpus.current {
            let pin = facts.vcpu_pins.iter().find(|(own, _)| *own == vcpu).map(|(_, cpus)| cpus.to_string());
            threads.push((format!("CPU {vcpu}/KVM"), pin.unwrap_or_else(everywhere)));
        }
        threads.push(("worker".to_owned(), everywhere()));
        // Its own directory too, where the kernel keeps the time of a thread by its id alone.
        let vhost = pid + 90;
        for task in [format!("{root}/task/{vhost}"), format!("/proc/{vhost}/task/{vhost}")] {
            self.kernel.put(&format!("{task}/comm"), &format!("vhost-{pid}"));
            self.kernel.put(&format!("{task}/status"), "PPid:\t1\nCpus_allowed_list:\t0-15");
            self.kernel.put(&format!("{task}/schedstat"), "1000 0 1");
        }
        threads.extend(facts.iothreads.ids.iter().map(|id| (format!("IO iothread{id}"), everywhere())));
        for (number, (name, cpus)) in threads.into_iter().enumerate() {
            let task = format!("{root}/task/{}", pid + number);
            self.kernel.put(&format!("{task}/comm"), &name);
            self.kernel.put(&format!("{task}/status"), &format!("Name:\t{name}\nPPid:\t1\nCpus_allowed_list:\t{cpus}"));
            self.kernel.put(&format!("{task}/schedstat"), "1000 0 1");
            self.kernel.put(&format!("{task}/io"), "rchar: 0\nwchar: 0");
        }
        pid
    }
}
