//! libvirt's events of domains, from its callbacks to lines.
#![allow(unsafe_code, reason = "`virt` has no wrapper for events of domains, and libvirt's callbacks are C")]

use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use nearmetal_hypervisor::{DomainEvent, EventKind, write_event};
use virt::connect::Connect;
use virt::error::Error;
use virt::event::{event_add_handle, event_register_default_impl, event_run_default_impl};
use virt::sys;

/// What the callbacks have heard and nobody has said yet. This process listens to one connection, in one thread.
static HEARD: Mutex<Vec<DomainEvent>> = Mutex::new(Vec::new());

/// Whether nearmetal is gone: its end of our input is closed.
static INPUT_ENDED: Mutex<bool> = Mutex::new(false);

/// libvirt's event loop, which has to be there before the connection is opened.
pub(crate) fn prepare() -> Result<(), Error> {
    event_register_default_impl()
}

/// Has libvirt tell of all domains from now on.
pub(crate) fn follow(connect: &Connect) -> Result<(), Error> {
    register(connect, sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle as *const c_void)?;
    register(connect, sys::VIR_DOMAIN_EVENT_ID_REBOOT, rebooted as *const c_void)?;
    register(connect, sys::VIR_DOMAIN_EVENT_ID_DEVICE_ADDED, device_changed as *const c_void)?;
    register(connect, sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, device_changed as *const c_void)?;
    register(connect, sys::VIR_DOMAIN_EVENT_ID_TUNABLE, tuned as *const c_void)?;
    register(connect, sys::VIR_DOMAIN_EVENT_ID_BALLOON_CHANGE, balloon_changed as *const c_void)
}

/// Says what happens until the connection, or the reader, is gone.
pub(crate) fn say(connect: &Connect, mut output: impl Write) -> std::io::Result<()> {
    let hung_up = sys::VIR_EVENT_HANDLE_READABLE | sys::VIR_EVENT_HANDLE_HANGUP | sys::VIR_EVENT_HANDLE_ERROR;
    let ended = |_: c_int, _: c_int, _: sys::virEventHandleType, _: *mut c_void| {
        *INPUT_ENDED.lock().unwrap_or_else(PoisonError::into_inner) = true;
    };
    event_add_handle(0, hung_up, ended, std::ptr::null_mut()).map_err(std::io::Error::other)?;
    loop {
        for event in heard() {
            write_event(&mut output, event)?;
        }
        // A daemon that goes closes its end of the connection, which wakes the loop.
        let over = *INPUT_ENDED.lock().unwrap_or_else(PoisonError::into_inner);
        if over || !connect.is_alive().unwrap_or(false) {
            return Ok(());
        }
        event_run_default_impl().map_err(std::io::Error::other)?;
    }
}

fn heard() -> Vec<DomainEvent> {
    std::mem::take(&mut *HEARD.lock().unwrap_or_else(PoisonError::into_inner))
}

fn register(connect: &Connect, event: sys::virDomainEventID, callback: *const c_void) -> Result<(), Error> {
    // SAFETY: libvirt takes every callback as the generic one and calls it with the arguments of its event; the two differ
    // in arguments alone. The connection is open, and no data goes along.
    let id = unsafe {
        let callback: sys::virConnectDomainEventGenericCallback = std::mem::transmute(callback);
        sys::virConnectDomainEventRegisterAny(
            connect.as_ptr(),
            std::ptr::null_mut(),
            event as c_int,
            callback,
            std::ptr::null_mut(),
            None,
        )
    };
    if id < 0 { Err(Error::last_error()) } else { Ok(()) }
}

/// Notes an event. A panic must not cross into C: nothing here does.
fn note(domain: sys::virDomainPtr, kind: EventKind) {
    // SAFETY: libvirt gives its callbacks a valid domain; the name is its own and lives as long as the domain.
    let name = unsafe {
        let name = sys::virDomainGetName(domain);
        if name.is_null() {
            return;
        }
        CStr::from_ptr(name).to_string_lossy().into_owned()
    };
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(DomainEvent { domain: name, kind });
}

/// What an event of a domain's life means here; `None` for one that this version does not know.
fn kind(event: c_int) -> Option<EventKind> {
    Some(match sys::virDomainEventType::try_from(event).ok()? {
        sys::VIR_DOMAIN_EVENT_DEFINED | sys::VIR_DOMAIN_EVENT_UNDEFINED => EventKind::Defined,
        sys::VIR_DOMAIN_EVENT_STARTED => EventKind::Started,
        sys::VIR_DOMAIN_EVENT_RESUMED => EventKind::Resumed,
        sys::VIR_DOMAIN_EVENT_SUSPENDED | sys::VIR_DOMAIN_EVENT_PMSUSPENDED => EventKind::Suspended,
        sys::VIR_DOMAIN_EVENT_STOPPED | sys::VIR_DOMAIN_EVENT_SHUTDOWN | sys::VIR_DOMAIN_EVENT_CRASHED => {
            EventKind::Stopped
        }
        _ => return None,
    })
}

unsafe extern "C" fn lifecycle(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    event: c_int,
    _detail: c_int,
    _: *mut c_void,
) -> c_int {
    if let Some(kind) = kind(event) {
        note(domain, kind);
    }
    0
}

unsafe extern "C" fn rebooted(_: sys::virConnectPtr, domain: sys::virDomainPtr, _: *mut c_void) {
    note(domain, EventKind::Rebooted);
}

unsafe extern "C" fn device_changed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _alias: *const c_char,
    _: *mut c_void,
) {
    note(domain, EventKind::DevicesChanged);
}

unsafe extern "C" fn tuned(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _: sys::virTypedParameterPtr,
    _count: c_int,
    _: *mut c_void,
) {
    note(domain, EventKind::Tuned);
}

unsafe extern "C" fn balloon_changed(
    _: sys::virConnectPtr,
    domain: sys::virDomainPtr,
    _actual: c_ulonglong,
    _: *mut c_void,
) {
    note(domain, EventKind::Tuned);
}

#[cfg(test)]
mod tests {
    use virt::domain::Domain;

    use super::*;

    #[test]
    fn what_happens_to_a_domain_of_libvirts_test_driver_is_heard_in_order() {
        prepare().unwrap();
        let mut connect = Connect::open(Some("test:///default")).expect("libvirt has its test driver");
        follow(&connect).unwrap();
        let domain = Domain::lookup_by_name(&connect, "test").unwrap();
        domain.suspend().unwrap();
        domain.resume().unwrap();
        domain.destroy().unwrap();
        domain.create().unwrap();
        let mut kinds = Vec::new();
        // Events are told from the loop, by timers of its own.
        for _ in 0..20 {
            if kinds.len() >= 4 {
                break;
            }
            event_run_default_impl().unwrap();
            kinds.extend(heard().into_iter().filter(|event| event.domain == "test").map(|event| event.kind));
        }
        let wanted = [EventKind::Suspended, EventKind::Resumed, EventKind::Stopped, EventKind::Started];
        assert_eq!(kinds, wanted);
        connect.close().unwrap();
    }

    #[test]
    fn an_event_of_a_later_libvirt_is_passed_over() {
        assert_eq!(kind(-1), None);
        assert_eq!(kind(4711), None);
        assert_eq!(kind(sys::VIR_DOMAIN_EVENT_CRASHED as c_int), Some(EventKind::Stopped));
    }
}
