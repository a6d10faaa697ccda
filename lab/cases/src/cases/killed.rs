//! A measurement ends by SIGKILL while it has something borrowed of the host: `rollback`, or the next measurement, gives all of
//! it back.

use anyhow::{Context as _, ensure};

use super::bench::STATE;
use super::{Case, Verdict, shared_long};
use crate::context::Bench;

const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("crash/kill-9-of-measurements-at-five-moments", five_moments),
        shared_long("crash/a-measurement-that-is-told-to-stop-gives-back-and-goes-on", told_to_stop),
    ]
}

/// What the measurements here borrow beside [`STATE`]: drives' schedulers and contents, volumes, large pages, programs that
/// outlive the one that started them.
const BORROWED: &str = "
grep -H . /sys/class/block/nvme*/queue/scheduler /sys/kernel/mm/transparent_hugepage/enabled
lvm vgs --noheadings; pgrep -lx fio; pgrep -lx nearmetal-probe; virsh domstate web1; true";

/// Who gives back.
enum Giver {
    Rollback,
    NextStart,
}

/// One kill.
struct Moment {
    what: &'static str,
    command: &'static str,
    /// Succeeds when it is there.
    there: &'static str,
    giver: Giver,
}

const SLICE: &str = "slice web1 --plan /root/plan.json --arm planned --no-reasons --quick --pairs 2 --seconds 1 --no-memory --no-single-shots --same-arm-pairs 0 --pause --store /root/killed.sqlite";
/// Few ways, so that it soon gives back: volumes, pages, and a guest that is paused.
const DISKS: &str = "disk read-back web1 --plan /root/plan.json --pause --span 4MiB --without threads --without io_uring \
    --without directsync --without q1 --without virtio-scsi";

const MOMENTS: [Moment; 5] = [
    Moment {
        what: "while clones boot",
        command: SLICE,
        there: "virsh -q list --name | grep -q web1-nearmetal-",
        giver: Giver::Rollback,
    },
    Moment {
        what: "in a sample of bare metal",
        command: SLICE,
        there: "pgrep -x fio >/dev/null",
        giver: Giver::Rollback,
    },
    Moment {
        what: "while it turns from one arm to the next",
        command: SLICE,
        there: "test \"$(nearmetal bench history web1 --store /root/killed.sqlite 2>/dev/null | awk 'END { print $7 + 0 }')\" -ge 3",
        giver: Giver::Rollback,
    },
    Moment {
        what: "with a volume group on the scratch device",
        command: DISKS,
        there: "lvm vgs --noheadings 2>/dev/null | grep -q .",
        giver: Giver::Rollback,
    },
    Moment {
        what: "while it gives back",
        command: DISKS,
        there: "grep -q 'putting everything back' /run/killed.log",
        giver: Giver::NextStart,
    },
];

fn state(bench: &Bench) -> anyhow::Result<String> {
    Ok(bench.fingerprint()? + &bench.sh(&format!("{STATE}{BORROWED}"))? + &bench.sh(&format!("wipefs -n {SCRATCH}"))?)
}

fn five_moments(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh("nearmetal plan web1 -o /root/plan.json >/dev/null")?;
    let before = state(bench)?;
    for Moment { what, command, there, giver } in &MOMENTS {
        let measure = format!("nearmetal bench {command} --scratch {SCRATCH}");
        bench
            .sh(&format!(
                "rm -f /root/killed.sqlite*; {measure} >/run/killed.log 2>&1 & pid=$!
                 until {there}; do kill -0 $pid 2>/dev/null || exit 1; sleep 0.05; done
                 kill -9 $pid && test -e /var/lib/nearmetal/bench.json || {{ cat /run/killed.log >&2; exit 1; }}"
            ))
            .with_context(|| format!("to be killed {what}"))?;
        let held = state(bench)?;
        ensure!(held != before, "{what}: nothing was borrowed at that moment");
        match giver {
            Giver::Rollback => bench.sh("nearmetal rollback"),
            Giver::NextStart => bench.sh(&format!("{measure} -o /root/after.json")),
        }
        .with_context(|| format!("after it was killed {what}"))?;
        let after = state(bench)?;
        ensure!(after == before, "killed {what}, this is left:\n{before}\n---\n{after}");
    }
    Ok(Verdict::Holds(MOMENTS.map(|moment| moment.what).join("; ")))
}

/// As Ctrl-C does it: the guest runs again at once, the plan stays, and the measurement goes on later.
fn told_to_stop(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let before = state(bench)?;
    let said = bench.sh(&format!(
        "rm -f /root/killed.sqlite*; nearmetal bench {SLICE} --scratch {SCRATCH} >/run/killed.log 2>&1 & pid=$!
         until pgrep -x fio >/dev/null; do kill -0 $pid 2>/dev/null || exit 1; sleep 0.05; done
         virsh domstate web1; kill -TERM $pid; wait $pid; echo $?; cat /run/killed.log"
    ))?;
    let words = ["paused", "130", "stopping: the sample that runs", "stopped before the end"];
    let unsaid: Vec<_> = words.into_iter().filter(|word| !said.contains(word)).collect();
    ensure!(unsaid.is_empty(), "{unsaid:?} is not in: {said}");
    let after = state(bench)?;
    ensure!(after == before, "this is left:\n{before}\n---\n{after}");
    bench.sh("nearmetal bench resume 1 --store /root/killed.sqlite -o /root/after.json && nearmetal verify web1")?;
    Ok(Verdict::Holds("stopped in a sample, and resumed".to_owned()))
}
