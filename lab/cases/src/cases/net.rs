//! The network matrix over a cable between two labs: a server, and a small peer that answers netperf and sockperf.

use anyhow::{Context, ensure};
use nearmetal_load::{Cost, NetTest};
use nearmetal_results::{Advice, Effect, NetMatrixResults, PLANNED, Purpose, Results, Run, cost_table, net_cost_table};

use super::experiment::ran;
use super::{Case, Verdict, long_in};
use crate::context::Bench;
use crate::labs::Labs;

const ARGUMENTS: &str = "net1 --plan /root/plan.json --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";

const ARGUMENTS_TOGETHER: &str =
    "net1 net2 --plan /root/plan.json --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";

/// A guest without a disk, which has a virtual function now: so it is placed beside the card.
const GUEST: &str = "<domain type='kvm'><name>net1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/lib/libvirt/boot/vmlinuz</kernel>
<initrd>/var/lib/libvirt/boot/initramfs.cpio.gz</initrd><cmdline>console=ttyS0 quiet pci=lastbus=0 hpet=disable</cmdline></os>
<features><acpi/></features><cpu mode='host-passthrough'/><devices>
<interface type='hostdev' managed='yes'><source><address type='pci' domain='0x0000' bus='0x39' slot='0x10' function='0x0'/></source></interface>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel></devices></domain>";

/// The network of the host, as a measurement must leave it.
const NETWORK: &str = "ip -brief link | sort; bridge fdb show dev enp57s0 | sort; ls /run/netns 2>/dev/null; virsh list --all
for f in /sys/bus/pci/devices/0000:39:*; do echo $f $(readlink $f/driver); done; cat /var/lib/nearmetal/bench.json 2>/dev/null; true";

pub(super) fn cases() -> Vec<Case> {
    vec![
        long_in(Labs::Cabled, "matrix/net-ways-over-the-port-are-read-back", port_alone),
        long_in(Labs::Cabled, "matrix/net-a-short-race-beside-bare-metal", short_race),
        long_in(Labs::Cabled, "bench/guests-share-a-port-and-have-functions-of-it", two_guests),
        long_in(Labs::Cabled, "matrix/net-ways-with-virtual-functions-are-read-back", with_functions),
    ]
}

