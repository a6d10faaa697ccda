//! Two labs on a cable, with an engine: `farm-a` also has its controller.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use nearmetal_lab::image::Layer;

use super::super::{Verdict, run};
use crate::context::{Bench, Boot, keeps_own};

const HOST: &str = include_str!("host.sh");
/// Beside those of the cases of runs: one of two vCPUs without pages of a pool, and one with more vCPUs than a node has.
const FLAVOURS: &str = r#"
[[flavour]]
name = "pair"
vcpus = 2
memory = "256 MiB"
boot = "appliance"
grace = "5s"

[[flavour]]
name = "wide"
vcpus = 4
memory = "512 MiB"
boot = "appliance"
grace = "5s"

[[flavour]]
name = "function"
vcpus = 1
memory = "384 MiB"
boot = "appliance"
grace = "5s"
open-to = "farm"
function = "PORT"
"#;
/// The port of a host's network card.
const PORT: &str = "basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs)))";
/// Virtual functions of it that the host's driver has again.
pub(super) const FUNCTIONS: u32 = 2;
/// A queue of forty guests under emulation is empty after half of that.
pub(super) const LIMIT: Duration = Duration::from_secs(5400);

/// What would show that something of a run is still there.
// A shell whose own text holds the pattern would find itself.
const LEFT: &str = "virsh list --all --name | grep ^run-; pgrep -f '[g]uest=run-'; pgrep -f '[n]earmetal-libvirt'
    pgrep -l -u farm; ls -d /tmp/nearmetal-* 2>/dev/null
    nearmetal run --list | grep -v '^no runs$'
    for f in /sys/class/net/*/device/virtfn*; do echo $(basename $(readlink $f/driver || echo none)) $(cat $f/driver_override); done |
        grep -vx 'igbvf (null)'
    cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages | grep -vx 0; true";

/// The two hosts.
pub(super) struct Farm {
    pub(super) a: Bench,
    pub(super) b: Bench,
}

impl Farm {
    /// Both, with their names.
    pub(super) fn hosts(&self) -> [(&'static str, &Bench); 2] {
        [("farm-a", &self.a), ("farm-b", &self.b)]
    }

    /// Nothing of any run is left on either host.
    pub(super) fn nothing_is_left(&self) -> anyhow::Result<()> {
        for (name, host) in self.hosts() {
            let left = host.sh(LEFT)?;
            ensure!(left.is_empty(), "left on {name}: {left}");
        }
        Ok(())
    }

    /// A host that gets no jobs any more has no guest either, after a moment: one of the service's ends within its grace, when the
    /// engine has its job's end already.
    pub(super) fn has_no_guests(&self, host: &Bench) -> anyhow::Result<()> {
        let left = host.sh("for i in $(seq 30); do pgrep -f '[g]uest=run-' >/dev/null || exit 0; sleep 1; done
             pgrep -f '[g]uest=run-' | xargs -r ps -o pid=,user=,etimes=,stat=,cgroup=,args= -p | cut -c1-200; date")?;
        ensure!(left.is_empty(), "guests on a drained host: {left}");
        Ok(())
    }

    /// Restarts daemons by `restart`, and looks whether the guest of a job on `farm-a` is the same process before and after, and its
    /// run was not interrupted.
    pub(super) fn lives_through(&self, job: &str, restart: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let events = format!("/srv/jobs/{job}.events");
        self.wait("a command that runs", &format!("grep -qs command-started {events}"), "ls /srv/jobs")?;
        // Its domain's name is in each line of the run.
        let guest = format!(
            "name=$(sed -n 's/.*\"run\":\"\\([^\"]*\\)\".*/\\1/p' {events} | tail -n 1); [ -n \"$name\" ] && pgrep -f \"[g]uest=$name\""
        );
        let before = self.a.sh(&guest)?;
        ensure!(before.lines().count() == 1, "not one guest of `{job}`: {before}");
        restart()?;
        let after = self.a.sh(&format!("{guest} || {{ cat {events}; true; }}"))?;
        ensure!(before == after, "the guest of `{job}` was process {before} and is now: {after}");
        let ended = self.a.sh(&format!("grep '\"event\":\"ended\"' {events}; true"))?;
        ensure!(ended.is_empty(), "the run of `{job}` has ended: {ended}");
        Ok(())
    }

    /// Interrupts a job on `farm-a` as soon as its run has come to an event: the run ends its guest, and says that it was interrupted.
    pub(super) fn interrupt(&self, job: &str, event: &str, command: &str, queue: &str) -> anyhow::Result<()> {
        let events = format!("/srv/jobs/{job}.events");
        let has = |event: &str| format!("grep -qs '\"event\":\"{event}\"' {events}");
        self.wait(&format!("{event} of {job}"), &has(event), queue)?;
        self.a.sh(command)?;
        self.wait(&format!("the end of {job}"), &has("ended"), queue)?;
        let said = self.a.sh(&format!("tail -n 1 {events}"))?;
        ensure!(said.contains("\"outcome\":\"interrupted\""), "`{job}` was not interrupted: {said}");
        Ok(())
    }

    /// Waits on `farm-a` until a shell condition holds; what `said` prints goes into the error.
    pub(super) fn wait(&self, what: &str, condition: &str, said: &str) -> anyhow::Result<()> {
        let limit = LIMIT.as_secs();
        let script = format!(
            "end=$(($(date +%s) + {limit})); until {condition}; do
                 [ $(date +%s) -lt $end ] || {{ echo 'waited in vain for {what}'; {said}; exit 1; }}; sleep 3; done"
        );
        self.a.sh_within(LIMIT + Duration::from_secs(120), &script).map(drop)
    }
}

/// The two hosts have the same names whatever the engine, so that two lanes have them one after the other.
static HOSTS: Mutex<()> = Mutex::new(());

/// Boots both, makes hosts of a farm of them, does what is asked for, and takes them down.
pub(super) fn on(engine: Layer, body: impl FnOnce(&Farm) -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
    let _hosts = HOSTS.lock().unwrap_or_else(PoisonError::into_inner);
    let up = |name, cable: &str| {
        Bench::up(
            name,
            &Boot { machine: Some("farm"), cable: Some(cable.to_owned()), layer: Some(engine), ..Boot::default() },
        )
    };
    let farm = Farm { a: up("farm-a", "farm:a")?, b: up("farm-b", "farm:b")? };
    for ((name, host), address) in farm.hosts().into_iter().zip(["192.0.2.1", "192.0.2.2"]) {
        host.write("/root/host.sh", HOST)?;
        let own = FLAVOURS.replace("PORT", &host.sh(PORT)?);
        host.sh("mkdir -p /etc/nearmetal")?;
        host.write("/etc/nearmetal/flavours.toml", &format!("{}{own}", run::service::flavours_for("farm")))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        host.sh(&format!("sh /root/host.sh {name} {address} {now} {FUNCTIONS}"))?;
        run::service::listen(host)?;
    }
    // The cards need a moment until they have a link.
    farm.b.sh("for i in $(seq 60); do busybox ping -c 1 -W 2 farm-a >/dev/null 2>&1 && exit 0; sleep 1; done; ip address; exit 1")?;
    let verdict = body(&farm)?;
    if !keeps_own() {
        farm.a.lab.down()?;
        farm.b.lab.down()?;
    }
    Ok(verdict)
}
