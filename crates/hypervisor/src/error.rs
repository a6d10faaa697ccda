//! What can go wrong between nearmetal and a guest.

use serde::{Deserialize, Serialize};

/// What a site adds to AppArmor's profile of every guest; libvirt's package includes it, and never writes it.
pub const LOCAL_PROFILE: &str = "/etc/apparmor.d/local/abstractions/libvirt-qemu";

/// The command that adds a rule to it. Debian 13 has no directory for it until somebody makes one.
pub fn allow_in_profile(rule: &str) -> String {
    let directory = LOCAL_PROFILE.trim_end_matches("/libvirt-qemu");
    format!("mkdir -p {directory} && echo '  {rule}' >> {LOCAL_PROFILE}")
}

/// What helps, as far as libvirt's own text shows it.
///
/// A network of libvirt chooses the function that it deals when the guest starts. `virt-aa-helper`, which writes the guest's profile, sees
/// the definition, and that names the network alone (libvirt 11.3, Debian 13: `/dev/vfio/11` is refused, and with this line it opens).
fn remedy(message: &str) -> String {
    if !(message.contains("/dev/vfio/") && message.contains("Permission denied")) {
        return String::new();
    }
    format!(
        "; where AppArmor confines guests, libvirt opens no function to them that one of its networks deals: allow it, for all guests from \
         their next start on: {}",
        allow_in_profile("/dev/vfio/[0-9]* rw,")
    )
}

/// A failed request. Crosses the helper's pipe as it is, so it holds values and no source errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum HypervisorError {
    /// The helper cannot be executed.
    #[error(
        "cannot run the libvirt helper `{path}`: {reason}; install nearmetal-libvirt beside nearmetal, or name it in \
         $NEARMETAL_LIBVIRT"
    )]
    HelperMissing {
        /// Where it was looked for.
        path: String,
        /// The system's answer.
        reason: String,
    },

    /// The helper is there, and the library it links is not.
    #[error(
        "{library} is not installed: apt install libvirt0 (and libvirt-daemon-system, if this host runs the guests)"
    )]
    LibvirtMissing {
        /// The file the dynamic loader did not find.
        library: String,
    },

    /// The helper ended before it could answer anything.
    #[error("the libvirt helper `{path}` does not start ({status}): {output}; run it by hand to see more")]
    HelperFailed {
        /// Its path.
        path: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote to stderr.
        output: String,
    },

    /// The helper ended while a request was under way.
    #[error(
        "the libvirt helper ended while asked to {action} `{name}` ({status}): {output}; whether that was done is \
         unknown, read the state before trying again"
    )]
    HelperStopped {
        /// The verb of the request.
        action: String,
        /// The domain, or the URI if none was concerned.
        name: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote to stderr.
        output: String,
    },

    /// The helper is of another version.
    #[error(
        "the libvirt helper `{path}` speaks protocol {found} and this nearmetal speaks {expected}: install both from \
         the same release"
    )]
    HelperIncompatible {
        /// Its path.
        path: String,
        /// This program's protocol number.
        expected: u32,
        /// The helper's.
        found: u32,
    },

    /// A line on the pipe that makes no sense.
    #[error(
        "nearmetal and its libvirt helper do not understand each other: {reason}; install both from the same release"
    )]
    Protocol {
        /// What was wrong with it.
        reason: String,
    },

    /// No connection to libvirt.
    #[error(
        "cannot reach libvirt at {uri}: {reason}; start it (systemctl start libvirtd, or virtqemud where that is used), \
         or give the right URI in $LIBVIRT_DEFAULT_URI"
    )]
    Unreachable {
        /// The URI that was tried.
        uri: String,
        /// libvirt's own text.
        reason: String,
    },

    /// The connection broke while a request was under way.
    #[error(
        "lost libvirt at {uri} while asked to {action} `{name}`: {reason}; whether that was done is unknown, read the \
         state before trying again"
    )]
    ConnectionLost {
        /// The URI.
        uri: String,
        /// The verb of the request.
        action: String,
        /// The domain, or the URI if none was concerned.
        name: String,
        /// libvirt's own text.
        reason: String,
    },

    /// The user may not do that.
    #[error("not permitted to {action} `{name}`: {reason}; run as root, or as a member of the group libvirt")]
    NotPermitted {
        /// The verb of the request.
        action: String,
        /// The domain, or the URI if none was concerned.
        name: String,
        /// libvirt's own text.
        reason: String,
    },

    /// There is no domain of that name.
    #[error("no domain is called `{name}`; {}", existing_domains(existing))]
    NoSuchDomain {
        /// The name as given.
        name: String,
        /// What exists.
        existing: Vec<String>,
    },

    /// The domain is in a state in which the request cannot succeed.
    #[error("cannot {action} `{name}`: it is {state}; {advice}")]
    WrongState {
        /// The verb of the request.
        action: String,
        /// The domain.
        name: String,
        /// Its state.
        state: crate::DomainState,
        /// What to do first.
        advice: String,
    },

    /// libvirt said no.
    #[error("libvirt refuses to {action} `{name}`: {message} (error {code} of domain {domain}){}", remedy(message))]
    Refused {
        /// The verb of the request.
        action: String,
        /// The domain, or the URI if none was concerned.
        name: String,
        /// libvirt's number of the component that said it (`virErrorDomain`).
        domain: i64,
        /// libvirt's number of the error (`virErrorNumber`).
        code: i64,
        /// libvirt's own text.
        message: String,
    },

    /// It took too long.
    #[error("could not {action} `{name}` within {seconds} s; {advice}")]
    Timeout {
        /// The verb of the request.
        action: String,
        /// The domain, or the URI if none was concerned.
        name: String,
        /// The limit.
        seconds: u64,
        /// What to do next.
        advice: String,
    },

    /// The domain has no agent channel.
    #[error(
        "`{name}` has no guest agent channel: add <channel type='unix'><target type='virtio' \
         name='org.qemu.guest_agent.0'/></channel> to it, and install qemu-guest-agent in the guest"
    )]
    AgentNotConfigured {
        /// The domain.
        name: String,
    },

    /// The agent does not answer.
    #[error(
        "the guest agent of `{name}` does not respond: {reason}; is the guest up, and qemu-guest-agent installed and \
         running in it?"
    )]
    AgentNotResponding {
        /// The domain.
        name: String,
        /// libvirt's own text.
        reason: String,
    },

    /// The agent answered with an error.
    #[error(
        "the guest agent of `{name}` refuses {command}: {message}; commands can be blocked in the guest's qemu-ga \
         configuration"
    )]
    AgentCommandFailed {
        /// The domain.
        name: String,
        /// The agent command.
        command: String,
        /// Its own text.
        message: String,
    },

    /// The agent answered with something else than the command answers.
    #[error("cannot use what the guest agent of `{name}` answered to {command}: {reason}")]
    AgentReply {
        /// The domain.
        name: String,
        /// The agent command.
        command: String,
        /// What was wrong with it.
        reason: String,
    },

    /// A command started in the guest did not end.
    #[error(
        "`{command}` in `{name}` did not end within {seconds} s (process {pid} of the guest); {}",
        if *killed { "it was sent SIGKILL" } else { "it could not be killed: end it by hand" }
    )]
    GuestCommandTimedOut {
        /// The domain.
        name: String,
        /// The program.
        command: String,
        /// The limit.
        seconds: u64,
        /// Its process in the guest.
        pid: i64,
        /// Whether the agent accepted a kill.
        killed: bool,
    },

    /// QEMU answered a monitor command with an error.
    #[error("QEMU of `{name}` refuses {command}: {message} ({class})")]
    MonitorCommandFailed {
        /// The domain.
        name: String,
        /// The QMP command.
        command: String,
        /// QMP's error class.
        class: String,
        /// QEMU's own text.
        message: String,
    },

    /// The request itself cannot be sent.
    #[error("cannot {action} `{name}`: {reason}")]
    InvalidRequest {
        /// The verb of the request.
        action: String,
        /// The domain, or what stands for it.
        name: String,
        /// Both numbers of a limit, or what is not allowed in it.
        reason: String,
    },
}

