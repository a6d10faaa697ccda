//! A fleet over several hosts: reading them, planning them together, and having each change itself.

pub(crate) mod answers;
pub(crate) mod apply;
mod compose;
mod converse;
mod definition;
mod directory;
pub(crate) mod file;
pub(crate) mod hosts;
pub(crate) mod now;
pub(crate) mod options;
pub(crate) mod over_hosts;
pub(crate) mod plan;
pub(crate) mod targets;
pub(crate) mod there;
pub(crate) mod watch;
mod what_if;
