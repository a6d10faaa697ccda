//! A verification as text: one line a check, aligned, a word beside every sign.

use std::fmt;

use super::{Outcome, Verification};

impl fmt::Display for Verification {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.subject.chars().count()).max().unwrap_or(0);
        for check in &self.checks {
            let (sign, word) = (check.outcome.sign(), check.outcome.word());
            write!(formatter, "{sign} {word:8}  {:width$}  ", check.subject)?;
            match (&check.outcome, &check.found) {
                (Outcome::Ok, Some(found)) => write!(formatter, "{found}")?,
                (Outcome::CannotTell { why }, found) => {
                    write!(formatter, "planned {}", check.planned)?;
                    if let Some(found) = found {
                        write!(formatter, ", found {found}")?;
                    }
                    write!(formatter, ": {why}")?;
                }
                (_, found) => {
                    write!(formatter, "planned {}, found {}", check.planned, found.as_deref().unwrap_or("nothing"))?;
                    if let Some(place) = &check.place {
                        write!(formatter, " [{place}]")?;
                    }
                }
            }
            writeln!(formatter)?;
        }
        let total = self.checks.len();
        let (wrong, unknown) = (self.mismatches(), self.untold());
        write!(formatter, "{}: {} of {total} checks as planned", self.guest, total - wrong - unknown)?;
        if wrong > 0 {
            write!(formatter, ", {wrong} not")?;
        }
        if unknown > 0 {
            write!(formatter, ", {unknown} unknown")?;
        }
        writeln!(formatter)
    }
}
