//! Images on hosts: which hosts, and what each of them answers. Shared by the commands of `nearmetal image`.

mod answers;
mod hosts;

pub(crate) use answers::{Answer, Document, Removal, ask_all, status, store_of};
pub(crate) use hosts::{HostArgs, Target};
