//! The one interface to the hypervisor.

use std::time::{Duration, Instant};

use nearmetal_units::CpuSet;
use serde_json::Value;

use crate::{Definition, DomainSummary, HypervisorError, Nvram, PassedFile, Scope, ShutdownMode, Versions};

/// What nearmetal asks of libvirt. `&mut` because one connection answers one question at a time.
///
/// No method repeats a request by itself: after [`HypervisorError::ConnectionLost`] or
/// [`HypervisorError::HelperStopped`] it is unknown whether the request was carried out, and only reading the state
/// back tells.
pub trait Hypervisor {
    /// The time by which waiting for a guest is measured. A fake has one of its own, which goes on without anybody waiting.
    fn now(&self) -> Instant;

    /// Waits before a guest is asked again.
    fn pause(&mut self, time: Duration);

    /// Versions of libvirt and of the hypervisor, and the URI.
    fn versions(&mut self) -> Result<Versions, HypervisorError>;

    /// The capabilities XML of the host.
    fn capabilities(&mut self) -> Result<String, HypervisorError>;

    /// The XML of each PCI function, drive and network interface of the host, as `virsh nodedev-dumpxml` prints it.
    fn node_devices(&mut self) -> Result<Vec<String>, HypervisorError>;

    /// All domains, running or not, by name.
    fn domains(&mut self) -> Result<Vec<DomainSummary>, HypervisorError>;

    /// One domain; [`HypervisorError::NoSuchDomain`] lists what exists.
    fn domain(&mut self, name: &str) -> Result<DomainSummary, HypervisorError>;

    /// The XML of a domain. A transient domain has no stored definition: `Inactive` then gives what it would be.
    fn domain_xml(&mut self, name: &str, which: Definition) -> Result<String, HypervisorError>;

    /// Stores a definition, validated against libvirt's schema; replaces the one with the same name and UUID. A
    /// running instance is not touched.
    fn define(&mut self, xml: &str) -> Result<DomainSummary, HypervisorError>;

    /// Removes the stored definition; a running instance becomes transient. A domain with snapshots or a saved state is
    /// refused by libvirt, since both would be lost.
    fn undefine(&mut self, name: &str, nvram: Nvram) -> Result<(), HypervisorError>;

    /// Starts a stored domain, with its vCPUs stopped if `paused`.
    fn start(&mut self, name: &str, paused: bool) -> Result<(), HypervisorError>;

    /// Starts a domain that has no stored definition and disappears when it stops: for clones.
    fn create_transient(&mut self, xml: &str, paused: bool) -> Result<DomainSummary, HypervisorError>;

    /// Starts a domain that has no stored definition, and that libvirt ends as soon as this connection ends, however that
    /// comes about. `files` are opened and handed over; the XML names them by their groups. From then on the connection is
    /// never made anew: a lost one is [`HypervisorError::ConnectionLost`] or [`HypervisorError::HelperStopped`].
    fn create_tied(&mut self, xml: &str, files: &[PassedFile]) -> Result<DomainSummary, HypervisorError>;

    /// Asks the guest to stop and waits until it is off. A guest that does not stop in time is left running
    /// ([`HypervisorError::Timeout`]); it is never destroyed. A domain that is off already is a success.
    fn shutdown(&mut self, name: &str, how: ShutdownMode, timeout: Duration) -> Result<(), HypervisorError>;

    /// Ends a running instance at once, as pulling the plug does: only for nearmetal's own clones, or when asked.
    fn destroy(&mut self, name: &str) -> Result<(), HypervisorError>;

    /// Stops the vCPUs.
    fn suspend(&mut self, name: &str) -> Result<(), HypervisorError>;

    /// Lets the vCPUs run.
    fn resume(&mut self, name: &str) -> Result<(), HypervisorError>;

    /// Pins one vCPU thread.
    fn pin_vcpu(&mut self, name: &str, vcpu: u32, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError>;

    /// Pins the emulator threads.
    fn pin_emulator(&mut self, name: &str, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError>;

    /// Pins one iothread (`id` counts from 1, as in the XML).
    fn pin_iothread(&mut self, name: &str, id: u32, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError>;

    /// Sets whether libvirt starts the domain with the host.
    fn set_autostart(&mut self, name: &str, autostart: bool) -> Result<(), HypervisorError>;

    /// Sets or removes the one element that `<metadata>` holds for a namespace, as `virsh metadata` does. `element` is
    /// without prefix (`<class>latency</class>`); libvirt gives it `prefix` and the namespace. `None` removes it.
    fn set_metadata(
        &mut self,
        name: &str,
        namespace: &str,
        prefix: &str,
        element: Option<&str>,
        scope: Scope,
    ) -> Result<(), HypervisorError>;

    /// Plugs a device into the running instance: one device element, as in the XML. The stored definition stays as it is.
    fn attach_device(&mut self, name: &str, xml: &str) -> Result<(), HypervisorError>;

    /// Asks the running instance to let go of a device: the element as the live XML has it. The guest decides when, or
    /// never; the device is gone once the live XML no longer has it.
    fn detach_device(&mut self, name: &str, xml: &str) -> Result<(), HypervisorError>;

    /// One command to the guest agent; the value of `return` comes back. `timeout` is how long the agent may take for
    /// it, in whole seconds, one at least. libvirt marks the domain as tainted (`custom-ga-command`) in its log.
    fn agent(&mut self, name: &str, command: &Value, timeout: Duration) -> Result<Value, HypervisorError>;

    /// One QMP command to QEMU; the value of `return` comes back. libvirt marks the running instance as tainted
    /// (`custom-monitor`) in its log: use it for questions, never to change what libvirt believes it knows.
    fn monitor(&mut self, name: &str, command: &Value) -> Result<Value, HypervisorError>;
}
