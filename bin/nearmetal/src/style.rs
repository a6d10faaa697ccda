//! How results are shown: the form that was asked for, and what stdout can take.

use nearmetal_report::Style;

use crate::printer::Printer;

/// Columns where stdout is no terminal.
const WIDTH: usize = 100;

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines for people
    Text,
    /// One document for programs, with its schema's name and version
    Json,
}

/// What stdout can show. Only a locale that says so gets more than ASCII on a terminal; a pipe or file takes UTF-8.
pub(crate) fn style(printer: &Printer) -> Style {
    let on_terminal = printer.stdout_is_terminal();
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    let width = columns.filter(|columns| on_terminal && *columns > 0).unwrap_or(WIDTH);
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let utf8 = locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    Style { width, colour: printer.colour(), ascii: on_terminal && !utf8 }
}

/// Rows of the terminal that stdout is; `None`: it is none, or does not say.
pub(crate) fn rows() -> Option<usize> {
    let rows = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_row));
    rows.filter(|rows| *rows > 0)
}
