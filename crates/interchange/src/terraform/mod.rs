//! Terraform's libvirt provider (dmacvicar/libvirt, up to 0.8): a plan as XSLT over the XML the provider makes.
//!
//! The provider writes a definition from its own resource, gives it to `xsltproc` with the text of `xml { xslt = … }`, and
//! defines the result (`resourceLibvirtDomainCreate`, `transformXML`). So the stylesheet must say all that a plan decides, for
//! a definition in which nothing of it stands yet. What it writes is not invented here: a bare definition of the same size is
//! edited by [`nearmetal_change::edited`], as `apply` does it, and the stylesheet moves what that made to its place.

mod rules;
mod sheet;

use nearmetal_change::edited;
use nearmetal_domain::DomainXml;

use crate::guests::{Guest, Host};
use crate::limit::{NO_PAGES, after_start, followed, polling, pools};
use crate::names::{Taken, file_name, one_line};
use crate::{Exported, InterchangeError, Limit};

/// The stylesheets, one a VM.
///
/// # Errors
/// A placement that contradicts its definition.
pub(crate) fn export(hosts: &[Host<'_>]) -> Result<Exported, InterchangeError> {
    let mut exported = Exported::default();
    let mut directories = Taken::default();
    for host in hosts {
        let directory = directories.free(file_name(host.name, "host"), 100);
        let mut names = Taken::default();
        for guest in &host.guests {
            let name = names.free(file_name(guest.name, "vm"), 100);
            exported.add(format!("{directory}/{name}.xsl"), stylesheet(guest)?);
            exported.limits.extend(of_guest(guest));
        }
        exported.limits.extend(pools(host, NO_PAGES));
        if !host.guests.is_empty() {
            exported.limits.push(Limit::on(
                host,
                "provider 0.9 and newer",
                "",
                "it has no XSLT any more",
                "stay with `version = \"~> 0.8.3\"`, or write the elements of the plan into the resource",
            ));
        }
    }
    Ok(exported)
}

fn of_guest(guest: &Guest<'_>) -> Vec<Limit> {
    let mut limits = Vec::new();
    for network in &guest.placement.networks {
        limits.push(Limit::of(
            guest,
            &format!("interface {}", network.mac),
            "found by its address",
            "without `mac` the provider makes up another address each time it creates the VM",
            &format!("write `mac = \"{}\"` into its network_interface", network.mac),
        ));
    }
    if guest.placement.devices.iter().any(|device| device.cell.is_some()) && guest.facts.boot.is_q35() {
        let by_hand = "write `machine = \"q35\"` into the resource";
        let why = "only q35 shows functions on guest cells, and the provider's default is the emulator's: pc";
        limits.push(Limit::of(guest, "guest cells of its functions", "", why, by_hand));
    }
    limits.extend(polling(guest, "Terraform"));
    let why = "nothing in a definition says it";
    limits.extend(after_start(guest, why, "install libvirt's hook once: `nearmetal apply` of this plan does it"));
    let why = "the stylesheet has what the plan places, not what the rules set";
    limits.extend(followed(
        guest,
        why,
        "run `nearmetal doctor --fix` after the first apply, or write it into the resource",
    ));
    limits
}

/// A definition of the guest's size that has its disks and interfaces, and nothing that a plan decides.
fn bare(guest: &Guest<'_>) -> String {
    let mut devices = String::new();
    for disk in &guest.placement.disks {
        let target = rules::escaped(&disk.target);
        devices.push_str(&format!(
            "<disk type='block' device='disk'><source dev='/dev/x'/><target dev='{target}' bus='virtio'/></disk>"
        ));
    }
    for network in &guest.placement.networks {
        let mac = network.mac;
        devices.push_str(&format!(
            "<interface type='bridge'><mac address='{mac}'/><source bridge='x'/><model type='virtio'/></interface>"
        ));
    }
    let machine = if guest.facts.boot.is_q35() { "q35" } else { "pc" };
    format!(
        "<domain type='kvm'><name>x</name><memory unit='KiB'>{}</memory><vcpu>{}</vcpu>\
         <os><type arch='x86_64' machine='{machine}'>hvm</type></os><devices>{devices}</devices></domain>",
        guest.facts.memory.kib(),
        guest.facts.vcpus.maximum
    )
}

fn stylesheet(guest: &Guest<'_>) -> Result<String, InterchangeError> {
    let failed = |problem: String| InterchangeError::Definition { vm: guest.name.to_owned(), problem };
    // Options of a disk that no virtio driver serves: the bare definition is read with its own bus.
    let text = bare(guest);
    let bare = DomainXml::parse(&text).map_err(|error| failed(error.to_string()))?;
    let planned = edited(&bare, guest.placement).map_err(|error| failed(error.to_string()))?;
    let document = roxmltree::Document::parse(planned.as_str()).map_err(|error| failed(error.to_string()))?;
    let mut sheet = sheet::Sheet::new(&comment(guest));
    rules::write(&mut sheet, guest, document.root_element());
    Ok(sheet.finish())
}

/// What the file is, in a comment: no two dashes stand together there.
fn comment(guest: &Guest<'_>) -> String {
    let name = one_line(guest.name).replace('-', "\u{2010}");
    let host = one_line(guest.host).replace('-', "\u{2010}");
    format!(
        "nearmetal's plan of {name} on {host}, for Terraform's libvirt provider up to 0.8, which runs xsltproc:\n\
         \x20      resource \"libvirt_domain\" … {{ … xml {{ xslt = file(\"this file\") }} }}\n\
         \x20    It stops if the definition is of another VM, or has another size than the plan."
    )
}
