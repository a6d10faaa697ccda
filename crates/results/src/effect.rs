//! What was read back of an arm before its first run, of disks and of networks alike.

use serde::{Deserialize, Serialize};

/// Whether an arm took effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "kebab-case")]
pub enum Effect {
    /// It did; what shows it.
    Shown {
        /// One line each.
        evidence: Vec<String>,
    },
    /// It did not, or nothing shows it: its samples would be of something else, and are not taken.
    NotShown {
        /// What was found instead.
        why: String,
    },
}

/// What was read back of an arm, one thing each; `None` where it was not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proof {
    /// How QEMU has the image open, from /proc/PID/fdinfo.
    pub open: Option<String>,
    /// The engine, by what moved while the disk worked.
    pub engine: Option<String>,
    /// The thread of QEMU that served it.
    pub thread: Option<String>,
    /// The device as the guest's kernel has it.
    pub guest: Option<String>,
    /// What the storage got back of what the guest gave up.
    pub given_back: Option<String>,
    /// The host's scheduler.
    pub scheduler: Option<String>,
    /// Whether a write reached the drive before it was called done, where the guest is not asked to flush.
    #[serde(default)]
    pub flush: Option<String>,
    /// What is not as it should be; `None`: the arm took effect.
    pub amiss: Option<String>,
}

impl Proof {
    /// As one statement: it took effect, with the evidence, or not.
    pub fn effect(self) -> Effect {
        match self.amiss {
            Some(why) => Effect::NotShown { why },
            None => {
                let found =
                    [self.open, self.guest, self.engine, self.thread, self.given_back, self.scheduler, self.flush];
                Effect::Shown { evidence: found.into_iter().flatten().collect() }
            }
        }
    }
}
