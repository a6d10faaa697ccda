//! `nearmetal demo`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nearmetal_host::files;
use nearmetal_lab::{Command, Lab, LabName, Places, Progress, UpOptions};
use nearmetal_measure::Environment;
use nearmetal_report::view::StageSeconds;

use crate::exit_status::ExitStatus;
use crate::job::manifest::{JOB_SCHEMA, Manifest};
use crate::printer::Printer;

/// The domain of the demo, as the lab's template names it.
const GUEST: &str = "web1";
/// The machine it runs on.
const MACHINE: &str = "quad";
/// Where the lab keeps what the commands print.
const JOB: &str = "/root/job";
/// The scratch device: the second namespace of the drive the guest's disk is on. By its id, since the kernel scans
/// namespaces in parallel and numbers them as they come.
const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";
/// A step that takes longer has hung.
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// Measuring, in quick mode, takes minutes.
const BENCH_LIMIT: Duration = Duration::from_secs(1500);

/// The whole job in a lab: a VM as people have it, placed, proven, compared with bare metal, rolled back
///
/// Boots a four-node server in software, finds a guest without any driver options or pins on it, and takes it through
/// inspect, plan, apply, verify, bench, rollback and report. Needs root, about 12 GiB of memory and no KVM: the lab
/// brings its own. Figures are emulated time.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the report goes
    #[arg(long, short, value_name = "DIR", default_value = "demo-report")]
    output: PathBuf,
    /// Name of the lab
    #[arg(long, default_value = "demo")]
    name: String,
    /// Leave the lab running at the end: nearmetal lab exec demo -- virsh list
    #[arg(long)]
    keep_lab: bool,
}

/// Runs the command.
pub fn demo(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    say_where_it_runs(printer);
    let mut stages = Stages { clock: Instant::now(), done: Vec::new() };
    let name: LabName = args.name.parse()?;
    let places = Places::standard();
    let options = UpOptions::new(name.clone());
    let lab = stages.run(printer, "lab up", |printer| {
        Lab::up(&places, &options, &mut Lines(printer)).context("the lab did not come up")
    })?;
    let result = job(&lab, &args, &mut stages, printer);
    if args.keep_lab {
        printer.say(&format!("the lab still runs: nearmetal lab exec {name} -- virsh list; nearmetal lab down {name}"));
    } else {
        stages.run(printer, "lab down", |_| Ok(lab.down()?))?;
    }
    let verified = result?;
    finish(&args, &stages, printer)?;
    Ok(if verified { ExitStatus::Done } else { ExitStatus::Findings })
}

/// KVM that only emulates is no ground for figures; either way the demo's ground is the lab, and says so.
fn say_where_it_runs(printer: &mut Printer) {
    let host = nearmetal_host::Host::read(&nearmetal_host::HostFs::live());
    let verdict = crate::kvm::verdict(&host).map(|kvm| kvm.verdict);
    printer.say(match verdict.as_deref() {
        Some("accelerates") => {
            "KVM accelerates here; the demo runs in the lab all the same and changes nothing of this host"
        }
        Some("emulates") => {
            "/dev/kvm is here and only emulates guests: the demo runs in the lab, which brings its own KVM"
        }
        _ => "no usable KVM here: the demo runs in the lab, which brings its own",
    });
}

