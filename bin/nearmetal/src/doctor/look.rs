//! The insides of guests and the images that were described in files: what the doctor reads only when asked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use nearmetal_host::images::{ImageChain, LONGEST};
use nearmetal_host::{Host, files};
use nearmetal_hypervisor::{Hypervisor, Libvirt, agent};
use nearmetal_rules::Domain;

use super::Gathered;
use crate::installed::probe;

/// What else to read.
#[derive(Debug, clap::Args)]
pub(crate) struct LookArgs {
    /// Check the inside of a guest from a capture made there (`nearmetal capture FILE` or `nearmetal-probe capture >
    /// FILE`); may be repeated
    #[arg(long, value_name = "DOMAIN=FILE", value_parser = guest_capture)]
    guest_capture: Vec<(String, PathBuf)>,
    /// Check the inside of running guests through their agents. This RUNS A PROGRAM IN EACH GUEST, as root: it writes
    /// nearmetal-probe to the guest's /tmp, takes a capture and removes the probe. Without this option nothing inside is
    /// touched
    #[arg(long, conflicts_with_all = ["capture", "xml"])]
    guests: bool,
    /// Read image facts from this file instead of asking qemu-img; takes several files, each the output of `qemu-img info
    /// --output=json --backing-chain`
    #[arg(long, value_name = "FILE", num_args = 1..)]
    image_info: Vec<PathBuf>,
}

fn guest_capture(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((domain, file)) if !domain.is_empty() && !file.is_empty() => Ok((domain.to_owned(), file.into())),
        _ => Err(format!("`{text}` is not DOMAIN=FILE")),
    }
}

/// What was read on request. It is kept: a watch looks inside once.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    insides: BTreeMap<String, Host>,
    images: BTreeMap<String, ImageChain>,
    /// Guests that were asked for and not read, one message each.
    pub problems: Vec<String>,
}

impl LookArgs {
    /// Reads what was asked for.
    ///
    /// # Errors
    /// A file is not what it should be, or is about nothing that is checked: wrong use.
    pub(crate) fn read(&self, gathered: &Gathered) -> anyhow::Result<Looked> {
        let mut looked = Looked::default();
        for (name, path) in &self.guest_capture {
            if !gathered.domains.iter().any(|domain| domain.name == *name) {
                let names: Vec<&str> = gathered.domains.iter().map(|domain| domain.name.as_str()).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                bail!("--guest-capture {name}: unknown domain; the domains checked are: {names}");
            }
            looked.insides.insert(name.clone(), Host::read(&nearmetal_capture::open(path)?));
        }
        for path in &self.image_info {
            let text = files::read_to_string_up_to(path, LONGEST)?;
            let chain = ImageChain::parse(&text).with_context(|| format!("`{}`", path.display()))?;
            let used = |domain: &Domain| {
                let mut disks = domain.definitions().flat_map(|facts| &facts.disks);
                disks.any(|disk| disk.source.as_ref() == Some(&chain.top.name))
            };
            if !gathered.domains.iter().any(used) {
                bail!("`{}` describes `{}`, and no domain here has that disk", path.display(), chain.top.name);
            }
            looked.images.insert(chain.top.name.clone(), chain);
        }
        if self.guests {
            let program = probe().and_then(|path| Ok(files::read(&path)?))?;
            let mut libvirt = Libvirt::open(None)?;
            looked.ask_agents(&gathered.domains, &mut libvirt, &program);
        }
        Ok(looked)
    }
}

impl Looked {
    fn ask_agents(&mut self, domains: &[Domain], libvirt: &mut dyn Hypervisor, program: &[u8]) {
        let unseen: Vec<&Domain> = domains
            .iter()
            .filter(|domain| domain.running.is_some() && !self.insides.contains_key(&domain.name))
            .collect();
        for domain in unseen {
            match inside(libvirt, &domain.name, program) {
                Ok(host) => _ = self.insides.insert(domain.name.clone(), host),
                Err(error) => self.problems.push(format!("cannot read the inside of `{}`: {error:#}", domain.name)),
            }
        }
    }

    /// Gives the domains what was read of them.
    pub(crate) fn give(&self, domains: &mut [Domain]) {
        for domain in domains {
            domain.inside = self.insides.get(&domain.name).cloned();
            for (source, chain) in &self.images {
                domain.images.insert(source.clone(), Ok(chain.clone()));
            }
        }
    }
}

