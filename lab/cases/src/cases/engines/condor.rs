//! HTCondor: ordinary jobs over two labs, and what its users and administrators do to them meanwhile.

use anyhow::{Context, ensure};
use nearmetal_lab::image::Layer;

use super::super::Verdict;
use super::evidence::{Share, check, gather};
use super::farm::{Farm, on};
use super::jobs::{End, HELD, Job, LONG, PREEMPTED, REMOVED, RESTARTED, URGENT, wanted};

const SETUP: &str = include_str!("condor.sh");
const CONFIG: &str = include_str!("../../../../../packaging/examples/condor/nearmetal.config");

/// HTCondor takes no jobs of root's, and has none over two hosts: those are ordinary ones here.
fn jobs() -> anyhow::Result<Vec<Job>> {
    let own = |job: Job| match job.user {
        "root" => Job { user: "farm", system: false, flavour: "tiny", ..job },
        _ => job,
    };
    Ok(wanted()?.into_iter().map(own).collect())
}

pub(super) fn a_queue() -> anyhow::Result<Verdict> {
    on(Layer::Condor, |farm| {
        set_up(farm)?;
        let jobs = jobs()?;
        let (urgent, others): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.name == URGENT);
        submit(farm, &others)?;
        remove_while_it_boots(farm)?;
        hold_and_release(farm)?;
        evict(farm, &urgent)?;
        restart_schedd(farm)?;
        drain(farm)?;
        farm.wait(
            "an empty queue",
            "left=$(condor_q -all -af FarmName) && [ -z \"$left\" ]",
            "condor_q -all -nobatch; condor_status",
        )?;
        check(&jobs, &gather(farm)?, Share::AtLeast)?;
        let table = accounted(farm, &jobs)?;
        farm.nothing_is_left()?;
        Ok(Verdict::Holds(table))
    })
}

/// Both hosts, until each says which flavours it has.
fn set_up(farm: &Farm) -> anyhow::Result<()> {
    for ((name, host), daemons) in farm.hosts().into_iter().zip(["COLLECTOR NEGOTIATOR SCHEDD", ""]) {
        host.sh("mkdir -p /root/examples")?;
        host.write("/root/examples/nearmetal.config", CONFIG)?;
        host.write("/root/condor.sh", SETUP)?;
        host.sh(&format!("sh /root/condor.sh '{daemons}'")).with_context(|| format!("HTCondor on {name}"))?;
    }
    let both = "[ $(condor_status -constraint 'PartitionableSlot && stringListMember(\"wide\", NearmetalFlavours) && stringListMember(\"function\", NearmetalFlavoursOfService)' -af Machine | wc -l) = 2 ]";
    farm.wait(
        "two hosts with flavours",
        both,
        "condor_status -af Machine NearmetalFlavours; tail -n 20 /var/log/condor/MasterLog",
    )
}

