//! What `qemu-img` says of the images behind disks.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope, sleep, spawn};
use std::time::{Duration, Instant, SystemTime};

use nearmetal_domain::DiskFacts;
use nearmetal_host::files;
use nearmetal_host::images::{ImageChain, LONGEST};
use nearmetal_rules::Domain;
use nearmetal_units::Bytes;

/// Longest time for one image: storage that hangs must not hang the doctor.
const PATIENCE: Duration = Duration::from_secs(10);

type Answer = Result<ImageChain, String>;

/// Images by path. What is known of a file that did not change since is not asked again.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: BTreeMap<String, (Stamp, Answer)>,
}

/// When a file was last written, and its length; `None` for a file that is not there or not for this user.
type Stamp = Option<(SystemTime, u64)>;

impl Images {
    /// Asks about the image of every disk that a guest may write and nobody told of yet.
    pub(crate) fn look(&mut self, domains: &mut [Domain]) {
        self.look_with(domains, ask);
    }

    fn look_with(&mut self, domains: &mut [Domain], ask: impl Fn(&str, &str) -> Answer + Sync) {
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        for domain in domains.iter() {
            for (source, format) in sources(domain).filter(|(source, _)| !domain.images.contains_key(*source)) {
                wanted.entry(source.to_owned()).or_insert_with(|| format.to_owned());
            }
        }
        self.known.retain(|path, _| wanted.contains_key(path));
        let stale: Vec<(String, String, Stamp)> = wanted
            .into_iter()
            .map(|(path, format)| (stamp(&path), path, format))
            .filter(|(stamp, path, _)| self.known.get(path).is_none_or(|(known, _)| known != stamp || stamp.is_none()))
            .map(|(stamp, path, format)| (path, format, stamp))
            .collect();
        self.known.extend(ask_all(&stale, ask));
        for domain in domains {
            let own: Vec<String> = sources(domain).map(|(source, _)| source.to_owned()).collect();
            for source in own {
                if let Some((_, answer)) = self.known.get(&source) {
                    domain.images.entry(source).or_insert_with(|| answer.clone());
                }
            }
        }
    }
}

/// Path and format of each image of a domain: files and block devices only, by a path that leaves nothing open.
fn sources(domain: &Domain) -> impl Iterator<Item = (&str, &str)> {
    let stored =
        |disk: &&DiskFacts| disk.device == "disk" && !disk.readonly && matches!(disk.kind.as_str(), "file" | "block");
    domain.definitions().flat_map(|facts| &facts.disks).filter(stored).filter_map(|disk| {
        let source = disk.source.as_deref().filter(|source| source.starts_with('/'))?;
        Some((source, disk.driver.format.as_deref().unwrap_or("raw")))
    })
}

fn stamp(path: &str) -> Stamp {
    let file = files::metadata(Path::new(path)).ok()?;
    Some((file.modified().ok()?, file.len()))
}

/// Asks for several at once: each is a program of a few ms that mostly waits.
fn ask_all(
    stale: &[(String, String, Stamp)],
    ask: impl Fn(&str, &str) -> Answer + Sync,
) -> Vec<(String, (Stamp, Answer))> {
    const MOST: usize = 8;
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((path, format, stamp)) = stale.get(next.fetch_add(1, Ordering::Relaxed)) {
            let answer = ask(path, format);
            let mut answers = answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            answers.push((path.clone(), (*stamp, answer)));
        }
    };
    let threads = available_parallelism().map_or(1, usize::from).min(MOST).min(stale.len());
    scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What `qemu-img info` says; else what is missing, in words. The format is the definition's and is never guessed from
/// the image, which the guest may have written (`-U`: without a lock, as it may be running).
fn ask(path: &str, format: &str) -> Answer {
    if !format.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return Err(format!("{path}: unknown image format `{format}`"));
    }
    // What is not there, or not for this user, need not be asked of a program.
    let file = files::metadata(Path::new(path)).map_err(|error| format!("{path}: {}", error.source))?;
    let mut command = Command::new("qemu-img");
    command.args(["info", "--output=json", "--force-share", "--backing-chain", "-f", format, path]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = started.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "qemu-img (package qemu-utils or qemu-img)".to_owned(),
        _ => format!("qemu-img: {error}"),
    })?;
    let text = output(child).map_err(|why| format!("{path}: {why}"))?;
    let mut chain = ImageChain::parse(&text).map_err(|error| format!("{path}: {error}"))?;
    chain.top.length = chain.top.length.or(file.is_file().then(|| Bytes::new(file.len())));
    Ok(chain)
}

/// What the program printed, if it ends well and in time.
fn output(mut child: Child) -> Result<String, String> {
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("qemu-img printed nothing".to_owned());
    };
    let reading = |stream: Box<dyn Read + Send>, most: usize| {
        spawn(move || {
            let mut bytes = Vec::new();
            // One more than is understood, so that what is cut is refused.
            let _ = stream.take(most as u64 + 1).read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let (out, err) = (reading(Box::new(out), LONGEST), reading(Box::new(err), 4096));
    let (started, mut pause) = (Instant::now(), Duration::from_millis(1));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < PATIENCE => sleep(pause),
            // One that waits for its storage cannot be ended, and is not waited for.
            _ => {
                let _ = child.kill();
                return Err(format!("qemu-img did not answer within {} s", PATIENCE.as_secs()));
            }
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    match (status.success(), err.lines().next()) {
        (true, _) => Ok(out),
        (false, Some(line)) => Err(line.rsplit(": ").next().unwrap_or(line).to_owned()),
        (false, None) => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_domain::DomainXml;
    use nearmetal_host::images::Image;

    use super::*;

    fn domain(name: &str, path: &str) -> Domain {
        let xml = format!(
            "<domain type='kvm'><name>{name}</name><memory>1</memory><vcpu>1</vcpu><devices>\
             <disk type='file'><driver type='qcow2'/><source file='{path}'/><target dev='vda'/></disk>\
             <disk type='file' device='cdrom'><source file='/x.iso'/><target dev='sda'/></disk>\
             <disk type='network'><source name='pool/x'/><target dev='vdb'/></disk></devices></domain>"
        );
        Domain::new(Some(DomainXml::parse(&xml).unwrap().facts().unwrap()), None, None).unwrap()
    }

    #[test]
    fn each_image_is_asked_about_once_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.qcow2");
        files::write(&path, "one").unwrap();
        let path = path.to_str().unwrap();
        let asked = Mutex::new(Vec::new());
        let ask = |path: &str, format: &str| {
            asked.lock().unwrap().push(format!("{format} {path}"));
            Ok(ImageChain { top: Image { name: path.to_owned(), ..Image::default() }, below: Vec::new() })
        };
        let mut images = Images::default();
        let mut round = || {
            let mut domains = [domain("a", path), domain("b", path)];
            images.look_with(&mut domains, ask);
            domains.map(|domain| domain.images.keys().cloned().collect::<Vec<_>>())
        };
        assert_eq!(round(), [[path], [path]]);
        assert_eq!(round(), [[path], [path]]);
        assert_eq!(*asked.lock().unwrap(), [format!("qcow2 {path}")]);
        files::write(Path::new(path), "longer").unwrap();
        round();
        assert_eq!(asked.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_format_that_is_an_option_never_reaches_a_command_line() {
        assert!(ask("/x", "raw,file.filename=/etc/passwd").unwrap_err().contains("unknown image format"));
    }
}
