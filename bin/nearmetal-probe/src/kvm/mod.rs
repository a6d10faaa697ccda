//! What /dev/kvm is worth: whether guests run on the processor or are emulated, and what a VM exit costs.
//!
//! A host may offer /dev/kvm and yet run guest code by emulation, thousands of times slower. So the verdict comes from
//! guests of a few dozen bytes, not from the file's existence. Idea of the exits and of doubling the count until the
//! loop lasts long enough: kvm-unit-tests (x86/vmexit.c); unlike it, the loop itself is taken out by the slope over
//! bodies of 0, 1 and 2 exits, and every sample is kept.

pub mod counters;
pub mod guest_code;
pub mod machine;
pub mod measure;
pub mod native;
pub mod slope;
pub mod verdict;
