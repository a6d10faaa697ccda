//! The cases: what is broken, what must then hold, and how long it may take.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Options;
use crate::network::{Network, PROXY, SOURCE, address};
use crate::openssh::{OpenSsh, PACKAGE, stand_in};
use crate::peers::{PEERS, Package};
use crate::run::{Told, Trigger, When, clear, final_path, has, push, signal};

/// What came of one run: seconds of the hosts that were to end well, and what did not hold.
type Outcome = (f64, Vec<String>);

struct Case {
    name: &'static str,
    /// Times S/B within which the good hosts must end, and seconds that are added to it.
    limit: Option<(f64, f64)>,
    /// Debian's package without which it cannot be tried.
    needs: Option<Package>,
    run: fn(&Rig<'_>) -> Outcome,
}

struct Rig<'a> {
    network: &'a Network,
    file: PathBuf,
    bytes: u64,
    mbit: u64,
}

const CASES: [Case; 13] = [
    Case { name: "no fault", limit: Some((1.05, 0.0)), needs: None, run: no_fault },
    Case {
        name: "a host killed at half",
        limit: Some((1.10, 0.0)),
        needs: None,
        run: |rig| stopped(rig, rig.middle(), Signal::KILL),
    },
    Case {
        name: "a host silent at half",
        limit: Some((1.10, 0.0)),
        needs: None,
        run: |rig| stopped(rig, rig.middle(), Signal::STOP),
    },
    Case {
        name: "the source's successor killed",
        limit: Some((1.10, 0.0)),
        needs: None,
        run: |rig| stopped(rig, 1, Signal::KILL),
    },
    Case {
        name: "the source's successor silent",
        limit: Some((1.10, 0.0)),
        needs: None,
        run: |rig| stopped(rig, 1, Signal::STOP),
    },
    Case { name: "the source's link cut for 5 s", limit: Some((1.10, 5.0)), needs: None, run: cut },
    Case { name: "a host at a fifth of the rate", limit: Some((1.15, 0.0)), needs: None, run: |rig| slow(rig, 1) },
    Case { name: "three hosts at a fifth of the rate", limit: Some((1.15, 0.0)), needs: None, run: |rig| slow(rig, 3) },
    Case { name: "a byte flipped on the wire", limit: Some((1.10, 0.0)), needs: None, run: flipped_on_the_wire },
    Case { name: "resumed, a byte flipped on disk", limit: None, needs: None, run: resumed },
    Case { name: "a disk full at half", limit: Some((1.10, 0.0)), needs: None, run: full_disk },
    Case { name: "no fault, OpenSSH itself", limit: Some((1.05, 0.0)), needs: Some(PACKAGE), run: openssh },
    Case { name: "through ssh alone (star)", limit: None, needs: None, run: star },
];

/// Runs them, prints a table, and says whether all held.
pub(crate) fn all(options: &Options, network: &Network) -> bool {
    let file = image(network, options.mebibytes);
    let bytes = fs::metadata(&file).unwrap().len();
    let rig = Rig { network, file, bytes, mbit: options.mbit };
    // The fastest of three: what disturbs a copy only makes it longer.
    let one = (0..3).map(|_| plain_copy(&rig, 1)).fold(f64::INFINITY, f64::min);
    println!(
        "{} hosts and a source, {} Mbit/s each way, an image of {:.1} MiB; one plain copy (S/B): {one:.2} s",
        options.hosts,
        options.mbit,
        bytes as f64 / f64::from(1 << 20)
    );
    println!("{:34} {:>8} {:>16} {:>8}  held", "case", "median", "range", "limit");
    let mut good = true;
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| name.contains(only));
    if wanted("plain copies to all at once") {
        let times = (0..options.repeat).map(|_| plain_copy(&rig, options.hosts) / one).collect();
        row("plain copies to all at once", times, "", "");
    }
    for peer in PEERS.iter().filter(|peer| wanted(peer.name)) {
        let one_time = |_| {
            clear(network);
            peer.seconds(network, &rig.file, rig.mbit).map(|seconds| seconds / one)
        };
        match (0..options.repeat).map(one_time).collect() {
            Some(times) => row(peer.name, times, "", ""),
            None => not_here(peer.name, &peer.package),
        }
    }
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        if let Some(package) = case.needs.filter(|package| !package.is_here()) {
            not_here(case.name, &package);
            continue;
        }
        let mut times = Vec::new();
        let mut problems = Vec::new();
        for _ in 0..options.repeat {
            clear(network);
            let (time, wrong) = (case.run)(&rig);
            times.push(time / one);
            problems.extend(wrong);
        }
        let limit = case.limit.map(|(times, more)| times + more / one);
        let slower = limit.map_or(0, |limit| times.iter().filter(|time| **time > limit).count());
        if slower > 0 {
            problems.push(format!("{slower} of {} slower than the limit", times.len()));
        }
        let shown = limit.map_or_else(String::new, |limit| format!("{limit:.2}×"));
        let held = if problems.is_empty() { "yes".to_owned() } else { format!("NO: {}", problems.join("; ")) };
        row(case.name, times, &shown, &held);
        good &= problems.is_empty();
    }
    good
}

