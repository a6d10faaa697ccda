//! The network matrix over a cable between two labs: a server, and a small peer that answers netperf and sockperf.

use anyhow::{Context, ensure};
use nearmetal_measure::{
    Advice, Cost, Effect, NetCostRow, NetMatrixResults, NetTest, Purpose, Results, net_cost_table,
};

use super::{Case, Verdict, alone};
use crate::context::{Bench, Boot};

const PEER: &str = "192.0.2.1";
const ARGUMENTS: &str = "net1 --plan /root/plan.json --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";

const ARGUMENTS_TOGETHER: &str =
    "net1 net2 --plan /root/plan.json --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";

/// A guest without a disk, which has a virtual function now: so it is placed beside the card.
const GUEST: &str = "<domain type='kvm'><name>net1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
<initrd>/var/lib/libvirt/boot/initramfs.cpio.gz</initrd><cmdline>console=ttyS0 quiet</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
<interface type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' bus='0x39' slot='0x10' function='0x0'/></source></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

/// The network of the host, as a measurement must leave it.
const NETWORK: &str = "ip -brief link | sort; bridge fdb show dev enp57s0 | sort; ls /run/netns 2>/dev/null; virsh list --all
for f in /sys/bus/pci/devices/0000:39:*; do echo $f $(readlink $f/driver); done; cat /var/lib/nearmetal/bench.json 2>/dev/null; true";

pub(super) fn cases() -> Vec<Case> {
    vec![
        alone("matrix/net-ways-over-the-port-are-read-back", port_alone),
        alone("matrix/net-ways-with-virtual-functions-are-read-back", with_functions),
        alone("matrix/net-a-short-race-beside-bare-metal", short_race),
        alone("bench/guests-share-a-port", share_a_port),
        alone("bench/guests-with-functions-of-a-port", functions_of_a_port),
        alone("matrix/net-a-virtual-function-beside-bare-metal", function_race),
    ]
}

fn on_a_cable(functions: u32, body: impl FnOnce(&Bench) -> anyhow::Result<Verdict>) -> anyhow::Result<Verdict> {
    with_peer(functions, |server, _| body(server))
}

/// The server with so many virtual functions and a plan, and the peer with netserver.
pub(super) fn with_peer(
    functions: u32,
    body: impl FnOnce(&Bench, &Bench) -> anyhow::Result<Verdict>,
) -> anyhow::Result<Verdict> {
    let boot = |machine, cable| Boot { machine: Some(machine), cable: Some(cable), ..Boot::default() };
    let peer = Bench::up("net-peer", &boot("peer", "net:b"))?;
    let verdict = (|| {
        peer.sh(&format!(
            "port=$(basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs))))
             ip address add {PEER}/24 dev $port; ip link set $port up; netserver"
        ))?;
        let server = Bench::up("net", &boot("quad", "net:a"))?;
        let verdict = prepare(&server, functions).and_then(|()| body(&server, &peer));
        server.lab.down()?;
        verdict
    })();
    peer.lab.down()?;
    verdict
}

fn prepare(server: &Bench, functions: u32) -> anyhow::Result<()> {
    let has_one = |line: &&str| functions > 0 || !line.starts_with("<interface");
    server.write("/root/net1.xml", &GUEST.lines().filter(has_one).collect::<Vec<_>>().join("\n"))?;
    // KVM's counters are there.
    server
        .sh("ip link set enp57s0 up; mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug")?;
    if functions > 0 {
        server.sh(&format!("nearmetal device vfs enp57s0 {functions} --keep-driver --yes"))?;
    }
    server.sh("virsh -q define /root/net1.xml; nearmetal plan net1 -o /root/plan.json").map(drop)
}

/// Ids of the arms that took effect, and why the others did not.
fn shown(results: &NetMatrixResults) -> (Vec<&str>, Vec<&str>) {
    let (mut shown, mut amiss) = (Vec::new(), Vec::new());
    for arm in &results.arms {
        match &arm.effect {
            Effect::Shown { .. } => shown.push(arm.id.as_str()),
            Effect::NotShown { why } => amiss.push(why.as_str()),
        }
    }
    (shown, amiss)
}

