//! Several VMs through one network port.

use std::net::IpAddr;

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{NetMember, NetPath, NetTest, NetTogetherRequest, bench_net_together};

use super::args::Args;
use crate::commands::bench::planned::Planned;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// libvirt's default.
const WAY: &str = "bridge.vhost.q1";

/// Runs the command.
pub(super) fn through(args: &Args, port: &str, journal: &Journal, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let net = &args.net;
    let member = |(name, planned): (&String, Planned)| NetMember {
        guest: name.clone(),
        placement: planned.placement,
        xml_planned: planned.change.xml_after,
    };
    let members: Vec<NetMember> = args.planned(journal)?.into_iter().map(member).collect();
    let way = way(net.way.as_deref().unwrap_or(WAY), &members)?;
    let fs = HostFs::live();
    let request = NetTogetherRequest {
        members,
        way,
        test: net.test.unwrap_or(NetTest::TcpRr),
        seconds: args.terms.seconds.unwrap_or(if args.terms.quick { 3 } else { 10 }),
        port: port.to_owned(),
        // clap asks for both with --port.
        peer: net.peer.unwrap_or(IpAddr::from([0, 0, 0, 0])),
        address: net.address.clone().unwrap_or_default(),
        terms: args.terms(4, 10, &fs, journal)?,
    };
    args.run(&fs, printer, |fs, libvirt, tell| bench_net_together(&request, fs, libvirt, tell))
}

/// The way with this id, of those that guests with so many vCPUs can share a port by.
fn way(id: &str, members: &[NetMember]) -> Result<NetPath, WrongUse> {
    let vcpus = members.iter().map(|member| member.placement.vcpus.len() as u32).min().unwrap_or(1);
    let ways = NetPath::of_several(vcpus);
    ways.iter().copied().find(|way| way.id() == id).ok_or_else(|| {
        let known: Vec<String> = ways.iter().map(NetPath::id).collect();
        WrongUse(format!("--way: no way is called `{id}`; write one of {}", known.join(", ")))
    })
}
