//! Slurm: jobs over two labs, and what its users and administrators do to them meanwhile.

use anyhow::{Context, ensure};
use nearmetal_lab::image::Layer;

use super::super::Verdict;
use super::evidence::{Share, check, gather};
use super::farm::{Farm, on};
use super::jobs::{BOTH, End, HELD, Job, LONG, PREEMPTED, REMOVED, RESTARTED, URGENT, wanted};

const SETUP: &str = include_str!("slurm.sh");
const CONF: &str = include_str!("../../../../../packaging/examples/slurm/slurm.conf");
const CGROUP: &str = include_str!("../../../../../packaging/examples/slurm/cgroup.conf");

pub(super) fn a_queue() -> anyhow::Result<Verdict> {
    on(Layer::Slurm, |farm| {
        set_up(farm)?;
        let jobs = wanted()?;
        let (urgent, others): (Vec<&Job>, Vec<&Job>) = jobs.iter().partition(|job| job.name == URGENT);
        submit(farm, &others)?;
        remove_while_it_boots(farm)?;
        preempt(farm, &urgent)?;
        restart_daemons(farm)?;
        drain(farm)?;
        farm.a.sh(&format!("scontrol release jobname={HELD}"))?;
        farm.wait("an empty queue", &nobody_in_queue(""), "squeue; sinfo -R")?;
        let found = gather(farm)?;
        check(&jobs, &found, Share::Exactly)?;
        let both = found.get(BOTH).context("no guest over two hosts")?;
        ensure!(both.iter().map(|guest| guest.host).eq(["farm-a", "farm-b"]), "`{BOTH}` had no two hosts: {both:?}");
        let table = accounted(farm, &jobs)?;
        farm.nothing_is_left()?;
        Ok(Verdict::Holds(table))
    })
}

/// Both nodes, with the words that each says of itself.
fn set_up(farm: &Farm) -> anyhow::Result<()> {
    let mut nodes = String::new();
    for (name, host) in farm.hosts() {
        let words = host.sh("nearmetal offer --format slurm")?;
        ensure!(
            ["tiny", "wide", "function"].iter().all(|flavour| words.contains(&format!("flavour.{flavour}"))),
            "{name} offers {words}"
        );
        nodes += &format!("NodeName={name} CPUs=6 Sockets=2 CoresPerSocket=3 RealMemory=3500 {words}\n");
    }
    for ((name, host), controller) in farm.hosts().into_iter().zip(["yes", "no"]) {
        host.sh("mkdir -p /root/examples")?;
        host.write("/root/nodes.conf", &nodes)?;
        for (file, text) in [("examples/slurm.conf", CONF), ("examples/cgroup.conf", CGROUP), ("slurm.sh", SETUP)] {
            host.write(&format!("/root/{file}"), text)?;
        }
        host.sh(&format!("sh /root/slurm.sh {controller}")).with_context(|| format!("Slurm on {name}"))?;
    }
    farm.wait("two idle nodes", "[ \"$(sinfo -h -N -p batch -t idle | wc -l)\" = 2 ]", "sinfo -N -l; sinfo -R")
}

/// A shell condition: no job that these options choose is in the queue. A controller that does not answer says nothing of it.
fn nobody_in_queue(options: &str) -> String {
    format!("left=$(squeue -h {options}) && [ -z \"$left\" ]")
}

fn submit(farm: &Farm, jobs: &[&Job]) -> anyhow::Result<()> {
    let lines = jobs.iter().map(|job| {
        let Job { name, user, flavour, cpus, memory, command, .. } = job;
        let more = match name.as_str() {
            REMOVED | LONG | RESTARTED => "-w farm-a",
            PREEMPTED => "-w farm-b",
            HELD => "--hold",
            URGENT => "-w farm-b -p urgent",
            BOTH => "-N 2",
            _ => "",
        };
        // A step does not have its job's CPUs unless it asks.
        let step = if name == BOTH { format!("srun -c {cpus} ") } else { String::new() };
        let script = format!("exec {step}/usr/local/bin/farm-job {name} {flavour} '{command}'");
        format!(
            "runuser -u {user} -- sbatch --parsable -D / -o /dev/null -J {name} -t 30 -c {cpus} --mem={memory}M {more} \
             --requeue --constraint=flavour.{flavour} <<'END'\n#!/bin/sh\n{script}\nEND\n"
        )
    });
    let script: String = lines.collect();
    farm.a.sh(&format!("set -e\n{script}")).map(drop)
}

/// Its guest has started and does not answer yet: the job goes, and its guest with it.
fn remove_while_it_boots(farm: &Farm) -> anyhow::Result<()> {
    farm.interrupt(REMOVED, "started", &format!("scancel -n {REMOVED}"), "squeue; sinfo -R; ls /srv/jobs")?;
    farm.wait("the removed job to go", &nobody_in_queue(&format!("-n {REMOVED}")), "squeue")
}

