//! The network matrix over a cable between two labs: a server, and a small peer that answers netperf.

use anyhow::{Context, ensure};
use nearmetal_measure::{Effect, Link, NetAdvice, NetMatrixResults, NetTest};

use super::{Case, Verdict, alone};
use crate::context::{Bench, Boot};

const PEER: &str = "192.0.2.1";
const ARGUMENTS: &str =
    "net1 --plan /root/plan.json --matrix net --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";

/// A guest without a disk, which has a virtual function now: so it is placed beside the card.
const GUEST: &str = "<domain type='kvm'><name>net1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/usr/share/nearmetal/appliance/vmlinuz</kernel>
<initrd>/usr/share/nearmetal/appliance/initramfs.cpio.gz</initrd><cmdline>console=ttyS0 quiet</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
<interface type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' bus='0x39' slot='0x10' function='0x0'/></source></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

/// The network of the host, as a measurement must leave it.
const NETWORK: &str = "ip -brief link; bridge fdb show dev enp57s0 | sort; ls /run/netns 2>/dev/null; virsh list --all
for f in /sys/bus/pci/devices/0000:39:*; do echo $f $(readlink $f/driver); done; cat /var/lib/nearmetal/bench.json 2>/dev/null; true";

pub(super) fn cases() -> Vec<Case> {
    vec![
        alone("matrix/net-every-arm-is-read-back-over-a-cable", every_arm),
        alone("matrix/net-kill-9-leaves-nothing-after-rollback", killed),
    ]
}

/// The server with two virtual functions and a plan, and the peer with netserver.
fn on_a_cable(body: impl FnOnce(&Bench) -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
    let boot = |machine, cable| Boot { machine: Some(machine), cable: Some(cable), ..Boot::default() };
    let peer = Bench::up("net-peer", &boot("peer", "net:b"))?;
    let verdict = (|| {
        peer.sh(&format!(
            "port=$(basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs))))
             ip address add {PEER}/24 dev $port; ip link set $port up; netserver"
        ))?;
        let server = Bench::up("net", &boot("quad", "net:a"))?;
        let verdict = prepare(&server).and_then(|()| body(&server));
        server.lab.down()?;
        verdict
    })();
    peer.lab.down()?;
    verdict
}

fn prepare(server: &Bench) -> anyhow::Result<()> {
    server.write("/root/net1.xml", GUEST)?;
    server.sh("ip link set enp57s0 up; nearmetal device vfs enp57s0 2 --keep-driver --yes
               virsh -q define /root/net1.xml; nearmetal plan net1 -o /root/plan.json")?;
    Ok(())
}

/// A short matrix: every arm brought up and read back, the ceiling before them, a winner measured again, all put back.
fn every_arm() -> anyhow::Result<Verdict> {
    on_a_cable(|server| {
        let text = server.ends_with(3, &format!("nearmetal bench {ARGUMENTS} --budget 60"))?;
        ensure!(text.contains("--budget") && text.contains("--without"), "the budget was not refused: {text}");
        let before = server.sh(NETWORK)?;
        let text = server.sh(&format!(
            "nearmetal bench {ARGUMENTS} --test tcp-rr --test tcp-stream --seconds 1 --pairs 2 --budget 1800 \
             -o /root/net.json --chart /root/net.svg"
        ))?;
        let results = NetMatrixResults::parse(&server.sh("cat /root/net.json")?)?;
        ensure!(results.left_out.is_empty() && results.arms.len() == 10, "{:?}", results.left_out);
        for arm in &results.arms {
            if let Effect::NotShown { why } = &arm.effect {
                anyhow::bail!("{} did not take effect: {why}", arm.path.title());
            }
            ensure!(arm.rounds >= 4, "{} ran in {} rounds: {text}", arm.path.title(), arm.rounds);
        }
        ensure!(results.ceiling.iter().all(|ceiling| ceiling.confined.len() == 3 && ceiling.unconfined.len() == 3));
        ensure!(text.contains("lab: emulated time") && server.sh("cat /root/net.svg")?.contains("</svg>"), "{text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        let confirmation = results.confirmation.as_ref().context("the winner was not measured again")?;
        ensure!(confirmation.of_test(NetTest::TcpStream).is_some(), "the second test did not run again");
        let advice = match results.advice() {
            NetAdvice::Use(arm, _) | NetAdvice::NoneFaster(arm, _) => arm.path.title(),
            NetAdvice::Default => "libvirt's default".to_owned(),
            NetAdvice::Unknown => anyhow::bail!("no advice: {text}"),
        };
        let bare = results.arms.iter().any(|arm| arm.path.link == Link::Bare && arm.median.is_some());
        ensure!(bare, "bare metal was not measured: {text}");
        Ok(Verdict::Holds(format!("lab: {advice}, {} runs in {:.0} s\n{text}", results.turns.len(), results.took)))
    })
}

/// Killed while its guest runs and the port is in its bridge: `rollback` takes all of it away.
fn killed() -> anyhow::Result<Verdict> {
    on_a_cable(|server| {
        let before = server.sh(NETWORK)?;
        let seen = server.sh(&format!(
            "nearmetal bench {ARGUMENTS} --test tcp-rr --seconds 1 --pairs 2 --budget 1800 --without macvtap >/root/log 2>&1 &
             bench=$!
             end=$(($(date +%s) + 200))
             until [ -e /sys/class/net/nmtap0 ]; do [ $(date +%s) -lt $end ] || {{ cat /root/log; exit 1; }}; sleep 1; done
             nearmetal rollback 2>&1; kill -9 $bench; virsh list --name; bridge link show dev enp57s0"
        ))?;
        ensure!(seen.contains("measures right now"), "a rollback took away what is being measured: {seen}");
        ensure!(seen.contains("net1-nearmetal-net") && seen.contains("nmbr0"), "nothing was left to take back: {seen}");
        server.sh("nearmetal rollback")?;
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter kill -9 and rollback:\n{after}");
        Ok(Verdict::Holds("guest, bridge, tap and addresses are gone".to_owned()))
    })
}
