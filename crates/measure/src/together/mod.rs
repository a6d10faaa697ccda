//! Several guests at once against their bare slices at once.
//!
//! One guest after the other says nothing of what they take from each other: memory channels, the IOMMU, the PCIe fabric,
//! power. Here all guests of a sample begin at one moment, and so do the bare slices they are compared with ([`barrier`]).
//! That they ran side by side is not believed but read from the times fio gives: a sample whose overlap is too small is
//! thrown away ([`window`]).

mod barrier;
mod drives;
mod prepare;
mod ready;
mod results;
mod rounds;
mod sample;
mod window;

pub(crate) use drives::{Drives, OnDrives};
pub use prepare::{Member, TogetherRequest, TogetherTerms, bench_together};
pub(crate) use prepare::{apart, lab_caveat, make_room, pause_all};
pub(crate) use ready::Ready;
pub use results::{
    MemberInfo, MemberSample, Side, TOGETHER_SCHEMA, TogetherLoad, TogetherRatio, TogetherResults, TogetherSample,
    together_text,
};
pub(crate) use sample::{Load, Running, Turn};
pub(crate) use window::{Window, of_netperf};
