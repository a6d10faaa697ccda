//! Runs of users without root: the guest is inside the job's control group, and nothing is left of it either.

use anyhow::ensure;
use nearmetal_units::CpuSet;
use serde_json::Value;

use super::super::{Case, HOLDS, Verdict, shared, shared_long};
use super::{FLAVOURS, flavours};
use crate::context::Bench;

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("run/session/passes-on-code-and-output-and-is-charged-to-the-job", charged),
        shared_long("run/session/killed-it-leaves-nothing", killed),
        shared_long("run/session/an-image-stays-as-it-is", image),
        shared_long("run/session/runs-of-two-users-and-root-share-no-pu", together),
        shared("run/session/refuses-what-takes-root-before-it-takes-anything", refusals),
        shared_long("run/session/what-a-hostile-user-leaves-harms-nobody", hostile),
        shared_long("run/session/what-a-hostile-user-holds-and-pretends-harms-nobody", held),
    ]
}

/// A run of a user's, as a program of a shell. `exec` makes the shell's background process the run itself.
pub(super) fn run(user: &str, words: &str) -> String {
    format!(
        "setpriv --reuid {user} --regid {user} --init-groups --reset-env nearmetal run --flavours /var/tmp/flavours.toml {words}"
    )
}

/// Users who may use KVM, and one who may not.
pub(super) fn users(bench: &Bench) -> anyhow::Result<()> {
    bench.write("/var/tmp/flavours.toml", FLAVOURS)?;
    bench.sh("for user in alice bob; do id $user >/dev/null 2>&1 || useradd -m -G kvm $user; done
         id carol >/dev/null 2>&1 || useradd -m carol; chmod 644 /var/tmp/flavours.toml")?;
    Ok(())
}

/// What would show that something of a user's run is still there.
const LEFT: &str = "pgrep -l -u alice; pgrep -l -u bob; ls /run/nearmetal/runs | grep -vx lock; ls -d /tmp/nearmetal-* 2>/dev/null; true";

/// The users, the flavours, and the directory as the package makes it.
pub(super) fn set_up(bench: &Bench) -> anyhow::Result<()> {
    flavours(bench)?;
    users(bench)?;
    bench.sh(
        "rm -rf /run/nearmetal/runs /tmp/nearmetal-* /var/tmp/events-*
         install -d -m 755 /run/nearmetal && install -d -m 3770 -g kvm /run/nearmetal/runs && install -m 640 -g kvm /dev/null /run/nearmetal/runs/lock",
    )?;
    Ok(())
}

pub(super) fn nothing_is_left(bench: &Bench, after: &str) -> anyhow::Result<()> {
    let left = bench.sh(LEFT)?;
    ensure!(left.is_empty(), "left after {after}: {left}");
    Ok(())
}

/// Waits until a run has begun its command, by its events.
pub(super) const BEGUN: &str =
    "for i in $(seq 600); do grep -q command-started $events 2>/dev/null && break; sleep 1; done
    grep -q command-started $events || { cat $events /var/tmp/said 2>/dev/null; exit 99; }";

fn charged(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    let job = "systemd-run -q --uid=alice --gid=alice --pipe --wait -p AllowedCPUs=2-5 nearmetal run tiny --flavours /var/tmp/flavours.toml";
    let inside = "nproc; echo on the console >/dev/ttyS0; echo err >&2; exit 7";
    let text = bench.ends_with(7, &format!("{job} --console - -- sh -c '{inside}'"))?;
    ensure!(text.starts_with("1\n") && text.contains("\nerr") && text.contains("on the console"), "{text}");
    nothing_is_left(bench, "a run")?;
    // The unit's processor time has that of QEMU in it, and QEMU's threads stay inside what the unit was given.
    let text = bench.sh(&format!(
        "events=/var/tmp/events-alice
         systemd-run -q --uid=alice --gid=alice --unit=job -p CPUAccounting=yes -p AllowedCPUs=2-5 nearmetal run tiny \
             --flavours /var/tmp/flavours.toml --events $events -- sleep 600
         {BEGUN}
         qemu=$(pgrep -u alice -f '[g]uest=run-tiny'); cut -d: -f3 /proc/$qemu/cgroup
         systemctl show -p ControlGroup --value job
         awk '{{print ($14 + $15) * 10000000}}' /proc/$qemu/stat; systemctl show -p CPUUsageNSec --value job
         grep -h Cpus_allowed_list /proc/$qemu/task/*/status | cut -f2 | sort -u | paste -sd,
         systemctl stop job"
    ))?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.len() == 5 && lines[0] == lines[1] && lines[0].ends_with("/job.service"), "{text}");
    let (of_qemu, of_unit): (f64, f64) = (lines[2].parse()?, lines[3].parse()?);
    ensure!(of_qemu > 0.0 && of_unit >= of_qemu, "{text}");
    ensure!(lines[4].parse::<CpuSet>()?.is_subset(&"2-5".parse()?), "{text}");
    bench.sh("sleep 10")?;
    bench.sh(&run("alice", "tiny -- true"))?;
    nothing_is_left(bench, "systemctl stop, and the run after it")?;
    Ok(HOLDS)
}

fn killed(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    let waiting = format!(
        "events=/var/tmp/events-alice; rm -f $events; {} 2>/var/tmp/said & run=$!; {BEGUN}\n",
        run("alice", "tiny --events $events -- sleep 600")
    );
    // Who dies, the code of a run that lives, and whether the next run has something to remove.
    for (who, kill, code) in [
        ("QEMU", "pkill -9 -u alice -f '[g]uest=run-tiny'", Some("3")),
        ("libvirt's daemon", "pkill -9 -u alice -x 'libvirtd|virtqemud'", Some("3")),
        ("the helper", "pkill -9 -u alice -f '[n]earmetal-libvirt'", Some("3")),
        ("all but the run", "pkill -TERM -u alice", Some("143")),
        ("the run", "kill -9 $run", None),
        ("the run and libvirt's daemon", "kill -9 $run; pkill -9 -u alice -x 'libvirtd|virtqemud'", None),
    ] {
        let ended = bench.sh(&format!("{waiting}{kill}; wait $run; echo $?; cat /var/tmp/said"))?;
        if let Some(code) = code {
            ensure!(ended.lines().next() == Some(code), "{who}: {ended}");
        } else {
            // Its daemon ends by itself, after the guest; what is left then is the next run's to remove.
            bench.sh("sleep 20")?;
            if !who.contains("daemon") {
                let processes = bench.sh("pgrep -l -u alice; true")?;
                ensure!(processes.is_empty(), "{who}: {processes}");
            }
            bench.sh(&run("alice", "tiny -- true"))?;
        }
        nothing_is_left(bench, who)?;
    }
    Ok(HOLDS)
}

fn image(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    bench.write(
        "/var/tmp/disk.toml",
        "[[flavour]]\nname = \"disk\"\nvcpus = 1\nmemory = \"256 MiB\"\nboot = \"kernel\"\nnetwork = \"user\"\n\
         kernel = \"/var/tmp/boot/vmlinuz\"\ninitrd = \"/var/tmp/boot/small.cpio\"\ncommand-line = \"console=ttyS0 quiet\"\n",
    )?;
    bench.write("/root/here.toml", "[[host]]\nname = \"here\"\nlocal = true\n")?;
    bench.sh(
        "rm -rf /var/tmp/images; qemu-img create -q -f qcow2 /root/base.qcow2 64M && qemu-io -c 'write -P 7 0 1M' /root/base.qcow2
         install -D -m 644 -t /var/tmp/boot /var/lib/libvirt/boot/vmlinuz /var/lib/libvirt/boot/small.cpio
         nearmetal image push /root/base.qcow2 --fleet /root/here.toml --directory /var/tmp/images; chmod 644 /var/tmp/disk.toml
         find /var/tmp/images -printf '%p %u %m\\n' | sort >/root/before",
    )?;
    let words = "disk --image base.qcow2 --flavours /var/tmp/disk.toml --directory /var/tmp/images -- sh -c";
    let run = run("alice", words).replace("--flavours /var/tmp/flavours.toml ", "");
    let inside =
        "head -c 1 /dev/vda | od -An -tu1; echo x | dd of=/dev/vda bs=512 conv=fsync 2>/dev/null; head -c 1 /dev/vda";
    let text = bench.sh(&format!("{run} '{inside}'"))?;
    ensure!(text.split_whitespace().eq(["7", "x"]), "{text}");
    bench.sh("nearmetal image verify --directory /var/tmp/images && find /var/tmp/images -printf '%p %u %m\\n' | sort | cmp - /root/before")?;
    nothing_is_left(bench, "a run with an image")?;
    Ok(HOLDS)
}

fn together(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    let (alice, bob) = (
        run("alice", "tiny --events /var/tmp/events-1 -- sleep 20"),
        run("bob", "tiny --events /var/tmp/events-2 -- sleep 20"),
    );
    let events = bench.sh(&format!(
        "{alice} & {bob} & nearmetal run tiny --flavours /var/tmp/flavours.toml --events /var/tmp/events-3 -- sleep 20 & wait
         cat /var/tmp/events-1 /var/tmp/events-2 /var/tmp/events-3"
    ))?;
    let read = |line: &str| serde_json::from_str::<Value>(line).ok()?["cpus"].as_str()?.parse::<CpuSet>().ok();
    let sets: Vec<CpuSet> = events.lines().filter_map(read).collect();
    let all = sets.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    ensure!(sets.len() == 3 && all.len() == sets.iter().map(CpuSet::len).sum::<usize>(), "{sets:?}: {events}");
    ensure!(events.matches("\"outcome\":\"exited\",\"code\":0").count() == 3, "{events}");
    nothing_is_left(bench, "three runs at once")?;
    Ok(HOLDS)
}

fn refusals(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    for (user, words, says) in [
        ("alice", "pages -- true", "pages of 2 MiB from a hugepage pool, which only root can give it"),
        ("alice", "bridged -- true", "the bridge `br-missing`"),
        ("alice", "tiny --mode system -- true", "--flavours is the service's to say"),
        ("carol", "tiny -- true", "usermod -aG kvm carol"),
    ] {
        let text = bench.ends_with(3, &run(user, words))?;
        ensure!(text.contains(says), "{words}: {text}");
    }
    // The guest fits below the limit, and QEMU beside it does not.
    let job = "systemd-run -q --uid=alice --gid=alice --pipe --wait -p MemoryMax=300M nearmetal run tiny --flavours /var/tmp/flavours.toml";
    let text = bench.ends_with(3, &format!("{job} -- true"))?;
    ensure!(text.contains("needs 256 MiB beside it"), "{text}");
    bench.ends_with(3, "nearmetal run tiny --flavours /var/tmp/flavours.toml --mode session -- true")?;
    nothing_is_left(bench, "refusals")?;
    bench.sh("rm -rf /run/nearmetal/runs")?;
    let text = bench.ends_with(3, &run("alice", "tiny -- true"))?;
    ensure!(text.contains("systemd-tmpfiles --create nearmetal.conf"), "{text}");
    Ok(HOLDS)
}

fn hostile(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    // A link, a pipe, all PUs without a run, pages of a pool to be set back, and text for the terminal.
    let line = r#"{"schema":"nearmetal.reservation/2","name":"run-evil","uuid":"u","flavour":"a","pid":1,"since":"x","cpus":"0-4095",
        "memory":[],"limits":[],"page_size":null,"image":null,"pools":[{"node":0,"size":2097152,"before":7,"after":9,"state":"growing","back_to":7}]}"#;
    bench.write("/var/tmp/evil", &format!("{}\n", line.replace('\n', "")))?;
    bench.sh(
        "cd /run/nearmetal/runs && chmod 644 /var/tmp/evil && sha256sum /etc/shadow >/root/shadow
         setpriv --reuid bob --regid bob --init-groups sh -c 'ln -s /etc/shadow run-link.run; mkfifo run-pipe.run
             cp /var/tmp/evil run-evil.run; head -c 100 /dev/urandom >run-noise.run; ! rm -f lock 2>/dev/null; ! mv lock x 2>/dev/null'",
    )?;
    bench.sh("nearmetal run tiny --flavours /var/tmp/flavours.toml -- true && nearmetal run --list >/dev/null")?;
    bench.sh(&run("alice", "tiny -- true"))?;
    // Root's run has forgotten what said that it was a run and is none, and set no pool back for it; what it cannot read stays.
    bench.sh(
        "sha256sum --quiet -c /root/shadow && test $(cat /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages) = 0
         test -e /run/nearmetal/runs/lock && ls /run/nearmetal/runs | grep -c '^run-' | grep -qx 3 && test ! -e /run/nearmetal/runs/run-evil.run && rm /run/nearmetal/runs/run-*",
    )?;
    nothing_is_left(bench, "a hostile user")?;
    Ok(HOLDS)
}

/// A lease on a file of his own: F_SETLEASE, F_WRLCK (fcntl(2)).
const LEASE: &str = "open(my $file, '+>', '/run/nearmetal/runs/run-lease.run') or die; $SIG{IO} = 'IGNORE';
fcntl($file, 1024, 1) or die \"no lease: $!\"; sleep 600;
";

fn held(bench: &Bench) -> anyhow::Result<Verdict> {
    set_up(bench)?;
    bench.write("/var/tmp/lease.pl", LEASE)?;
    // Carol is not in the group: she can neither open nor hold anything. Bob is: he holds what he may read, has a lease, and starts a
    // process that looks like the guest of each run. What Alice's killed run left is given back in spite of all.
    bench.sh(&format!(
        "chmod 644 /var/tmp/lease.pl; as() {{ user=$1; shift; setpriv --reuid $user --regid $user --init-groups \"$@\"; }}
         if as carol sh -c 'ls /run/nearmetal/runs || : </run/nearmetal/runs/lock' 2>/dev/null; then echo carol; exit 98; fi
         events=/var/tmp/events-alice; rm -f $events; {} 2>/var/tmp/said & run=$!; {BEGUN}
         file=$(ls /run/nearmetal/runs/run-*.run); uuid=$(tail -n 1 $file | grep -o '\"uuid\":\"[^\"]*' | cut -d'\"' -f4)
         bobs() {{ systemd-run -q --uid=bob --gid=bob --unit=bobs-$1 -- \"$2\" \"$3\" \"$4\"; }}
         bobs lock sh -c \"exec 9<$file; flock 9; exec sleep 600\"
         bobs lease perl -w /var/tmp/lease.pl
         bobs qemu bash -c \"exec -a qemu-system-x86_64 bash -c 'sleep 600; true' -uuid $uuid\"
         sleep 2; kill -9 $run; sleep 20; systemctl is-active bobs-lock bobs-lease bobs-qemu",
        run("alice", "tiny --events $events -- sleep 600")
    ))?;
    let listed = bench.sh("nearmetal run --list 2>&1")?;
    ensure!(listed.contains("killed, and not given back yet: run-tiny-"), "{listed}");
    bench.sh("nearmetal run tiny --flavours /var/tmp/flavours.toml -- true")?;
    bench.sh(&run("alice", "tiny -- true"))?;
    let left = bench.sh("pgrep -l -u alice; ls /run/nearmetal/runs | grep -vx -e lock -e run-lease.run; pgrep -u bob -f '[q]emu-system' >/dev/null || echo ended; true")?;
    bench.sh("systemctl stop bobs-lock bobs-lease bobs-qemu; rm -f /run/nearmetal/runs/run-lease.run")?;
    ensure!(left.is_empty(), "{left}");
    nothing_is_left(bench, "a user who holds and pretends")?;
    Ok(HOLDS)
}
