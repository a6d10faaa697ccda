//! One table of a file such as the fleet's, read key by key. What is wrong is noted, and reading goes on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use nearmetal_units::{Bytes, PageSize};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{Found, shown};
use super::keys::Table;

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// What is written.
    pub value: T,
    /// Where, in bytes of the text.
    pub span: Range<usize>,
}

/// What was found wrong so far.
#[derive(Debug)]
pub struct Notes {
    found: RefCell<Vec<Found>>,
    /// All tables of such a file: a key that stands in the wrong one is told where it belongs.
    tables: &'static [&'static Table],
}

impl Notes {
    /// Nothing yet, of a file that has these tables.
    pub(super) fn of(tables: &'static [&'static Table]) -> Self {
        Self { found: RefCell::default(), tables }
    }

    /// Something wrong at a place, and what to do about it.
    pub fn add(&self, span: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.found.borrow_mut().push(Found { span: span.clone(), message: message.into(), help: help.into() });
    }

    pub(super) fn take(&self) -> Vec<Found> {
        self.found.take()
    }
}

/// A table, its keys, and who it belongs to.
#[derive(Debug)]
pub struct Section<'a> {
    notes: &'a Notes,
    text: &'a str,
    table: &'static Table,
    entries: &'a DeTable<'a>,
    /// Where it begins.
    pub span: Range<usize>,
    /// For messages: "VM `web`".
    pub whose: String,
    asked: RefCell<BTreeSet<&'static str>>,
}

pub(super) type Item<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

impl<'a> Section<'a> {
    pub(super) fn new(
        notes: &'a Notes,
        text: &'a str,
        table: &'static Table,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
        whose: String,
    ) -> Self {
        Self { notes, text, table, entries, span, whose, asked: RefCell::default() }
    }

    /// The same table, with other words for its owner.
    pub fn owned_by(&self, whose: String) -> Self {
        let asked = RefCell::new(self.asked.borrow().clone());
        Self { whose, asked, span: self.span.clone(), ..*self }
    }

