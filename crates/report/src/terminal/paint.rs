//! Lines, colours, and the way down to ASCII.

use crate::text::one_line;

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Columns.
    pub width: usize,
    /// Whether ANSI colours are wanted.
    pub colour: bool,
    /// Whether only ASCII can be shown.
    pub ascii: bool,
}

/// What a piece of text is; the colour follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Quiet,
    Good,
    Bad,
    Unsure,
    Planned,
    Found,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Bad => "31;1",
            Self::Unsure | Self::Found => "33",
            Self::Planned => "36",
        }
    }
}

/// A report in the making.
pub(super) struct Page {
    style: Style,
    text: String,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        Self { style: Style { width: style.width.max(40), ..style }, text: String::new() }
    }

    pub(super) fn width(&self) -> usize {
        self.style.width
    }

    pub(super) fn blank(&mut self) {
        self.text.push('\n');
    }

    pub(super) fn heading(&mut self, words: &str) {
        self.blank();
        self.line(&[(words.to_owned(), Ink::Strong)]);
    }

    /// One line of painted pieces, cut at the width.
    pub(super) fn line(&mut self, pieces: &[(String, Ink)]) {
        let mut room = self.style.width;
        let last = pieces.iter().rposition(|(text, _)| !text.trim_end().is_empty());
        for (position, (text, ink)) in pieces.iter().enumerate().take_while(|(position, _)| Some(*position) <= last) {
            let text = if Some(position) == last { text.trim_end() } else { text };
            let shown: String = self.shown(text).chars().take(room).collect();
            room -= shown.chars().count();
            self.text.push_str(&self.painted(&shown, *ink));
        }
        self.text.push('\n');
    }

    /// Words over as many lines as they need, each indented.
    pub(super) fn wrapped(&mut self, words: &str, ink: Ink, indent: usize) {
        let room = self.style.width - indent.min(self.style.width / 2);
        // Lines after a bullet stand under its words.
        let hanging = if words.starts_with("- ") { 2 } else { 0 };
        for (position, line) in wrap(words, room - hanging).into_iter().enumerate() {
            let indent = indent + if position > 0 { hanging } else { 0 };
            self.line(&[(" ".repeat(indent), Ink::Plain), (line, ink)]);
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    fn painted(&self, text: &str, ink: Ink) -> String {
        let code = ink.code();
        if self.style.colour && !code.is_empty() && !text.trim().is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    fn shown(&self, text: &str) -> String {
        let text = one_line(text);
        if self.style.ascii { text.chars().map(ascii).collect() } else { text }
    }
}

/// Words in lines of at most `room` characters; text that fits is left as it is, bars and all.
pub(crate) fn wrap(words: &str, room: usize) -> Vec<String> {
    let words = one_line(words);
    let room = room.max(1);
    if words.chars().count() <= room {
        return vec![words];
    }
    let mut line = String::new();
    let mut lines = Vec::new();
    for word in words.split_whitespace() {
        // A word longer than a line is broken: nothing is wider than the terminal.
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let used = line.chars().count();
            let needed = word.len() + usize::from(used > 0);
            if used + needed <= room {
                if used > 0 {
                    line.push(' ');
                }
                line.extend(&word);
                break;
            }
            if used > 0 {
                lines.push(std::mem::take(&mut line));
            } else {
                lines.push(word.drain(..room).collect());
            }
        }
    }
    lines.push(line);
    lines
}

/// One ASCII character for each, so that columns stay columns.
fn ascii(c: char) -> char {
    match c {
        c if c.is_ascii() => c,
        '─' | '–' | '—' | '━' => '-',
        '│' | '┃' => '|',
        '┌' | '┐' | '└' | '┘' | '├' | '┤' | '┬' | '┴' | '┼' => '+',
        '╟' => '[',
        '╢' => ']',
        '◆' => 'o',
        '◇' => 'o',
        '×' => 'x',
        '·' => '|',
        '→' => '>',
        '…' => '~',
        'µ' | 'μ' => 'u',
        '✓' => '+',
        '✗' => '!',
        '█' => '#',
        '▓' => '%',
        '▒' => '+',
        '░' => '.',
        _ => '?',
    }
}
