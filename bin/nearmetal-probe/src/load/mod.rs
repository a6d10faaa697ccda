//! Load for servers, from outside: requests that are due at their own moments, and what became of them.
//!
//! [`drive`] sends them, [`dialogue`] says what a protocol must know: [`web`], [`mail`] and [`sql`] with the readers of what
//! servers send ([`http`], [`imap`], [`mysql`]). What is asked for is generated from a seed ([`site`], [`mailbox`]), and the server's side of it
//! with the same numbers. [`run`] makes a run of it; [`respond`] is what the generator's own ceiling is measured against.

pub mod arrivals;
pub mod connection;
pub mod dialogue;
pub mod drive;
pub mod failure;
pub mod figures;
#[cfg(feature = "fuzzing")]
mod fuzzing;
pub mod histogram;
pub mod http;
pub mod imap;
pub mod mail;
pub mod mailbox;
pub mod mysql;
pub mod respond;
pub mod run;
pub mod site;
pub mod sql;
pub mod tally;
pub mod web;

#[cfg(feature = "fuzzing")]
pub use fuzzing::fuzz_targets;
