//! The watch and the timer as their units run them, beside real libvirt. Times are lab seconds, from the system's journal: it
//! gets what libvirt tells and what the watch prints.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::{Case, HOLDS, Verdict, shared, shared_long};
use crate::context::Bench;
use crate::read_back::{Mismatch, entries};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("drift/the-timer-tells-a-difference-and-fails", timer),
        shared_long("drift/a-restarted-guest-is-checked-within-5-s", restarted),
        shared_long("drift/a-pin-set-through-libvirt-is-told-and-its-end-too", pinned),
        shared_long("drift/what-is-paused-saved-and-restored-is-no-drift", paused_and_saved),
        shared_long("drift/the-watch-outlives-a-restart-of-libvirtd", libvirtd_restarted),
    ]
}

/// What the guide promises.
const PROMISE: Duration = Duration::from_secs(5);
/// By how much the figures may seem older than the line before them.
const TICK: Duration = Duration::from_millis(200);
/// For what has no promise: emulated processors are slow.
const PATIENCE: u64 = 120;
const WATCH: &str = include_str!("../../../../packaging/systemd/nearmetal-watch.service");
const TIMER: &str = include_str!("../../../../packaging/systemd/nearmetal-verify.service");
const FIGURES: &str = "/var/lib/prometheus/node-exporter/nearmetal.prom";

/// Both units as they are installed. Lines for people are kept as well.
fn install(bench: &Bench) -> anyhow::Result<()> {
    for (name, unit) in [("nearmetal-watch", WATCH), ("nearmetal-verify", TIMER)] {
        bench.write(&format!("/run/systemd/system/{name}.service"), unit)?;
    }
    bench
        .sh(&format!(
            "set -e; mkdir -p $(dirname {FIGURES}) /run/systemd/system/nearmetal-watch.service.d; rm -f {FIGURES}
             printf '[Service]\\nStandardOutput=journal\\n' > /run/systemd/system/nearmetal-watch.service.d/lines.conf
             ln -sf /usr/local/bin/nearmetal /usr/bin/nearmetal; systemctl daemon-reload"
        ))
        .map(drop)
}

fn removed(bench: &Bench) -> anyhow::Result<()> {
    bench
        .sh("systemctl stop nearmetal-watch lab-events 2>/dev/null; systemctl reset-failed 2>/dev/null
             rm -rf /run/systemd/system/nearmetal-* /usr/bin/nearmetal; systemctl daemon-reload")
        .map(drop)
}

/// The journal's last place: what comes after it is looked for.
fn cursor(bench: &Bench) -> anyhow::Result<String> {
    bench.sh("journalctl -q -n 0 --show-cursor | sed 's/^-- cursor: //'")
}

/// A line in the journal.
#[derive(Debug)]
struct Line {
    /// When the journal got it, since 1970.
    at: Duration,
    text: String,
}

/// The watch, running with `web1` applied, after its first round.
struct Watch<'a> {
    bench: &'a Bench,
}

impl<'a> Watch<'a> {
    /// Starts it, does something with it, and stops it whatever came of that.
    fn with<T>(bench: &'a Bench, body: impl Fn(&Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        bench.applied()?;
        install(bench)?;
        let watch = Self { bench };
        let result = watch.start().and_then(|()| body(&watch));
        removed(bench)?;
        result
    }

    fn start(&self) -> anyhow::Result<()> {
        self.listen()?;
        self.bench.sh(&format!(
            "systemctl start nearmetal-watch; end=$(($(date +%s) + {PATIENCE}))
             until test -e {FIGURES}; do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done"
        ))?;
        self.figures_say(&BTreeSet::new())
    }

