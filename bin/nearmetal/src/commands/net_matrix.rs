//! `nearmetal bench --matrix net`: the arms, the peer, the race, the winner, and what to use.

use std::net::IpAddr;

use anyhow::{Context, bail};
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{
    Effect, NetMatrixRequest, NetMatrixResults, NetTest, Store, check_address, net_arms, net_ground, net_least_seconds,
    net_matrix as measure, net_words,
};

use super::bench;
use super::matrix::{STORE, known_words, winner};
use super::measuring::{need_root, pinned_in_plan, plan_of, watch, written};
use super::shared::Format;
use crate::exit_status::ExitStatus;
use crate::job::net_matrix::{chart, list_text, on_the_peer, paths_text, text};
use crate::printer::Printer;

/// Seconds of one sample.
const SECONDS: u32 = 3;
/// Fresh rounds of the winner, each with two boots.
const PAIRS: u32 = 6;

/// What only a network matrix takes.
#[derive(Debug, clap::Args)]
pub(crate) struct NetArgs {
    /// With --matrix net, or --together over the network: the port that is measured; nobody may use it meanwhile, so it must have no address
    #[arg(long, value_name = "INTERFACE")]
    pub(super) port: Option<String>,
    /// With --port: address of the machine on the other end of that port's cable, on which netserver runs (and what --list
    /// names for other tests)
    #[arg(long, value_name = "ADDRESS")]
    pub(super) peer: Option<IpAddr>,
    /// With --port: a free address in the peer's network, with its prefix; each arm of a matrix has it in its turn, and of
    /// several guests at once each has the next one, and bare metal the one behind them
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    pub(super) address: Option<String>,
    // Its help lists them: see `test_help`.
    #[arg(long, value_name = "TEST", value_parser = test, help = test_help())]
    pub(super) test: Vec<NetTest>,
}

impl NetArgs {
    /// The peer and the address, checked.
    pub(super) fn reached(&self) -> anyhow::Result<(IpAddr, String)> {
        let (Some(peer), Some(address)) = (self.peer, &self.address) else {
            bail!(
                "measuring a network needs a peer: start {} on the machine at the other end of the cable, and give its address (--peer 192.0.2.1) and a free one for the guests (--address 192.0.2.10/24)",
                on_the_peer(&self.test)
            );
        };
        if let Err(why) = check_address(address, peer) {
            bail!("--address: {why}");
        }
        Ok((peer, address.clone()))
    }
}

fn test_help() -> String {
    let words = |tests: &[NetTest]| tests.iter().map(|test| test.id()).collect::<Vec<_>>().join(", ");
    format!(
        "With --port: what is run, of {}; for a matrix it can be given several times, and the first decides the race [default: {}]",
        words(&NetTest::ALL),
        words(&NetTest::DEFAULT)
    )
}

fn test(text: &str) -> Result<NetTest, String> {
    NetTest::ALL
        .into_iter()
        .find(|test| test.id() == text)
        .ok_or_else(|| format!("there is no test `{text}`: write one of {}", NetTest::ALL.map(NetTest::id).join(", ")))
}

/// Runs the command. `args` are those of `bench`, of which a matrix is a part.
pub(super) fn net_matrix(args: &bench::Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let own = &args.matrix;
    known_words(&own.without, &net_words())?;
    let port = own.net.port.clone().context("--matrix net needs the port it measures: --port INTERFACE")?;
    let fs = HostFs::live();
    let journal = args.state.journal();
    let plan = plan_of(args.plan.as_deref(), &args.domain, &journal)?;
    let (change, placement) = pinned_in_plan(&plan, &args.domain)?;
    let mut tests: Vec<NetTest> = Vec::new();
    for test in if own.net.test.is_empty() { &NetTest::DEFAULT[..] } else { &own.net.test[..] } {
        if !tests.contains(test) {
            tests.push(*test);
        }
    }
    // A list needs neither; a measurement says below what it misses.
    let peer = own.net.peer.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let request = NetMatrixRequest {
        guest: args.domain.clone(),
        placement: placement.clone(),
        xml: change.xml_after.clone(),
        port,
        peer,
        address: own.net.address.clone().unwrap_or_default(),
        tests,
        seconds: args.seconds.unwrap_or(SECONDS),
        without: own.without.clone(),
        budget: own.budget,
        error: own.error / 100.0,
        pairs: args.pairs.unwrap_or(PAIRS),
        conditions: bench::conditions(args, &fs, &journal)?,
        race: !own.read_back_only,
    };
    if own.list {
        let (arms, left_out) = net_arms(&net_ground(&request, &fs, &Host::read(&fs)));
        let least = net_least_seconds(&request, &arms);
        printer.data(&list_text(&arms, &left_out, &request.tests, least, request.budget));
        return Ok(ExitStatus::Done);
    }
    own.net.reached()?;
    need_root("starts guests and takes a port", ", or see what it would do with --list")?;
    let mut libvirt = Libvirt::open(None)?;
    let results = watch(printer, winner, |tell| measure(&request, &fs, &mut libvirt, tell))?;
    keep(args, &results, &request, printer)?;
    let amiss = results.arms.iter().any(|arm| matches!(arm.effect, Effect::NotShown { .. }));
    // A race reports an arm that is none and goes on; a read-back is about nothing else.
    Ok(if amiss && own.read_back_only { ExitStatus::Findings } else { ExitStatus::Done })
}

fn keep(
    args: &bench::Args,
    results: &NetMatrixResults,
    request: &NetMatrixRequest,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let own = &args.matrix;
    let document = written(results, args.output.as_deref())?;
    if let Some(path) = &own.chart {
        files::write_atomic(path, chart(results))?;
    }
    match own.format {
        Format::Json => printer.data(&document),
        Format::Text if request.race => printer.data(&text(results)),
        Format::Text => printer.data(&paths_text(results)),
    }
    if request.race {
        let default = request.conditions.state.join(STORE);
        let store = args.store.as_deref().unwrap_or(&default);
        Store::open(store)?.add_net_matrix(results)?;
        printer.say(&format!("kept in {}", store.display()));
    }
    Ok(())
}
