//! The reference in Markdown: what `--help` says, as headings, lists and links.

use clap::{Arg, Command};

use crate::goldens::LONGEST;
use crate::{Page, page_name, shown, typed_name};

/// The program's page, and one for each top-level command if they have their own.
pub(crate) fn pages(program: &Command, own_pages: bool) -> Vec<Page> {
    if own_pages { listed(program, program) } else { vec![page(program, with_subcommands(program, 1, program))] }
}

/// A command's page, which lists its subcommands, and their pages. A subcommand's own subcommands are on its page, unless
/// that would be too long: then it lists them, too.
fn listed(command: &Command, program: &Command) -> Vec<Page> {
    let mut text = section(command, 1, program);
    text.push_str("## Commands\n\n");
    let mut below = Vec::new();
    for subcommand in shown(command) {
        let name = page_name(subcommand);
        text.push_str(&format!("- [`{}`]({name}.md): {}\n", typed_name(subcommand), about(subcommand)));
        let whole = page(subcommand, with_subcommands(subcommand, 1, program));
        match whole.text.len() > LONGEST && subcommand.has_subcommands() {
            true => below.extend(listed(subcommand, program)),
            false => below.push(whole),
        }
    }
    let mut pages = vec![page(command, text)];
    pages.append(&mut below);
    pages
}

fn page(command: &Command, text: String) -> Page {
    Page { path: format!("reference/cli/{}.md", page_name(command)), text: text.trim_end().to_owned() + "\n" }
}

/// A command and everything below it, one heading each.
fn with_subcommands(command: &Command, level: usize, program: &Command) -> String {
    let mut text = section(command, level, program);
    shown(command).for_each(|subcommand| text.push_str(&with_subcommands(subcommand, level + 1, program)));
    text
}

/// One command: what it does, how it is called, what it takes.
fn section(command: &Command, level: usize, program: &Command) -> String {
    let mut text = format!("{} {}\n\n", "#".repeat(level), typed_name(command));
    if level == 1 {
        text.push_str("<!-- Generated from the program's help; CONTRIBUTING.md says how to rewrite it. -->\n\n");
    }
    let long = command.get_long_about().or_else(|| command.get_about());
    let long = long.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let (first, rest) = long.split_once("\n\n").unwrap_or((&long, ""));
    text.push_str(&format!("{}\n\n```\n{usage}\n```\n\n{}", prose(first), blocks(rest)));
    for heading in headings(command, program) {
        text.push_str(&format!("**{heading}**\n\n"));
        for arg in arguments(command, program).filter(|arg| heading_of(arg) == heading) {
            text.push_str(&argument(arg));
        }
        text.push('\n');
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    text.push_str(&blocks(&after.map(ToString::to_string).unwrap_or_default()));
    text
}

fn about(command: &Command) -> String {
    prose(&command.get_about().map(ToString::to_string).unwrap_or_default())
}

/// The headings of a command's options, in the order of `--help`.
fn headings(command: &Command, program: &Command) -> Vec<String> {
    let mut headings = Vec::new();
    for arg in arguments(command, program) {
        let heading = heading_of(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    // clap shows positional arguments first, wherever they are declared.
    headings.sort_by_key(|heading| heading != ARGUMENTS);
    headings
}

const ARGUMENTS: &str = "Arguments";

fn heading_of(arg: &Arg) -> String {
    match arg.get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if arg.is_positional() => ARGUMENTS.to_owned(),
        None => "Options".to_owned(),
    }
}

/// What a command takes, without what every command takes: that is on the program's page.
fn arguments<'a>(command: &'a Command, program: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let everywhere = |arg: &Arg| {
        let inherited = command.get_display_name() != program.get_display_name()
            && program.get_arguments().any(|known| known.is_global_set() && known.get_id() == arg.get_id());
        inherited || ["help", "version"].contains(&arg.get_id().as_str())
    };
    command.get_arguments().filter(move |arg| !arg.is_hide_set() && !everywhere(arg))
}

/// One list item: the option as it is typed, its help, its values.
fn argument(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}, ")).filter(|_| !arg.is_positional());
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut paragraphs = help.split("\n\n").map(prose);
    let mut text = format!("- `{}{arg}`", short.unwrap_or_default());
    if let Some(first) = paragraphs.next().filter(|first| !first.is_empty()) {
        text.push_str(&format!(": {first}"));
    }
    let takes_values = arg.get_num_args().is_some_and(|count| count.takes_values());
    let defaults: Vec<String> = match arg.is_hide_default_value_set() || !takes_values {
        true => Vec::new(),
        false => arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect(),
    };
    if defaults.iter().any(|value| !value.is_empty()) {
        text.push_str(&format!(" [default: `{}`]", defaults.join(" ")));
    }
    text.push('\n');
    paragraphs.for_each(|paragraph| text.push_str(&format!("\n  {paragraph}\n")));
    if takes_values && !arg.is_hide_possible_values_set() {
        for value in arg.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let help = value.get_help().map(|help| format!(": {}", prose(&help.to_string())));
            text.push_str(&format!("  - `{}`{}\n", value.get_name(), help.unwrap_or_default()));
        }
    }
    text
}

