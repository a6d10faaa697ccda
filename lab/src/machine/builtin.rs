//! The machines that come with the program.

/// Name and text of each embedded machine.
pub const BUILTIN: [(&str, &str); 6] = [
    ("quad", include_str!("../../machines/quad.toml")),
    ("quad-4nvme", include_str!("../../machines/quad-4nvme.toml")),
    ("quad-tiles", include_str!("../../machines/quad-tiles.toml")),
    ("quad-wide", include_str!("../../machines/quad-wide.toml")),
    ("peer", include_str!("../../machines/peer.toml")),
    ("farm", include_str!("../../machines/farm.toml")),
];
