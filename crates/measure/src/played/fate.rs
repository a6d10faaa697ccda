//! When the process dies, and when libvirt does: everything that leaves the process is a step, and a test chooses one.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

/// Thrown where the process is killed. Nothing runs behind it, as after `kill -9`.
pub(crate) struct Killed;

#[derive(Debug, Default)]
struct Inside {
    steps: Vec<String>,
    dies_at: Option<usize>,
}

/// The steps of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fate(Arc<Mutex<Inside>>);

impl Fate {
    /// Before something leaves the process: a program, a request to libvirt, a write to the kernel.
    pub(super) fn step(&self, what: &str) {
        let mut inside = self.0.lock().unwrap();
        inside.steps.push(what.to_owned());
        let is_last = inside.dies_at.is_some_and(|last| inside.steps.len() > last);
        // Before the unwinding, which would poison it.
        drop(inside);
        if is_last {
            resume_unwind(Box::new(Killed));
        }
    }

    /// The process dies before its step of this number, from 0.
    pub(super) fn dies_at(&self, step: Option<usize>) {
        let mut inside = self.0.lock().unwrap();
        inside.dies_at = step;
        inside.steps.clear();
    }

    pub(super) fn steps(&self) -> Vec<String> {
        self.0.lock().unwrap().steps.clone()
    }
}