/// Paragraphs. One with indented lines is a table of examples: its lines stay as they are.
fn blocks(text: &str) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let indented = |line: &&str| line.starts_with("  ");
        let (lines, examples): (Vec<&str>, Vec<&str>) = paragraph.lines().partition(|line| !indented(line));
        if !lines.is_empty() {
            out.push_str(&format!("{}\n\n", prose(&lines.join(" "))));
        }
        if !examples.is_empty() {
            let examples: Vec<&str> = examples.iter().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
            out.push_str(&format!("```\n{}\n```\n\n", examples.join("\n")));
        }
    }
    out
}

/// Text in one line, safe in Markdown: outside of backticks, what would be markup is escaped.
fn prose(text: &str) -> String {
    let line = text.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
    let mut out = String::new();
    let mut code = false;
    for character in line.chars() {
        match character {
            '`' => code = !code,
            '<' | '*' | '_' if !code => out.push('\\'),
            _ => {}
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped_outside_of_backticks_only() {
        assert_eq!(prose("in <metadata> of\nA_B, `<a_b>`"), r"in \<metadata> of A\_B, `<a_b>`");
    }

    #[test]
    fn indented_lines_stay_as_they_are() {
        assert_eq!(blocks("Examples:\n  a   b\n  c\n\nMore\ntext"), "Examples:\n\n```\na   b\nc\n```\n\nMore text\n\n");
    }

    #[test]
    fn every_shown_option_is_on_the_page_and_no_hidden_one() {
        let shown = Arg::new("size").long("size").short('s').value_name("BYTES").help("How much").default_value("4k");
        let hidden = Arg::new("crash").long("crash").hide(true);
        let quiet = Arg::new("quiet").long("quiet").global(true).num_args(0).help("Less");
        // Global below `sub` only, so `sub` has it to itself.
        let below = Arg::new("below").long("below").global(true).num_args(0).help("Here");
        let sub = Command::new("sub").about("Does").args([shown, hidden, below]).subcommand(Command::new("leaf"));
        let secret = Command::new("secret").hide(true);
        let pages = crate::pages(Command::new("prog").version("1").arg(quiet).subcommand(sub).subcommand(secret), true);
        let paths: Vec<&str> = pages.iter().map(|page| page.path.as_str()).collect();
        let markdown = ["reference/cli/prog.md", "reference/cli/prog-sub.md"];
        let man = ["man/prog.1", "man/prog-sub.1", "man/prog-sub-leaf.1"];
        assert_eq!(paths, [&markdown[..], &man[..]].concat());
        assert!(pages[0].text.contains("- [`prog sub`](prog-sub.md): Does\n"), "{}", pages[0].text);
        assert!(pages[0].text.contains("- `--quiet`: Less\n"), "{}", pages[0].text);
        assert!(pages[1].text.contains("- `-s, --size <BYTES>`: How much [default: `4k`]\n"), "{}", pages[1].text);
        assert!(!pages.iter().any(|page| page.text.contains("crash") || page.text.contains("secret")));
        assert!(!pages[1].text.contains("--quiet"), "{}", pages[1].text);
        assert_eq!(pages[1].text.matches("- `--below`: Here\n").count(), 2, "{}", pages[1].text);
        assert_eq!(pages[0].text.matches("**Options**").count(), 1, "{}", pages[0].text);
    }
}