    /// Has libvirt's events written into the journal, until its daemon ends.
    fn listen(&self) -> anyhow::Result<()> {
        self.bench
            .sh("systemctl stop lab-events 2>/dev/null; systemctl reset-failed lab-events 2>/dev/null
                 systemd-run -q --collect --unit=lab-events stdbuf -oL virsh -q event --event lifecycle --loop && sleep 3")
            .map(drop)
    }

    /// Lines of a unit since then, oldest first.
    fn lines(&self, unit: &str, cursor: &str) -> anyhow::Result<Vec<Line>> {
        let text = self.bench.sh(&format!("journalctl -q --all -o json -u {unit} --after-cursor='{cursor}'; true"))?;
        let line = |text: &str| {
            let entry: Value = serde_json::from_str(text)?;
            let at = entry["__REALTIME_TIMESTAMP"].as_str().context("an entry without a time")?.parse()?;
            Ok(Line { at: Duration::from_micros(at), text: entry["MESSAGE"].as_str().unwrap_or_default().to_owned() })
        };
        text.lines().map(line).collect()
    }

    /// The first line of a unit since then that says so; waits for it.
    fn line(&self, unit: &str, cursor: &str, says: &str) -> anyhow::Result<Line> {
        let waited = self.bench.try_sh(&format!(
            "end=$(($(date +%s) + {PATIENCE}))
             until journalctl -q -o cat -u {unit} --after-cursor='{cursor}' | grep -qF '{says}'
             do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done"
        ))?;
        let lines = self.lines(unit, cursor)?;
        ensure!(waited.success(), "{unit} did not say `{says}` within {PATIENCE} s: {lines:#?}");
        let line = lines.into_iter().find(|line| line.text.contains(says)).context("the journal forgot a line")?;
        if unit == "nearmetal-watch" {
            // Behind its line come entries of the journal, and last the figures. The journal stamps a line when it reads it, a
            // file has the time of the clock's last tick: a moment is allowed for.
            self.bench.sh(&format!(
                "end=$(($(date +%s) + {PATIENCE}))
                 until [ $(stat -c %.6Y {FIGURES} | tr -d .) -gt {} ]; do [ $(date +%s) -lt $end ] || exit 1; sleep 0.2; done
                 journalctl --sync",
                line.at.saturating_sub(TICK).as_micros()
            ))?;
        }
        Ok(line)
    }

    /// How long after libvirt's event the watch told of it.
    fn told_after(&self, cursor: &str, event: &str, says: &str) -> anyhow::Result<Duration> {
        let told = self.line("nearmetal-watch", cursor, says)?;
        let event = self.line("lab-events", cursor, event)?;
        Ok(told.at.saturating_sub(event.at))
    }

    /// Differences in the journal since then, as `journalctl -t nearmetal` has them.
    fn differences(&self, cursor: &str) -> anyhow::Result<Vec<Mismatch>> {
        entries(&self.bench.sh(&format!("journalctl -q --all -o json -t nearmetal --after-cursor='{cursor}'; true"))?)
    }

    /// Everything in the figures is as planned but these kinds of checks.
    fn figures_say(&self, differ: &BTreeSet<&str>) -> anyhow::Result<()> {
        let text = self.bench.sh(&format!("cat {FIGURES}"))?;
        let line = |kind: &&str| format!("nearmetal_verify_ok{{domain=\"web1\",check=\"{kind}\"}} 0");
        let expected: Vec<String> = differ.iter().map(line).collect();
        let ok: Vec<&str> = text.lines().filter(|line| line.starts_with("nearmetal_verify_ok{")).collect();
        let wrong: Vec<&str> = ok.iter().filter(|line| line.ends_with(" 0")).copied().collect();
        ensure!(wrong == expected && text.contains("nearmetal_verify_completed 1\n"), "{wrong:#?}, not {expected:#?}");
        ensure!(ok.iter().any(|line| line.contains("domain=\"web1\",check=\"vcpu\"")), "the guest is missing: {text}");
        Ok(())
    }

    /// What the journal has since then is a vCPU elsewhere, in the kernel and in these definitions, and the figures say the same.
    fn vcpu_is_on_5(&self, cursor: &str, definitions: &[&str]) -> anyhow::Result<String> {
        let told = self.differences(cursor)?;
        let kinds: BTreeSet<&str> = told.iter().map(|one| one.kind.as_str()).collect();
        let mut expected: BTreeSet<&str> = definitions.iter().copied().chain(["vcpu"]).collect();
        // KVM's own thread is a child of the vCPU that ran first, and stays where that one is.
        if told.iter().any(|one| one.names("web1", &["thread of KVM", "(helper)", "found PUs 5"])) {
            expected.insert("helper");
        }
        ensure!(kinds == expected, "not {expected:?}: {told:#?}");
        let vcpu = told.iter().find(|one| one.names("web1", &["vCPU 0", "(vcpu)", "found PUs 5"]));
        let vcpu = vcpu.with_context(|| format!("no vCPU is told: {told:#?}"))?;
        self.figures_say(&expected)?;
        Ok(vcpu.to_string())
    }

    /// Nothing was told as a difference since then, in no place.
    fn all_is_well(&self, cursor: &str) -> anyhow::Result<()> {
        let told = self.differences(cursor)?;
        ensure!(told.is_empty(), "a false alarm: {told:#?}");
        let lines = self.lines("nearmetal-watch", cursor)?;
        ensure!(!lines.iter().any(|line| line.text.contains(": planned ")), "a false alarm: {lines:#?}");
        self.figures_say(&BTreeSet::new())
    }
}

fn within(took: Duration, what: &str) -> anyhow::Result<String> {
    ensure!(
        took <= PROMISE,
        "{what} was told {:.1} s after libvirt's event, {} s at most",
        took.as_secs_f64(),
        PROMISE.as_secs()
    );
    Ok(format!("{what}: {:.1} s", took.as_secs_f64()))
}

fn restarted(bench: &Bench) -> anyhow::Result<Verdict> {
    let restart = "virsh -q destroy web1; virsh -q start web1";
    Watch::with(bench, |watch| {
        let since = cursor(bench)?;
        bench.sh(restart)?;
        let took = watch.told_after(&since, "Started", "  started  web1: nothing differs")?;
        let as_planned = within(took, "as planned")?;
        watch.all_is_well(&since)?;
        // Somebody's definition moves a vCPU; the running guest keeps its place until it starts anew.
        bench.sh("virsh dumpxml --inactive web1 > /root/s.xml
             sed \"s/<vcpupin vcpu='0' cpuset='[^']*'/<vcpupin vcpu='0' cpuset='5'/\" /root/s.xml > /root/t.xml
             ! cmp -s /root/s.xml /root/t.xml && virsh -q define /root/t.xml")?;
        let since = cursor(bench)?;
        bench.sh(restart)?;
        let took = watch.told_after(&since, "Started", "  started  web1: vCPU 0")?;
        let elsewhere = within(took, "with a vCPU elsewhere")?;
        watch.vcpu_is_on_5(&since, &["live-definition", "stored-definition"])?;
        bench.sh("virsh -q define /root/s.xml")?;
        let since = cursor(bench)?;
        bench.sh(restart)?;
        let took = watch.told_after(&since, "Started", "  started  web1: nothing differs")?;
        let again = within(took, "as planned again")?;
        watch.all_is_well(&since)?;
        Ok(Verdict::Holds(format!("after libvirt's event, {as_planned}, {elsewhere}, {again}; lab: emulated time")))
    })
}

fn pinned(bench: &Bench) -> anyhow::Result<Verdict> {
    Watch::with(bench, |watch| {
        let pu = bench.sh("virsh -q vcpupin web1 --vcpu 0 | awk '{print $2}'")?;
        let since = cursor(bench)?;
        bench.sh("virsh -q vcpupin web1 0 5 --live")?;
        watch.line("nearmetal-watch", &since, "  tuned  web1: vCPU 0")?;
        let told = watch.vcpu_is_on_5(&since, &["live-definition"])?;
        // A guest that is tuned again and again is looked at once a minute.
        let since = cursor(bench)?;
        bench.sh(&format!("virsh -q vcpupin web1 0 {} --live", pu.trim()))?;
        watch.line("nearmetal-watch", &since, "  tuned  web1: nothing differs")?;
        watch.all_is_well(&since)?;
        Ok(Verdict::Holds(told))
    })
}

fn paused_and_saved(bench: &Bench) -> anyhow::Result<Verdict> {
    Watch::with(bench, |watch| {
        let since = cursor(bench)?;
        bench.sh("virsh -q suspend web1; sleep 8; virsh -q resume web1")?;
        watch.line("nearmetal-watch", &since, "  resumed  web1: nothing differs")?;
        watch.all_is_well(&since)?;
        let lines = watch.lines("nearmetal-watch", &since)?;
        ensure!(
            !lines.iter().any(|line| line.text.contains("  suspended  ")),
            "a paused guest is left alone: {lines:#?}"
        );
        let since = cursor(bench)?;
        bench.sh("virsh -q managedsave web1 && sleep 8 && virsh -q start web1")?;
        watch.line("nearmetal-watch", &since, "  stopped  web1: nothing differs")?;
        watch.line("nearmetal-watch", &since, "  started  web1: nothing differs")?;
        watch.all_is_well(&since)?;
        let events: Vec<String> = watch.lines("lab-events", &since)?.into_iter().map(|line| line.text).collect();
        ensure!(events.iter().any(|event| event.contains("Restored")), "it was not restored: {events:#?}");
        Ok(HOLDS)
    })
}

fn libvirtd_restarted(bench: &Bench) -> anyhow::Result<Verdict> {
    Watch::with(bench, |watch| {
        let process = "systemctl show -p MainPID -p ActiveState -p NRestarts nearmetal-watch";
        let before = bench.sh(process)?;
        let since = cursor(bench)?;
        let stamp = format!("grep ^nearmetal_verify_timestamp_seconds {FIGURES}");
        let old = bench.sh(&stamp)?;
        bench.sh(&format!(
            "systemctl restart libvirtd; virsh list >/dev/null; end=$(($(date +%s) + {PATIENCE}))
             until [ \"$({stamp})\" != '{}' ]; do [ $(date +%s) -lt $end ] || exit 1; sleep 1; done",
            old.trim()
        ))?;
        watch.line("nearmetal-watch", &since, "everything is checked once libvirt answers")?;
        watch.all_is_well(&since)?;
        watch.listen()?;
        let since = cursor(bench)?;
        bench.sh("virsh -q destroy web1; virsh -q start web1")?;
        let took = watch.told_after(&since, "Started", "  started  web1: nothing differs")?;
        let verdict = within(took, "a restart of the guest afterwards")?;
        let after = bench.sh(process)?;
        ensure!(before == after && after.contains("ActiveState=active"), "{before} became {after}");
        // The timer rests meanwhile. systemd forgets how a unit ended that nothing keeps loaded; the journal does not.
        let since = cursor(bench)?;
        let rested = bench.sh(&format!(
            "systemctl start nearmetal-verify; journalctl --sync
             journalctl -q -o cat -u nearmetal-verify --after-cursor='{since}'"
        ))?;
        ensure!(rested.contains("Skipped due to 'exec-condition'"), "{rested}");
        Ok(Verdict::Holds(format!("{verdict}; lab: emulated time")))
    })
}

fn timer(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    install(bench)?;
    let watch = Watch { bench };
    let result = (|| {
        bench.sh("systemctl start nearmetal-verify")?;
        watch.figures_say(&BTreeSet::new())?;
        let pu = bench.sh("virsh -q vcpupin web1 --vcpu 0 | awk '{print $2}'")?;
        let since = cursor(bench)?;
        bench.sh("virsh -q vcpupin web1 0 5 --live")?;
        let started = bench.try_sh("systemctl start nearmetal-verify")?;
        let state = bench.sh("systemctl show -p ActiveState -p ExecMainStatus nearmetal-verify")?;
        let told = watch.vcpu_is_on_5(&since, &["live-definition"]);
        bench.sh(&format!("virsh -q vcpupin web1 0 {} --live", pu.trim()))?;
        ensure!(
            !started.success() && state.contains("ActiveState=failed") && state.contains("ExecMainStatus=1"),
            "{state}"
        );
        Ok(Verdict::Holds(told?))
    })();
    removed(bench)?;
    result
}
