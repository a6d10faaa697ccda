//! The job inside the lab: from the guest as found to the guest as found.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use nearmetal_change::verify::Verification;
use nearmetal_host::files;
use nearmetal_lab::ExecOutput;

use super::course::Course;
use super::lab::Ground;
use super::length::Length;
use crate::printer::Printer;

/// The domain of the demo, as the lab's template names it.
pub(super) const GUEST: &str = "web1";
/// Where the lab keeps what the commands write.
pub(super) const JOB: &str = "/root/nearmetal-demo";
/// Where nearmetal keeps its journal.
const STATE: &str = nearmetal_change::STATE_DIRECTORY;
/// The scratch device: the second namespace of the drive the guest's disk is on. By its id, since the kernel scans
/// namespaces in parallel and numbers them as they come.
const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";
/// What runs in the lab.
pub(super) const PROGRAMS: [&str; 3] = ["nearmetal", "nearmetal-libvirt", "nearmetal-probe"];
/// A step that takes longer has hung.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// Three boots of a guest, each as long as a slow one may take.
const BOOTS_LIMIT: Duration = Duration::from_secs(900);
/// Measuring, in quick mode, takes ten minutes, and on slow machines forty.
const BENCH_LIMIT: Duration = Duration::from_secs(3600);
/// What the commands write in the lab. The rest they print, and it is kept here at once.
const WRITTEN: [&str; 3] = ["plan.json", "results.json", "results.sqlite"];
/// Everything a demo leaves in its directory. One from before must not pass for one of this job.
const FILES: [&str; 11] = [
    "host-before.json",
    "host-after.json",
    "plan.json",
    "verification.json",
    "results.json",
    "results.sqlite",
    "rollback.json",
    "job.json",
    "summary.json",
    "report.html",
    "machine-before.svg",
];

/// One demo.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    /// Where everything goes.
    pub output: &'a Path,
    /// The programs that run in the lab.
    pub programs: &'a [PathBuf],
    /// How much is measured.
    pub length: &'a Length,
    /// Whether the lab is somebody's own, and is left as it was.
    pub borrowed: bool,
}

/// What the job left in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// The change could not be rolled back.
    pub in_force: bool,
}

/// What a lab had before.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    guest: bool,
    running: bool,
    journal: bool,
}

