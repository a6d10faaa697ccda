//! The difference of two texts, line by line.

use serde::{Deserialize, Serialize};
use similar::{ChangeTag, TextDiff};

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// What a line of a difference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffKind {
    /// `@@ … @@`: where the next lines stand in both texts.
    Place,
    /// In both.
    Context,
    /// Only in the text before.
    Removed,
    /// Only in the text after.
    Added,
}

/// One line of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffLine {
    /// What it is.
    pub kind: DiffKind,
    /// Its text without line break.
    pub text: String,
    /// Line in the text before, from 1.
    pub before: Option<usize>,
    /// Line in the text after, from 1.
    pub after: Option<usize>,
}

/// The unified difference, with three lines of context; empty for equal texts.
pub fn diff(before: &str, after: &str) -> Vec<DiffLine> {
    let lines = TextDiff::from_lines(before, after);
    let mut unified = lines.unified_diff();
    unified.context_radius(CONTEXT);
    let mut out = Vec::new();
    for hunk in unified.iter_hunks() {
        let header = hunk.header().to_string();
        out.push(DiffLine { kind: DiffKind::Place, text: header.trim_end().to_owned(), before: None, after: None });
        for change in hunk.iter_changes() {
            out.push(DiffLine {
                kind: match change.tag() {
                    ChangeTag::Equal => DiffKind::Context,
                    ChangeTag::Delete => DiffKind::Removed,
                    ChangeTag::Insert => DiffKind::Added,
                },
                text: change.value().trim_end_matches(['\r', '\n']).to_owned(),
                before: change.old_index().map(|index| index + 1),
                after: change.new_index().map(|index| index + 1),
            });
        }
    }
    out
}

/// The difference as `diff -u` prints it, without colours; the names go into its two head lines.
pub fn render_diff(lines: &[DiffLine], before: &str, after: &str) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut out = format!("--- {before}\n+++ {after}\n");
    for line in lines {
        out.push_str(match line.kind {
            DiffKind::Place => "",
            DiffKind::Context => " ",
            DiffKind::Removed => "-",
            DiffKind::Added => "+",
        });
        out.push_str(&line.text);
        out.push('\n');
    }
    out
}
