//! What reaches the user: data on stdout, prose on stderr. Nothing else in the program prints.

use std::io::{IsTerminal, Write};

/// A place for output that is not this process's own.
pub trait Outlet {
    /// For whoever reads data.
    fn stdout(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// For whoever reads prose.
    fn stderr(&mut self, bytes: &[u8]) -> std::io::Result<()>;
}

/// Where output goes.
pub struct Printer {
    quiet: bool,
    /// Instead of stdout and stderr.
    outlet: Option<Box<dyn Outlet>>,
    /// Why data could not be written, if it could not.
    lost: Option<std::io::Error>,
}

impl Printer {
    /// A printer; `quiet` silences prose, never data.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, outlet: None, lost: None }
    }

    /// One whose output goes elsewhere.
    pub fn to(quiet: bool, outlet: Box<dyn Outlet>) -> Self {
        Self { quiet, outlet: Some(outlet), lost: None }
    }

    /// Whether prose is silenced.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Data, to stdout.
    pub fn data(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        if !text.ends_with('\n') {
            self.bytes(b"\n");
        }
    }

    /// Data that is not text, to stdout.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let written = match &mut self.outlet {
            Some(outlet) => outlet.stdout(bytes),
            None => write(bytes, std::io::stdout().lock()),
        };
        self.note(written);
    }

    /// Data that belongs on stderr: what a command wrote there.
    pub fn error_bytes(&mut self, bytes: &[u8]) {
        let written = self.prose(bytes);
        self.note(written);
    }

    fn prose(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut self.outlet {
            Some(outlet) => outlet.stderr(bytes),
            None => write(bytes, std::io::stderr().lock()),
        }
    }

    fn note(&mut self, written: std::io::Result<()>) {
        if let Err(error) = written {
            self.lost.get_or_insert(error);
        }
    }

    /// Why data did not reach its reader: a full disk, above all. A reader that has gone away (a closed pipe) wanted no
    /// more, and is no error.
    pub fn lost(&self) -> Option<&std::io::Error> {
        self.lost.as_ref().filter(|error| error.kind() != std::io::ErrorKind::BrokenPipe)
    }

    /// Whether data reaches nobody any more, for whatever reason.
    pub fn is_closed(&self) -> bool {
        self.lost.is_some()
    }

    /// Prose, to stderr.
    pub fn say(&mut self, text: &str) {
        if !self.quiet {
            self.important(text);
        }
    }

    /// Prose that survives `--quiet`: errors and what to do next.
    pub fn important(&mut self, text: &str) {
        let _ = self.prose(format!("{text}\n").as_bytes());
    }

    /// Whether stdout is a terminal: decides colour and width, never content.
    pub fn stdout_is_terminal(&self) -> bool {
        self.outlet.is_none() && std::io::stdout().is_terminal()
    }

    /// Whether colour is wanted: a terminal, and NO_COLOR unset (https://no-color.org).
    pub fn colour(&self) -> bool {
        self.stdout_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// A progress bar on stderr, hidden when stderr is no terminal or output is quiet.
    pub fn progress(&self, length: u64, message: &str) -> indicatif::ProgressBar {
        let bar = if self.quiet || self.outlet.is_some() || !std::io::stderr().is_terminal() {
            indicatif::ProgressBar::hidden()
        } else {
            indicatif::ProgressBar::new(length)
        };
        if let Ok(style) = indicatif::ProgressStyle::with_template("{msg:30} {wide_bar:.cyan} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar
    }
}

fn write(bytes: &[u8], mut to: impl Write) -> std::io::Result<()> {
    to.write_all(bytes).and_then(|()| to.flush())
}