fn not_here(name: &str, package: &Package) {
    println!("{name:34} not tried: apt-get install {}", package.name);
}

/// Prints a row of the table: the median and the range of what took so many times S/B.
fn row(name: &str, mut times: Vec<f64>, limit: &str, held: &str) {
    times.sort_by(f64::total_cmp);
    let range = format!("{:.3}–{:.3}", times[0], times[times.len() - 1]);
    println!("{name:34} {:>7.3}× {range:>16} {limit:>8}  {held}", times[times.len() / 2]);
}

/// A real qcow2 of random content if there is `qemu-img`, a raw image otherwise.
fn image(network: &Network, mebibytes: u64) -> PathBuf {
    let raw = network.directory.join("source.raw");
    let mut random = fs::File::open("/dev/urandom").unwrap().take(mebibytes << 20);
    std::io::copy(&mut random, &mut fs::File::create(&raw).unwrap()).unwrap();
    let qcow2 = network.directory.join("source.qcow2");
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "qcow2"]).args([&raw, &qcow2]);
    match convert.status() {
        Ok(status) if status.success() => {
            fs::remove_file(&raw).unwrap();
            qcow2
        }
        _ => {
            eprintln!("no qemu-img: the image is raw");
            raw
        }
    }
}

/// Seconds that plain copies to so many hosts at once take.
fn plain_copy(rig: &Rig<'_>, hosts: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let sinks: Vec<Child> = (1..=hosts)
        .map(|host| {
            let mut command = rig.network.command(host + 1, &program);
            command.arg("sink").arg(rig.network.store(host).join("copy"));
            listening(command)
        })
        .collect();
    let begun = Instant::now();
    let mut command = rig.network.command(SOURCE, &program);
    command.arg("copy").arg(&rig.file).args((1..=hosts).map(|host| address(host + 1)));
    if !command.status().unwrap().success() {
        panic!("a plain copy failed");
    }
    let took = begun.elapsed().as_secs_f64();
    sinks.into_iter().for_each(|mut sink| drop(sink.wait()));
    clear(rig.network);
    took
}

/// Starts a program and waits until it listens.
fn listening(mut command: Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    child
}

impl Rig<'_> {
    fn middle(&self) -> usize {
        self.network.hosts / 2
    }

    /// All hosts but these have the image, these have nothing under a final name and are named as failed.
    fn check(&self, told: &Told, but: &[usize]) -> Vec<String> {
        let mut wrong = Vec::new();
        for host in 1..=self.network.hosts {
            let (has, expected) = (has(self.network, host, &self.file), !but.contains(&host));
            match (expected, has) {
                (true, Some(true)) | (false, None) => {}
                (_, Some(false)) => wrong.push(format!("h{host} has something else under the final name")),
                (true, None) => {
                    let reason = told.failed.get(&host).map_or("", String::as_str);
                    wrong.push(format!("h{host} has no image ({reason})"));
                }
                (false, Some(true)) => wrong.push(format!("h{host} has the image")),
            }
            if expected == told.failed.contains_key(&host) {
                wrong.push(format!("what was told of h{host} is not so"));
            }
        }
        if told.code != if but.is_empty() { 0 } else { 3 } {
            wrong.push(format!("exit code {}", told.code));
        }
        wrong
    }
}