/// A job of a better partition wants the host of a run: Slurm ends that and starts it anew later.
fn preempt(farm: &Farm, urgent: &[&Job]) -> anyhow::Result<()> {
    farm.b.sh(&format!(
        "for i in $(seq 600); do grep -qs command-started /srv/jobs/{PREEMPTED}.events && exit 0; sleep 1; done; exit 1"
    ))?;
    submit(farm, urgent)?;
    farm.wait("the urgent job", &nobody_in_queue(&format!("-n {URGENT}")), "squeue")?;
    let states = farm.a.sh(&format!("sacct -n -X -D -P -a -o State --name={PREEMPTED}"))?;
    ensure!(states.contains("PREEMPTED") || states.contains("REQUEUED"), "`{PREEMPTED}` was not preempted: {states}");
    Ok(())
}

/// Guests run on while node and controller are started anew.
fn restart_daemons(farm: &Farm) -> anyhow::Result<()> {
    farm.lives_through(RESTARTED, || {
        for (_, host) in farm.hosts() {
            host.sh("systemctl restart slurmd")?;
        }
        farm.a.sh("systemctl restart slurmctld")?;
        farm.wait("the controller", "scontrol ping | grep -q UP", "scontrol ping")?;
        let runs = format!("squeue -h -t running -n {RESTARTED} | grep -q .");
        farm.wait("a job that Slurm knows", &runs, "squeue; sinfo -R")
    })?;
    farm.a.sh(&format!("scancel -n {RESTARTED}")).map(drop)
}

/// A drained node ends what it has and gets nothing more; then it is back.
fn drain(farm: &Farm) -> anyhow::Result<()> {
    farm.a.sh("scontrol update NodeName=farm-b State=DRAIN Reason=trial")?;
    farm.wait("a drained node", "scontrol show node farm-b | grep -q 'State=IDLE+DRAIN '", "squeue; sinfo -N -l")?;
    farm.has_no_guests(&farm.b)?;
    farm.a.sh("scontrol update NodeName=farm-b State=RESUME").map(drop)
}

/// What Slurm has written down of each job: its end, and of a session the guest's processor time and memory.
fn accounted(farm: &Farm, jobs: &[Job]) -> anyhow::Result<String> {
    // The database gets the last of it a little later.
    farm.a.sh("sleep 10")?;
    let text =
        farm.a.sh("sacct -n -P -a --units=M -o JobName,JobID,State,ExitCode,TotalCPU,MaxRSS,NodeList,Elapsed")?;
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('|').collect()).collect();
    let mut table = vec![format!(
        "{:<12} {:<6} {:<10} {:<5} {:>12} {:>10}  {}",
        "job", "user", "state", "code", "CPU", "memory", "nodes"
    )];
    for job in jobs {
        let name = job.name.as_str();
        let row = rows
            .iter()
            .rfind(|row| row.len() == 8 && row[0] == name)
            .with_context(|| format!("sacct lacks `{name}`: {text}"))?;
        let (state, code) = (row[2], row[3]);
        match job.end {
            End::Code(0) => ensure!(state == "COMPLETED" && code == "0:0", "`{name}`: {row:?}"),
            End::Code(expected) => ensure!(state == "FAILED" && code == format!("{expected}:0"), "`{name}`: {row:?}"),
            End::Removed => ensure!(state.starts_with("CANCELLED"), "`{name}`: {row:?}"),
        }
        // Memory is that of the job's largest step.
        let steps = rows.iter().filter(|step| step.len() == 8 && step[1].starts_with(&format!("{}.", row[1])));
        let memory = steps.filter_map(|step| step[5].trim_end_matches('M').parse::<f64>().ok()).fold(0.0, f64::max);
        let is_charged = !job.system && job.end != End::Removed;
        ensure!(!is_charged || seconds(row[4]) >= 1.0, "the guest's processor time is not the job's: {row:?}");
        ensure!(!is_charged || memory >= 64.0, "the guest's memory is not the job's: {memory} MiB, {row:?}");
        table.push(format!(
            "{name:<12} {:<6} {state:<10.10} {code:<5} {:>12} {memory:>6.0} MiB  {}",
            job.user, row[4], row[6]
        ));
    }
    Ok(format!("{}\nlab: emulated time", table.join("\n")))
}

/// `[D-][HH:]MM:SS[.mmm]` of sacct.
fn seconds(text: &str) -> f64 {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let of_day = rest.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap_or(0.0));
    days.parse::<f64>().unwrap_or(0.0) * 86_400.0 + of_day
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_of_sacct_are_read() {
        let times = ["00:01.500", "01:02:03", "1-00:00:01", ""].map(super::seconds);
        assert_eq!(times, [1.5, 3723.0, 86_401.0, 0.0]);
    }
}
