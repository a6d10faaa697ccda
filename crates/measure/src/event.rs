//! What the caller hears while an experiment runs.

/// One thing to tell.
#[derive(Debug)]
pub enum Event<'a> {
    /// A stage began.
    Stage(&'a str),
    /// A run begins.
    Run {
        /// Runs before it.
        done: usize,
        /// Runs in all, as far as the design knows them.
        total: usize,
        /// Round, from 0.
        round: u32,
        /// What a person calls the arm.
        arm: &'a str,
        /// What a person calls the load.
        load: &'a str,
    },
}
