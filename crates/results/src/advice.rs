//! What may be said at the end of a race, of disks and of networks alike.

use nearmetal_stats::RatioEstimate;

/// What to use, of arms of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Advice<'a, A> {
    /// Use this path: it was shown faster than the default in fresh pairs.
    Use(&'a A, &'a RatioEstimate),
    /// The best path was not shown faster than the default.
    NoneFaster(&'a A, &'a RatioEstimate),
    /// The arm that the others were compared with is itself the best.
    Default,
    /// The race gave no winner, or the winner could not be measured again.
    Unknown,
}

impl<'a, A> Advice<'a, A> {
    /// The advice for arms that were compared with one of them, `reference`, out of the winner's ratio to it in fresh pairs. A winner that
    /// cannot be one, whatever a file says, gives none.
    pub(crate) fn of(
        arms: &'a [A],
        winner: Option<usize>,
        reference: usize,
        can_win: impl FnOnce(&A) -> bool,
        to_default: Option<&'a RatioEstimate>,
    ) -> Self {
        let Some(arm) = winner.and_then(|winner| arms.get(winner)).filter(|arm| can_win(arm)) else {
            return Self::Unknown;
        };
        match to_default {
            _ if winner == Some(reference) => Self::Default,
            None => Self::Unknown,
            Some(estimate) if estimate.interval().low > 1.0 => Self::Use(arm, estimate),
            Some(estimate) => Self::NoneFaster(arm, estimate),
        }
    }
}
