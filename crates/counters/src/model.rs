//! Time as a model would have it, for machines whose clock says little.

use serde::{Deserialize, Serialize};

/// The distance of a node to itself (ACPI 6.5, ch. 5.2.17, SLIT).
const LOCAL: u64 = 10;
/// Instructions in a microsecond: a tenth to ten in a nanosecond.
const RATES: (u32, u32) = (100, 10_000);
/// Nanoseconds: no memory answers sooner or later.
const LATENCIES: (u32, u32) = (10, 10_000);
/// Characters of the source: a sentence or two.
const SOURCE: usize = 400;

/// What a machine's time is made of, were it silicon: stated, never measured. In a machine file, `[time_model]`.
///
/// A PU executes at one rate until an access misses its cache. It then waits as long as memory takes that is so far away: a
/// distance is a latency relative to that of local memory, which is 10 (ACPI 6.5, ch. 5.2.17). Nothing overlaps, nothing
/// queues, and neither pages nor branches cost anything; so the model tells near from far and much work from little, and is
/// no forecast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeModel {
    /// Instructions that a PU executes in a microsecond while it waits for nothing.
    pub instructions_per_microsecond: u32,
    /// Nanoseconds that local memory takes to answer.
    pub local_latency: u32,
    /// Where both come from.
    pub source: String,
}

/// A constant that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is {value}, but {limit}")]
pub struct ModelError {
    /// Its name.
    pub field: &'static str,
    /// The value found.
    pub value: String,
    /// What is allowed.
    pub limit: String,
}

impl TimeModel {
    /// Whether the constants can be.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self) -> Result<(), ModelError> {
        let within = |field, value: u32, (least, most): (u32, u32)| match (least..=most).contains(&value) {
            true => Ok(()),
            false => {
                Err(ModelError { field, value: value.to_string(), limit: format!("{least} to {most} are possible") })
            }
        };
        within("instructions_per_microsecond", self.instructions_per_microsecond, RATES)?;
        within("local_latency", self.local_latency, LATENCIES)?;
        let length = self.source.chars().count();
        if !(1..=SOURCE).contains(&length) || self.source.chars().any(char::is_control) {
            return Err(ModelError {
                field: "source",
                value: format!("{length} characters long"),
                limit: format!("one line of 1 to {SOURCE} characters has to say where the constants come from"),
            });
        }
        Ok(())
    }

    /// Nanoseconds that a PU executes so many instructions.
    pub fn executing(&self, instructions: u64) -> u64 {
        let nanoseconds = u128::from(instructions) * 1000 / u128::from(self.instructions_per_microsecond.max(1));
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }

    /// Nanoseconds that a PU waits for so many accesses to memory at a distance.
    pub fn waiting(&self, misses: u64, distance: u32) -> u64 {
        let nanoseconds =
            u128::from(misses) * u128::from(self.local_latency) * u128::from(distance) / u128::from(LOCAL);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }

    /// How it reckons, with its constants and their source, as a sentence.
    pub fn formula(&self) -> String {
        format!(
            "instructions of all PUs at {} a nanosecond, and for each access that a PU's modelled cache misses {} ns times its \
             distance / {LOCAL}; {}",
            f64::from(self.instructions_per_microsecond) / 1000.0,
            self.local_latency,
            self.source
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> TimeModel {
        TimeModel { instructions_per_microsecond: 3400, local_latency: 113, source: "a test's own".into() }
    }

    #[test]
    fn far_memory_takes_as_much_longer_as_its_distance_says() {
        let model = model();
        assert_eq!(model.executing(34_000), 10_000);
        assert_eq!((model.waiting(1000, 10), model.waiting(1000, 22)), (113_000, 248_600));
        assert_eq!(model.waiting(u64::MAX, 255), u64::MAX, "the most there is, and no small number");
    }

    #[test]
    fn its_formula_names_every_constant_and_their_source() {
        let formula = model().formula();
        for part in ["3.4 a nanosecond", "113 ns", "distance / 10", "a test's own"] {
            assert!(formula.contains(part), "{part}: {formula}");
        }
    }

    #[test]
    fn constants_that_cannot_be_are_named() {
        assert_eq!(model().check(), Ok(()));
        let broken = |change: fn(&mut TimeModel)| {
            let mut model = model();
            change(&mut model);
            model.check().unwrap_err().to_string()
        };
        let rate = broken(|model| model.instructions_per_microsecond = 0);
        assert_eq!(rate, "`instructions_per_microsecond` is 0, but 100 to 10000 are possible");
        assert!(broken(|model| model.local_latency = 20_000).starts_with("`local_latency` is 20000"));
        assert!(broken(|model| model.source.clear()).starts_with("`source` is 0 characters long"));
        assert!(broken(|model| model.source.push('\n')).contains("one line"));
    }
}
