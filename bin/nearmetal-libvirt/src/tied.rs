//! A domain that lives as long as this process: libvirt ends it when the connection ends (`VIR_DOMAIN_START_AUTODESTROY`),
//! and this process ends when nearmetal does.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use nearmetal_hypervisor::{DomainSummary, HypervisorError, Nvram, PassedFile};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

use crate::domains;
use crate::failure::Context;

/// Ends this process as soon as nobody can write to its input any more. The main loop reads that between two requests; a
/// guest whose nearmetal was killed shall not live on for as long as libvirt takes for one.
pub(crate) fn end_with_nearmetal() {
    std::thread::spawn(|| {
        let input = std::io::stdin();
        loop {
            // Nothing asked for: a hang-up is told in any case.
            let mut watched = [PollFd::new(&input, PollFlags::empty())];
            let gone = match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => false,
                Err(_) => return,
                Ok(_) => watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
            };
            if gone {
                #[allow(
                    clippy::exit,
                    reason = "the main thread may be inside a call of libvirt, and nobody waits for it"
                )]
                std::process::exit(0);
            }
        }
    });
}

/// Starts a domain with these files open, tied to the connection and without a stored definition.
///
/// libvirt hands files to a domain that it knows, so the domain is stored for a moment. Whatever fails, it is not
/// afterwards.
pub(crate) fn create(
    connect: &Connect,
    xml: &str,
    files: &[PassedFile],
    context: Context<'_>,
) -> Result<DomainSummary, HypervisorError> {
    let opened = files.iter().map(|file| open(file, context)).collect::<Result<Vec<_>, _>>()?;
    let failed = |error: Error| context.failed(&error);
    let existing = Domain::lookup_by_name(connect, context.name).is_ok();
    if existing {
        return Err(context.invalid("a domain of this name exists"));
    }
    let domain = Domain::define_xml_flags(connect, xml, sys::VIR_DOMAIN_DEFINE_VALIDATE).map_err(failed)?;
    let started = files
        .iter()
        .zip(&opened)
        .try_for_each(|(file, opened)| associate(&domain, file, opened))
        .and_then(|()| domain.create_with_flags(sys::VIR_DOMAIN_START_AUTODESTROY).map(drop));
    // A running domain without stored definition is gone when it ends.
    let undefined = domains::undefine(&domain, Nvram::Remove);
    match (started, undefined) {
        (Err(error), _) => Err(failed(error)),
        (Ok(()), Err(error)) => {
            // It would outlive its end as a definition: it is ended here.
            let _ = domain.destroy();
            Err(failed(error))
        }
        (Ok(()), Ok(())) => domains::summary(&domain).map_err(failed),
    }
}

/// Opens a file past the host's page cache: disks of tied domains have cache `none`, and QEMU takes only a descriptor that
/// has the flag already (since QEMU 10; those before set it).
///
/// Not through `HostFs`, which reads what the kernel tells: below /proc/PID/fd stands a file that nearmetal has open.
fn open(file: &PassedFile, context: Context<'_>) -> Result<OwnedFd, HypervisorError> {
    let access = if file.writable { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(file.path.as_str(), flags, Mode::empty()).map_err(|errno| {
        let why = match errno {
            rustix::io::Errno::INVAL => "its file system has no O_DIRECT: choose another directory".to_owned(),
            other => other.to_string(),
        };
        context.invalid(format!("cannot open the file `{}` ({}) for it: {why}", file.group, file.path))
    })
}

fn associate(domain: &Domain, file: &PassedFile, opened: &OwnedFd) -> Result<(), Error> {
    // Without a zero byte: checked for every text of a request.
    let group = CString::new(file.group.as_str()).unwrap_or_default();
    let mut numbers = [opened.as_raw_fd()];
    let flags = if file.writable { sys::VIR_DOMAIN_FD_ASSOCIATE_SECLABEL_WRITABLE } else { 0 };
    #[allow(unsafe_code, reason = "virt 0.4.3 has no wrapper for virDomainFDAssociate")]
    // SAFETY: the domain handle is valid as long as `domain` lives, `group` ends in a zero byte, and `numbers` holds one
    // descriptor that is open until the call returns; libvirt keeps duplicates.
    let result = unsafe { sys::virDomainFDAssociate(domain.as_ptr(), group.as_ptr(), 1, numbers.as_mut_ptr(), flags) };
    if result == -1 { Err(Error::last_error()) } else { Ok(()) }
}
