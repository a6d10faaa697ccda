//! Consent, before something is changed.

use std::io::{IsTerminal, Write};

use crate::printer::Printer;

/// Asks before something is done. Without a terminal there is nobody to ask.
pub(crate) fn agreed(yes: bool, printer: &mut Printer) -> bool {
    if yes {
        return true;
    }
    if !somebody_is_there() {
        printer.important("error: cannot ask for confirmation, since stdin is not a terminal: add --yes");
        return false;
    }
    let _ = write!(std::io::stderr(), "continue? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Whether there is a person to ask.
pub(crate) fn somebody_is_there() -> bool {
    std::io::stdin().is_terminal()
}
