//! The lab tested by a lab: one boot shared by most cases, two more for those about power and names.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]
#![allow(clippy::print_stderr, reason = "a case that takes minutes says that it is done")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nearmetal_host::{HostFs, files};
use nearmetal_lab::{Command, Input, Lab, LabError, LabName, LabState, Places, Progress, Stopped, UpOptions};

/// For commands that take a moment; the host may be busy.
const LIMIT: Duration = Duration::from_secs(120);

type Case = (&'static str, fn(&Lab));

struct Told;

impl Progress for Told {
    fn stage(&mut self, number: usize, count: usize, title: &str) {
        eprintln!("[{number}/{count}] {title}");
    }
    fn note(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn name(text: &str) -> LabName {
    text.parse().unwrap()
}

/// The usual cache, so that the image is built once for everybody, and the usual run directory.
fn up(name: &str, keep: bool, append: &[&str]) -> Lab {
    let mut options = UpOptions::new(name.parse().unwrap());
    // What a failed run of this test left, where it failed.
    if let Ok(old) = Lab::open(&Places::standard(), &options.name) {
        old.down().unwrap();
    }
    options.keep = keep;
    options.append = append.iter().map(|&word| word.to_owned()).collect();
    let lab = Lab::up(&Places::standard(), &options, &mut Told).unwrap();
    eprintln!("{name}: {:?}", lab.boot_times());
    lab
}

fn shell(lab: &Lab, script: &str) -> String {
    let output = lab.exec(&Command::shell(script).timeout(LIMIT)).unwrap();
    assert!(output.success(), "{script}: {} {}", output.status, String::from_utf8_lossy(&output.stderr));
    output.text().trim().to_owned()
}

#[test]
#[ignore = "boots a lab: ./dev test --all"]
fn one_boot() {
    let lab = up("itself", false, &["hugepages=8"]);
    let cases: [Case; 11] = [
        ("the machine is as its file says", machine),
        ("kernel arguments are appended", append),
        ("long output is intact", long_output),
        ("exit codes and both outputs", exit_codes),
        ("a hung command is killed with its children", hung_command),
        ("input reaches the command", input),
        ("words are not read by a shell", words),
        ("files go in and out unchanged", copies),
        ("names and states", names),
        ("the clock runs as fast as the host's", clock),
        ("a reboot comes back", reboot),
    ];
    for (title, case) in cases {
        let started = Instant::now();
        case(&lab);
        eprintln!("ok: {title} ({:.1} s)", started.elapsed().as_secs_f64());
    }
    let pid = lab.pid();
    assert_eq!(lab.down().unwrap(), Stopped::Killed);
    nothing_left("itself", pid);
}

fn machine(lab: &Lab) {
    assert_eq!(shell(lab, "nproc"), "12");
    assert_eq!(shell(lab, "cat /sys/devices/system/node/node0/distance"), "10 16 22 22");
    assert_eq!(shell(lab, "cat /sys/class/net/enp*/device/numa_node /sys/class/nvme/nvme0/device/numa_node"), "1\n2");
    assert_eq!(
        shell(lab, "cat /sys/class/net/enp*/device/sriov_totalvfs /sys/class/nvme/nvme0/device/sriov_totalvfs"),
        "7\n4"
    );
    assert_eq!(
        shell(
            lab,
            "blockdev --getsize64 /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_1 /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2"
        ),
        "1073741824\n8589934592"
    );
    assert_eq!(shell(lab, "virsh net-list --name").trim(), "default");
    assert_ne!(shell(lab, "ls /sys/kernel/iommu_groups | wc -l"), "0");
    assert_eq!(shell(lab, "test -c /dev/kvm && echo yes"), "yes");
}

fn append(lab: &Lab) {
    assert!(shell(lab, "cat /proc/cmdline").ends_with(" hugepages=8"));
    assert_eq!(shell(lab, "cat /proc/sys/vm/nr_hugepages"), "8");
}

fn long_output(lab: &Lab) {
    let output = lab.exec(&Command::shell("seq 1 400000; seq 1 400000 >&2").timeout(LIMIT)).unwrap();
    let expected: String = (1..=400_000).map(|number| format!("{number}\n")).collect();
    assert!(expected.len() > 2 << 20);
    assert!(output.stdout == expected.as_bytes() && output.stderr == expected.as_bytes());
}

fn exit_codes(lab: &Lab) {
    for code in [0, 1, 77, 254, 255] {
        let output = lab.exec(&Command::shell(format!("echo out; echo err >&2; exit {code}"))).unwrap();
        assert_eq!((output.status, output.text().as_str(), output.stderr.as_slice()), (code, "out\n", &b"err\n"[..]));
    }
    assert_eq!(lab.exec(&Command::shell("kill -KILL $$")).unwrap().status, 137);
    assert_eq!(lab.exec(&Command::new(["no-such-program"])).unwrap().status, 127);
}

fn hung_command(lab: &Lab) {
    let started = Instant::now();
    let script = "echo begun; sh -c 'sleep 3021; true' & sleep 3022";
    let error = lab.exec(&Command::shell(script).timeout(Duration::from_secs(3))).unwrap_err();
    assert!(matches!(error, LabError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("within 3 s in lab `itself`"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(shell(lab, "pgrep -f 'sleep 302[12]' | grep -vx $$ | wc -l"), "0");
}

fn input(lab: &Lab) {
    let bytes: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
    let output = lab.exec(&Command::new(["cat"]).input(Input::Bytes(bytes.clone())).timeout(LIMIT)).unwrap();
    assert_eq!(output.stdout, bytes);
    assert!(lab.exec(&Command::new(["cat"]).timeout(LIMIT)).unwrap().stdout.is_empty());
}

fn words(lab: &Lab) {
    let words = ["printf", "%s|", "a b", "$HOME", "it's", "\"", "*", "", ";", "é\n"];
    assert_eq!(lab.exec(&Command::new(words)).unwrap().text(), "a b|$HOME|it's|\"|*||;|é\n|");
}

fn copies(lab: &Lab) {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    files::create_dir_all(&tree.join("inner")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).flat_map(|number| number.to_le_bytes()).collect();
    files::write(&tree.join("inner/large file"), &bytes).unwrap();
    let started = Instant::now();
    lab.push(&tree, "/root/pushed").unwrap();
    eprintln!("pushed 12 MB in {:.1} s", started.elapsed().as_secs_f64());
    let back = directory.path().join("back");
    lab.pull("/root/pushed", &back).unwrap();
    assert!(files::read(&back.join("inner/large file")).unwrap() == bytes);
    let error = lab.pull("/root/nothing", &back).unwrap_err().to_string();
    assert!(error.contains("/root/nothing") && error.contains("No such file"), "{error}");
}

fn names(lab: &Lab) {
    let places = Places::standard();
    let error = Lab::up(&places, &UpOptions::new(lab.name().clone()), &mut Told).unwrap_err();
    assert!(matches!(error, LabError::AlreadyUp { .. }), "{error}");
    assert!(matches!(Lab::open(&places, &name("nobody")), Err(LabError::NotUp { .. })));
    let all = nearmetal_lab::status(&places).unwrap();
    let mine = all.iter().find(|status| status.name == *lab.name()).unwrap();
    assert_eq!((mine.state, mine.pid, mine.keep), (LabState::Up, Some(lab.pid()), false));
}

fn clock(lab: &Lab) {
    let read = || shell(lab, "date +%s.%N").parse::<f64>().unwrap();
    let (started, first) = (Instant::now(), read());
    std::thread::sleep(Duration::from_secs(20));
    let (inside, outside) = (read() - first, started.elapsed().as_secs_f64());
    // A command's own time is in both figures, at different ends: hence the allowance.
    assert!((inside / outside - 1.0).abs() < 0.15, "{inside} s inside, {outside} s outside");
}

fn reboot(lab: &Lab) {
    shell(lab, "echo here > /root/marker");
    lab.reboot(Duration::from_secs(300)).unwrap();
    assert_eq!(shell(lab, "cat /root/marker"), "here");
}

fn nothing_left(name: &str, pid: u32) {
    let live = HostFs::live();
    assert!(!live.exists(&format!("/proc/{pid}/exe")), "process {pid} is still there");
    let mounts = live.read("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("nearmetal"), "{mounts}");
    assert!(!PathBuf::from(format!("/run/nearmetal/lab/{name}")).exists());
    let connections = live.list("/proc").unwrap().into_iter().filter(|entry| entry.parse::<u32>().is_ok());
    let path = format!("/run/nearmetal/lab/{name}/");
    for process in connections {
        let words = live.read_bytes(&format!("/proc/{process}/cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(&path), "process {process} still uses {path}");
    }
}

/// Keeps what it is told.
#[derive(Default)]
struct Kept(Vec<String>);

impl Progress for Kept {
    fn stage(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

#[test]
#[ignore = "boots a lab: ./dev test --all"]
fn a_boot_that_hangs_is_begun_again() {
    // Processors that stand still look as those do that wait for an interrupt which does not come.
    let halt = std::thread::spawn(|| {
        let deadline = Instant::now() + LIMIT;
        let mut control = loop {
            match UnixStream::connect("/run/nearmetal/lab/stands/qmp.sock") {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        std::thread::sleep(Duration::from_secs(3));
        control.write_all(b"{\"execute\":\"qmp_capabilities\"}{\"execute\":\"stop\"}\n").unwrap();
        let mut answers = String::new();
        // Until QEMU is ended and closes it.
        let _ = control.read_to_string(&mut answers);
        assert!(answers.contains("\"STOP\""), "{answers}");
    });
    let mut told = Kept::default();
    let lab = Lab::up(&Places::standard(), &UpOptions::new(name("stands")), &mut told).unwrap();
    halt.join().unwrap();
    assert!(told.0.iter().any(|note| note.contains("hung while it booted")), "{:?}", told.0);
    assert_eq!(shell(&lab, "echo up"), "up");
    lab.down().unwrap();
}

#[test]
#[ignore = "boots three labs: ./dev test --all"]
fn power_loss_and_two_names() {
    let places = Places::standard();
    let (kept, other) = (name("kept"), name("other"));
    let lab = up("kept", true, &[]);
    let second = up("other", false, &[]);
    assert_ne!(lab.ssh_port(), second.ssh_port());
    shell(
        &lab,
        "echo flushed > /root/flushed && sync /root/flushed; dd if=/dev/urandom of=/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 bs=1M count=4 oflag=direct conv=fsync 2>/dev/null",
    );
    let sum = shell(&lab, "head -c 4194304 /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 | sha256sum");
    assert_eq!(shell(&second, "test -e /root/flushed || echo not here"), "not here");

    lab.power_loss().unwrap();
    assert!(matches!(Lab::open(&places, &kept), Err(LabError::NotUp { .. })));
    assert_eq!(shell(&second, "echo still up"), "still up");
    let status = nearmetal_lab::status(&places).unwrap();
    assert_eq!(status.iter().find(|status| status.name == kept).unwrap().state, LabState::Dead);

    // A throw-away lab that is killed leaves files, which the next `up` of any name sweeps.
    second.power_loss().unwrap();
    assert!(PathBuf::from("/run/nearmetal/lab/other").exists());
    let without = Lab::up(&places, &UpOptions::new(kept.clone()), &mut Told).unwrap_err();
    assert!(matches!(without, LabError::Kept { .. }), "{without}");
    let lab = up("kept", true, &[]);
    assert!(!PathBuf::from("/run/nearmetal/lab/other").exists());
    assert!(!places.cache().join("labs/other").exists());
    assert_eq!(shell(&lab, "cat /root/flushed"), "flushed");
    assert_eq!(shell(&lab, "head -c 4194304 /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 | sha256sum"), sum);

    let pid = lab.pid();
    assert_eq!(lab.down().unwrap(), Stopped::Cleanly);
    nothing_left("kept", pid);
    assert!(nearmetal_lab::purge(&places, &kept).unwrap());
    assert!(!places.cache().join("labs/kept").exists());
    assert!(!nearmetal_lab::purge(&places, &other).unwrap());
}
