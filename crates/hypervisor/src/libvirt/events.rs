//! libvirt's events, heard through a helper process of their own.

use std::path::Path;
use std::time::Duration;

use super::helper::{Failure, Helper};
use super::{unanswered, usual_helper, usual_uri};
use crate::protocol::{EventLine, Outcome, Request};
use crate::{DomainEvent, HypervisorError};

/// What happens to domains from the moment this exists. It ends with the connection: whoever wants to go on opens another,
/// and has missed what happened in between.
#[derive(Debug)]
pub struct Events {
    /// `None` once it has ended.
    helper: Option<Helper>,
    uri: String,
}

impl Events {
    /// Begins to listen; helper and URI as for [`super::Libvirt::open`].
    ///
    /// # Errors
    /// The helper does not start, or libvirt is not reached or does not give its events.
    pub fn open(uri: Option<&str>) -> Result<Self, HypervisorError> {
        Self::with_helper(&usual_helper()?, &usual_uri(uri))
    }

    /// Begins to listen through this helper, to this URI.
    ///
    /// # Errors
    /// As [`Events::open`].
    pub fn with_helper(path: &Path, uri: &str) -> Result<Self, HypervisorError> {
        let mut helper = Helper::start(&[path.as_os_str().to_owned()], uri)?;
        let patience = Request::Events.patience();
        match helper.ask(Request::Events, patience) {
            Ok(Outcome::Reply(_)) => Ok(Self { helper: Some(helper), uri: uri.to_owned() }),
            Ok(Outcome::Error(error)) => Err(error),
            Err(failure) => Err(unanswered(failure, helper, action(), uri.to_owned(), patience)),
        }
    }

    /// Waits for the next event; `None` if none came in this time.
    ///
    /// # Errors
    /// The connection or the helper has ended: there are no more events.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<DomainEvent>, HypervisorError> {
        let ended = || HypervisorError::ConnectionLost {
            uri: self.uri.clone(),
            action: action(),
            name: self.uri.clone(),
            reason: "libvirt closed it".to_owned(),
        };
        let Some(helper) = self.helper.as_mut() else { return Err(ended()) };
        let failure = match helper.listen(patience) {
            Ok(line) => match serde_json::from_slice::<EventLine>(&line) {
                Ok(line) => return Ok(Some(line.event)),
                Err(error) => Failure::Nonsense(format!("the helper's line is not an event ({error})")),
            },
            Err(Failure::Silence) => return Ok(None),
            Err(failure) => failure,
        };
        let Some(mut helper) = self.helper.take() else { return Err(ended()) };
        if matches!(failure, Failure::End) && helper.ended_well() {
            return Err(ended());
        }
        Err(unanswered(failure, helper, action(), self.uri.clone(), patience))
    }
}

fn action() -> String {
    Request::Events.action().to_owned()
}
