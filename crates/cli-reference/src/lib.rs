//! The command-line reference under `docs/`, generated from clap: one Markdown page a command and one man page a
//! command and subcommand.
//!
//! Two programs share it, and only their tests use it, so that neither program links a page generator. The pages are
//! goldens: [`check`] compares them with the files in the repository, and rewrites those when `UPDATE_GOLDENS` is set.
//!
//! The pages of `docs/reference` that describe JSON documents are written by hand; [`Fields`] compares their tables with
//! documents that have every field.

mod fields;
mod goldens;
mod man;
mod markdown;

pub use fields::{Fields, Tables};
pub use goldens::{Page, check};

use clap::Command;

/// Every page of a program, with paths relative to the repository's `docs` directory.
///
/// Hidden commands have no page; hidden options, and those that only the long help shows, are on none. With `own_pages`
/// each top-level command has its own Markdown page, and the program's page lists them; a page that would be too long is
/// split in the same way. Without it all commands are on one page.
///
/// # Panics
/// If the command is inconsistent, as clap itself would.
#[must_use]
pub fn pages(program: Command, own_pages: bool) -> Vec<Page> {
    // The `help` subcommand repeats `--help`, once for every command.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let program = without_rare(program);
    let mut pages = markdown::pages(&program, own_pages);
    pages.extend(man::pages(&program));
    pages
}

/// Without the options that `-h` leaves out: they are for tests, and clap_mangen would show them without their text.
fn without_rare(command: Command) -> Command {
    command
        .mut_args(|arg| if arg.is_hide_short_help_set() { arg.hide(true) } else { arg })
        .mut_subcommands(without_rare)
}

/// The subcommands a reader may use, in the order of `--help`.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set())
}

/// `nearmetal-fleet-init`: the name of a command's man page.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// `nearmetal fleet init`: what a user types.
fn typed_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}
