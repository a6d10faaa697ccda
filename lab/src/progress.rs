//! How long work tells where it is.

/// Told what is going on; the caller draws it.
pub trait Progress {
    /// Stage `number` of `count` has begun. Counts start at 1.
    fn stage(&mut self, number: usize, count: usize, title: &str);
    /// Something worth a line of its own.
    fn note(&mut self, text: &str);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&mut self, _: usize, _: usize, _: &str) {}
    fn note(&mut self, _: &str) {}
}
