//! `nearmetal device vfs`.

use nearmetal_change::devices::{Macs, VfRequest, Vlans, plan_virtual_functions};

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Make, set and remove the virtual functions of a card (SR-IOV)
///
/// COUNT is how many there shall be; 0 removes them all. The kernel goes from one count to another only through 0, so all
/// vanish for a moment: that is refused while a guest has one or the host uses one, and those that stay get their settings
/// back. The same COUNT again changes settings alone, and sets what a reset has lost.
///
/// An NVMe drive deals each of them an equal part of its flexible queues and interrupts, and sets it online (nvme-cli does
/// it); a network card's get their settings by `ip link set … vf N` (iproute2). All of it is read back.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The card: PCI address, interface or drive
    #[arg(value_name = "PF")]
    card: String,
    /// How many there shall be
    count: u32,
    /// MAC address of VF 0; the others count up from it. Without one, each guest makes an address up at every start
    #[arg(long, value_name = "ADDRESS", value_parser = |text: &str| text.parse::<Macs>())]
    mac_base: Option<Macs>,
    /// VLAN the card puts them in: one for all (7), or by number (0=7,2=9); 0 is none
    #[arg(long, value_name = "VLAN|VF=VLAN,…", value_parser = |text: &str| text.parse::<Vlans>())]
    vlan: Option<Vlans>,
    /// Whether the card drops packets a guest sends with another MAC address than its function's
    #[arg(long, value_name = "on|off", value_parser = switch)]
    spoof_check: Option<bool>,
    /// Whether guests may change their MAC address and listen to all packets (for bonds and packet switches in guests)
    #[arg(long, value_name = "on|off", value_parser = switch)]
    trust: Option<bool>,
    /// The most each may send, in Mbit/s; 0 for no limit
    #[arg(long, value_name = "MBIT/S")]
    max_rate: Option<u32>,
    /// The host's own driver takes new ones (an interface, or a drive, each)
    #[arg(long, conflicts_with = "no_autoprobe")]
    keep_driver: bool,
    /// The host's drivers leave them alone: they are for guests only
    #[arg(long)]
    no_autoprobe: bool,
    /// Make them again at every boot, before guests start (by nearmetal-boot.service, from the journal)
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    carry: CarryArgs,
}

/// `on` or `off`, as iproute2 has it.
fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{text}` is neither on nor off")),
    }
}

/// Runs the verb.
pub(super) fn vfs(args: &Args, printer: &mut Printer) -> ExitStatus {
    let request = VfRequest {
        count: args.count,
        macs: args.mac_base,
        vlans: args.vlan.clone(),
        spoof_check: args.spoof_check,
        trust: args.trust,
        max_rate: args.max_rate,
        autoprobe: args.keep_driver.then_some(true).or(args.no_autoprobe.then_some(false)),
        persist: args.persist,
    };
    let journal = args.carry.state.journal();
    carry(
        &args.carry,
        &args.card,
        &|machine, now, function| {
            plan_virtual_functions(machine, &now.host, &now.ledger, function, &request, journal.state_directory())
        },
        printer,
    )
}