fn no_fault(rig: &Rig<'_>) -> Outcome {
    let told = push(rig.network, &rig.file, &[], None);
    let mut wrong = rig.check(&told, &[]);
    for alarm in ["silent", "aside", "over-ssh"] {
        if told.count(alarm) > 0 {
            wrong.push(format!("a false alarm: {alarm}"));
        }
    }
    if told.source_sent as f64 > rig.bytes as f64 * 1.05 {
        wrong.push(format!("the source sent {:.2} copies", told.source_sent as f64 / rig.bytes as f64));
    }
    (told.last_but(&[]), wrong)
}

/// When a host has half of it.
fn half<'a>(host: usize, act: &'a mut dyn FnMut()) -> Option<Trigger<'a>> {
    Some(Trigger { when: When::Has { host, share: 0.5 }, act })
}

/// With sshd and ssh as hosts have them.
fn openssh(rig: &Rig<'_>) -> Outcome {
    let daemons = OpenSsh::up(rig.network);
    daemons.in_place_of_the_stand_in(rig.network);
    let outcome = no_fault(rig);
    stand_in(rig.network, &std::env::current_exe().unwrap());
    outcome
}

fn stopped(rig: &Rig<'_>, host: usize, with: Signal) -> Outcome {
    let mut act = || signal(rig.network, host, with);
    let told = push(rig.network, &rig.file, &[], half(host, &mut act));
    signal(rig.network, host, Signal::KILL);
    (told.last_but(&[host]), rig.check(&told, &[host]))
}

fn cut(rig: &Rig<'_>) -> Outcome {
    thread::scope(|scope| {
        let mut act = || {
            rig.network.source_link(false);
            scope.spawn(|| {
                thread::sleep(Duration::from_secs(5));
                rig.network.source_link(true);
            });
        };
        let told = push(rig.network, &rig.file, &[], half(1, &mut act));
        (told.last_but(&[]), rig.check(&told, &[]))
    })
}

/// So many hosts, evenly spread, at a fifth of the rate until all others have it; then their links are mended, and they must end right.
fn slow(rig: &Rig<'_>, count: usize) -> Outcome {
    let hosts: Vec<usize> = (1..=count).map(|number| number * rig.network.hosts / (count + 1)).collect();
    hosts.iter().for_each(|host| rig.network.slow_down(*host, rig.mbit / 5));
    let mut mend = || hosts.iter().for_each(|host| rig.network.full_speed(*host));
    let told = push(rig.network, &rig.file, &[], Some(Trigger { when: When::AllBut(&hosts), act: &mut mend }));
    mend();
    let mut wrong = rig.check(&told, &[]);
    if told.events.iter().filter(|(event, _)| event == "aside").any(|(_, at)| !hosts.contains(at)) {
        wrong.push("another host was called slow".to_owned());
    }
    (told.last_but(&hosts), wrong)
}

fn flipped_on_the_wire(rig: &Rig<'_>) -> Outcome {
    let host = rig.middle();
    let program = std::env::current_exe().unwrap();
    let mut command = rig.network.command(PROXY, &program);
    command.args(["proxy", &address(host + 1), "7700", &(rig.bytes / 2).to_string()]);
    let mut proxy = listening(command);
    let shown = rig.network.directory.join(format!("host-{host}.pid.address"));
    fs::write(&shown, address(PROXY)).unwrap();
    let told = push(rig.network, &rig.file, &[], None);
    fs::remove_file(&shown).unwrap();
    let _ = proxy.kill();
    let _ = proxy.wait();
    let mut wrong = rig.check(&told, &[]);
    if !told.notes.iter().any(|note| note.starts_with(&format!("h{}: what came was changed", host + 1))) {
        wrong.push("nobody noticed".to_owned());
    }
    (told.last_but(&[]), wrong)
}