/// The job inside the lab. Gives whether the read-back found everything as planned.
fn job(lab: &Lab, args: &Args, stages: &mut Stages, printer: &mut Printer) -> anyhow::Result<bool> {
    stages.run(printer, "programs and guest", |_| {
        for program in ["nearmetal", "nearmetal-libvirt", "nearmetal-probe"] {
            lab.push(&super::shared::beside_this_program(program)?, &format!("/usr/local/bin/{program}"))?;
        }
        let template = std::env::temp_dir().join(format!("nearmetal-demo-{}.xml", std::process::id()));
        files::write(&template, nearmetal_lab::domains::FOUND)?;
        lab.push(&template, "/root/found.xml")?;
        files::remove(&template)?;
        run(lab, &format!("mkdir -p {JOB}; virsh -q define /root/found.xml && virsh -q start {GUEST}"), STEP_LIMIT)?;
        // Its agent answers once the guest has booted.
        let ping = "'{\"execute\":\"guest-ping\"}'";
        run(
            lab,
            // Emulation sometimes loses an interrupt while a guest's processors start; such a guest is started again.
            &format!(
                "for boot in 1 2 3; do for second in $(seq 45); do timeout 10 virsh -q qemu-agent-command {GUEST} {ping} >/dev/null 2>&1 && exit 0; sleep 1; done; virsh -q destroy {GUEST}; virsh -q start {GUEST}; done; exit 1"
            ),
            STEP_LIMIT,
        )
    })?;
    let mut step = |name: &str, script: &str, limit: Duration| {
        stages.run(printer, name, |printer| show(lab, script, limit, printer))
    };
    step(
        "inspect",
        &format!("nearmetal inspect --format json > {JOB}/host-before.json; nearmetal inspect"),
        STEP_LIMIT,
    )?;
    step("plan", &format!("nearmetal plan {GUEST} -o {JOB}/plan.json"), STEP_LIMIT)?;
    step("apply", &format!("nearmetal apply {JOB}/plan.json --restart --yes"), STEP_LIMIT)?;
    let verified = step(
        "verify",
        &format!(
            "nearmetal verify {GUEST} --agent-timeout 60 --format json > {JOB}/verification.json; nearmetal inspect --format json > {JOB}/host-after.json; nearmetal verify {GUEST} --agent-timeout 60"
        ),
        STEP_LIMIT,
    )?;
    let measured = step(
        "bench",
        &format!(
            "nearmetal bench {GUEST} --scratch {SCRATCH} --quick --pause --output {JOB}/results.json --store {JOB}/results.sqlite"
        ),
        BENCH_LIMIT,
    );
    let rolled_back =
        step("rollback", &format!("nearmetal rollback --restart --format json > {JOB}/rollback.json"), STEP_LIMIT)?;
    measured?;
    stages.run(printer, "collect", |_| {
        files::create_dir_all(&args.output)?;
        for file in [
            "host-before.json",
            "host-after.json",
            "plan.json",
            "verification.json",
            "results.json",
            "results.sqlite",
            "rollback.json",
        ] {
            lab.pull(&format!("{JOB}/{file}"), &args.output.join(file))?;
        }
        Ok(())
    })?;
    Ok(verified && rolled_back)
}

/// Runs a script in the lab; a failure carries its own words.
fn run(lab: &Lab, script: &str, limit: Duration) -> anyhow::Result<()> {
    let output = lab.exec(&Command::shell(script).timeout(limit))?;
    if output.success() {
        return Ok(());
    }
    bail!("`{script}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
}

/// Runs a script in the lab and shows what it prints. True for exit code 0, false for 1: findings are a result.
fn show(lab: &Lab, script: &str, limit: Duration, printer: &mut Printer) -> anyhow::Result<bool> {
    printer.say(&format!("  # {script}"));
    let status =
        lab.exec_streaming(&Command::shell(script).timeout(limit), &mut std::io::stdout(), &mut std::io::stderr())?;
    match status {
        0 => Ok(true),
        1 => Ok(false),
        status => bail!("`{script}` ended with {status}"),
    }
}

fn finish(args: &Args, stages: &Stages, printer: &mut Printer) -> anyhow::Result<()> {
    let manifest = Manifest {
        schema: JOB_SCHEMA.to_owned(),
        title: format!("{GUEST} on {MACHINE}"),
        created: nearmetal_change::timestamp::now(),
        environment: Environment::Lab { machine: MACHINE.to_owned() },
        quick: true,
        shortened: [
            "guests stay up between samples",
            "only 4 KiB is paired",
            "5 s samples",
            "six pairs",
            "two A/A pairs",
            "the other block sizes once, for 2 s, without an interval",
        ]
        .map(str::to_owned)
        .to_vec(),
        stages: stages.done.clone(),
        reproduce: vec!["./dev demo".to_owned()],
        caveats: Vec::new(),
        sample_data: false,
    };
    manifest.save(&args.output)?;
    let arguments = super::report::Args::of_job(&args.output);
    super::report::report(arguments, printer)?;
    let page = std::path::absolute(args.output.join("report.html")).unwrap_or_else(|_| args.output.join("report.html"));
    printer.say(&format!("the report: {}", page.display()));
    printer.say(&format!("whole job: {:.0} s", stages.clock.elapsed().as_secs_f64()));
    Ok(())
}

/// The stages and how long each took.
struct Stages {
    clock: Instant,
    done: Vec<StageSeconds>,
}

impl Stages {
    fn run<T>(
        &mut self,
        printer: &mut Printer,
        name: &str,
        stage: impl FnOnce(&mut Printer) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        printer.say(&format!("== {name}"));
        let start = Instant::now();
        let result = stage(printer).with_context(|| format!("stage `{name}`"));
        let seconds = start.elapsed().as_secs_f64();
        self.done.push(StageSeconds { name: name.to_owned(), seconds });
        printer.say(&format!("== {name}: {seconds:.1} s"));
        result
    }
}

/// The lab's progress as lines.
struct Lines<'a>(&'a mut Printer);

impl Progress for Lines<'_> {
    fn stage(&mut self, number: usize, count: usize, title: &str) {
        self.0.say(&format!("  [{number}/{count}] {title}"));
    }
    fn note(&mut self, text: &str) {
        self.0.say(&format!("  {text}"));
    }
}
