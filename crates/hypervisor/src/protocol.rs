//! What nearmetal and its helper say to each other: one JSON object per line, a request on the helper's stdin, its
//! reply on the helper's stdout, in order. Nothing else is ever written to either.
//!
//! The first line each way is the hello. The two programs come from one release, so there is one version number and no
//! negotiation: raise [`PROTOCOL`] with every change of these types.
//!
//! One request ends the questions: after the reply to [`Request::Events`] the helper says an [`EventLine`] for each event
//! and reads nothing more, until its input or its connection ends.
//!
//! Recipe for a new request: a variant here (with its verb in [`Request::action`]), a method in `hypervisor.rs`, its
//! body in `client.rs`, its effect in `fake/`, its call in `bin/nearmetal-libvirt`.

use std::time::Duration;

use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Definition, DomainEvent, DomainSummary, HypervisorError, Nvram, PassedFile, Scope, Versions};

/// The version of this file.
pub const PROTOCOL: u32 = 7;

/// The longest line either side accepts. The largest lines are file chunks from a guest (700 KB as base64) and domain
/// XML; libvirt itself ends at 4 MiB for one string.
pub const LONGEST_LINE: usize = 16 << 20;

/// First line each way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of who says it.
    pub protocol: u32,
}

/// A request as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLine {
    /// Comes back in the reply.
    pub id: u64,
    /// What is asked.
    pub request: Request,
}

/// A reply as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyLine {
    /// The request's number; `None` if the line could not be read as a request.
    pub id: Option<u64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// An event as it is written, after the reply to [`Request::Events`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventLine {
    /// What happened.
    pub event: DomainEvent,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The answer.
    Reply(Reply),
    /// Why there is none.
    Error(HypervisorError),
}

impl From<Result<Reply, HypervisorError>> for Outcome {
    fn from(result: Result<Reply, HypervisorError>) -> Self {
        match result {
            Ok(reply) => Self::Reply(reply),
            Err(error) => Self::Error(error),
        }
    }
}

/// How a guest is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShutdownSignal {
    /// By the guest agent.
    Agent,
    /// By the ACPI power button.
    Acpi,
}

/// What can be asked. Each is one call of libvirt, unless it says otherwise; the methods of [`crate::Hypervisor`] say what they mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of the methods of Hypervisor")]
pub enum Request {
    Versions,
    Capabilities,
    NodeDevices,
    Domains,
    Domain {
        name: String,
    },
    DomainXml {
        name: String,
        which: Definition,
    },
    Define {
        xml: String,
    },
    Undefine {
        name: String,
        nvram: Nvram,
    },
    Start {
        name: String,
        paused: bool,
    },
    CreateTransient {
        xml: String,
        paused: bool,
    },
    /// Several calls of libvirt, in one request: between them the domain is stored, and whoever dies there leaves it so.
    CreateTied {
        xml: String,
        files: Vec<PassedFile>,
    },
    /// Sends the signal only; the waiting is done by nearmetal, so that nothing goes on without it if it is killed.
    Shutdown {
        name: String,
        signal: ShutdownSignal,
    },
    Destroy {
        name: String,
    },
    Suspend {
        name: String,
    },
    Resume {
        name: String,
    },
    PinVcpu {
        name: String,
        vcpu: u32,
        cpus: CpuSet,
        scope: Scope,
    },
    PinEmulator {
        name: String,
        cpus: CpuSet,
        scope: Scope,
    },
    PinIothread {
        name: String,
        id: u32,
        cpus: CpuSet,
        scope: Scope,
    },
    SetAutostart {
        name: String,
        autostart: bool,
    },
    SetMetadata {
        name: String,
        namespace: String,
        prefix: String,
        element: Option<String>,
        scope: Scope,
    },
    AttachDevice {
        name: String,
        xml: String,
    },
    DetachDevice {
        name: String,
        xml: String,
    },
    Agent {
        name: String,
        command: Value,
        timeout: Duration,
    },
    Monitor {
        name: String,
        command: Value,
    },
    /// From now on, say what happens to domains, and answer nothing more.
    Events,
}

