//! libvirt, asked through the helper process.

mod events;
mod helper;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::protocol::{Outcome, Reply, Request};
use crate::{HypervisorError, Transport};
pub use events::Events;
use helper::{Failure, Helper};

/// Names the helper, where it is not beside the program that starts it.
const HELPER_VARIABLE: &str = "NEARMETAL_LIBVIRT";
/// libvirt's own variable for the URI.
const URI_VARIABLE: &str = "LIBVIRT_DEFAULT_URI";
const DEFAULT_URI: &str = "qemu:///system";

/// A connection to libvirt through `nearmetal-libvirt`, which is started on demand, again after it died, and ended
/// with this value. A request that failed is never repeated by itself. Once a domain was tied to the connection, no helper
/// takes the place of one that died: the domain died with it.
#[derive(Debug)]
pub struct Libvirt {
    program: Vec<OsString>,
    uri: String,
    helper: Option<Helper>,
    longest_wait: Option<Duration>,
    /// Whether a domain lives as long as the helper.
    tied: bool,
}

impl Libvirt {
    /// Starts the helper found in `$NEARMETAL_LIBVIRT` or beside the running program. The URI, if not given, is
    /// `$LIBVIRT_DEFAULT_URI` or `qemu:///system`. libvirt itself is reached with the first request.
    pub fn open(uri: Option<&str>) -> Result<Self, HypervisorError> {
        Self::with_helper(&usual_helper()?, &usual_uri(uri))
    }

    /// Starts this helper for this URI.
    pub fn with_helper(path: &Path, uri: &str) -> Result<Self, HypervisorError> {
        Self::with_program(vec![path.as_os_str().to_owned()], uri)
    }

    /// Starts the helper by this program and arguments, such as `ssh -T -- root@web7 nearmetal-libvirt`; the URI follows
    /// as the last argument. The helper speaks JSON lines alone, so any pipe carries it.
    pub fn with_program(program: Vec<OsString>, uri: &str) -> Result<Self, HypervisorError> {
        let helper = Some(Helper::start(&program, uri)?);
        Ok(Self { program, uri: uri.to_owned(), helper, longest_wait: None, tied: false })
    }

    /// Limits how long any request may take, below what is usual for its kind.
    pub fn limit_wait(&mut self, longest: Duration) {
        self.longest_wait = Some(longest);
    }

    /// The URI asked for.
    pub fn uri(&self) -> &str {
        &self.uri
    }
}

impl Transport for Libvirt {
    fn call(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        let (action, name) = (request.action().to_owned(), request.subject());
        let patience = self.longest_wait.map_or(request.patience(), |longest| longest.min(request.patience()));
        // One that died between two requests cannot have carried out this one: it may be replaced in silence.
        let mut helper = match self.helper.take().map(|mut helper| (helper.is_running(), helper)) {
            Some((true, helper)) => helper,
            Some((false, mut dead)) if self.tied => {
                let (status, output) = dead.last_words();
                return Err(HypervisorError::HelperStopped { action, name, status, output });
            }
            None if self.tied => {
                let (status, output) = ("it was ended before".to_owned(), "nothing".to_owned());
                return Err(HypervisorError::HelperStopped { action, name, status, output });
            }
            _ => Helper::start(&self.program, &self.uri)?,
        };
        self.tied |= matches!(request, Request::CreateTied { .. });
        match helper.ask(request, patience) {
            Ok(outcome) => {
                self.helper = Some(helper);
                match outcome {
                    Outcome::Reply(reply) => Ok(reply),
                    Outcome::Error(error) => Err(error),
                }
            }
            Err(Failure::Refused(reason)) => {
                self.helper = Some(helper);
                Err(HypervisorError::InvalidRequest { action, name, reason })
            }
            // After any other failure an answer to this request could still come, and be taken for the next one's:
            // the helper ends here.
            Err(failure) => Err(unanswered(failure, helper, action, name, patience)),
        }
    }
}

/// What it means that a request has no answer.
fn unanswered(
    failure: Failure,
    mut helper: Helper,
    action: String,
    name: String,
    patience: Duration,
) -> HypervisorError {
    match failure {
        Failure::Refused(reason) => HypervisorError::InvalidRequest { action, name, reason },
        Failure::Silence => HypervisorError::Timeout {
            action,
            name,
            seconds: patience.as_secs(),
            advice: "libvirt does not answer (systemctl status libvirtd); whether that was done is unknown, read \
                     the state before trying again"
                .into(),
        },
        Failure::Nonsense(reason) => HypervisorError::Protocol { reason },
        Failure::End => {
            let (status, output) = helper.last_words();
            HypervisorError::HelperStopped { action, name, status, output }
        }
    }
}

/// The helper that `$NEARMETAL_LIBVIRT` names, or the one beside the running program.
fn usual_helper() -> Result<PathBuf, HypervisorError> {
    match env::var_os(HELPER_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => Ok(path.into()),
        None => beside_this_program(),
    }
}

fn usual_uri(uri: Option<&str>) -> String {
    let given = uri.map(str::to_owned).or_else(|| env::var(URI_VARIABLE).ok().filter(|uri| !uri.is_empty()));
    given.unwrap_or_else(|| DEFAULT_URI.to_owned())
}

fn beside_this_program() -> Result<PathBuf, HypervisorError> {
    let program = env::current_exe().map_err(|error| HypervisorError::HelperMissing {
        path: "nearmetal-libvirt".into(),
        reason: format!("the path of this program is unknown ({error})"),
    })?;
    Ok(program.with_file_name("nearmetal-libvirt"))
}
