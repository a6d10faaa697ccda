//! What the lab's processors count, and the page in which they show it.
//!
//! Two sides share this crate: the plugin inside the lab's QEMU, which counts and writes the page, and `nearmetal` inside the
//! lab, which reads it. It does no I/O and has no `unsafe`: who maps the page hands its words over.

mod cache;
mod count;
mod layout;
mod memory_map;
mod model;
mod reading;

pub use cache::Cache;
pub use count::Count;
pub use layout::{
    Class, GUESTS, MAGIC, NODES, PAGE_BYTES, PUBLISH, PUS, Place, UNWATCH, VERSION, WATCH, WORDS, empty_page,
    first_words, guest_word, header, pu_word,
};
pub use memory_map::{MapError, MemoryMap};
pub use model::{ModelError, TimeModel};
pub use reading::{CounterError, GuestCounts, MemoryCounts, PuCounts, Reading};