/// The server with so many virtual functions, and a guest with a plan.
fn prepare(server: &Bench, functions: u32) -> anyhow::Result<()> {
    server.sh("ip link del nmlab0 2>/dev/null; true")?;
    server.cleared()?;
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

/// Without virtual functions every way over a bridge on the port answers; those of macvtap are read back beside functions.
fn port_alone(server: &Bench) -> anyhow::Result<Verdict> {
    prepare(server, 0)?;
    let before = server.sh(NETWORK)?;
    let text = server.sh(&format!("nearmetal bench net read-back {ARGUMENTS} --without macvtap -o /root/net.json"))?;
    let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
    let (shown, amiss) = shown(&results);
    let bridges = shown.iter().filter(|id| id.starts_with("bridge")).count();
    ensure!((bridges, shown.len()) == (5, 6) && amiss.is_empty(), "{shown:?}, {amiss:?}: {text}");
    let given = |words: &str| results.left_out.iter().any(|left| left.why.contains(words));
    ensure!(given("has no virtual function") && given("--without macvtap"), "{:?}", results.left_out);
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    Ok(Verdict::Holds(text))
}

/// Ways over a bridge, which the emulated card passes nothing of while it has functions: libvirt's default stays and says so.
const BRIDGES: &str = "--without user-space --without no-offloads --without multiqueue --without rps";

/// With virtual functions: what leads through them and what lies on the port is shown; the emulated card passes nothing of
/// a bridge then, and that is said. What is killed in between is gone after a rollback, and nothing before that.
fn with_functions(server: &Bench) -> anyhow::Result<Verdict> {
    prepare(server, 2)?;
    let before = server.sh(NETWORK)?;
    let read_back = format!("nearmetal bench net read-back {ARGUMENTS} {BRIDGES}");
    let text = server.ends_with(1, &format!("{read_back} -o /root/net.json"))?;
    let results = NetMatrixResults::parse(&server.document("/root/net.json", "net1")?)?;
    ensure!(results.left_out.len() == 4 && results.arms.len() == 7, "{:?}", results.left_out);
    let (shown, amiss) = shown(&results);
    ensure!(shown.len() == 6 && !shown.iter().any(|id| id.starts_with("bridge")), "{shown:?}: {text}");
    ensure!(amiss.iter().all(|why| why.contains("virtual functions")), "{amiss:?}");
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");

    let seen = server.sh(&format!(
        "{read_back} >/root/log 2>&1 &
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
}

/// A race of few arms: the ceiling before it, the winner and libvirt's default again beside bare metal, all put back. A
/// server of sockperf that is missing is asked for first.
fn short_race(server: &Bench) -> anyhow::Result<Verdict> {
    prepare(server, 0)?;
    let peer = server.peer()?;
    peer.sh("pkill -x sockperf; true")?;
    let text = server.ends_with(2, &format!("nearmetal bench net race {ARGUMENTS} --budget 60"))?;
    ensure!(text.contains("--budget") && text.contains("--without"), "the budget was not refused: {text}");
    let before = server.sh(NETWORK)?;
    let few = format!(
        "{ARGUMENTS} --seconds 1 --pairs 2 --budget 500 --without macvtap --without no-offloads --without multiqueue \
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
        ensure!(arm.rounds >= 4 && arm.median.is_some(), "{} ran in {} rounds: {text}", arm.path.title(), arm.rounds);
    }
    let complete = |ceiling: &nearmetal_results::Ceiling| (ceiling.confined.len(), ceiling.unconfined.len()) == (3, 3);
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
    let costs = net_cost_table(&results);
    let exits = costs.iter().any(|row| row.cost == Cost::Exits && row.name == "all");
    ensure!(exits, "no exits were counted of a guest: {text}");
    ensure!(results.advice() != Advice::Unknown, "no advice: {text}");
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    plan_uses(server, &results)?;
    Ok(Verdict::Holds(text))
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
    let rules = server.sh("nearmetal plan net1 --no-measured 2>&1; ip link del nmlab0")?;
    ensure!(!rules.contains("fresh pairs") && !rules.contains("the matrix of"), "--no-measured was not heard: {rules}");
    Ok(())
}

/// The published experiment on ways to a network, with one guest and two at once through one port: over a bridge, then each with
/// a virtual function and both slices at once on the same functions, each side behind one barrier and beside the peer's ceiling.
/// Killed while the slices have the functions, it leaves what a rollback takes back.
///
/// The lab's emulated card passes nothing of a bridge while it has functions. So the step with functions fails at first, and the
/// same command runs it alone once they are there.
fn two_guests(server: &Bench) -> anyhow::Result<Verdict> {
    prepare(server, 0)?;
    second_guest(server)?;
    let ways = ["no-offloads", "rps", "multiqueue", "macvtap"];
    let without: String = ways.map(|word| format!(" --without {word}")).concat();
    let on = "--port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24";
    let words = format!(
        "net1 net2 --plan /root/plan.json {on} --pairs 2 --seconds 2 --budget 420 --overlap 50 --same-arm-pairs 0{without}"
    );
    let before = server.sh(NETWORK)?;
    let first =
        server.ends_with(3, &format!("nearmetal experiment run net-paths {words} --quick -o /root/net-paths"))?;
    ensure!(first.contains("Guests at once with virtual functions") && first.contains("failed: "), "{first}");
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");

    server.sh("nearmetal device vfs enp57s0 2 --keep-driver --yes")?;
    let before = server.sh(NETWORK)?;
    killed_with_functions(server)?;
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter kill -9 and rollback:\n{after}");
    // User space beside vhost-net, and streams of one guest and of two.
    let verdict = ran(server, "net-paths", &words, 3, |directory| {
        for (step, evidence) in [("bridge", ["", ""]), ("functions", ["vfio-pci, IOMMU group", "driver igbvf"])] {
            let results: Results = serde_json::from_str(&server.sh(&format!("cat {directory}/{step}.json"))?)?;
            let counts: Vec<usize> = super::bench::rates(&results)?.iter().map(|one| one.count).collect();
            ensure!(counts == [1, 2], "{step}: ratios of {counts:?} guests, not of one and two");
            for member in &results.tenants {
                let found = member.placement.join("; ");
                ensure!(evidence.iter().all(|words| found.contains(words)), "{step}: {found}");
            }
            let ceiling = |run: &Run| run.purpose == Purpose::Ceiling && run.failure().is_none();
            ensure!(results.runs.iter().any(ceiling), "{step}: no ceiling");
            let together: Vec<f64> =
                results.runs.iter().filter_map(|run| Some(run.together.as_ref()?.overlap)).collect();
            ensure!(!together.is_empty() && together.iter().all(|overlap| *overlap > 0.0), "{step}: {together:?}");
            let costs = cost_table(&results);
            let exits = costs.iter().any(|row| row.arm.id == PLANNED && row.cost == Cost::Exits && row.name == "all");
            ensure!(exits, "{step}: no exits were counted of the guests");
        }
        Ok(String::new())
    })?;
    let after = server.sh(NETWORK)?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    Ok(verdict)
}

/// Kills a measurement while the slices have the functions, and rolls back what it left.
fn killed_with_functions(server: &Bench) -> anyhow::Result<()> {
    server
        .sh(&format!(
            "nearmetal bench together {ARGUMENTS_TOGETHER} --way vf-hostdev --test tcp-stream --seconds 4 --store /root/killed.sqlite \
                 >/root/log 2>&1 & bench=$!
             end=$(($(date +%s) + 400))
             until [ -e /run/netns/nearmetal-net1 ]; do [ $(date +%s) -lt $end ] || {{ cat /root/log; exit 1; }}; sleep 1; done
             sleep 6; kill -9 $bench; nearmetal rollback --plan /root/plan.json"
        ))
        .map(drop)
}

/// Beside the first guest one without a card, and both in one plan.
fn second_guest(server: &Bench) -> anyhow::Result<()> {
    let second: Vec<&str> = GUEST.lines().filter(|line| !line.starts_with("<interface")).collect();
    server.write("/root/net2.xml", &second.join("\n").replace("<name>net1<", "<name>net2<"))?;
    server.sh("virsh -q define /root/net2.xml; nearmetal plan net1 net2 -o /root/plan.json").map(drop)
}
