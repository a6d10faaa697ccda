//! What the kernel says of devices that come, go and change: uevents, from their netlink socket
//! (Documentation/ABI/testing/sysfs-uevent; the format is written by lib/kobject_uevent.c).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};

/// The kernel's own multicast group. Group 2 is udev's, in another format.
const KERNEL_GROUP: u32 = 1;

/// The longest message: `UEVENT_BUFFER_SIZE` of the kernel, and the path in front of it.
const LONGEST: usize = 8 << 10;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `remove`, `change`, `move`, `online`, `offline`, `bind`, `unbind`.
    pub action: String,
    /// The device, below /sys: `/devices/system/cpu/cpu3`.
    pub device: String,
    /// `cpu`, `memory`, `pci`, `block`.
    pub subsystem: String,
}

/// Why a message is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UeventError {
    /// Bytes that are no text.
    #[error("a uevent is not text")]
    NotText,
    /// The first part is not `ACTION@DEVICE`.
    #[error("a uevent does not begin with an action and a device")]
    Headless,
    /// No subsystem, which the kernel never leaves out.
    #[error("a uevent names no subsystem")]
    WithoutSubsystem,
}

impl Uevent {
    /// Reads a message: `ACTION@DEVICE`, then `NAME=value`, each ended by a zero byte.
    ///
    /// # Errors
    /// It is not what the kernel writes.
    pub fn parse(message: &[u8]) -> Result<Self, UeventError> {
        let text = std::str::from_utf8(message).map_err(|_| UeventError::NotText)?;
        let mut parts = text.split('\0');
        let head = parts.next().and_then(|head| head.split_once('@'));
        let (action, device) = head
            .filter(|(action, device)| !action.is_empty() && device.starts_with('/'))
            .ok_or(UeventError::Headless)?;
        let subsystem = parts
            .find_map(|part| part.strip_prefix("SUBSYSTEM="))
            .filter(|subsystem| !subsystem.is_empty())
            .ok_or(UeventError::WithoutSubsystem)?;
        Ok(Self { action: action.to_owned(), device: device.to_owned(), subsystem: subsystem.to_owned() })
    }

    /// Whether it may make a host other than a plan says: a PU or a block of memory that comes or goes, a PCI function that
    /// changes its driver, a drive that comes or goes. The kernel has no uevent for a drive's scheduler, nor for a thread
    /// that is moved; and of a drive it says `change` whenever somebody has written to it.
    pub fn concerns_guests(&self) -> bool {
        match self.subsystem.as_str() {
            "cpu" | "memory" => matches!(self.action.as_str(), "add" | "remove" | "online" | "offline"),
            "pci" => matches!(self.action.as_str(), "add" | "remove" | "bind" | "unbind"),
            "block" => matches!(self.action.as_str(), "add" | "remove"),
            _ => false,
        }
    }
}

/// What was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Uevent(Uevent),
    /// More messages came than the socket holds: some are lost.
    Overflow,
}

/// The kernel's uevents, from now on.
#[derive(Debug)]
pub struct Uevents {
    socket: OwnedFd,
}

impl Uevents {
    /// Begins to listen; needs no privilege.
    ///
    /// # Errors
    /// The system has no such socket for us (a container may have none).
    pub fn open() -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self { socket })
    }

    /// Waits for the next message of the kernel. One from somebody else (only root may send there) is passed over, and so
    /// is one that cannot be read.
    ///
    /// # Errors
    /// The socket is of no more use.
    pub fn wait(&mut self) -> io::Result<Heard> {
        let mut buffer = [0; LONGEST];
        loop {
            let (length, sender) = match recvfrom(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _, sender)) => (length, sender),
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => return Ok(Heard::Overflow),
                Err(error) => return Err(error.into()),
            };
            let from_the_kernel = sender
                .and_then(|sender| SocketAddrNetlink::try_from(sender).ok())
                .is_some_and(|sender| sender.pid() == 0);
            if let (true, Ok(uevent)) = (from_the_kernel, Uevent::parse(&buffer[..length])) {
                return Ok(Heard::Uevent(uevent));
            }
        }
    }
}

/// For the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_target() -> crate::fuzzing::Target {
    crate::fuzzing::Target::bytes("uevent", SAMPLE, |bytes| {
        if let Ok(uevent) = Uevent::parse(bytes) {
            let _ = uevent.concerns_guests();
        }
    })
}

/// What Linux 6.1 sends when a PU is switched off.
#[cfg(any(test, feature = "fuzzing"))]
const SAMPLE: &[u8] = b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0DEVPATH=/devices/system/cpu/cpu3\0\
    SUBSYSTEM=cpu\0DRIVER=processor\0MODALIAS=cpu:type:x86\0SEQNUM=4711\0";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uevent(action: &str, subsystem: &str) -> Uevent {
        Uevent { action: action.to_owned(), device: "/devices/x".to_owned(), subsystem: subsystem.to_owned() }
    }

    #[test]
    fn the_kernels_message_is_read() {
        let read = Uevent::parse(SAMPLE).unwrap();
        assert_eq!(
            (read.action.as_str(), read.device.as_str(), read.subsystem.as_str()),
            ("offline", "/devices/system/cpu/cpu3", "cpu")
        );
        assert!(read.concerns_guests());
    }

    #[test]
    fn what_a_starting_guest_causes_is_no_change_of_the_host() {
        for (action, subsystem) in [("add", "net"), ("change", "block"), ("add", "queues"), ("change", "cpu")] {
            assert!(!uevent(action, subsystem).concerns_guests(), "{action} {subsystem}");
        }
        for (action, subsystem) in [("online", "memory"), ("bind", "pci"), ("remove", "block")] {
            assert!(uevent(action, subsystem).concerns_guests(), "{action} {subsystem}");
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert_eq!(Uevent::parse(b"libudev\0\xfe\xed"), Err(UeventError::NotText));
        assert_eq!(Uevent::parse(b""), Err(UeventError::Headless));
        assert_eq!(Uevent::parse(b"add@devices/x\0SUBSYSTEM=cpu\0"), Err(UeventError::Headless));
        assert_eq!(Uevent::parse(b"@/devices/x\0SUBSYSTEM=cpu\0"), Err(UeventError::Headless));
        assert_eq!(Uevent::parse(b"add@/devices/x\0SUBSYSTEM=\0"), Err(UeventError::WithoutSubsystem));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Uevent::parse(&bytes);
        }

        #[test]
        fn a_cut_message_is_read_alike_or_refused(length in 0..SAMPLE.len()) {
            if let Ok(read) = Uevent::parse(&SAMPLE[..length]) {
                prop_assert_eq!(read.action, "offline");
                prop_assert!("cpu".starts_with(&read.subsystem));
            }
        }
    }
}