impl Request {
    /// The verb, for messages: `cannot … `name``.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Versions => "read the versions of",
            Self::Capabilities => "read the capabilities of",
            Self::NodeDevices => "list the devices of",
            Self::Domains => "list the domains of",
            Self::Domain { .. } => "look up",
            Self::DomainXml { .. } => "read the XML of",
            Self::Define { .. } => "define",
            Self::Undefine { .. } => "undefine",
            Self::Start { .. } => "start",
            Self::CreateTransient { .. } | Self::CreateTied { .. } => "create",
            Self::Shutdown { .. } => "shut down",
            Self::Destroy { .. } => "destroy",
            Self::Suspend { .. } => "suspend",
            Self::Resume { .. } => "resume",
            Self::PinVcpu { .. } => "pin a vCPU of",
            Self::PinEmulator { .. } => "pin the emulator threads of",
            Self::PinIothread { .. } => "pin an iothread of",
            Self::SetAutostart { .. } => "set the autostart of",
            Self::SetMetadata { .. } => "set the metadata of",
            Self::AttachDevice { .. } => "plug a device into",
            Self::DetachDevice { .. } => "unplug a device from",
            Self::Agent { .. } => "ask the guest agent of",
            Self::Monitor { .. } => "ask the QEMU monitor of",
            Self::Events => "follow the events of",
        }
    }

    /// The name of the domain it is about, if the request has it.
    pub fn domain(&self) -> Option<&str> {
        match self {
            Self::Versions | Self::Capabilities | Self::NodeDevices | Self::Domains | Self::Events => None,
            // Good enough for a message; what libvirt makes of the XML is libvirt's business.
            Self::Define { xml } | Self::CreateTransient { xml, .. } | Self::CreateTied { xml, .. } => {
                Some(xml.split_once("<name>")?.1.split_once("</name>")?.0)
            }
            Self::Domain { name }
            | Self::DomainXml { name, .. }
            | Self::Undefine { name, .. }
            | Self::Start { name, .. }
            | Self::Shutdown { name, .. }
            | Self::Destroy { name }
            | Self::Suspend { name }
            | Self::Resume { name }
            | Self::PinVcpu { name, .. }
            | Self::PinEmulator { name, .. }
            | Self::PinIothread { name, .. }
            | Self::SetAutostart { name, .. }
            | Self::SetMetadata { name, .. }
            | Self::AttachDevice { name, .. }
            | Self::DetachDevice { name, .. }
            | Self::Agent { name, .. }
            | Self::Monitor { name, .. } => Some(name),
        }
    }

    /// What a message calls the object of the request.
    pub fn subject(&self) -> String {
        self.domain().unwrap_or("libvirt").to_owned()
    }

    /// The texts of it that go to libvirt as they are.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let texts: [Option<&str>; 3] = match self {
            Self::Define { xml }
            | Self::CreateTransient { xml, .. }
            | Self::CreateTied { xml, .. }
            | Self::AttachDevice { xml, .. }
            | Self::DetachDevice { xml, .. } => [Some(xml), None, None],
            Self::SetMetadata { namespace, prefix, element, .. } => [Some(namespace), Some(prefix), element.as_deref()],
            _ => [None; 3],
        };
        let files = match self {
            Self::CreateTied { files, .. } => files.as_slice(),
            _ => &[],
        };
        let files = files.iter().flat_map(|file| [file.group.as_str(), file.path.as_str()]);
        self.domain().into_iter().chain(texts.into_iter().flatten()).chain(files)
    }

    /// Whether it can change anything. Commands to agent and monitor count as changes: nothing here knows them all.
    pub fn is_change(&self) -> bool {
        !matches!(
            self,
            Self::Versions
                | Self::Capabilities
                | Self::NodeDevices
                | Self::Domains
                | Self::Events
                | Self::Domain { .. }
                | Self::DomainXml { .. }
        )
    }

    /// How long libvirt may take before nearmetal gives up on the helper. Starting a guest faults in all of its
    /// hugepages, which takes minutes on a large one; everything else is a matter of a second on an idle host.
    pub fn patience(&self) -> Duration {
        match self {
            Self::Start { .. } | Self::CreateTransient { .. } | Self::CreateTied { .. } => Duration::from_secs(900),
            // libvirt waits up to 60 s for the agent's answer to a shutdown.
            Self::Shutdown { .. } | Self::Destroy { .. } => Duration::from_secs(120),
            Self::Agent { timeout, .. } => timeout.saturating_add(Duration::from_secs(60)),
            _ => Duration::from_secs(60),
        }
    }
}

/// What can be answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To requests that only do something.
    Done,
    /// To [`Request::Versions`].
    Versions(Versions),
    /// To [`Request::Capabilities`] and [`Request::DomainXml`].
    Xml(String),
    /// To [`Request::NodeDevices`]: one document each.
    Documents(Vec<String>),
    /// To [`Request::Domains`].
    Domains(Vec<DomainSummary>),
    /// To [`Request::Domain`], [`Request::Define`], [`Request::CreateTransient`] and [`Request::CreateTied`].
    Domain(DomainSummary),
    /// To [`Request::Agent`] and [`Request::Monitor`]: what came under `return`.
    Value(Value),
}
