//! One man page a command and subcommand, in section 1.

use clap::Command;

use crate::{Page, page_name, shown};

/// The pages of a command and of all below it.
pub(crate) fn pages(command: &Command) -> Vec<Page> {
    let mut rendered = Vec::new();
    // clap_mangen writes into memory here, which does not fail.
    let _ = clap_mangen::Man::new(command.clone()).manual("nearmetal").render(&mut rendered);
    let text = String::from_utf8_lossy(&rendered).into_owned();
    let mut all = vec![Page { path: format!("man/{}.1", page_name(command)), text }];
    all.extend(shown(command).flat_map(pages));
    all
}