fn submit(farm: &Farm, jobs: &[&Job]) -> anyhow::Result<()> {
    let mut text = r#"universe = vanilla
executable = /usr/local/bin/farm-job
transfer_executable = false
arguments = "$(name) $(flavour) '$(command)'"
batch_name = $(name)
request_cpus = $(cpus)
request_memory = $(memory)
request_disk = 1024
requirements = (stringListMember("$(flavour)", TARGET.NearmetalFlavours) || stringListMember("$(flavour)", TARGET.NearmetalFlavoursOfService)) && ("$(where)" == "any" || TARGET.Machine == "$(where)")
should_transfer_files = yes
when_to_transfer_output = on_exit
log = /srv/jobs/log
kill_sig = SIGTERM
job_max_vacate_time = 60
priority = $(level)
hold = $(held)
+FarmName = "$(name)"
queue name, flavour, cpus, memory, where, level, held, command from (
"#
    .to_owned();
    for job in jobs {
        let Job { name, flavour, cpus, memory, command, .. } = job;
        let (place, level) = match name.as_str() {
            REMOVED | LONG | RESTARTED => ("farm-a", 50),
            PREEMPTED => ("farm-b", 50),
            URGENT => ("farm-b", 100),
            _ => ("any", 0),
        };
        let held = name == HELD;
        text += &format!("{name} {flavour} {cpus} {memory} {place} {level} {held} {command}\n");
    }
    farm.a.write("/srv/jobs/jobs.submit", &(text + ")\n"))?;
    farm.a.sh("cd /srv/jobs && chmod 644 jobs.submit && setpriv --reuid farm --regid farm --init-groups --reset-env condor_submit jobs.submit").map(drop)
}

/// Its guest has started and does not answer yet: the job goes, and its guest with it.
fn remove_while_it_boots(farm: &Farm) -> anyhow::Result<()> {
    let remove = format!("condor_rm -constraint 'FarmName == \"{REMOVED}\"'");
    farm.interrupt(REMOVED, "started", &remove, "condor_q -all -nobatch; condor_q -all -better-analyze | tail -n 40")
}

/// An administrator evicts a run while a job of a higher priority waits for its host: that one runs first, and the run begins anew.
fn evict(farm: &Farm, urgent: &[&Job]) -> anyhow::Result<()> {
    farm.b.sh(&format!(
        "for i in $(seq 600); do grep -qs command-started /srv/jobs/{PREEMPTED}.events && exit 0; sleep 1; done; exit 1"
    ))?;
    submit(farm, urgent)?;
    farm.a.sh(&format!("condor_vacate_job -constraint 'FarmName == \"{PREEMPTED}\"'"))?;
    let gone = format!("left=$(condor_q -all -constraint 'FarmName == \"{URGENT}\"' -af FarmName) && [ -z \"$left\" ]");
    farm.wait("the urgent job", &gone, "condor_q -all -nobatch")
}

/// A run that is held ends its guest, and begins anew when it is released.
fn hold_and_release(farm: &Farm) -> anyhow::Result<()> {
    let hold = format!("condor_hold -constraint 'FarmName == \"{LONG}\"'");
    farm.interrupt(LONG, "command-started", &hold, "condor_q -all -nobatch")?;
    farm.a.sh(&format!("condor_release -constraint 'FarmName == \"{LONG}\" || FarmName == \"{HELD}\"'")).map(drop)
}

/// Guests run on while the daemon that has the queue is started anew.
fn restart_schedd(farm: &Farm) -> anyhow::Result<()> {
    farm.lives_through(RESTARTED, || {
        farm.a.sh("condor_restart -fast -daemon schedd && sleep 10")?;
        farm.wait("the schedd", "condor_q -all > /dev/null 2>&1", "tail -n 20 /var/log/condor/SchedLog")?;
        // It has found its job again.
        let runs = format!(
            "condor_q -all -constraint 'FarmName == \"{RESTARTED}\" && JobStatus == 2' -af FarmName | grep -q ."
        );
        farm.wait("a job that the schedd knows", &runs, "condor_q -all -nobatch; tail -n 20 /var/log/condor/SchedLog")
    })?;
    farm.a.sh(&format!("condor_rm -constraint 'FarmName == \"{RESTARTED}\"'")).map(drop)
}

/// A drained host has no guests; then it is back.
fn drain(farm: &Farm) -> anyhow::Result<()> {
    farm.a.sh("condor_drain -graceful slot1@farm-b")?;
    let drained = "condor_status -constraint 'PartitionableSlot && Machine == \"farm-b\"' -af State | grep -qx Drained";
    farm.wait("a drained host", drained, "condor_status; condor_q -all -nobatch")?;
    farm.has_no_guests(&farm.b)?;
    farm.a.sh("condor_drain -cancel slot1@farm-b").map(drop)
}

/// What HTCondor has written down of each job: its end, and the guest's processor time and memory.
fn accounted(farm: &Farm, jobs: &[Job]) -> anyhow::Result<String> {
    let log = farm.a.sh("cat /srv/jobs/log")?;
    let text = farm.a.sh(
        "condor_history -af:t FarmName JobStatus ExitCode RemoteUserCpu RemoteSysCpu ResidentSetSize_RAW ClusterId ProcId LastRemoteHost",
    )?;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let mut table = vec![format!("{:<12} {:<7} {:<9} {:>8} {:>10}  host", "job", "flavour", "code", "CPU", "memory")];
    for job in jobs {
        let name = job.name.as_str();
        let row = rows.iter().find(|row| row.len() == 9 && row[0] == name);
        let row = row.with_context(|| format!("condor_history lacks `{name}`: {text}"))?;
        let number = |column: usize| row[column].parse::<f64>().unwrap_or(0.0);
        let (seconds, memory) = (number(3) + number(4), number(5) / 1024.0);
        match job.end {
            // 4 is completed, 3 removed.
            End::Code(code) => {
                ensure!(row[1] == "4" && row[2] == code.to_string(), "`{name}`: {row:?}");
                let is_charged = !job.system;
                ensure!(!is_charged || seconds >= 1.0, "the guest's processor time is not the job's: {row:?}");
                ensure!(!is_charged || memory >= 64.0, "the guest's memory is not the job's: {row:?}");
            }
            End::Removed => ensure!(row[1] == "3", "`{name}`: {row:?}"),
        }
        let host = row[8].rsplit('@').next().unwrap_or_default();
        table.push(format!("{name:<12} {:<7} {:<9} {seconds:>6.1} s {memory:>6.0} MiB  {host}", job.flavour, row[2]));
    }
    let of = |name: &str| rows.iter().find(|row| row.len() == 9 && row[0] == name).map(|row| (row[6], row[7]));
    let (evicted, urgent) = of(PREEMPTED).zip(of(URGENT)).context("condor_history lacks a job")?;
    ensure!(
        is_in_order(&log, evicted, urgent),
        "`{PREEMPTED}` was not evicted for `{URGENT}`, or began anew first:\n{log}"
    );
    Ok(format!("{}\nlab: emulated time", table.join("\n")))
}

/// Whether by the users' log one job was evicted (event 004), then the other began (001), and then the first began anew. Each by cluster
/// and process. HTCondor's own count of starts is 1 here.
fn is_in_order(log: &str, evicted: (&str, &str), urgent: (&str, &str)) -> bool {
    let after = |from: usize, event: &str, (cluster, process): (&str, &str)| {
        let line = format!("{event} ({cluster:0>3}.{process:0>3}.000)");
        log[from..].find(&line).map(|place| from + place)
    };
    let eviction = after(0, "004", evicted);
    let began = eviction.and_then(|from| after(from, "001", urgent));
    began.is_some_and(|from| after(from, "001", evicted).is_some())
        && eviction.and_then(|from| after(from, "001", evicted)) > began
}

#[cfg(test)]
mod tests {
    use super::is_in_order;

    #[test]
    fn an_eviction_is_one_only_if_the_urgent_job_had_the_host_before_the_other_began_anew() {
        let log =
            |events: &[&str]| events.iter().map(|event| format!("{event} 2026-01-01 x\n...\n")).collect::<String>();
        let (began, evicted, urgent) = ("001 (001.002.000)", "004 (001.002.000)", "001 (002.000.000)");
        let right = |events: &[&str]| is_in_order(&log(events), ("1", "2"), ("2", "0"));
        assert!(right(&[began, evicted, urgent, began]));
        for events in [
            &[began, urgent, began] as &[&str],
            &[began, evicted, began, urgent],
            &[began, evicted, urgent],
            &[urgent, began, evicted, began],
        ] {
            assert!(!right(events), "{events:?}");
        }
    }
}