/// Where the probe lies in the guest while it captures; another place than a measurement's.
const PROBE: &str = "/tmp/nearmetal-probe-doctor";
/// How long an agent may take to answer at all. A guest without one answers at once, one that hangs never.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the probe may take: a slow guest under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the probe capture a guest from inside, and reads the capture. Nothing of it is written on this side; so it is
/// not masked, and interfaces can be told by their addresses.
fn inside(hypervisor: &mut dyn Hypervisor, name: &str, program: &[u8]) -> anyhow::Result<Host> {
    agent::ping(hypervisor, name, ANSWER)?;
    let captured = agent::push_executable(hypervisor, name, PROBE, program)
        .and_then(|()| agent::exec(hypervisor, name, &[PROBE, "capture", "--unmasked"], None, PATIENCE));
    let removed = agent::exec(hypervisor, name, &["rm", "-f", PROBE], None, PATIENCE);
    let output = captured?;
    if !output.status.is_success() || output.truncated {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("the probe in the guest failed: {}", words.lines().last().unwrap_or("it printed nothing"));
    }
    removed?;
    Ok(Host::read(&nearmetal_capture::from_bytes(&format!("the inside of {name}"), &output.stdout)?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nearmetal_host::{Entry, MemoryTree};
    use nearmetal_hypervisor::Fake;
    use serde_json::{Value, json};

    use super::*;

    /// A capture as the probe writes it, in the agent's base64.
    fn capture() -> Vec<u8> {
        let mut tree = MemoryTree::new();
        let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        for (path, text) in [(clock, "kvm-clock\n"), ("/proc/cmdline", "quiet\n")] {
            tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        let mut bytes = Vec::new();
        nearmetal_capture::write(&tree, true, &mut bytes).unwrap();
        bytes
    }

    fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let word = (0..3).fold(0u32, |word, at| (word << 8) | u32::from(*chunk.get(at).unwrap_or(&0)));
            for at in 0..4 {
                let letter = LETTERS[(word >> (18 - 6 * at)) as usize & 63] as char;
                text.push(if at <= chunk.len() { letter } else { '=' });
            }
        }
        text
    }

    /// An agent that runs the probe with this exit code; what it was told to run is written down.
    fn guest(code: i64) -> (Fake, Arc<Mutex<Vec<String>>>) {
        let mut fake = Fake::new("").with_running_domain("<domain type='kvm'><name>web</name></domain>");
        let ran = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&ran);
        fake.on_agent(move |_, command: &Value| {
            let arguments = &command["arguments"];
            Ok(match command["execute"].as_str().unwrap() {
                "guest-file-open" => json!(1),
                "guest-file-write" => {
                    let text = arguments["buf-b64"].as_str().unwrap();
                    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
                    json!({"count": text.len() / 4 * 3 - padding, "eof": false})
                }
                "guest-exec" => {
                    let words = arguments["arg"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
                    let line: Vec<&str> = std::iter::once(arguments["path"].as_str().unwrap()).chain(words).collect();
                    log.lock().unwrap().push(line.join(" "));
                    json!({"pid": log.lock().unwrap().len()})
                }
                "guest-exec-status" if arguments["pid"] == 2 => json!({
                    "exited": true, "exitcode": code, "out-data": base64(&capture()), "err-data": base64(b"no room"),
                }),
                "guest-exec-status" => json!({"exited": true, "exitcode": 0}),
                _ => json!({}),
            })
        });
        (fake, ran)
    }

    #[test]
    fn the_probe_is_put_in_runs_and_is_removed_however_it_ends() {
        for code in [0, 3] {
            let (mut fake, ran) = guest(code);
            let result = inside(&mut fake, "web", b"\x7fELF");
            match code {
                0 => assert_eq!(result.unwrap().system.clocksource.as_deref(), Some("kvm-clock")),
                _ => assert!(result.unwrap_err().to_string().contains("no room")),
            }
            let expected =
                [format!("chmod 0755 {PROBE}"), format!("{PROBE} capture --unmasked"), format!("rm -f {PROBE}")];
            assert_eq!(*ran.lock().unwrap(), expected);
        }
    }

    #[test]
    fn a_guest_without_an_agent_is_a_problem_and_no_more() {
        let mut fake = Fake::new("").with_running_domain("<domain type='kvm'><name>web</name></domain>");
        let xml = "<domain type='kvm'><name>web</name><memory>1</memory><vcpu>1</vcpu></domain>";
        let facts = nearmetal_domain::DomainXml::parse(xml).unwrap().facts().unwrap();
        let domains = [Domain::new(None, Some(facts.clone()), None).unwrap()];
        let mut looked = Looked::default();
        looked.ask_agents(&domains, &mut fake, b"x");
        assert!(looked.insides.is_empty() && looked.problems[0].contains("`web`"), "{:?}", looked.problems);
        let off = [Domain::new(Some(facts), None, None).unwrap()];
        let mut looked = Looked::default();
        looked.ask_agents(&off, &mut fake, b"x");
        assert!(looked.problems.is_empty(), "a guest that is off has no inside");
    }
}
