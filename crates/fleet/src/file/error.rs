//! What is wrong with a fleet file: where, what, and what to do. Several at once.

use std::fmt;
use std::ops::Range;

/// Problems shown at most; whoever has more corrects these first.
const MOST_SHOWN: usize = 50;
/// Characters of a line shown around the place; a line can be the whole file.
const AROUND: usize = 100;
/// Characters of a value shown in a message.
const MOST_OF_VALUE: usize = 60;

/// Everything wrong with a fleet file, in its order. Shown with the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileErrors {
    /// Name of the file, for people and editors.
    pub origin: String,
    /// At least one.
    pub problems: Vec<FileProblem>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// Line, from 1.
    pub line: usize,
    /// Column, in characters from 1.
    pub column: usize,
    /// What is wrong: thing, value, limit.
    pub message: String,
    /// What to do next.
    pub help: String,
    /// The line as shown, with the marks below it.
    shown: (String, String),
}

/// A problem with its place in the text.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: String,
}

impl FileErrors {
    /// The problems in the text's order.
    pub(super) fn new(origin: &str, text: &str, mut found: Vec<Found>) -> Self {
        found.sort_by_key(|found| found.span.start);
        // What the defaults have wrong is wrong for every VM, and said for the first.
        found.dedup_by(|next, first| next.span == first.span && next.help == first.help);
        let problems = found.into_iter().map(|found| FileProblem::new(text, found)).collect();
        Self { origin: shown(origin), problems }
    }
}

impl FileProblem {
    fn new(text: &str, found: Found) -> Self {
        let start = floor(text, found.span.start);
        let from = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let to = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let end = floor(text, found.span.end).clamp(start, to);
        let column = text[from..start].chars().count();
        let length = text[start..end].trim_end().chars().count().max(1);
        let line: Vec<char> = text[from..to].trim_end_matches('\r').chars().collect();
        // A long line is cut on both sides.
        let first = if line.len() > AROUND { column.saturating_sub(AROUND / 2) } else { 0 };
        let last = (first + AROUND).min(line.len()).max(first);
        let part: String = line[first.min(line.len())..last].iter().copied().map(printable).collect();
        let marks = " ".repeat(column - first) + &"^".repeat(length.min(AROUND.saturating_sub(column - first).max(1)));
        let number = text[..start].matches('\n').count() + 1;
        let shown = (part, marks);
        Self { line: number, column: column + 1, message: found.message, help: found.help, shown }
    }
}

/// The nearest place at or before this one that is between two characters.
fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A tab is as wide as a space, so that the marks stand where they belong; what moves the cursor is not shown.
pub(super) fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        other if other.is_control() => '?',
        other => other,
    }
}

/// Text from outside, for a message.
pub(super) fn shown(text: &str) -> String {
    let mut part: String = text.chars().take(MOST_OF_VALUE).map(printable).collect();
    if text.chars().nth(MOST_OF_VALUE).is_some() {
        part.push('…');
    }
    part
}

impl fmt::Display for FileErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().take(MOST_SHOWN).enumerate() {
            if at > 0 {
                formatter.write_str("\n\n")?;
            }
            let number = problem.line.to_string();
            let bar = " ".repeat(number.len());
            writeln!(formatter, "{}:{}:{}: {}", self.origin, problem.line, problem.column, problem.message)?;
            writeln!(formatter, " {number} | {}", problem.shown.0)?;
            write!(formatter, " {bar} | {}", problem.shown.1)?;
            if !problem.help.is_empty() {
                write!(formatter, "\n {bar} = {}", problem.help)?;
            }
        }
        match self.problems.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(formatter, "\n\nand {more} more: correct these first"),
        }
    }
}

impl std::error::Error for FileErrors {}
