//! What a lab's time would be made of, were it silicon: constants of its machine file, which its firmware hands in.

use nearmetal_counters::{ModelError, TimeModel};

use crate::{HostFs, ReadError};

/// Where Linux shows what QEMU's firmware configuration device holds under this name (Linux
/// Documentation/ABI/testing/sysfs-firmware-qemu_fw_cfg; QEMU docs/specs/fw_cfg.rst: names of users begin with `opt/`).
const FILE: &str = "/sys/firmware/qemu_fw_cfg/by_name/opt/org.nearmetal/time_model/raw";

/// Why a lab's constants are of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeModelError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It holds something else.
    #[error("`{FILE}` is no model of time: {0}; start the lab again with this program")]
    Form(String),
    /// A constant that cannot be.
    #[error("`{FILE}`: {0}; correct it in the machine file, and start the lab again")]
    Constant(#[from] ModelError),
}

impl HostFs {
    /// The constants of this lab's modelled time; `None` where nothing of the kind is there: silicon, or a machine file
    /// without them.
    ///
    /// # Errors
    /// They are there, and of no use.
    pub fn lab_time_model(&self) -> Option<Result<TimeModel, TimeModelError>> {
        if !self.exists(FILE) {
            return None;
        }
        Some(self.read(FILE).map_err(TimeModelError::from).and_then(|text| parse(&text)))
    }
}

fn parse(text: &str) -> Result<TimeModel, TimeModelError> {
    let model: TimeModel = serde_json::from_str(text).map_err(|error| TimeModelError::Form(error.to_string()))?;
    model.check()?;
    Ok(model)
}

#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_target() -> crate::fuzzing::Target {
    crate::fuzzing::Target::text(
        "time model of a lab",
        r#"{"instructions_per_microsecond":3400,"local_latency":113,"source":"a paper"}"#,
        |text| {
            if let Ok(model) = parse(text) {
                assert!(model.waiting(1, 10) > 0, "{model:?}");
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, MemoryTree};

    fn lab(text: &str) -> HostFs {
        let mut tree = MemoryTree::new();
        tree.put(FILE, Entry::File(text.as_bytes().to_vec())).unwrap();
        HostFs::of_tree(tree, "a lab")
    }

    #[test]
    fn the_constants_are_those_of_the_machine_file() {
        let model = lab(r#"{"instructions_per_microsecond":2000,"local_latency":90,"source":"x"}"#);
        let model = model.lab_time_model().unwrap().unwrap();
        assert_eq!((model.executing(2000), model.waiting(1, 20)), (1000, 180));
        assert_eq!(HostFs::of_tree(MemoryTree::new(), "silicon").lab_time_model(), None);
    }

    #[test]
    fn what_is_no_model_is_said_to_be_none() {
        let why = |text: &str| lab(text).lab_time_model().unwrap().unwrap_err().to_string();
        assert!(why("").contains("is no model of time"), "{}", why(""));
        assert!(why(r#"{"local_latency":90}"#).contains("missing field"));
        let zero = why(r#"{"instructions_per_microsecond":2000,"local_latency":0,"source":"x"}"#);
        assert!(zero.contains("`local_latency` is 0, but 10 to 10000 are possible"), "{zero}");
    }
}
