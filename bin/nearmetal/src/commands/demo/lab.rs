//! What the demo asks of the lab, behind a trait: tests put a directory of recorded outputs there.

use std::path::Path;
use std::time::Duration;

use nearmetal_lab::{Command, ExecOutput, Lab, Progress};

use crate::printer::Printer;

/// A machine that runs scripts and has files.
pub(super) trait Ground {
    /// Runs a script and collects what it prints. An exit code other than 0 is no error.
    fn run(&mut self, script: &str, limit: Duration) -> anyhow::Result<ExecOutput>;

    /// Runs a script, shows what it prints as it comes, and gives its exit code.
    fn show(&mut self, script: &str, limit: Duration) -> anyhow::Result<i32>;

    /// Copies a file into it.
    fn push(&mut self, local: &Path, remote: &str) -> anyhow::Result<()>;

    /// Copies a file out of it.
    fn pull(&mut self, remote: &str, local: &Path) -> anyhow::Result<()>;
}

impl Ground for Lab {
    fn run(&mut self, script: &str, limit: Duration) -> anyhow::Result<ExecOutput> {
        Ok(self.exec(&Command::shell(script).timeout(limit))?)
    }

    fn show(&mut self, script: &str, limit: Duration) -> anyhow::Result<i32> {
        let command = Command::shell(script).timeout(limit);
        Ok(self.exec_streaming(&command, &mut std::io::stdout(), &mut std::io::stderr())?)
    }

    fn push(&mut self, local: &Path, remote: &str) -> anyhow::Result<()> {
        Ok(Lab::push(self, local, remote)?)
    }

    fn pull(&mut self, remote: &str, local: &Path) -> anyhow::Result<()> {
        Ok(Lab::pull(self, remote, local)?)
    }
}

/// The lab's progress as lines.
pub(super) struct Lines<'a>(pub &'a mut Printer);

impl Progress for Lines<'_> {
    fn stage(&mut self, number: usize, count: usize, title: &str) {
        self.0.say(&format!("  [{number}/{count}] {title}"));
    }
    fn note(&mut self, text: &str) {
        self.0.say(&format!("  {text}"));
    }
}
