//! What a case finds in its lab, and leaves there for the next one.

use anyhow::ensure;

use crate::context::{Bench, say_aside};

/// No guest is defined, and none has pages of a pool.
const NO_GUESTS: &str = "for d in $(virsh list --name); do virsh -q destroy $d; done
for d in $(virsh list --all --name); do virsh -q undefine $d; done
for n in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages; do echo 0 > $n; done";

impl Bench {
    /// The guest as people have it: defined, running, its agent answering, and nothing of an earlier case in force. Kept
    /// from the case before if that left it so, since a boot takes a while.
    pub fn found(&self) -> anyhow::Result<()> {
        let kept = self.try_sh(
            "virsh dumpxml --inactive web1 2>/dev/null | cmp -s - /root/baseline.xml || exit 1
             test \"$(virsh domstate web1)\" = running || exit 1
             ! virsh dumpxml web1 | grep -q nearmetal-turn || exit 1
             test ! -e /etc/systemd/system/nearmetal-boot.service || exit 1
             test \"$(virsh -q vcpupin web1 --live | grep -c '0-11')\" = 2 || exit 1
             test \"$(cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages | sort -u)\" = 0 || exit 1
             rm -rf /var/lib/nearmetal",
        )?;
        if kept.success() {
            return self.wait_for_agent();
        }
        self.sh(&format!(
            "rm -rf /var/lib/nearmetal /root/*.json /root/baseline.xml /etc/systemd/system/nearmetal-boot.service
             sysctl -q kernel.io_uring_disabled=0
             {NO_GUESTS}
             virsh -q define /root/found.xml && virsh -q start web1 && virsh dumpxml --inactive web1 > /root/baseline.xml"
        ))?;
        self.wait_for_agent()
    }

    /// No guest, no journal, no virtual function and no page in a pool: for a case that defines guests of its own.
    pub fn cleared(&self) -> anyhow::Result<()> {
        self.sh(&format!(
            "{NO_GUESTS}
             for f in /sys/bus/pci/devices/*/sriov_numvfs; do test $(cat $f) = 0 || echo 0 > $f; done
             for f in /sys/bus/pci/devices/*/sriov_drivers_autoprobe; do echo 1 > $f; done
             rm -rf /var/lib/nearmetal /root/*.json /root/baseline.xml /etc/systemd/system/nearmetal-boot.service \
                 /etc/libvirt/hooks/qemu.d"
        ))
        .map(drop)
    }

    /// Waits until the guest's agent answers.
    pub fn wait_for_agent(&self) -> anyhow::Result<()> {
        self.wait_for_agent_of("web1")
    }

    /// The same of another guest.
    pub fn wait_for_agent_of(&self, guest: &str) -> anyhow::Result<()> {
        let waited = self.try_sh(&nearmetal_lab::domains::wait_for_agent(guest))?;
        let said = String::from_utf8_lossy(&waited.stderr);
        if !said.is_empty() {
            say_aside(&said);
        }
        ensure!(waited.success(), "the agent of `{guest}` did not answer in three boots: {said}");
        Ok(())
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
