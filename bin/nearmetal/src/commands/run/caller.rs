//! Who wants a run, and what comes with the wish.

use std::os::unix::net::UnixStream;

use nearmetal_host::HostFs;
use nearmetal_run::RunError;
use nearmetal_run::console::Sink;
use nearmetal_run::flavour::Flavour;
use nearmetal_run::given::Given;
use nearmetal_run::seed::UserData;
use nearmetal_run::service::{Peer, open_to};

use super::Args;
use super::events::file_or_stderr;

/// Who wants a run.
pub(super) struct Caller {
    /// What cloud-init is told.
    pub(super) user_data: Option<UserData>,
    /// Where the guest's console goes, if anywhere.
    pub(super) console: Option<Sink>,
    /// A user whose run this service does; `None`: whoever started this program.
    pub(super) user: Option<User>,
}

/// A user who has asked the service.
pub(super) struct User {
    pub(super) peer: Peer,
    /// Where he is reached, and sends his signals.
    pub(super) connection: UnixStream,
}

impl Caller {
    /// Whoever started this program.
    pub(super) fn own(args: &Args) -> Result<Self, RunError> {
        let user_data = args.user_data.as_ref();
        let user_data = user_data.map(|path| UserData::read(path, args.meta_data.as_deref())).transpose()?;
        let console = args.console.as_deref().map(file_or_stderr).transpose()?;
        Ok(Self { user_data, console, user: None })
    }

    /// What of the machine is theirs.
    pub(super) fn given(&self, fs: &HostFs) -> Result<Given, RunError> {
        self.user.as_ref().map_or_else(|| Given::read(fs), |user| user.peer.given(fs))
    }

    /// Refuses a flavour that they may not have.
    pub(super) fn may_have(&self, flavour: &Flavour) -> Result<(), RunError> {
        self.user.as_ref().map_or(Ok(()), |user| open_to(flavour, &user.peer))
    }

    /// The user's number, if it is not this program's.
    pub(super) fn uid(&self) -> Option<u32> {
        self.user.as_ref().map(|user| user.peer.uid)
    }
}
