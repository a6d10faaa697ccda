//! Starting QEMU in a mount namespace of its own, and finding its process again.

use std::path::Path;
use std::process::{Command, Stdio};

use nearmetal_host::{HostFs, files};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::error::LabError;
use crate::machine::{Contents, Machine};

const SCRIPT: &str = include_str!("launch.sh");

/// What a launch needs.
pub(crate) struct Launch<'a> {
    pub state: &'a Path,
    pub image: &'a Path,
    pub emulator: &'a Path,
    pub disks: &'a Path,
    pub cables: &'a Path,
    pub machine: &'a Machine,
    pub arguments: Vec<String>,
}

/// Starts QEMU. Its output goes to `qemu.log` in the state directory, its process number to `pid`.
pub(crate) fn launch(launch: &Launch<'_>) -> Result<(), LabError> {
    let log = files::create(&launch.state.join("qemu.log"))?;
    let failed = |source| LabError::Start { program: "unshare".to_owned(), source };
    let mut command = Command::new("setsid");
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-euc", SCRIPT, "sh"]);
    command.args([launch.state, launch.image, launch.disks, launch.cables, launch.emulator]);
    for [name, size, backing] in overlays(launch.machine) {
        command.args([name, size, backing]);
    }
    command.arg("--").args(&launch.arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log).current_dir("/");
    // The child becomes QEMU by exec and outlives this process; `stop` reaps it where it is still our child.
    command.spawn().map_err(failed)?;
    Ok(())
}

/// Name, size in bytes and backing file of every disk; empty where there is none.
fn overlays(machine: &Machine) -> Vec<[String; 3]> {
    let mut overlays = vec![["root".to_owned(), String::new(), "root.ext4".to_owned()]];
    for disk in &machine.disks {
        overlays.push([disk.name.clone(), disk.size.get().to_string(), String::new()]);
    }
    for drive in &machine.drives {
        for (index, namespace) in drive.namespaces.iter().enumerate() {
            let backing = match namespace.contents {
                Contents::Empty => "",
                Contents::GuestRoot => "guest-root.ext4",
            };
            let name = format!("{}n{}", drive.name, index + 1);
            overlays.push([name, namespace.size.get().to_string(), backing.to_owned()]);
        }
    }
    overlays
}

/// The QEMU of a state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: u32,
    started: u64,
}

impl Process {
    /// The process a launch wrote down, alive or not.
    pub(crate) fn recorded(state: &Path) -> Option<Self> {
        let text = files::read_to_string(&state.join("pid")).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Whether it still runs. A process that has its number and another start time is somebody else's.
    pub(crate) fn is_alive(self) -> bool {
        // A child that ended stays a zombie until somebody asks for its status.
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        self.fields()
            .is_some_and(|fields| !matches!(fields[0].as_str(), "Z" | "X") && fields[19].parse() == Ok(self.started))
    }

    /// Processor seconds it has used.
    pub(crate) fn processor_seconds(self) -> f64 {
        let ticks = |field: &String| field.parse::<f64>().unwrap_or(0.0);
        // USER_HZ is 100 on every x86 Linux.
        self.fields().map_or(0.0, |fields| (ticks(&fields[11]) + ticks(&fields[12])) / 100.0)
    }

    /// Processor seconds it has used, and those its threads waited for while others had the processors (the second field
    /// of sched-stats.rst, where the kernel counts it).
    pub(crate) fn wanted_seconds(self) -> f64 {
        let fs = HostFs::live();
        let threads = fs.list(&format!("/proc/{}/task", self.pid)).unwrap_or_default();
        let waited = threads.iter().filter_map(|thread| {
            let text = fs.read(&format!("/proc/{}/task/{thread}/schedstat", self.pid)).ok()?;
            text.split_whitespace().nth(1)?.parse::<f64>().ok()
        });
        self.processor_seconds() + waited.sum::<f64>() / 1e9
    }

    /// Fields of /proc/PID/stat from the state (field 3 of proc(5)) on.
    fn fields(self) -> Option<Vec<String>> {
        let text = HostFs::live().read(&format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<_> = rest.split_whitespace().map(str::to_owned).collect();
        (fields.len() >= 20).then_some(fields)
    }
}
