//! `nearmetal device vfs`.

use nearmetal_change::devices::{Macs, VfRequest, Vlans, plan_virtual_functions};

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Make, configure and remove the virtual functions (VFs) of a card (SR-IOV)
///
/// COUNT is the number of VFs you want; 0 removes them all. The kernel changes the count only through 0, so all VFs vanish
/// for a moment. The command refuses that while a guest or the host uses one, and restores the settings of those that
/// stay. With the same COUNT it only changes settings, and restores what a reset lost.
///
/// VFs of an NVMe drive each get an equal share of its flexible queues and interrupts, and go online (through nvme-cli).
/// VFs of a network card get their settings from `ip link set … vf N` (iproute2). Everything is read back.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The card: PCI address, interface or drive
    #[arg(value_name = "PF")]
    card: String,
    /// Number of VFs
    count: u32,
    /// MAC address of VF 0; the others count up from it. Without it, each guest makes up an address at every start
    #[arg(long, value_name = "ADDRESS", value_parser = |text: &str| text.parse::<Macs>())]
    mac_base: Option<Macs>,
    /// VLAN: one for all VFs (7), or one per VF (0=7,2=9); 0 for none
    #[arg(long, value_name = "VLAN|VF=VLAN,…", value_parser = |text: &str| text.parse::<Vlans>())]
    vlan: Option<Vlans>,
    /// Whether the card drops packets that a guest sends with a MAC address other than its VF's
    #[arg(long, value_name = "on|off", value_parser = switch)]
    spoof_check: Option<bool>,
    /// Whether guests may change their MAC address and receive all packets (for bonds and software switches in guests)
    #[arg(long, value_name = "on|off", value_parser = switch)]
    trust: Option<bool>,
    /// Transmit limit of each VF in Mbit/s; 0 for none
    #[arg(long, value_name = "MBIT/S")]
    max_rate: Option<u32>,
    /// Let the host's driver claim new VFs, each as an interface or a drive
    #[arg(long, conflicts_with = "no_autoprobe")]
    keep_driver: bool,
    /// Keep the host's drivers off: the VFs are for guests only
    #[arg(long)]
    no_autoprobe: bool,
    /// Make them again at every boot before guests start (nearmetal-boot.service does this from the journal)
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
        _ => Err(format!("`{text}` is not a switch: write on or off")),
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
