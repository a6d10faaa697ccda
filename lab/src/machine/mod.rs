//! Machines as data: what is emulated is read from a file, checked, and turned into QEMU's arguments by a pure function.

mod builtin;
mod check;
mod command_line;
mod definition;

use std::path::{Path, PathBuf};

use nearmetal_host::files;

pub use builtin::BUILTIN;
pub use command_line::{Boot, Extra, MANAGEMENT_ADDRESS, arguments};
pub(crate) use command_line::{COUNTERS, PLUGIN};
pub use definition::{
    Accelerator, Cable, CableEnd, Confinement, Contents, Disk, Machine, Namespace, Network, NetworkModel, Node, Nvme,
    Processors,
};
pub use nearmetal_counters::Count;

/// What is wrong with a machine file.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Neither an embedded machine nor a file.
    #[error("there is no machine `{name}`\n\nknown: {}; or give the path of a machine file", BUILTIN.map(|(name, _)| name).join(", "))]
    Unknown {
        /// As given.
        name: String,
    },
    /// The file is there and cannot be read.
    #[error("cannot read machine `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: files::FileError,
    },
    /// Not TOML, or a field that does not belong there.
    #[error("{origin}: {}", message.trim_end())]
    Syntax {
        /// Name or path of the machine.
        origin: String,
        /// The parser's words, with line and column.
        message: String,
    },
    /// A value outside its limit.
    #[error("{origin}: `{field}` is {value}, but {limit}")]
    Value {
        /// Name or path of the machine.
        origin: String,
        /// Path of the field: `node[2].distances`.
        field: String,
        /// The value found.
        value: String,
        /// What is allowed.
        limit: String,
    },
}

impl Machine {
    /// An embedded machine by its name, or a machine file by its path.
    ///
    /// # Errors
    /// The name is unknown, the file unreadable, or its contents break a rule.
    pub fn load(name_or_path: &str) -> Result<Self, MachineError> {
        if let Some((_, text)) = BUILTIN.iter().find(|(name, _)| *name == name_or_path) {
            return Self::parse(name_or_path, text);
        }
        let path = Path::new(name_or_path);
        if !path.exists() {
            return Err(MachineError::Unknown { name: name_or_path.to_owned() });
        }
        let text =
            files::read_to_string(path).map_err(|source| MachineError::File { path: path.to_owned(), source })?;
        Self::parse(name_or_path, &text)
    }

    /// The same, with a cable in its first network card, and with processors that count; `None`: as its file says.
    ///
    /// # Errors
    /// Besides those of [`Machine::load`]: it has no network card, the cable's name cannot be one, or its processors are not
    /// emulated and cannot count.
    pub fn load_with(name_or_path: &str, cable: Option<&Cable>, count: Option<Count>) -> Result<Self, MachineError> {
        let mut machine = Self::load(name_or_path)?;
        machine.count = count.or(machine.count);
        if let Some(cable) = cable {
            let Some(card) = machine.networks.first_mut() else {
                return Err(MachineError::Value {
                    origin: name_or_path.to_owned(),
                    field: "network".to_owned(),
                    value: "not given".to_owned(),
                    limit: format!("the cable `{}` needs a card to go into", cable.name),
                });
            };
            card.cable = Some(cable.clone());
        }
        check::check(name_or_path, &machine)?;
        Ok(machine)
    }

    /// A machine from text; `origin` names it in errors.
    ///
    /// # Errors
    /// The text is not TOML, has an unknown field, or a value outside its limit.
    pub fn parse(origin: &str, text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text)
            .map_err(|error| MachineError::Syntax { origin: origin.to_owned(), message: error.to_string() })?;
        check::check(origin, &machine)?;
        Ok(machine)
    }
}

#[cfg(test)]
mod tests;
