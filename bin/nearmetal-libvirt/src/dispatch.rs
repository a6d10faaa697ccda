//! Each request is one call of libvirt, but for the one that ties a domain to this process.

use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{HypervisorError, Versions};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

use crate::connection::Open;
use crate::failure::Context;
use crate::{agent, domains, events, pins, tied};

pub(crate) fn carry_out(open: &Open, request: &Request, context: Context<'_>) -> Result<Reply, HypervisorError> {
    let connect = &open.connect;
    let failed = |error: Error| context.failed(&error);
    let find = |name: &str| domains::find(connect, name, context);
    let done = |result: Result<(), Error>| result.map(|()| Reply::Done).map_err(failed);
    match request {
        Request::Versions => versions(open).map(Reply::Versions).map_err(failed),
        Request::Capabilities => connect.get_capabilities().map(Reply::Xml).map_err(failed),
        Request::NodeDevices => devices(connect).map(Reply::Documents).map_err(failed),
        Request::Domains => domains::list(connect).map(Reply::Domains).map_err(failed),
        Request::Domain { name } => domains::summary(&find(name)?).map(Reply::Domain).map_err(failed),
        Request::DomainXml { name, which } => {
            let flags = domains::xml_flags(*which, open.read_only.is_some());
            find(name)?.get_xml_desc(flags).map(Reply::Xml).map_err(failed)
        }
        Request::Define { xml } => Domain::define_xml_flags(connect, xml, sys::VIR_DOMAIN_DEFINE_VALIDATE)
            .and_then(|domain| domains::summary(&domain))
            .map(Reply::Domain)
            .map_err(failed),
        Request::Undefine { name, nvram } => done(domains::undefine(&find(name)?, *nvram)),
        Request::Start { name, paused } => done(find(name)?.create_with_flags(domains::start_flags(*paused)).map(drop)),
        Request::CreateTransient { xml, paused } => {
            let flags = sys::VIR_DOMAIN_START_VALIDATE | domains::start_flags(*paused);
            Domain::create_xml(connect, xml, flags)
                .and_then(|domain| domains::summary(&domain))
                .map(Reply::Domain)
                .map_err(failed)
        }
        Request::CreateTied { xml, files } => tied::create(connect, xml, files, context).map(Reply::Domain),
        Request::Shutdown { name, signal } => agent::shutdown(&find(name)?, *signal, context),
        Request::Destroy { name } => done(find(name)?.destroy()),
        Request::Suspend { name } => done(find(name)?.suspend().map(drop)),
        Request::Resume { name } => done(find(name)?.resume().map(drop)),
        Request::PinVcpu { name, vcpu, cpus, scope } => done(pins::vcpu(&find(name)?, *vcpu, cpus, *scope)),
        Request::PinEmulator { name, cpus, scope } => done(pins::emulator(&find(name)?, cpus, *scope)),
        Request::PinIothread { name, id, cpus, scope } => done(pins::iothread(&find(name)?, *id, cpus, *scope)),
        Request::SetAutostart { name, autostart } => done(find(name)?.set_autostart(*autostart).map(drop)),
        Request::SetMetadata { name, namespace, prefix, element, scope } => {
            let (kind, flags) = (sys::VIR_DOMAIN_METADATA_ELEMENT as i32, pins::flags(*scope));
            let domain = find(name)?;
            done(domain.set_metadata(kind, element.as_deref(), Some(prefix), Some(namespace), flags).map(drop))
        }
        Request::AttachDevice { name, xml } => {
            done(find(name)?.attach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE).map(drop))
        }
        Request::DetachDevice { name, xml } => {
            done(find(name)?.detach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE).map(drop))
        }
        Request::Agent { name, command, timeout } => agent::command(&find(name)?, command, *timeout, context),
        Request::Events => done(events::follow(connect)),
        Request::Monitor { name, command } => agent::monitor(&find(name)?, command, context),
    }
}

/// PCI functions, drives and interfaces; what left while they were asked for is left out.
fn devices(connect: &Connect) -> Result<Vec<String>, Error> {
    let flags = sys::VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_CAP_STORAGE
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET;
    let devices = connect.list_all_node_devices(flags)?;
    Ok(devices.iter().filter_map(|device| device.get_xml_desc(0).ok()).collect())
}

fn versions(open: &Open) -> Result<Versions, Error> {
    let shown = |number: u32| format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000);
    Ok(Versions {
        libvirt: shown(open.connect.get_lib_version()?),
        hypervisor: shown(open.connect.get_hyp_version()?),
        hypervisor_kind: open.connect.get_type()?,
        uri: open.connect.get_uri()?,
    })
}