impl Job<'_> {
    /// Takes the guest through the job. Trouble is in the course; the rollback runs whatever came before it.
    pub(super) fn run(&self, lab: &mut dyn Ground, course: &mut Course<'_>) -> Left {
        let mut before = Before::default();
        let mut left = Left { in_force: false };
        let ready = course.stage("programs and guest", |_| self.prepare(lab, &mut before));
        if ready.is_some() && self.plan(lab, course) {
            left.in_force = self.change_and_back(lab, course);
            course.stage("collect", |_| self.collect(lab));
        }
        if self.borrowed && !left.in_force {
            course.stage("clean up", |_| clean_up(lab, before));
        }
        left
    }

    /// Programs and a guest that answers; everything an earlier demo left is removed.
    fn prepare(&self, lab: &mut dyn Ground, before: &mut Before) -> anyhow::Result<()> {
        files::create_dir_all(self.output)?;
        for name in FILES.into_iter().chain(["machine-after.svg"]) {
            let path = self.output.join(name);
            if path.is_file() {
                files::remove(&path)?;
            }
        }
        // A program that runs can be removed, and not written to.
        must(lab, &format!("rm -rf {JOB} && mkdir -p {JOB} && cd /usr/local/bin && rm -f {}", PROGRAMS.join(" ")))?;
        for program in self.programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            lab.push(program, &format!("/usr/local/bin/{name}"))?;
        }
        let template = std::env::temp_dir().join(format!("nearmetal-demo-{}.xml", std::process::id()));
        files::write(&template, nearmetal_lab::domains::FOUND)?;
        let pushed = lab.push(&template, &format!("{JOB}/found.xml"));
        files::remove(&template)?;
        pushed?;
        let text = must(
            lab,
            &format!(
                "! test -e {STATE} || echo journal; ! virsh -q dominfo {GUEST} >/dev/null 2>&1 || echo guest; ! virsh -q list --name | grep -qx {GUEST} || echo running"
            ),
        )?
        .text();
        let says = |word: &str| text.lines().any(|line| line == word);
        *before = Before { guest: says("guest"), running: says("running"), journal: says("journal") };
        if !before.guest {
            must(lab, &format!("virsh -q define {JOB}/found.xml"))?;
        }
        if !before.running {
            must(lab, &format!("virsh -q start {GUEST}"))?;
        }
        // Its agent answers once the guest has booted.
        let answered = lab.run(&nearmetal_lab::domains::wait_for_agent(GUEST), BOOTS_LIMIT)?;
        if !answered.success() {
            bail!("the agent of `{GUEST}` did not answer in three boots{}", said(&answered));
        }
        Ok(())
    }

    /// Whether there is a plan.
    fn plan(&self, lab: &mut dyn Ground, course: &mut Course<'_>) -> bool {
        course.stage("inspect", |printer| {
            let output = self.print_to("host-before.json", lab, "nearmetal inspect --format json")?;
            if !output.success() {
                bail!("`nearmetal inspect` ended with {}{}", output.status, said(&output));
            }
            show(lab, "nearmetal inspect", STEP_LIMIT, printer)
        });
        let planned = course.stage("plan", |printer| {
            show(lab, &format!("nearmetal plan {GUEST} -o {JOB}/plan.json"), STEP_LIMIT, printer)
        });
        planned.is_some()
    }

    /// Applies the plan, proves it, measures, and rolls back. Whether the change is still in force.
    fn change_and_back(&self, lab: &mut dyn Ground, course: &mut Course<'_>) -> bool {
        let script = format!("nearmetal apply {JOB}/plan.json --restart --yes");
        let applied = course.stage("apply", |printer| show_findings(lab, &script, STEP_LIMIT, printer));
        if applied == Some(false) {
            course.found("`apply` read back something else than was planned".to_owned());
        }
        if applied.is_some() {
            let verified = course.stage("verify", |printer| self.verify(lab, printer));
            if verified == Some(false) {
                course
                    .found("`verify` found something else than was planned: see `Read back` in the report".to_owned());
            }
            let arguments = self.length.arguments();
            let script = format!(
                "nearmetal bench slice {GUEST} --scratch {SCRATCH} {arguments} --output {JOB}/results.json --store {JOB}/results.sqlite"
            );
            // An arm that lost samples is named by the report, and once more at the end.
            course.stage("bench", |printer| show_findings(lab, &script, BENCH_LIMIT, printer));
        }
        let rolled_back = course.stage("rollback", |_| {
            let output = self.print_to("rollback.json", lab, "nearmetal rollback --restart --format json")?;
            // An apply that was refused has left nothing to roll back, which is wrong use of `rollback`.
            match output.status {
                0 => Ok(()),
                2 if applied.is_none() => Ok(()),
                status => bail!("`nearmetal rollback` ended with {status}{}", said(&output)),
            }
        });
        rolled_back.is_none()
    }

    /// Reads everything back; whether it is as planned.
    fn verify(&self, lab: &mut dyn Ground, printer: &mut Printer) -> anyhow::Result<bool> {
        let command = format!("nearmetal verify {GUEST} --agent-timeout 60 --format json");
        let output = self.print_to("verification.json", lab, &command)?;
        if let Ok(verification) = serde_json::from_slice::<Verification>(&output.stdout) {
            printer.data(&verification.to_string());
        }
        let inside = self.print_to("host-after.json", lab, "nearmetal inspect --format json")?;
        match (output.status, inside.status) {
            (0, 0) => Ok(true),
            (1, 0) => Ok(false),
            (0 | 1, status) => bail!("`nearmetal inspect` ended with {status}{}", said(&inside)),
            (status, _) => bail!("`nearmetal verify` ended with {status}{}", said(&output)),
        }
    }

    /// Runs a command whose data goes into a file of the job. A command that printed nothing leaves no file: an empty one
    /// would be taken for a damaged one.
    fn print_to(&self, file: &str, lab: &mut dyn Ground, command: &str) -> anyhow::Result<ExecOutput> {
        let output = lab.run(command, STEP_LIMIT)?;
        if !output.stdout.is_empty() {
            files::write_atomic(&self.output.join(file), &output.stdout)?;
        }
        Ok(output)
    }

    /// Brings here what the commands wrote. What a failed command did not write is no trouble of its own.
    fn collect(&self, lab: &mut dyn Ground) -> anyhow::Result<()> {
        let there = must(lab, &format!("ls {JOB}"))?.text();
        for file in WRITTEN.into_iter().filter(|file| there.lines().any(|name| name == *file)) {
            lab.pull(&format!("{JOB}/{file}"), &self.output.join(file))?;
        }
        Ok(())
    }
}

/// Leaves a lab as it was before.
fn clean_up(lab: &mut dyn Ground, before: Before) -> anyhow::Result<()> {
    if !before.running {
        must(lab, &format!("virsh -q domstate {GUEST} | grep -q running && virsh -q destroy {GUEST} || true"))?;
    }
    if !before.guest {
        must(lab, &format!("virsh -q undefine {GUEST}"))?;
    }
    if !before.journal {
        must(lab, &format!("rm -rf {STATE}"))?;
    }
    must(lab, &format!("rm -rf {JOB}")).map(drop)
}

/// Runs a script that must end with 0.
fn must(lab: &mut dyn Ground, script: &str) -> anyhow::Result<ExecOutput> {
    let output = lab.run(script, STEP_LIMIT)?;
    if !output.success() {
        bail!("`{script}` ended with {}{}", output.status, said(&output));
    }
    Ok(output)
}

/// The last words of a command that failed.
fn said(output: &ExecOutput) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(3)..].join("; ");
    if last.is_empty() { last } else { format!(": {}", last.trim_start_matches("error: ")) }
}

/// Shows a command while it runs. It must end with 0.
fn show(lab: &mut dyn Ground, script: &str, limit: Duration, printer: &mut Printer) -> anyhow::Result<()> {
    match show_findings(lab, script, limit, printer)? {
        true => Ok(()),
        false => bail!("`{script}` ended with 1; its words are above"),
    }
}

/// Shows a command while it runs. True for exit code 0, false for 1: findings are a result.
fn show_findings(lab: &mut dyn Ground, script: &str, limit: Duration, printer: &mut Printer) -> anyhow::Result<bool> {
    printer.say(&format!("  # {script}"));
    match lab.show(script, limit)? {
        0 => Ok(true),
        1 => Ok(false),
        status => bail!("`{script}` ended with {status}; its words are above"),
    }
}