/// All are killed at half, a byte of one is flipped, and it is pushed again. Then a byte of a whole image is flipped:
/// `verify` must name it, and another push mend it.
fn resumed(rig: &Rig<'_>) -> Outcome {
    let host = rig.middle();
    let mut act = || (1..=rig.network.hosts).for_each(|host| signal(rig.network, host, Signal::KILL));
    let first = push(rig.network, &rig.file, &[], half(host, &mut act));
    let all: Vec<usize> = (1..=rig.network.hosts).collect();
    let mut wrong = rig.check(&first, &all);
    let left = fs::read_dir(rig.network.store(host).join(".incoming")).unwrap().flatten();
    // Beside it is the note for whoever looks.
    let part = left.map(|entry| entry.path()).find(|path| path.extension().is_none());
    flip(&part.expect("something is left of a killed push"));
    let told = push(rig.network, &rig.file, &[], None);
    wrong.extend(rig.check(&told, &[]));
    let most = told.received.values().max().copied().unwrap_or(0);
    if most as f64 > rig.bytes as f64 * 0.65 {
        wrong.push(format!("{:.2} of the image were sent again", most as f64 / rig.bytes as f64));
    }
    if let Some(path) = final_path(rig.network, host) {
        flip(&path);
    }
    let mut verify = rig.network.command(SOURCE, &rig.network.directory.join("bin/nearmetal"));
    verify.args(["image", "verify", "--format=json", "--directory"]).arg(rig.network.store(host));
    let output = verify.output().unwrap();
    if output.status.code() != Some(1) || !String::from_utf8_lossy(&output.stdout).contains("\"right\": false") {
        wrong.push("verify did not name the damaged image".to_owned());
    }
    let mended = push(rig.network, &rig.file, &[], None);
    wrong.extend(rig.check(&mended, &[]));
    if mended.received.get(&host).is_none_or(|bytes| *bytes == 0 || *bytes > 1 << 20) {
        wrong.push(format!("mending took {:?} bytes", mended.received.get(&host)));
    }
    (told.last_but(&[]), wrong)
}

/// Flips a bit near the beginning of a file.
fn flip(path: &Path) {
    let mut permissions = fs::metadata(path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(path, permissions).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 300_001).unwrap();
    file.write_all_at(&[byte[0] ^ 8], 300_001).unwrap();
}

/// A host's disk has room in the beginning; somebody else fills it meanwhile.
fn full_disk(rig: &Rig<'_>) -> Outcome {
    let host = rig.middle();
    fs::create_dir_all(rig.network.store(host).join(".incoming")).unwrap();
    // As the host itself sees it.
    let part = rig.network.directory.join("images/.incoming");
    let size = rig.bytes + (24 << 20);
    let mount = format!("mount -t tmpfs -o size={size} full {}", part.display());
    // In the host's own mounts, which do not see ours.
    let daemon = rig.network.mounts_of(host);
    if !crate::network::run(&format!("nsenter -t {daemon} -m {mount}")) {
        panic!("cannot mount a small disk");
    }
    let filler = format!("/proc/{daemon}/root{}/filler", part.display());
    let mut act = || {
        let mut file = fs::File::create(&filler).unwrap();
        let zeros = vec![1; 1 << 20];
        while file.write_all(&zeros).is_ok() {}
    };
    let told = push(rig.network, &rig.file, &[], Some(Trigger { when: When::Has { host, share: 0.4 }, act: &mut act }));
    crate::network::run(&format!("nsenter -t {daemon} -m umount -l {}", part.display()));
    (told.last_but(&[host]), rig.check(&told, &[host]))
}

fn star(rig: &Rig<'_>) -> Outcome {
    let told = push(rig.network, &rig.file, &["--star"], None);
    (told.last_but(&[]), rig.check(&told, &[]))
}
