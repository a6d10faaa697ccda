//! The parts of `nearmetal-probe`, a small static binary that runs on bare metal, inside guests and on remote hosts.
//!
//! How it is built statically, what each command prints and what the figures mean: README.md beside this crate.
#[cfg(not(target_arch = "x86_64"))]
compile_error!("nearmetal-probe runs loops and guests written for x86-64");

pub mod binding;
pub mod count;
pub mod count_check;
pub mod error;
pub mod file_system;
pub mod gate;
pub mod kvm;
pub mod load;
pub mod memory;
pub mod output;
pub mod programs;
pub mod random;
pub mod see;
pub mod serve;
pub mod statistics;
pub mod system;
