//! Whether a guest's agent can be heard, without asking it: libvirt knows when it has opened its channel.
//!
//! libvirt writes a line into the system's journal for each question to an agent that is not there, and a guest that boots is asked
//! several times a second.

use std::time::Duration;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::ping;
use crate::{Definition, Hypervisor, HypervisorError};

/// The agent's channel.
const NAME: &[u8] = b"org.qemu.guest_agent.0";

/// Pings the agent, unless libvirt says that it has not opened its channel.
///
/// # Errors
/// [`HypervisorError::AgentNotResponding`]: it has not, or does not answer. All others are [`ping`]'s.
pub fn ping_once_connected(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    timeout: Duration,
) -> Result<(), HypervisorError> {
    // What cannot be told is asked.
    let live = hypervisor.domain_xml(name, Definition::Live).unwrap_or_default();
    match is_connected(&live) {
        Some(false) => Err(HypervisorError::AgentNotResponding {
            name: name.into(),
            reason: "it has not opened its channel yet".into(),
        }),
        _ => ping(hypervisor, name, timeout),
    }
}

/// What the live definition says of the agent's channel (`<target state=''/>`); `None`: nothing.
fn is_connected(live: &str) -> Option<bool> {
    let mut reader = Reader::from_str(live);
    loop {
        match reader.read_event() {
            Ok(Event::Start(element) | Event::Empty(element)) if element.local_name().as_ref() == b"target" => {
                let value = |element: &BytesStart<'_>, key: &str| {
                    element.try_get_attribute(key).ok().flatten().map(|attribute| attribute.value.into_owned())
                };
                if value(&element, "name").as_deref() == Some(NAME) {
                    return value(&element, "state").map(|state| state == b"connected");
                }
            }
            Ok(Event::Eof) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    fn guest(state: &str) -> Fake {
        let target = format!("<target type='virtio' name='org.qemu.guest_agent.0'{state}/>");
        let xml = format!(
            "<domain><name>web</name><devices><disk><target dev='vda'/></disk><channel>{target}</channel></devices></domain>"
        );
        let mut fake = Fake::new("").with_running_domain(&xml);
        fake.on_agent(|_, _| Ok(serde_json::json!({})));
        fake
    }

    #[test]
    fn an_agent_that_has_not_opened_its_channel_is_not_asked() {
        let ping = |fake: &mut Fake| ping_once_connected(fake, "web", Duration::from_secs(1));
        let mut early = guest(" state='disconnected'");
        let error = ping(&mut early).unwrap_err();
        assert!(matches!(error, HypervisorError::AgentNotResponding { .. }), "{error}");
        assert!(!early.calls().iter().any(|call| matches!(call, crate::protocol::Request::Agent { .. })));
        for state in [" state='connected'", ""] {
            ping(&mut guest(state)).unwrap();
        }
        assert!(matches!(
            ping_once_connected(&mut early, "db", Duration::ZERO),
            Err(HypervisorError::NoSuchDomain { .. })
        ));
    }

    #[test]
    fn what_is_no_definition_says_nothing() {
        for text in [
            "",
            "<domain",
            "<domain><target name='org.qemu.guest_agent.0' state",
            "<target name='other' state='connected'/>",
        ] {
            assert_eq!(is_connected(text), None, "{text}");
        }
    }
}