/// Without virtual functions every way over the port itself answers.
fn port_alone() -> anyhow::Result<Verdict> {
    on_a_cable(0, |server| {
        let before = server.sh(NETWORK)?;
        let text = server.sh(&format!("nearmetal bench net read-back {ARGUMENTS} -o /root/net.json"))?;
        let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
        let (shown, amiss) = shown(&results);
        ensure!(shown.len() == 9 && amiss.is_empty() && results.left_out.len() == 2, "{shown:?}: {text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        Ok(Verdict::Holds(text))
    })
}

/// With virtual functions: what leads through them and what lies on the port is shown; the emulated card passes nothing of
/// a bridge then, and that is said. What is killed in between is gone after a rollback, and nothing before that.
fn with_functions() -> anyhow::Result<Verdict> {
    on_a_cable(2, |server| {
        let before = server.sh(NETWORK)?;
        let text = server.ends_with(1, &format!("nearmetal bench net read-back {ARGUMENTS} -o /root/net.json"))?;
        let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
        ensure!(results.left_out.is_empty() && results.arms.len() == 11, "{:?}", results.left_out);
        let (shown, amiss) = shown(&results);
        ensure!(shown.len() == 6 && !shown.iter().any(|id| id.starts_with("bridge")), "{shown:?}: {text}");
        ensure!(amiss.iter().all(|why| why.contains("virtual functions")), "{amiss:?}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");

        let seen = server.sh(&format!(
            "nearmetal bench net read-back {ARGUMENTS} >/root/log 2>&1 &
             bench=$!
             end=$(($(date +%s) + 100))
             until [ -e /sys/class/net/nmtap0 ]; do [ $(date +%s) -lt $end ] || {{ cat /root/log; exit 1; }}; sleep 1; done
             nearmetal rollback 2>&1; kill -9 $bench; virsh list --name; bridge link show dev enp57s0"
        ))?;
        ensure!(seen.contains("measures right now"), "a rollback took away what is being measured: {seen}");
        ensure!(seen.contains("net1-nearmetal-net") && seen.contains("nmbr0"), "nothing was left to take back: {seen}");
        // The plan is not in force, so what the measurement left is all there is to take back.
        server.sh("nearmetal rollback --plan /root/plan.json")?;
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter kill -9 and rollback:\n{after}");
        Ok(Verdict::Holds(text))
    })
}

/// A race of few arms: the ceiling before it, the winner and libvirt's default again beside bare metal, all put back. A
/// server of sockperf that is missing is asked for first.
fn short_race() -> anyhow::Result<Verdict> {
    with_peer(0, |server, peer| {
        let text = server.ends_with(2, &format!("nearmetal bench net race {ARGUMENTS} --budget 60"))?;
        ensure!(text.contains("--budget") && text.contains("--without"), "the budget was not refused: {text}");
        let before = server.sh(NETWORK)?;
        let few = format!(
            "{ARGUMENTS} --seconds 1 --pairs 3 --budget 850 --without macvtap --without no-offloads --without multiqueue \
             --without rps"
        );
        let text = server.ends_with(3, &format!("nearmetal bench net race {few} --test sockperf-tcp"))?;
        ensure!(text.contains("`sockperf server --tcp -p 11111 --daemonize` on the peer"), "{text}");
        // It keeps the output it was started with, and ssh would wait for that.
        peer.sh("for tcp in '' --tcp; do sockperf server $tcp -p 11111 --daemonize >/dev/null 2>&1; done")?;
        let text = server.sh(&format!(
            "nearmetal bench net race {few} --test tcp-rr --test tcp-stream --test sockperf-udp --test sockperf-tcp \
             -o /root/net.json --chart /root/net.svg"
        ))?;
        let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
        for arm in &results.arms {
            if let Effect::NotShown { why } = &arm.effect {
                anyhow::bail!("{} did not take effect: {why}", arm.path.title());
            }
            ensure!(
                arm.rounds >= 4 && arm.median.is_some(),
                "{} ran in {} rounds: {text}",
                arm.path.title(),
                arm.rounds
            );
        }
        let complete =
            |ceiling: &nearmetal_measure::Ceiling| (ceiling.confined.len(), ceiling.unconfined.len()) == (3, 3);
        ensure!(results.ceiling.len() == 4 && results.ceiling.iter().all(complete), "{:?}", results.ceiling);
        ensure!(text.contains("lab: emulated time") && server.sh("cat /root/net.svg")?.contains("</svg>"), "{text}");
        let confirmation = results.confirmation.as_ref().context("the winner was not measured again")?;
        for test in [NetTest::TcpRr, NetTest::TcpStream, NetTest::SockperfUdp, NetTest::SockperfTcp] {
            let figure = confirmation.of_test(test).with_context(|| format!("no {} again", test.id()))?;
            ensure!(figure.default_to_bare.is_some(), "no interval beside bare metal: {text}");
        }
        for metric in ["sockperf-udp.p50", "sockperf-udp.p90", "sockperf-tcp.p50", "sockperf-tcp.cpu.host"] {
            let figure = confirmation.figures.iter().find(|figure| figure.metric == metric);
            ensure!(figure.is_some_and(|figure| figure.medians.len() > 1), "no {metric}: {text}");
        }
        ensure!(results.advice() != Advice::Unknown, "no advice: {text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        plan_uses(server, &results)?;
        Ok(Verdict::Holds(text))
    })
}

/// The plan of a guest on a bridge over that port knows the result, and says what it makes of it.
fn plan_uses(server: &Bench, results: &NetMatrixResults) -> anyhow::Result<()> {
    server.sh("ip link add nmlab0 type bridge; ip link set enp57s0 master nmlab0
         virsh -q attach-interface net1 bridge nmlab0 --model virtio --config")?;
    let plan = server.sh("nearmetal plan net1 2>&1")?;
    let said: &[&str] = match results.advice() {
        // Faster in round trips and slower in streams is not faster for a guest of no special class.
        Advice::Use(..) => &["backend qemu, 1 queue", "counts for class general"],
        _ => &["shown better than libvirt's default"],
    };
    ensure!(said.iter().any(|words| plan.contains(words)), "{said:?} is not in: {plan}");
    let rules = server.sh("nearmetal plan net1 --no-measured 2>&1")?;
    ensure!(!rules.contains("fresh pairs") && !rules.contains("the matrix of"), "--no-measured was not heard: {rules}");
    Ok(())
}

/// A virtual function in a guest against the same function on the bare slice, and what each transaction costs. The emulated
/// card passes nothing of a bridge while it has functions, so that the first way that works stands for libvirt's default.
fn function_race() -> anyhow::Result<Verdict> {
    on_a_cable(2, |server| {
        let before = server.sh(NETWORK)?;
        let text = server.sh(&format!(
            "nearmetal bench net race {ARGUMENTS} --test tcp-rr --seconds 1 --pairs 4 --budget 760 --without user-space --without no-offloads \
             --without multiqueue --without rps --without macvtap-private --without macvtap-passthrough \
             --without vf-macvtap-passthrough -o /root/net.json"
        ))?;
        let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
        ensure!(results.reference != 0 && text.contains("libvirt's default took no effect here"), "{text}");
        let place = results.arms.iter().position(|arm| arm.id == "vf-hostdev").context("no function was given")?;
        let given = &results.arms[place];
        ensure!(given.to_bare.as_ref().is_some_and(|ratio| ratio.n >= 4), "the function has no ratio: {text}");
        let costs = net_cost_table(&results);
        let of_it = |row: &&NetCostRow| row.arm == place && row.cost == Cost::Exits && row.name == "all";
        ensure!(costs.iter().any(|row| of_it(&row)), "no exits were counted of the function's guest: {text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        Ok(Verdict::Holds(text))
    })
}

/// One guest and two at once through one port, each side behind one barrier, beside the peer's ceiling.
fn share_a_port() -> anyhow::Result<Verdict> {
    on_a_cable(0, |server| {
        second_guest(server)?;
        let before = server.sh(NETWORK)?;
        let text = server.sh(&format!(
            "nearmetal bench together {ARGUMENTS_TOGETHER} --test tcp-stream --seconds 4 --pairs 3 --scaling --overlap 50 \
             -o /root/together.json"
        ))?;
        let results: Results = serde_json::from_str(&server.document("/root/together.json", "net1")?)?;
        let ratios = super::bench::rates(&results)?;
        ensure!(ratios.iter().map(|one| one.count).collect::<Vec<_>>() == [1, 2], "no ratio for one and two: {text}");
        ensure!(has_ceiling(&results) && text.contains("the ceiling"), "no ceiling: {text}");
        ensure!(text.contains("overlap:") && text.contains("exits by KVM/Gbit"), "{text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        Ok(Verdict::Holds(text))
    })
}

/// Whether what the machine and the peer do without a guest was measured.
fn has_ceiling(results: &Results) -> bool {
    results.runs.iter().any(|run| run.purpose == Purpose::Ceiling && run.failure().is_none())
}

/// Beside the first guest one without a card, and both in one plan.
pub(super) fn second_guest(server: &Bench) -> anyhow::Result<()> {
    let second: Vec<&str> = GUEST.lines().filter(|line| !line.starts_with("<interface")).collect();
    server.write("/root/net2.xml", &second.join("\n").replace("<name>net1<", "<name>net2<"))?;
    server.sh("virsh -q define /root/net2.xml; nearmetal plan net1 net2 -o /root/plan.json").map(drop)
}

/// Two guests at once, each with a virtual function, and both slices at once on the same functions. Killed while the slices
/// have them, it leaves what a rollback takes back.
fn functions_of_a_port() -> anyhow::Result<Verdict> {
    on_a_cable(2, |server| {
        second_guest(server)?;
        let before = server.sh(NETWORK)?;
        let command = format!(
            "nearmetal bench together {ARGUMENTS_TOGETHER} --way vf-hostdev --test tcp-stream --seconds 4 --overlap 50"
        );
        server.sh(&format!(
            "{command} >/root/log 2>&1 & bench=$!; end=$(($(date +%s) + 400))
             until [ -e /run/netns/nearmetal-net1 ]; do [ $(date +%s) -lt $end ] || {{ cat /root/log; exit 1; }}; sleep 1; done
             sleep 6; kill -9 $bench; nearmetal rollback --plan /root/plan.json"
        ))?;
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter kill -9 and rollback:\n{after}");

        let text = server.sh(&format!("{command} --pairs 3 -o /root/together.json"))?;
        let results: Results = serde_json::from_str(&server.document("/root/together.json", "net1")?)?;
        ensure!(super::bench::rates(&results)?.iter().map(|one| one.count).eq([2]), "no ratio for two: {text}");
        for member in &results.tenants {
            let evidence = member.placement.join("; ");
            ensure!(evidence.contains("vfio-pci, IOMMU group") && evidence.contains("driver igbvf"), "{evidence}");
        }
        ensure!(has_ceiling(&results) && text.contains("exits by KVM/Gbit"), "{text}");
        let after = server.sh(NETWORK)?;
        ensure!(after == before, "before:\n{before}\nafter:\n{after}");
        Ok(Verdict::Holds(text))
    })
}
