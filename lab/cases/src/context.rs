//! What a case works with: the shared lab, and short ways to run things in it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nearmetal_lab::image::Engine;
use nearmetal_lab::machine::Count;
use nearmetal_lab::{Command, ExecOutput, Lab, LabError, LabName, Places, Progress, UpOptions};
use serde_json::Value;

/// A command in a case that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(900);
/// The programs under test.
const PROGRAMS: [&str; 3] = ["nearmetal", "nearmetal-libvirt", "nearmetal-probe"];

/// Names of the labs that the case at hand has booted: any other is somebody's own.
fn own_labs() -> MutexGuard<'static, BTreeSet<LabName>> {
    static OWN: Mutex<BTreeSet<LabName>> = Mutex::new(BTreeSet::new());
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A case begins, which has booted nothing yet.
pub fn forget_own() {
    own_labs().clear();
}

/// Removes what a lab that was booted to be kept has left.
pub fn purge(name: &str) -> anyhow::Result<()> {
    nearmetal_lab::purge(&Places::standard(), &name.parse()?)?;
    Ok(())
}

/// A lab with the programs under test in it.
pub struct Bench {
    /// The lab.
    pub lab: Lab,
}

/// How to boot one.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    /// Disks outlive the lab.
    pub keep: bool,
    /// Kernel arguments.
    pub append: Vec<String>,
    /// Another machine than `quad`.
    pub machine: Option<&'static str>,
    /// End of a cable in its network card, `wire:a`.
    pub cable: Option<&'static str>,
    /// What its processors count.
    pub count: Option<Count>,
    /// Whether it has the loads image.
    pub loads: bool,
    /// The batch system whose packages it has.
    pub engine: Option<Engine>,
}

/// Directory of the programs under test: that of this program.
pub fn programs() -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe()?;
    Ok(here.parent().context("this program has no directory")?.to_owned())
}

/// Paths of the programs under test.
pub fn program_paths() -> anyhow::Result<Vec<PathBuf>> {
    let directory = programs()?;
    PROGRAMS
        .iter()
        .map(|name| {
            let path = directory.join(name);
            ensure!(path.exists(), "`{}` is missing: run ./dev build", path.display());
            Ok(path)
        })
        .collect()
}

impl Bench {
    /// Boots a lab and puts the programs and the guest as found into it.
    ///
    /// One that does not come up in time is booted once more, which is said on stderr: emulation loses an interrupt now and
    /// then, and nothing has been tried in it yet.
    pub fn up(name: &str, boot: &Boot) -> anyhow::Result<Self> {
        let places = Places::standard();
        let name: LabName = name.parse()?;
        let mut options = UpOptions { keep: boot.keep, append: boot.append.clone(), ..UpOptions::new(name) };
        if let Some(machine) = boot.machine {
            options.machine = machine.to_owned();
        }
        options.count = boot.count;
        options.loads = boot.loads;
        options.engine = boot.engine;
        options.cable = boot.cable.map(str::parse).transpose().map_err(anyhow::Error::msg)?;
        let lab = Lab::up(&places, &options, &mut Aside).or_else(|error| match error {
            LabError::NotReady { .. } => {
                say_aside(&format!("a lab did not come up and is booted again: {error}"));
                Lab::up(&places, &options, &mut Aside)
            }
            other => Err(other),
        });
        // What failed may have left disks; what was there before is somebody else's.
        if !matches!(lab, Err(LabError::AlreadyUp { .. } | LabError::Kept { .. })) {
            own_labs().insert(options.name);
        }
        let lab = lab?;
        let bench = Self { lab };
        bench.install()?;
        Ok(bench)
    }

