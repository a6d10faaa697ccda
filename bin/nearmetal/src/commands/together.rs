//! `nearmetal bench --together`: several guests at once against their bare slices at once.

use anyhow::{Context, bail};
use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{
    Environment, Event, FioJob, MeasureError, Member, NetMember, NetPath, NetTest, NetTogetherRequest, TogetherRequest,
    TogetherResults, TogetherTerms, bench_net_together, bench_together, together_text,
};
use nearmetal_units::Bytes;

use super::bench::{Args, SPAN, percent};
use super::measuring::{in_plan, plan_of, written};
use super::shared::beside_this_program;
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
    /// or with --port, --peer and --address for the network
    ///
    /// All guests begin at one moment, and so do the bare slices they are compared with. A sample of which less than
    /// --overlap ran side by side is thrown away, and said to be.
    #[arg(long, value_name = "DOMAIN", conflicts_with_all = ["own_guest", "device", "resolve", "matrix"])]
    pub(super) together: Vec<String>,
    /// With --together: one guest, two, and so on to all of them, instead of all alone
    #[arg(long, requires = "together")]
    scaling: bool,
    /// With --together: percent of a sample's time during which all must have run
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0, value_parser = percent, requires = "together")]
    overlap: f64,
    /// With --together over the network: the way of the guests' packets, by the id `--matrix net --list` prints
    #[arg(long, value_name = "ID", default_value = "bridge.vhost.q1", requires = "together")]
    way: String,
}

/// Runs the command.
pub(super) fn together(args: &Args, journal: &Journal, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let names: Vec<&String> = std::iter::once(&args.domain).chain(&args.several.together).collect();
    if args.matrix.net.port.is_some() {
        return through_a_port(args, &names, journal, printer);
    }
    if names.len() != args.scratch.len() || names.len() > MOST {
        bail!(
            "{} domains (1 to {MOST} are possible) and {} scratch devices are named: give each domain one, in the same order \
             (--scratch DEVICE --scratch DEVICE …)",
            names.len(),
            args.scratch.len()
        );
    }
    let sizes = args.block_size.as_slice();
    if sizes.len() > 1 {
        bail!("{} block sizes are named, and --together measures one", sizes.len());
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
    let (seconds, ramp, pairs) = if args.quick { (5, 2, 6) } else { (30, 5, 10) };
    let request = TogetherRequest {
        members,
        job: FioJob {
            span: Some(SPAN),
            ..FioJob::first_seed(sizes.first().copied().unwrap_or(SIZE), args.seconds.unwrap_or(seconds), ramp)
        },
        terms: terms(args, pairs, &fs, journal)?,
    };
    let results = watched(printer, |tell| bench_together(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, printer)
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
    let way =
        NetPath::over_a_bridge(vcpus).into_iter().find(|way| way.id() == args.several.way).with_context(|| {
            let known: Vec<String> = NetPath::over_a_bridge(vcpus).iter().map(NetPath::id).collect();
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
    let results = watched(printer, |tell| bench_net_together(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, printer)
}

/// How, whatever the guests run; `pairs` where none are asked for.
fn terms(args: &Args, pairs: u32, fs: &HostFs, journal: &Journal) -> anyhow::Result<TogetherTerms> {
    Ok(TogetherTerms {
        pairs: args.pairs.unwrap_or(pairs),
        scaling: args.several.scaling,
        least_overlap: args.several.overlap / 100.0,
        seed: args.seed,
        appliance: args.appliance.clone(),
        probe: beside_this_program("nearmetal-probe")?,
        state: journal.state_directory().to_owned(),
        environment: Environment::detect(fs),
        pause: args.pause,
    })
}

fn watched<T>(
    printer: &mut Printer,
    experiment: impl FnOnce(&mut dyn FnMut(Event<'_>)) -> Result<T, MeasureError>,
) -> anyhow::Result<T> {
    let bar = printer.progress(1, "measuring");
    let result = experiment(&mut |event| {
        if let Event::Stage(stage) = event {
            bar.set_message(stage.to_owned());
            if bar.is_hidden() {
                printer.say(&format!("bench: {stage}"));
            }
        }
    });
    bar.finish_and_clear();
    Ok(result?)
}

fn keep(args: &Args, results: &TogetherResults, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    written(results, args.output.as_deref())?;
    printer.data(&together_text(results).context("the rates give no ratio")?);
    Ok(ExitStatus::Done)
}
