//! Fault points: places at which a test can make a running change die, to prove that rollback copes with it.
//!
//! They are compiled into every build, because the binary that is tested must be the binary that is shipped. They do
//! nothing unless `NEARMETAL_TESTING=1` *and* `NEARMETAL_FAULT_AT` name one: by its name, or by its number in the list
//! that `nearmetal apply --list-fault-points PLAN` prints.

use std::cell::RefCell;

use crate::ChangeError;

/// What happens at a fault point.
#[derive(Debug, Default)]
enum Effect {
    /// Nothing.
    #[default]
    None,
    /// The process ends by SIGKILL: no destructor runs, as in a power loss.
    Kill,
    /// An error comes back and nothing is cleaned up: a crash that a unit test can look at from inside.
    Fail,
}

/// The fault points reached so far, and the one at which to stop.
#[derive(Debug, Default)]
pub struct Faults {
    at: Option<String>,
    effect: Effect,
    reached: RefCell<Vec<String>>,
}

impl Faults {
    /// None: every point is passed.
    pub fn none() -> Self {
        Self::default()
    }

    /// What the environment asks for.
    pub fn from_environment() -> Self {
        let testing = std::env::var_os("NEARMETAL_TESTING").is_some_and(|value| value == "1");
        match std::env::var("NEARMETAL_FAULT_AT") {
            Ok(at) if testing && !at.is_empty() => Self { at: Some(at), effect: Effect::Kill, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Returns [`ChangeError::Fault`] at this point (name, or number from 1), as a crash would end there.
    pub fn failing_at(at: impl Into<String>) -> Self {
        Self { at: Some(at.into()), effect: Effect::Fail, ..Self::default() }
    }

    /// The names of the points passed, in order.
    pub fn reached(&self) -> Vec<String> {
        self.reached.borrow().clone()
    }

    /// Whether the next point is this one and would stop here: lets a change prepare what only a test needs.
    pub fn is_armed(&self, name: &str) -> bool {
        let next = self.reached.borrow().len() + 1;
        self.at.as_ref().is_some_and(|at| at == name || at.parse() == Ok(next))
    }

    /// Marks a fault point.
    pub fn point(&self, name: impl Into<String>) -> Result<(), ChangeError> {
        let name = name.into();
        let number = {
            let mut reached = self.reached.borrow_mut();
            reached.push(name.clone());
            reached.len()
        };
        if !self.at.as_ref().is_some_and(|at| *at == name || at.parse() == Ok(number)) {
            return Ok(());
        }
        match self.effect {
            Effect::None => Ok(()),
            Effect::Fail => Err(ChangeError::Fault { point: name }),
            Effect::Kill => {
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                Err(ChangeError::Fault { point: name })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_named_or_counted() {
        for at in ["2", "step-1:done"] {
            let faults = Faults::failing_at(at);
            assert!(faults.point("step-1:intent").is_ok());
            assert!(matches!(faults.point("step-1:done"), Err(ChangeError::Fault { point }) if point == "step-1:done"));
        }
        let faults = Faults::none();
        assert!(faults.point("a").is_ok());
        assert_eq!(faults.reached(), ["a"]);
    }
}