impl HypervisorError {
    /// A guest that does not run has an agent that cannot answer.
    pub fn agent_needs_running(name: &str, state: crate::DomainState) -> Self {
        let advice = if state.is_off() { "start it first" } else { "resume it first" };
        Self::WrongState { action: "ask the guest agent of".into(), name: name.into(), state, advice: advice.into() }
    }

    /// Whether the request is known to have done nothing to the guest, so that another way may be tried.
    pub fn leaves_guest_untouched(&self) -> bool {
        !matches!(
            self,
            Self::HelperStopped { .. } | Self::ConnectionLost { .. } | Self::Timeout { .. } | Self::Protocol { .. }
        )
    }
}

fn existing_domains(existing: &[String]) -> String {
    const SHOWN: usize = 20;
    match existing.len() {
        0 => "libvirt has no domains here (another URI, or another user's session?)".to_owned(),
        count if count > SHOWN => format!("there are {count}, among them: {}", existing[..SHOWN].join(", ")),
        _ => format!("there are: {}", existing.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_apparmor_keeps_shut_is_told_with_the_line_that_opens_it() {
        let refused = |message: &str| HypervisorError::Refused {
            action: "start".into(),
            name: "web1".into(),
            domain: 10,
            code: 1,
            message: message.into(),
        };
        let vfio = "-device vfio-pci: vfio 0000:39:10.0: Could not open '/dev/vfio/11': Permission denied";
        let text = refused(vfio).to_string();
        assert!(text.contains("'  /dev/vfio/[0-9]* rw,' >> /etc/apparmor.d/local/abstractions/libvirt-qemu"), "{text}");
        for other in ["Could not open '/dev/vfio/11': Device or resource busy", "open /root/a.img: Permission denied"] {
            assert!(refused(other).to_string().ends_with("(error 1 of domain 10)"), "{other}");
        }
    }

    #[test]
    fn a_missing_domain_lists_what_exists() {
        let error = |existing: &[&str]| {
            let existing = existing.iter().map(|name| (*name).to_owned()).collect();
            HypervisorError::NoSuchDomain { name: "db".into(), existing }.to_string()
        };
        assert_eq!(error(&["web", "cache"]), "no domain is called `db`; there are: web, cache");
        assert!(error(&[]).contains("no domains here"));
        assert!(error(&["x"; 50]).contains("there are 50"));
    }
}
