//! `nearmetal bench --together`: several guests at once against their bare slices at once.

use anyhow::{Context, bail};
use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{
    ArmKind, FioJob, FunctionMember, FunctionTogetherRequest, Member, NetMember, NetPath, NetTest, NetTogetherRequest,
    TogetherRequest, TogetherResults, TogetherTerms, bench_functions_together, bench_net_together, bench_together,
    function_of, together_text,
};
use nearmetal_units::Bytes;

use super::bench::{Args, SPAN, conditions, percent};
use super::measuring::{in_plan, plan_of, watch, written};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Block size where none is asked for.
const SIZE: Bytes = Bytes::from_kib(4);
/// The most guests at once: each is told in turn when to begin, and that takes its time.
const MOST: usize = 16;

/// What `--together` takes.
#[derive(Debug, clap::Args)]
pub(super) struct TogetherArgs {
    /// Measure this domain at the same time; may be given several times, with one --scratch for each domain in this order,
    /// with --device own for the drives they have for themselves, or with --port, --peer and --address for the network
    ///
    /// All guests begin at one moment, and so do the bare slices they are compared with. A sample of which less than
    /// --overlap ran side by side is thrown away, and said to be.
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["own_guest", "resolve", "matrix"])]
    pub(super) together: Vec<String>,
    /// With --together: measure one guest, then two, and so on to all of them; without it only all at once
    #[arg(long, requires = "together")]
    scaling: bool,
    /// With --together: percent of a sample's time during which all must have run
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent, requires = "together")]
    overlap: f64,
    /// With --together over the network: the way of the guests' packets, by the id `--matrix net --list` prints: one over
    /// a bridge, or vf-hostdev, where each guest takes turns with its bare slice on a virtual function of the port
    #[arg(long, value_name = "ID", default_value = "bridge.vhost.q1", requires = "together")]
    way: String,
}

/// Runs the command.
pub(super) fn together(args: &Args, journal: &Journal, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let names: Vec<&String> = std::iter::once(&args.domain).chain(&args.several.together).collect();
    if args.matrix.net.port.is_some() {
        return through_a_port(args, &names, journal, printer);
    }
    if names.len() > MOST {
        bail!("{} domains are named, and {MOST} at once are possible", names.len());
    }
    if let Some(device) = &args.device {
        if device != "own" {
            bail!("--device {device} is one function, and each of several domains needs its own: --device own");
        }
        return each_its_function(args, &names, journal, printer);
    }
    if names.len() != args.scratch.len() {
        bail!(
            "{} domains and {} scratch devices are named: give each domain one, in the same order \
             (--scratch DEVICE --scratch DEVICE …)",
            names.len(),
            args.scratch.len()
        );
    }
    let mut members = Vec::new();
    for (name, scratch) in names.into_iter().zip(&args.scratch) {
        // One plan for all, or the one in force of each.
        let plan = plan_of(args.plan.as_deref(), name, journal)?;
        let (change, placement) = in_plan(&plan, name)?;
        members.push(Member {
            guest: name.clone(),
            placement: placement.clone(),
            xml_planned: change.xml_after.clone(),
            scratch: scratch.clone(),
        });
    }
    let fs = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let (job, pairs) = job(args)?;
    let request = TogetherRequest { members, job, terms: terms(args, pairs, &fs, journal)? };
    let results = watch(printer, ArmKind::title, |tell| bench_together(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, printer)
}

/// Several guests, each with a drive that it has for itself.
fn each_its_function(
    args: &Args,
    names: &[&String],
    journal: &Journal,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let mut members = Vec::new();
    for name in names {
        let plan = plan_of(args.plan.as_deref(), name, journal)?;
        let (change, placement) = in_plan(&plan, name)?;
        members.push(FunctionMember {
            guest: (*name).clone(),
            placement: placement.clone(),
            xml_planned: change.xml_after.clone(),
            function: function_of(&change.xml_after, name)?,
        });
    }
    let fs = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let (job, pairs) = job(args)?;
    let request =
        FunctionTogetherRequest { members, namespace: args.namespace, job, terms: terms(args, pairs, &fs, journal)? };
    let results = watch(printer, ArmKind::title, |tell| bench_functions_together(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, printer)
}

/// What each runs on its drive, and the pairs where none are asked for.
fn job(args: &Args) -> anyhow::Result<(FioJob, u32)> {
    let size = match args.block_size.as_slice() {
        [] => SIZE,
        [one] => *one,
        several => bail!("{} block sizes are named, and --together measures one", several.len()),
    };
    let (seconds, ramp, pairs) = if args.quick { (5, 2, 6) } else { (30, 5, 10) };
    let job = FioJob::first_seed(size, args.seconds.unwrap_or(seconds), ramp);
    Ok((FioJob { span: Some(SPAN), ..job }, pairs))
}

/// Several guests through one port.
fn through_a_port(
    args: &Args,
    names: &[&String],
    journal: &Journal,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let net = &args.matrix.net;
    let port = net.port.clone().context("no port is named (--port INTERFACE)")?;
    let (peer, address) = net.reached()?;
    let test = match net.test.as_slice() {
        [] => NetTest::TcpRr,
        [one] => *one,
        several => bail!("{} tests are named, and --together runs one", several.len()),
    };
    let mut members = Vec::new();
    for name in names {
        let plan = plan_of(args.plan.as_deref(), name, journal)?;
        let (change, placement) = in_plan(&plan, name)?;
        members.push(NetMember {
            guest: (*name).clone(),
            placement: placement.clone(),
            xml_planned: change.xml_after.clone(),
        });
    }
    let vcpus = members.iter().map(|member| member.placement.vcpus.len() as u32).min().unwrap_or(1);
    let ways = NetPath::of_several(vcpus);
    let way = ways.iter().copied().find(|way| way.id() == args.several.way).with_context(|| {
        let known: Vec<String> = ways.iter().map(NetPath::id).collect();
        format!("--way: `{}` is none of {}", args.several.way, known.join(", "))
    })?;
    let fs = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let (seconds, pairs) = if args.quick { (3, 4) } else { (10, 10) };
    let request = NetTogetherRequest {
        members,
        way,
        test,
        seconds: args.seconds.unwrap_or(seconds),
        port,
        peer,
        address,
        terms: terms(args, pairs, &fs, journal)?,
    };
    let results = watch(printer, ArmKind::title, |tell| bench_net_together(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, printer)
}

/// How, whatever the guests run; `pairs` where none are asked for.
fn terms(args: &Args, pairs: u32, fs: &HostFs, journal: &Journal) -> anyhow::Result<TogetherTerms> {
    Ok(TogetherTerms {
        pairs: args.pairs.unwrap_or(pairs),
        scaling: args.several.scaling,
        least_overlap: args.several.overlap / 100.0,
        conditions: conditions(args, fs, journal)?,
    })
}

fn keep(args: &Args, results: &TogetherResults, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    written(results, args.output.as_deref())?;
    printer.data(&together_text(results).context("the rates give no ratio")?);
    Ok(ExitStatus::Done)
}
