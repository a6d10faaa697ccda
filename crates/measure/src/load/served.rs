//! A server in a guest, driven from outside: requests that are due at their own moments, whatever the server does.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Compared, Load, Measured, Window};
use crate::error::MeasureError;
use crate::tiles::{Rate, Role, TileSize};

/// One guest of a tile under load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedJob {
    /// What it serves.
    pub role: Role,
    /// Where it is reached.
    pub address: IpAddr,
    /// Requests a second on average.
    pub rate: Rate,
    /// The tile that it is in: its contents, the measured seconds and those before them.
    pub size: TileSize,
}

impl ServedJob {
    /// The job for a guest of this tile.
    pub fn of(role: Role, address: IpAddr, size: &TileSize) -> Self {
        Self { role, address, rate: size.rate(role), size: *size }
    }

    /// Where it serves.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.role.port())
    }
}

impl Load for ServedJob {
    fn id(&self) -> String {
        format!("served.{}", self.role)
    }

    fn label(&self) -> String {
        format!("{} of tile {}, {} requests/s offered", self.role.title(), self.size.tile, self.rate)
    }

    fn compared(&self, _: &str) -> Compared {
        Compared::Never
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let _ = seed;
        vec![at.probe.to_owned()]
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs((self.size.ramp + self.size.seconds).into()))
    }

    fn cold(&self) -> bool {
        false
    }

    fn read(&self, output: &str) -> Result<Measured, MeasureError> {
        Err(super::unreadable("what the driver printed", "not yet", output))
    }

    fn window(&self, output: &str, _ahead: f64) -> Result<Window, MeasureError> {
        Err(super::unreadable("what the driver printed", "not yet", output))
    }
}
