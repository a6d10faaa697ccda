//! A fleet over two labs: planned here, put in force there over ssh, read back, disturbed, taken back.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use nearmetal_host::files;
use serde_json::Value;

use super::{Case, Verdict, whole};
use crate::context::{Bench, Boot, programs};

/// Six small VMs: two that must be apart, one over two nodes, one with a virtual function, two that only need room.
const VMS: &str = r#"
[defaults]
template = "small.xml"
page-size = "2 MiB"

[[vm]]
name = "db"
count = 2
vcpus = 2
memory = "256 MiB"

[[group]]
name = "databases"
members = ["db-1", "db-2"]
rule = "apart"
scope = "host"

[[vm]]
name = "wide"
vcpus = 4
memory = "512 MiB"
numa = 2

[[vm]]
name = "router"
vcpus = 1
memory = "256 MiB"
[[vm.nic]]
kind = "vf"
locality = "required"

[[vm]]
name = "web"
count = 2
vcpus = 1
memory = "256 MiB"
"#;

/// A guest without a disk: the appliance's kernel and first file system are all it needs.
pub(super) const SMALL: &str = "
<domain type='kvm'>
  <name>small</name>
  <memory unit='MiB'>256</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
    <initrd>/var/lib/libvirt/boot/small.cpio</initrd>
    <cmdline>console=ttyS0 quiet pci=lastbus=0 hpet=disable</cmdline>
  </os>
  <features>
    <acpi/>
  </features>
  <cpu mode='host-passthrough'/>
  <devices>
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>
    <serial type='pty'/>
    <console type='pty'/>
  </devices>
</domain>
";

pub(super) fn cases() -> Vec<Case> {
    vec![whole("fleet/six-vms-over-two-labs", six_vms)]
}

/// Two labs, and a directory with the fleet file, beside which nearmetal is run.
struct Fleet {
    labs: [Bench; 2],
    directory: tempfile::TempDir,
}

impl Fleet {
    fn up() -> anyhow::Result<Self> {
        let labs = [Bench::up("fleet-a", &Boot::default())?, Bench::up("fleet-b", &Boot::default())?];
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let mut fleet = String::new();
        for lab in &labs {
            lab.sh("for d in $(virsh list --all --name); do virsh -q destroy $d; virsh -q undefine $d; done; true")?;
            lab.sh("for f in /sys/class/net/*/device/sriov_totalvfs; do i=${f#/sys/class/net/}
                    ip link set ${i%%/*} up; echo 2 > ${f%totalvfs}numvfs; done")?;
            let name = lab.lab.name().to_string();
            let config = path(&format!("{name}.ssh"));
            files::write(&config, lab.lab.ssh_config().as_bytes())?;
            fleet.push_str(&format!(
                "[[host]]\nname = \"{name}\"\nssh = \"{name}\"\nssh-command = \"ssh -F {}\"\n\n",
                config.display()
            ));
        }
        files::write(&path("fleet.toml"), (fleet + VMS).as_bytes())?;
        files::write(&path("small.xml"), SMALL.as_bytes())?;
        Ok(Self { labs, directory })
    }

    /// Runs nearmetal here, and gives exit code, data and prose.
    fn nearmetal(&self, arguments: &[&str]) -> anyhow::Result<(i32, String, String)> {
        let program: PathBuf = programs()?.join("nearmetal");
        let output = Command::new(program).args(arguments).current_dir(self.directory.path()).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
    }

    fn ends_with(&self, code: i32, arguments: &[&str]) -> anyhow::Result<String> {
        let (found, data, prose) = self.nearmetal(arguments)?;
        ensure!(found == code, "nearmetal {} ended with {found}, not {code}: {data}{prose}", arguments.join(" "));
        Ok(data + &prose)
    }

    fn plan(&self) -> anyhow::Result<Value> {
        let text = files::read_to_string(Path::new(&self.directory.path().join("plan.json")))?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Names of all domains, and whether they run, lab by lab.
    fn domains(&self) -> anyhow::Result<[String; 2]> {
        let list =
            |lab: &Bench| lab.sh("for d in $(virsh list --all --name | sort); do echo $d $(virsh domstate $d); done");
        Ok([list(&self.labs[0])?, list(&self.labs[1])?])
    }
}

fn six_vms() -> anyhow::Result<Verdict> {
    let fleet = Fleet::up()?;
    let verdict = over_two_labs(&fleet);
    fleet.labs.into_iter().try_for_each(|lab| lab.lab.down().map(drop))?;
    verdict
}

fn over_two_labs(fleet: &Fleet) -> anyhow::Result<Verdict> {
    let empty = fleet.domains()?;
    fleet.ends_with(0, &["plan", "--fleet", "fleet.toml", "-o", "plan.json", "--directory", "out"])?;
    let plan = fleet.plan()?;
    let placements = plan["fleet"]["placements"].as_array().context("no placements")?;
    ensure!(placements.len() == 6, "{} VMs are placed", placements.len());
    let host_of = |vm: &str| {
        let found = placements.iter().find(|placement| placement["vm"] == vm);
        found.map(|placement| placement["host"].clone()).context("a VM is missing")
    };
    ensure!(host_of("db-1")? != host_of("db-2")?, "the databases are on one host");

    // A hook on the second lab moves a vCPU behind everybody's back: that lab is taken back, the first one stays.
    let hook = "mkdir -p /etc/libvirt/hooks; printf '%s\\n' '#!/bin/sh' '[ \"$2\" = started ] || exit 0' \
                'setsid sh -c \"until virsh -q vcpupin $1 0 11 --live; do sleep 1; done\" >/dev/null 2>&1 &' \
                > /etc/libvirt/hooks/qemu; chmod +x /etc/libvirt/hooks/qemu; systemctl restart libvirtd";
    fleet.labs[1].sh(hook)?;
    let text = fleet.ends_with(1, &["apply", "plan.json", "--start", "--yes"])?;
    ensure!(text.contains("fleet-b  not as planned; nothing that this changed is left there"), "{text}");
    let after = fleet.domains()?;
    ensure!(after[0] != empty[0] && after[1] == empty[1], "{after:?}");
    fleet.labs[1]
        .sh("rm /etc/libvirt/hooks/qemu; systemctl restart libvirtd 2>/dev/null || systemctl restart virtqemud")?;

    fleet.ends_with(0, &["apply", "plan.json", "--start", "--yes"])?;
    let running = fleet.domains()?.concat();
    ensure!(running.matches("running").count() == 6, "{running}");
    fleet.ends_with(0, &["verify", "--plan", "plan.json", "--agent-timeout", "60"])?;
    // What is in force plans to itself.
    fleet.ends_with(0, &["plan", "--fleet", "fleet.toml", "-o", "again.json"])?;
    fleet.ends_with(0, &["apply", "again.json", "--yes"])?;

    fleet.labs[1].sh("d=$(virsh list --name | head -n 1); virsh -q vcpupin $d 0 11")?;
    let text = fleet.ends_with(1, &["verify", "--plan", "plan.json", "--agent-timeout", "60"])?;
    ensure!(text.contains("fleet-b  not as planned"), "{text}");
    fleet.ends_with(0, &["rollback", "--plan", "plan.json", "--restart"])?;
    ensure!(fleet.domains()? == empty, "rollback left {:?}", fleet.domains()?);
    Ok(Verdict::Holds("6 VMs on two labs: refused, applied, verified, disturbed, taken back".to_owned()))
}
