//! Memory latency and bandwidth of this machine as it is bound.
//!
//! Method after lmbench (lat_mem_rd, bw_mem), multichase (permutation inside and of groups of pages) and STREAM
//! (triad); no code of theirs. Everything is done by access pattern and system calls that a guest has too: no MSR is
//! written, so host and guest run the same experiment.

pub mod backing;
pub mod bandwidth;
pub mod budget;
pub mod buffer;
pub mod chase;
pub mod kernels;
pub mod latency;
pub mod permutation;
pub mod team;
pub mod work;
