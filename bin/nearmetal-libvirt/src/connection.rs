//! The connection to libvirt: opened with the first request, and again when libvirtd was restarted in between.

use std::io::Write;

use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{HypervisorError, Transport};
use virt::connect::Connect;

use crate::failure::{Context, is_permission};
use crate::{dispatch, events, tied};

/// An open connection.
pub(crate) struct Open {
    pub(crate) connect: Connect,
    /// Why only the socket for reading is open to this user: changes are refused by libvirt, and secrets are not shown.
    pub(crate) read_only: Option<String>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // `virt` does not close by itself. What a failed close could mean to us has happened already.
        let _ = self.connect.close();
    }
}

/// A URI and, once asked for something, the connection to it.
pub(crate) struct Connection {
    uri: String,
    open: Option<Open>,
    /// Whether a domain lives as long as this connection: another one would hide that it was lost.
    tied: bool,
}

impl Connection {
    pub(crate) fn new(uri: String) -> Self {
        Self { uri, open: None, tied: false }
    }

    /// Says what happens to domains until the connection or the reader is gone.
    pub(crate) fn say_events(&self, output: impl Write) -> std::io::Result<()> {
        match &self.open {
            Some(open) => events::say(&open.connect, output),
            None => Ok(()),
        }
    }

    /// A connection that has just answered. Only then is a request sent, so that a daemon restarted between two
    /// requests costs nothing.
    fn fresh(&mut self, request: &Request) -> Result<Open, HypervisorError> {
        if let Some(open) = self.open.take() {
            if open.connect.is_alive().unwrap_or(false) && open.connect.get_lib_version().is_ok() {
                return Ok(open);
            }
        }
        if self.tied {
            return Err(HypervisorError::ConnectionLost {
                uri: self.uri.clone(),
                action: request.action().into(),
                name: request.subject(),
                reason: "libvirt's daemon ended, or closed the connection".into(),
            });
        }
        let error = match Connect::open(Some(&self.uri)) {
            Ok(connect) => return Ok(Open { connect, read_only: None }),
            Err(error) => error,
        };
        // Anyone may read: libvirt has a socket of its own for that, and refuses changes on it. Tried after every
        // error, since a user who is not let in is told so in many ways (polkit missing, no D-Bus, a closed socket).
        let reason = error.message().to_owned();
        if let Ok(connect) = Connect::open_read_only(Some(&self.uri)) {
            return Ok(Open { connect, read_only: Some(reason) });
        }
        if is_permission(&error) {
            let name = request.domain().unwrap_or(&self.uri).to_owned();
            return Err(HypervisorError::NotPermitted { action: request.action().into(), name, reason });
        }
        Err(HypervisorError::Unreachable { uri: self.uri.clone(), reason })
    }
}

impl Transport for Connection {
    fn call(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        let name = request.domain().unwrap_or(&self.uri).to_owned();
        let context = Context { action: request.action(), name: &name };
        if self.uri.contains('\0') || request.texts().any(|text| text.contains('\0')) {
            return Err(context.invalid("a text with a zero byte in it cannot be given to libvirt"));
        }
        if request == Request::Events {
            // libvirt's event loop serves the connections that are opened after it is there.
            events::prepare().map_err(|error| context.failed(&error))?;
            self.open = None;
        }
        let open = self.fresh(&request)?;
        if matches!(request, Request::CreateTied { .. }) {
            tied::end_with_nearmetal();
            self.tied = true;
        }
        match dispatch::carry_out(&open, &request, context) {
            Err(error) if !open.connect.is_alive().unwrap_or(false) => Err(HypervisorError::ConnectionLost {
                uri: self.uri.clone(),
                action: context.action.into(),
                name,
                reason: match error {
                    HypervisorError::Refused { message, .. } => message,
                    other => other.to_string(),
                },
            }),
            mut result => {
                if let (Err(HypervisorError::NotPermitted { reason, .. }), Some(why)) = (&mut result, &open.read_only) {
                    *reason = format!("{reason}, and for more than reading: {why}");
                }
                self.open = Some(open);
                result
            }
        }
    }
}