    /// As it is written: `[[vm]]`.
    pub fn head(&self) -> &'static str {
        self.table.head
    }

    /// A key in use.
    pub fn example(&self, key: &str) -> &'static str {
        self.table.key(key).map(|key| key.example).unwrap_or_default()
    }

    /// Notes what is wrong at a place.
    pub fn wrong(&self, span: &Range<usize>, message: impl AsRef<str>, help: impl Into<String>) {
        let message = message.as_ref();
        let message = if self.whose.is_empty() { message.to_owned() } else { format!("{}: {message}", self.whose) };
        self.notes.add(span, message, help);
    }

    /// Where a key stands; the table's own place where it does not.
    pub fn place(&self, key: &str) -> Range<usize> {
        let found = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        found.map_or_else(|| self.span.clone(), |(name, _)| name.span())
    }

    /// Whether the key is there, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _)| name.get_ref() == key)
    }

    pub(super) fn get(&self, key: &'static str) -> Option<Item<'a>> {
        self.asked.borrow_mut().insert(key);
        self.entries.iter().find(|(name, _)| name.get_ref() == key)
    }

    /// A value as it is written.
    fn written(&self, span: &Range<usize>) -> String {
        shown(self.text.get(span.clone()).unwrap_or_default().lines().next().unwrap_or_default().trim())
    }

    /// What a key must be, with an example from its description.
    pub(super) fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let what = match value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let place = match value.get_ref() {
            DeValue::Table(_) => self.place(key),
            _ => value.span(),
        };
        let help = format!("for example: {}", self.example(key));
        self.wrong(&place, format!("`{key}` is {what}, it must be {wanted}"), help);
    }

    /// Text.
    pub fn string(&self, key: &'static str) -> Option<At<String>> {
        let (_, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(At { value: text.to_string(), span: value.span() }),
            _ => {
                self.wrong_type(key, value, "text in quotes");
                None
            }
        }
    }

    /// Text with something in it, that fits on a line.
    pub fn line(&self, key: &'static str) -> Option<At<String>> {
        self.string(key).filter(|found| self.is_line(key, found))
    }

    fn is_line(&self, key: &str, found: &At<String>) -> bool {
        if found.value.trim().is_empty() {
            let required = self.table.key(key).is_some_and(|key| key.default == super::keys::REQUIRED);
            let help =
                if required { "write it between the quotes" } else { "write it between the quotes, or leave it out" };
            self.wrong(&found.span, format!("`{key}` is empty"), help);
        } else if found.value.chars().any(char::is_control) {
            let help = "write it on one line, without tabs and control characters";
            self.wrong(&found.span, format!("`{key}` has a control character in it"), help);
        } else {
            return true;
        }
        false
    }

    /// True or false.
    pub fn boolean(&self, key: &'static str) -> Option<At<bool>> {
        let (_, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(At { value: *flag, span: value.span() }),
            _ => {
                self.wrong_type(key, value, "true or false, without quotes");
                None
            }
        }
    }

    /// A whole number within limits. `unit`: what is counted.
    pub fn integer(&self, key: &'static str, limits: RangeInclusive<i64>, unit: &str) -> Option<At<i64>> {
        let (_, value) = self.get(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(key, value, "a whole number, without quotes");
            return None;
        };
        let found = i64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| limits.contains(number));
        if found.is_none() {
            let message = format!("`{key}` is {}", self.written(&value.span()));
            self.wrong(&value.span(), message, format!("give {} to {} {unit}", limits.start(), limits.end()));
        }
        found.map(|number| At { value: number, span: value.span() })
    }

    /// A number, whole or not.
    pub fn number(&self, key: &'static str) -> Option<At<f64>> {
        let (_, value) = self.get(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().parse().ok().filter(|_| number.radix() == 10),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => {
                self.wrong_type(key, value, "a number, without quotes");
                return None;
            }
        };
        // What is no number becomes one that no limit admits.
        Some(At { value: number.unwrap_or(f64::NAN), span: value.span() })
    }

    /// One of some words.
    pub fn word<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Option<At<T>> {
        let found = self.string(key)?;
        self.one_of(key, &found, words)
    }

    /// A text that was read, as one of some words.
    pub fn one_of<T: Copy>(&self, key: &str, found: &At<String>, words: &[(&'static str, T)]) -> Option<At<T>> {
        let known = words.iter().find(|(word, _)| *word == found.value);
        if known.is_none() {
            let list = list(words.iter().map(|(word, _)| *word));
            let near = nearest(&found.value, words.iter().map(|(word, _)| *word));
            let help = match near {
                Some(near) => format!("did you mean \"{near}\"? Known: {list}"),
                None => format!("known: {list}"),
            };
            self.wrong(&found.span, format!("`{key}` cannot be \"{}\"", shown(&found.value)), help);
        }
        known.map(|(_, value)| At { value: *value, span: found.span.clone() })
    }

    /// An amount of memory.
    pub fn bytes(&self, key: &'static str) -> Option<At<Bytes>> {
        let (_, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::String(text) => self.bytes_of(key, &At { value: text.to_string(), span: value.span() }),
            DeValue::Integer(number) => {
                let help = format!("write the unit, in quotes: \"{} MiB\" or \"{} GiB\"", number, number);
                self.wrong(&value.span(), format!("`{key}` is {number} without a unit"), help);
                None
            }
            _ => {
                self.wrong_type(key, value, "an amount with its unit, in quotes");
                None
            }
        }
    }

    fn bytes_of(&self, key: &str, found: &At<String>) -> Option<At<Bytes>> {
        let text = found.value.trim();
        let has_unit = text.ends_with(|character: char| character.is_ascii_alphabetic());
        match text.parse::<Bytes>() {
            Ok(bytes) if has_unit => Some(At { value: bytes, span: found.span.clone() }),
            result => {
                let help = match (result.is_ok(), decimal_unit(text)) {
                    (true, _) => format!("write the unit: \"{text} MiB\" or \"{text} GiB\""),
                    (false, Some(unit)) => {
                        format!("memory is counted in powers of two: write {unit} instead, and whole numbers only")
                    }
                    (false, None) => match whole(text) {
                        Some(whole) => format!("whole numbers only: write \"{whole}\""),
                        None => "write a whole number and MiB, GiB or TiB, such as \"16 GiB\"".to_owned(),
                    },
                };
                self.wrong(
                    &found.span,
                    format!("`{key}` is \"{}\", which is not an amount", shown(&found.value)),
                    help,
                );
                None
            }
        }
    }

    /// A page size; `Some(None)`: the kernel's own pages.
    pub fn page_size(&self, key: &'static str) -> Option<At<Option<PageSize>>> {
        let (_, value) = self.get(key)?;
        if let DeValue::String(text) = value.get_ref() {
            if text == "kernel" {
                return Some(At { value: None, span: value.span() });
            }
        }
        let bytes = self.bytes(key)?;
        let help = "hugepages are 2 MiB or 1 GiB on x86-64; \"kernel\" stands for the kernel's own pages";
        match PageSize::try_from(bytes.value) {
            Ok(size) if size > PageSize::SMALL => Some(At { value: Some(size), span: bytes.span }),
            _ => {
                self.wrong(&bytes.span, format!("`{key}` is {}, which is not a size of hugepages", bytes.value), help);
                None
            }
        }
    }

    /// A list of texts, each of which is a line.
    pub fn strings(&self, key: &'static str) -> Option<At<Vec<At<String>>>> {
        let (_, value) = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type(key, value, "a list of texts in brackets");
            return None;
        };
        Some(At { value: self.lines_of(key, array.iter()), span: value.span() })
    }

    fn lines_of<'v>(&self, key: &str, values: impl Iterator<Item = &'v Spanned<DeValue<'v>>>) -> Vec<At<String>> {
        let mut found = Vec::new();
        for item in values {
            match item.get_ref() {
                DeValue::String(text) => {
                    let text = At { value: text.to_string(), span: item.span() };
                    found.extend(Some(text).filter(|text| self.is_line(key, text)));
                }
                _ => self.wrong(&item.span(), format!("`{key}` holds something that is not text"), "put it in quotes"),
            }
        }
        found
    }

    /// A table of free keys, each with a text: labels.
    pub fn texts(&self, key: &'static str) -> Vec<(At<String>, At<String>)> {
        self.free(key, "a table of texts")
            .into_iter()
            .filter_map(|(name, value)| match value.get_ref() {
                DeValue::String(text) => {
                    let text = At { value: text.to_string(), span: value.span() };
                    self.is_line(key, &text).then_some((name, text))
                }
                _ => {
                    let message = format!("`{key}`: the value of `{}` is not text", shown(&name.value));
                    self.wrong(&value.span(), message, "put it in quotes");
                    None
                }
            })
            .collect()
    }

    /// A table of free keys, each with a list of texts.
    pub fn lists(&self, key: &'static str) -> Vec<(At<String>, Vec<At<String>>)> {
        self.free(key, "a table of lists")
            .into_iter()
            .filter_map(|(name, value)| match value.get_ref() {
                DeValue::Array(array) => Some((name, self.lines_of(key, array.iter()))),
                _ => {
                    let message = format!("`{key}`: the value of `{}` is not a list", shown(&name.value));
                    self.wrong(&value.span(), message, "write a list of texts in brackets");
                    None
                }
            })
            .collect()
    }

    /// Names and values of a table in the text's order.
    fn free(&self, key: &'static str, wanted: &str) -> Vec<(At<String>, &'a Spanned<DeValue<'a>>)> {
        let Some((_, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(key, value, wanted);
            return Vec::new();
        };
        let mut found: Vec<_> = table
            .iter()
            .map(|(name, value)| (At { value: name.get_ref().to_string(), span: name.span() }, value))
            .collect();
        found.sort_by_key(|(name, _)| name.span.start);
        found.retain(|(name, _)| self.is_line(key, name));
        found
    }

    /// A table of known keys.
    pub fn table(&self, key: &'static str, table: &'static Table) -> Option<Section<'a>> {
        let (name, value) = self.get(key)?;
        match value.get_ref() {
            DeValue::Table(entries) => {
                Some(Section::new(self.notes, self.text, table, entries, name.span(), self.whose.clone()))
            }
            _ => {
                self.wrong_type(key, value, "a table");
                None
            }
        }
    }

    /// A value that is a word or a table of known keys.
    pub fn is_table(&self, key: &str) -> bool {
        let found = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        found.is_some_and(|(_, value)| matches!(value.get_ref(), DeValue::Table(_)))
    }

    /// Whether the key is there and a whole number.
    pub fn is_integer(&self, key: &str) -> bool {
        let found = self.entries.iter().find(|(name, _)| name.get_ref() == key);
        found.is_some_and(|(_, value)| matches!(value.get_ref(), DeValue::Integer(_)))
    }

    /// All tables of that name, `[[name]]`.
    pub fn tables(&self, key: &'static str, table: &'static Table) -> Vec<Section<'a>> {
        let Some((name, value)) = self.get(key) else { return Vec::new() };
        let DeValue::Array(array) = value.get_ref() else {
            let help = format!("there can be several: write {} with two brackets", table.head);
            self.wrong(&name.span(), format!("`{key}` is not a list of tables"), help);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(entries) => {
                    let whose = self.whose.clone();
                    sections.push(Section::new(self.notes, self.text, table, entries, item.span(), whose));
                }
                _ => self.wrong(&item.span(), format!("`{key}` holds something that is not a table"), {
                    format!("write each as a table of its own under {}", table.head)
                }),
            }
        }
        sections
    }

    /// Notes every key that is not known here.
    pub fn finish(&self) {
        let known = || self.table.keys.iter().map(|key| key.name);
        debug_assert!(
            self.asked.borrow().iter().all(|asked| self.table.key(asked).is_some()),
            "a key of {} that is read is not described: {:?}",
            self.table.head,
            self.asked
        );
        for (name, _) in self.entries.iter() {
            let key = name.get_ref();
            if self.table.key(key).is_some() {
                continue;
            }
            let others = self.notes.tables.iter().filter(|table| table.key(key).is_some());
            let others: Vec<&str> = others.map(|table| table.head).collect();
            let help = match nearest(key, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if others.is_empty() => format!("known here: {}", list(known())),
                None => format!("it belongs into {}; known here: {}", others.join(" or "), list(known())),
            };
            let message = match self.table.head {
                head if head.starts_with('[') => format!("{head} has no key `{}`", shown(key)),
                head if head.contains(' ') => format!("{head} has no key and no table `{}`", shown(key)),
                head => format!("`{head}` has no key `{}`", shown(key)),
            };
            self.wrong(&name.span(), message, help);
        }
    }
}

