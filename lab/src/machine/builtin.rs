//! The machines that come with the program.

/// Name and text of each embedded machine.
pub const BUILTIN: [(&str, &str); 1] = [("quad", include_str!("../../machines/quad.toml"))];
