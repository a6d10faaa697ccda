//! What can go wrong while measuring.

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// Somebody asked for the end ([`crate::Stop`]). What was borrowed has been given back.
    #[error("stopped before the end: guests, pools and devices are again as they were")]
    Stopped,
    /// A load, or what a program printed, that cannot be read.
    #[error(transparent)]
    Load(#[from] nearmetal_load::LoadError),
    /// A program could not be run.
    #[error("cannot run `{program}`: is it installed?")]
    Program {
        /// Program.
        program: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The scratch device cannot be used.
    #[error("`{device}` cannot be the scratch device: {why}")]
    Scratch {
        /// Path.
        device: String,
        /// Reason and remedy.
        why: String,
    },
    /// The experiment does not fit the machine or the plan.
    #[error("{0}")]
    Unfit(String),
    /// The same, seen in the middle: no further sample could be made.
    #[error("{0}")]
    Ends(String),
    /// An interrupted measurement cannot be gone on with: the machine is another one, or something else would run now.
    #[error("{0}: measure anew")]
    Anew(String),
    /// It failed, and then not everything could be put back.
    #[error("{what}; and not everything could be put back, so run `nearmetal rollback`")]
    Left {
        /// Why it failed.
        what: String,
        /// What could not be put back.
        #[source]
        source: Box<MeasureError>,
    },
    /// What was asked for cannot be: another argument is the remedy, and the words name it.
    #[error("{0}")]
    Asked(String),
    /// What a sample cost could not be counted.
    #[error(transparent)]
    Cost(#[from] nearmetal_cost::CostError),
    /// The results store, or a document.
    #[error(transparent)]
    Results(#[from] nearmetal_results::ResultsError),
    /// libvirt or the guest agent.
    #[error("arm `{arm}`")]
    Hypervisor {
        /// Arm.
        arm: String,
        /// The cause.
        #[source]
        source: nearmetal_hypervisor::HypervisorError,
    },
    /// A domain XML.
    #[error("the XML of arm `{arm}`")]
    Xml {
        /// Arm.
        arm: String,
        /// The cause.
        #[source]
        source: nearmetal_domain::DomainError,
    },
    /// The kernel refused a read or a write.
    #[error("{what}")]
    Kernel {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: nearmetal_host::ReadError,
    },
    /// The kernel refused a write.
    #[error("{what}")]
    KernelWrite {
        /// What was tried.
        what: String,
        /// The cause.
        #[source]
        source: nearmetal_host::WriteError,
    },
    /// The machine could not be changed as measuring needs it, or back: a hugepage pool, a function's driver.
    #[error("preparing the machine, or putting it back")]
    Change(#[from] nearmetal_change::ChangeError),
    /// An own file.
    #[error(transparent)]
    File(#[from] nearmetal_host::files::FileError),
    /// The figures do not allow a statement.
    #[error("statistics")]
    Statistics(#[from] nearmetal_stats::StatsError),
}

impl MeasureError {
    /// Whether it is about what the user named, and not about this machine.
    pub fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Asked(_) | Self::Scratch { .. } | Self::Load(nearmetal_load::LoadError::Asked(_)))
            || matches!(self, Self::Results(error) if error.is_wrong_use())
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_results::ResultsError;

    use super::*;

    #[test]
    fn a_measurement_that_the_store_does_not_have_is_wrong_use_through_the_engine_too() {
        assert!(MeasureError::from(ResultsError::Asked("there is none of that number".to_owned())).is_wrong_use());
        assert!(!MeasureError::from(ResultsError::Newer("a newer store".to_owned())).is_wrong_use());
    }
}