/// The same amount in the next smaller unit, where that has a whole number of it: `1.5 GiB` is `1536 MiB`.
fn whole(text: &str) -> Option<String> {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let at = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = (text[..at].trim().parse::<f64>().ok()?, text[at..].trim());
    let smaller = units.iter().position(|known| *known == unit)?.checked_sub(1)?;
    let count = number * 1024.0;
    (count.fract() == 0.0 && (1.0..1e9).contains(&count)).then(|| format!("{count} {}", units[smaller]))
}

/// The binary unit somebody meant who wrote a decimal one.
fn decimal_unit(text: &str) -> Option<&'static str> {
    let upper = text.to_ascii_uppercase();
    [("TB", "TiB"), ("GB", "GiB"), ("MB", "MiB"), ("KB", "KiB")]
        .into_iter()
        .find(|(unit, _)| upper.ends_with(unit))
        .map(|(_, unit)| unit)
}

fn list<'t>(words: impl Iterator<Item = &'t str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// The word that takes the fewest changes, if it takes few for its length.
pub fn nearest<'t>(word: &str, known: impl Iterator<Item = &'t str>) -> Option<&'t str> {
    let plain = |text: &str| text.replace(['_', ' '], "-").to_ascii_lowercase();
    // A key longer than any known one by far is not a slip.
    if word.len() > 64 {
        return None;
    }
    let word = plain(word);
    let best = known.map(|other| (distance(&word, &plain(other)), other)).min()?;
    (best.0 <= (best.1.chars().count() / 3).max(1)).then_some(best.1)
}

/// Characters to insert, remove or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, theirs) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *theirs);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
