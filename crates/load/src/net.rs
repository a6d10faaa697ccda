//! netperf or sockperf against a peer, as a load.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod netperf;
mod sockperf;
mod test;

use self::test::read as read_test;
use super::{At, Load, Measured, Window};
use crate::cost::{Each, Middle};
use crate::error::LoadError;

pub use self::netperf::greeting;
pub use self::test::NetTest;

/// How long netperf takes at most to begin and to end, beside what it measures.
const AROUND: Duration = Duration::from_secs(2);

/// One test against one peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetJob {
    /// Test.
    pub test: NetTest,
    /// Where its server answers.
    pub peer: IpAddr,
    /// Measured seconds.
    pub seconds: u32,
}

impl Load for NetJob {
    fn id(&self) -> String {
        self.test.id().to_owned()
    }

    fn label(&self) -> String {
        self.test.label().to_owned()
    }

    fn rate(&self) -> Option<String> {
        Some(self.test.rate())
    }

    fn command(&self, _: &At<'_>, _: u64) -> Vec<String> {
        self.test.command(self.peer, self.seconds)
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs(self.seconds.into()) + AROUND)
    }

    fn middle(&self) -> Option<(Middle, Each)> {
        Some((Middle::after(self.test.ramp(), Duration::from_secs(self.seconds.into())), self.test.each()))
    }

    fn cold(&self) -> bool {
        false
    }

    fn stamp(&self) -> bool {
        true
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        Ok(Measured { metrics: read_test(self.test, output)?, notes: vec![] })
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        super::window::of_netperf(output, ahead)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some((format!("{} command", self.test.id()), self.test.command(self.peer, self.seconds).join(" ")))
    }
}
