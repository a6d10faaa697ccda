//! What reaches the user: data on stdout, prose on stderr. Nothing else in the program prints.

use std::io::{IsTerminal, Write};

/// Where output goes.
#[derive(Debug)]
pub struct Printer {
    quiet: bool,
    /// Why data could not be written, if it could not.
    lost: Option<std::io::Error>,
}

impl Printer {
    /// A printer; `quiet` silences prose, never data.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, lost: None }
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
        self.write(bytes, std::io::stdout().lock());
    }

    /// Data that belongs on stderr: what a command wrote there.
    pub fn error_bytes(&mut self, bytes: &[u8]) {
        self.write(bytes, std::io::stderr().lock());
    }

    fn write(&mut self, bytes: &[u8], mut to: impl Write) {
        if let Err(error) = to.write_all(bytes).and_then(|()| to.flush()) {
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
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Prose that survives `--quiet`: errors and what to do next.
    pub fn important(&mut self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// Whether stdout is a terminal: decides colour and width, never content.
    pub fn stdout_is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Whether colour is wanted: a terminal, and NO_COLOR unset (https://no-color.org).
    pub fn colour(&self) -> bool {
        self.stdout_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// A progress bar on stderr, hidden when stderr is no terminal or output is quiet.
    pub fn progress(&self, length: u64, message: &str) -> indicatif::ProgressBar {
        let bar = if self.quiet || !std::io::stderr().is_terminal() {
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
