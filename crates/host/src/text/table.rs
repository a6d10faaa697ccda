//! Aligned columns.

/// Width at which the last column is broken into further lines.
const WIDTH: usize = 110;

/// A table whose columns are as wide as their widest cell.
pub(crate) struct Table {
    title: String,
    /// Heading, and whether cells stand to the right.
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns whose heading starts with `>` are numbers and stand to the right.
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        let columns = columns
            .iter()
            .map(|heading| match heading.strip_prefix('>') {
                Some(heading) => (heading.to_owned(), true),
                None => ((*heading).to_owned(), false),
            })
            .collect();
        Self { title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// One more column.
    pub(crate) fn column(&mut self, heading: String, right: bool) {
        self.columns.push((heading, right));
    }

    /// One more row. Text from outside is made printable: a name must not move the cursor.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(super::printable).collect());
    }

    /// Title, headings and rows; empty if there are no rows.
    pub(crate) fn render(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (heading, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| length(cell));
                cells.chain([length(heading)]).max().unwrap_or(0)
            })
            .collect();
        let last = widths.len().saturating_sub(1);
        let indent: usize = widths[..last].iter().map(|width| width + 2).sum();
        let mut text = format!("{}\n", self.title);
        let headings: Vec<&str> = self.columns.iter().map(|(heading, _)| heading.as_str()).collect();
        self.line(&mut text, &headings, &widths);
        for row in &self.rows {
            let mut cells: Vec<&str> = row.iter().map(String::as_str).collect();
            let tail = cells.get(last).map_or_else(Vec::new, |cell| broken(cell, WIDTH.saturating_sub(indent).max(30)));
            if let (Some(cell), Some(first)) = (cells.get_mut(last), tail.first()) {
                *cell = first;
            }
            self.line(&mut text, &cells, &widths);
            for rest in tail.iter().skip(1) {
                text.push_str(&format!("{:indent$}{rest}\n", ""));
            }
        }
        text
    }

    fn line(&self, text: &mut String, cells: &[&str], widths: &[usize]) {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let padding = " ".repeat(widths[at].saturating_sub(length(cell)));
            let right = self.columns[at].1;
            line.push_str(if at == 0 { "" } else { "  " });
            line.push_str(if right { &padding } else { "" });
            line.push_str(cell);
            line.push_str(if right { "" } else { &padding });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

fn length(cell: &str) -> usize {
    cell.chars().count()
}

/// Breaks at spaces, so that no line is longer than `width` unless a word is.
fn broken(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in cell.split(' ') {
        let line = lines.last_mut().map_or(0, |line| length(line));
        if line > 0 && line + 1 + length(word) > width {
            lines.push(word.to_owned());
        } else if let Some(current) = lines.last_mut() {
            current.push_str(if line > 0 { " " } else { "" });
            current.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_long_cells_go_on_below() {
        let mut table = Table::new("T", &[">n", "list"]);
        table.row(vec!["1".to_owned(), (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(" ")]);
        table.row(vec!["100".to_owned(), "x\ny".to_owned()]);
        let text = table.render();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "  n  list");
        assert!(lines[2].starts_with("  1  0 1 2") && lines[2].len() <= WIDTH);
        assert!(lines[3].starts_with("     "));
        assert_eq!(lines[4], "100  x\\ny");
        assert_eq!(Table::new("T", &["n"]).render(), "");
    }
}
