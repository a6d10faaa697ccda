//! Tables in boxes; where the terminal is too narrow, one line per figure instead.

use super::paint::{Ink, Page, wrap};
use crate::text::shorten;

/// A table.
#[derive(Default)]
pub(super) struct Table {
    /// Column heads, and whether the column is set to the right.
    pub(super) columns: Vec<(String, bool)>,
    /// Rows, each cell with its ink.
    pub(super) rows: Vec<Vec<(String, Ink)>>,
    /// Columns that may be cut to make the table fit, and the least they keep.
    pub(super) elastic: Vec<(usize, usize)>,
}

impl Table {
    /// What a last column may take beside these: a bar uses what is left.
    pub(super) fn left_over(&self, page: &Page) -> usize {
        let used: usize = self.natural().iter().map(|width| width + 3).sum();
        page.width().saturating_sub(2 + used + 3 + 1)
    }

    /// Draws the table, indented by two.
    pub(super) fn draw(&self, page: &mut Page) {
        match self.widths(page.width().saturating_sub(2)) {
            Some(widths) => self.boxed(page, &widths),
            None => self.stacked(page),
        }
    }

    /// Column widths that fit the room, if any do.
    fn widths(&self, room: usize) -> Option<Vec<usize>> {
        let mut widths = self.natural();
        let total = |widths: &[usize]| widths.iter().sum::<usize>() + 3 * widths.len() + 1;
        for (column, least) in &self.elastic {
            let excess = total(&widths).saturating_sub(room);
            widths[*column] = widths[*column].saturating_sub(excess).max((*least).min(widths[*column]));
        }
        (total(&widths) <= room).then_some(widths)
    }

    /// The width each column wants.
    fn natural(&self) -> Vec<usize> {
        let widest = |(column, (head, _)): (usize, &(String, bool))| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|(text, _)| text.chars().count());
            cells.chain([head.chars().count()]).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(widest).collect()
    }

    fn boxed(&self, page: &mut Page, widths: &[usize]) {
        rule(page, widths, ['┌', '┬', '┐']);
        let heads: Vec<_> = self.columns.iter().map(|(head, _)| (head.clone(), Ink::Quiet)).collect();
        self.row(page, &heads, widths);
        rule(page, widths, ['├', '┼', '┤']);
        for row in &self.rows {
            self.row(page, row, widths);
        }
        rule(page, widths, ['└', '┴', '┘']);
    }

    /// One row; cells that were cut go on in the lines below.
    fn row(&self, page: &mut Page, cells: &[(String, Ink)], widths: &[usize]) {
        let nothing = (String::new(), Ink::Plain);
        let cell = |column: usize| cells.get(column).unwrap_or(&nothing);
        let lines: Vec<Vec<String>> =
            widths.iter().enumerate().map(|(column, width)| lines_of(&cell(column).0, *width)).collect();
        for line in 0..lines.iter().map(Vec::len).max().unwrap_or(1) {
            let mut pieces = vec![("  ".to_owned(), Ink::Plain)];
            for (column, width) in widths.iter().enumerate() {
                let text = lines[column].get(line).map_or("", String::as_str);
                let right = self.columns.get(column).is_some_and(|(_, right)| *right);
                let padded = if right { format!("{text:>width$}") } else { format!("{text:<width$}") };
                pieces.push(("│ ".to_owned(), Ink::Quiet));
                pieces.push((padded, cell(column).1));
                pieces.push((" ".to_owned(), Ink::Plain));
            }
            pieces.push(("│".to_owned(), Ink::Quiet));
            page.line(&pieces);
        }
    }

    fn stacked(&self, page: &mut Page) {
        for row in &self.rows {
            for (position, ((head, _), (text, ink))) in self.columns.iter().zip(row).enumerate() {
                let text = text.trim();
                if position == 0 {
                    page.wrapped(text, if *ink == Ink::Plain { Ink::Strong } else { *ink }, 2);
                } else if !text.is_empty() {
                    let label = if head.is_empty() { String::new() } else { format!("{head}: ") };
                    page.wrapped(&format!("{label}{text}"), Ink::Plain, 4);
                }
            }
        }
    }
}

/// A cell's lines: words wrap, a single word too long for its column is cut.
fn lines_of(text: &str, width: usize) -> Vec<String> {
    if text.contains(char::is_whitespace) { wrap(text, width) } else { vec![shorten(text, width)] }
}

fn rule(page: &mut Page, widths: &[usize], [left, cross, right]: [char; 3]) {
    let cells: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
    let line = format!("  {left}{}{right}", cells.join(&cross.to_string()));
    page.line(&[(line, Ink::Quiet)]);
}
