//! A limit of bytes per second, shared by all connections of a host.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Bytes that pass at once. Small enough for signs of life to pass between.
pub(crate) const SLICE: usize = 16 << 10;

/// Time by which what passed so far was due.
pub(crate) struct Bucket {
    rate: Option<u64>,
    due: Mutex<Option<Instant>>,
}

impl Bucket {
    /// `rate` in bytes per second; `None`: without limit.
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.filter(|rate| *rate > 0), due: Mutex::new(None) }
    }

    /// Waits until so many bytes may pass.
    pub(crate) fn take(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let wait = {
            let Ok(mut due) = self.due.lock() else { return };
            let now = Instant::now();
            let begin = due.map_or(now, |due| due.max(now));
            *due = Some(begin + Duration::from_secs_f64(bytes as f64 / rate as f64));
            begin - now
        };
        std::thread::sleep(wait);
    }
}
