//! A fleet over several hosts: reading them, and having each change itself.

pub(crate) mod apply;
pub(crate) mod hosts;
pub(crate) mod over_hosts;
pub(crate) mod there;