    /// The lab of that name if it is up, else a new one: while cases are written, the boot is spared.
    pub fn attach_or_up(name: &str) -> anyhow::Result<Self> {
        match Lab::open(&Places::standard(), &name.parse::<LabName>()?) {
            Ok(lab) => {
                let bench = Self { lab };
                bench.install()?;
                Ok(bench)
            }
            // As the demo's does: what users see first is what is tried here.
            Err(_) => Self::up(name, &Boot { count: Some(Count::Work), ..Boot::default() }),
        }
    }

    fn install(&self) -> anyhow::Result<()> {
        // A program that runs (beside a guest, from a case before) can be removed, and not written to.
        self.sh(&format!("cd /usr/local/bin && rm -f {}", PROGRAMS.join(" ")))?;
        for path in program_paths()? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            self.lab.push(&path, &format!("/usr/local/bin/{name}"))?;
        }
        self.write("/root/found.xml", nearmetal_lab::domains::FOUND)
    }

    /// Runs a script; any exit code is fine.
    pub fn try_sh(&self, script: &str) -> anyhow::Result<ExecOutput> {
        Ok(self.lab.exec(&Command::shell(script).timeout(LIMIT))?)
    }

    /// Runs a script that must succeed, and gives its stdout.
    pub fn sh(&self, script: &str) -> anyhow::Result<String> {
        self.sh_within(LIMIT, script)
    }

    /// The same with a limit of its own, for what boots guests again and again.
    pub fn sh_within(&self, limit: Duration, script: &str) -> anyhow::Result<String> {
        let output = self.lab.exec(&Command::shell(script).timeout(limit))?;
        if output.success() {
            return Ok(output.text().trim_end().to_owned());
        }
        bail!("`{script}` ended with {}: {}{}", output.status, output.text(), String::from_utf8_lossy(&output.stderr))
    }

    /// Runs a script that must end with this code, and gives stdout and stderr together.
    pub fn ends_with(&self, code: i32, script: &str) -> anyhow::Result<String> {
        let output = self.try_sh(script)?;
        let text = output.text() + &String::from_utf8_lossy(&output.stderr);
        ensure!(output.status == code, "`{script}` ended with {}, not {code}: {text}", output.status);
        Ok(text)
    }

    /// Runs a script that must print JSON, whatever its exit code.
    pub fn json(&self, script: &str) -> anyhow::Result<Value> {
        read_json(script, &self.try_sh(script)?)
    }

    /// The text of a document that `bench` wrote in the lab, once `report` has made a page of it there: whatever a case
    /// measures must also be shown, with a headline, its guest and the words of the lab.
    pub fn document(&self, path: &str, guest: &str) -> anyhow::Result<String> {
        self.sh(&format!(
            "page=$(mktemp -d) && nearmetal report {path} -o $page >/dev/null && grep -q '<h1>' $page/report.html \
             && grep -qF 'lab: emulated time' $page/report.html && grep -qF '{guest}' $page/report.html && rm -r $page"
        ))?;
        self.sh(&format!("cat {path}"))
    }

    /// Writes a file in the lab.
    pub fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let input = nearmetal_lab::Input::Bytes(text.as_bytes().to_vec());
        let command = Command::shell(format!("cat > {path}")).input(input).timeout(LIMIT);
        ensure!(self.lab.exec(&command)?.success(), "cannot write `{path}` in the lab");
        Ok(())
    }

    /// The guest as people have it: defined, running, its agent answering, and nothing of an earlier case in force. Kept
    /// from the case before if that left it so, since a boot takes a while.
    pub fn found(&self) -> anyhow::Result<()> {
        let kept = self.try_sh(
            "virsh dumpxml --inactive web1 2>/dev/null | cmp -s - /root/baseline.xml || exit 1
             test \"$(virsh domstate web1)\" = running || exit 1
             test ! -e /etc/systemd/system/nearmetal-boot.service || exit 1
             test \"$(virsh -q vcpupin web1 --live | grep -c '0-11')\" = 2 || exit 1
             test \"$(cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages | sort -u)\" = 0 || exit 1
             rm -rf /var/lib/nearmetal",
        )?;
        if kept.success() {
            return self.wait_for_agent();
        }
        self.sh(
            "rm -rf /var/lib/nearmetal /root/*.json /root/baseline.xml /etc/systemd/system/nearmetal-boot.service
             sysctl -q kernel.io_uring_disabled=0
             for d in $(virsh list --name); do virsh -q destroy $d; done
             for d in $(virsh list --all --name); do virsh -q undefine $d; done
             for n in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do echo 0 > $n; done
             virsh -q define /root/found.xml && virsh -q start web1 && virsh dumpxml --inactive web1 > /root/baseline.xml",
        )?;
        self.wait_for_agent()
    }

    /// Waits until the guest's agent answers.
    ///
    /// Emulation sometimes loses an interrupt while a guest's processors start, and the guest then hangs: the same trap
    /// as with labs themselves. Such a guest is powered off and started again, which is said on stderr.
    pub fn wait_for_agent(&self) -> anyhow::Result<()> {
        self.wait_for_agent_of("web1")
    }

    /// The same of another guest.
    pub fn wait_for_agent_of(&self, guest: &str) -> anyhow::Result<()> {
        let ping =
            format!("timeout 10 virsh -q qemu-agent-command {guest} '{{\"execute\":\"guest-ping\"}}' >/dev/null 2>&1");
        let script =
            format!("end=$(($(date +%s) + 60)); until {ping}; do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done");
        for _ in 0..3 {
            if self.try_sh(&script)?.success() {
                return Ok(());
            }
            let state = self.try_sh(&format!(
                "virsh domstate {guest}; virsh -q domjobinfo {guest}; tail -n 3 /var/log/libvirt/qemu/{guest}.log"
            ))?;
            say_aside(&format!("the guest hung while it booted and is started again: {}", state.text()));
            self.sh(&format!("virsh -q destroy {guest}; virsh -q start {guest}"))?;
        }
        bail!("the guest's agent did not answer in three boots of 60 s each")
    }

    /// The guest placed: found, planned, applied, verified. Kept from the case before if it still verifies.
    pub fn applied(&self) -> anyhow::Result<()> {
        let verify = "nearmetal verify web1 --agent-timeout 60";
        if self.try_sh("test -d /var/lib/nearmetal")?.success() && self.try_sh(verify)?.success() {
            return Ok(());
        }
        self.found()?;
        self.sh("nearmetal plan web1 -o /root/plan.json && nearmetal apply /root/plan.json --restart --yes")?;
        self.wait_for_agent()?;
        self.sh(verify).map(drop)
    }

    /// The state that rollback must restore: stored XML, running or not, pools.
    pub fn fingerprint(&self) -> anyhow::Result<String> {
        self.sh("virsh dumpxml --inactive --security-info web1; virsh domstate web1
             grep -H . /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
             ls /etc/systemd/system/nearmetal-boot.service 2>&1; true")
    }
}

fn read_json(script: &str, output: &ExecOutput) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`{script}` printed no JSON: {}{}", output.text(), String::from_utf8_lossy(&output.stderr))
    })
}

/// Ends what a case that failed left of labs of its own, with the disks it kept: a second attempt begins afresh.
pub fn take_down_own(say: impl Fn(&str)) {
    let places = Places::standard();
    for name in std::mem::take(&mut *own_labs()) {
        let down = match Lab::open(&places, &name) {
            Ok(lab) => lab.down().map(drop),
            Err(LabError::NotUp { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = down.and_then(|()| nearmetal_lab::purge(&places, &name).map(drop)) {
            say(&format!("the lab `{name}` of a case that failed was not taken down: {error}"));
        }
    }
}

/// Says on stderr what a lab has to say while it boots.
struct Aside;

impl Progress for Aside {
    fn stage(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, text: &str) {
        say_aside(text);
    }
}

/// What somebody who follows the run wants to know, and no result.
fn say_aside(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "note: {text}");
}
