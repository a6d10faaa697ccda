//! The fields of a JSON document, compared with the table of a page that describes them.
//!
//! A table's first column is a path in backticks: `runs[].arm`, where `[]` stands for each element of a list. A form that
//! occurs at several places is described once, in a section of its own: [`Fields::without`] leaves it out where it is only
//! named, [`Fields::below`] gives its own fields. What is wrong is a panic, since only tests ask.

use std::collections::BTreeSet;

use serde_json::Value;

/// A page with sections, each with one table of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tables<'a>(pub &'a str);

impl<'a> Tables<'a> {
    /// The part below a heading, which is given with its `#`s, up to the next one of the same level or a higher one.
    ///
    /// # Panics
    /// If the page has no such heading.
    #[must_use]
    pub fn section(&self, heading: &str) -> &'a str {
        section(self.0, heading)
    }

    /// A section's table has exactly these fields.
    ///
    /// # Panics
    /// If one is not in the table, or one of the table is not among them: with all of those.
    #[track_caller]
    pub fn have(&self, fields: &Fields, heading: &str) {
        fields.compare(self.section(heading)).unwrap_or_else(|problems| panic!("{heading}\n{problems}"));
    }

    /// A section has every word that a document holds at a path, in backticks, and the document has `count` of them: as
    /// many as there are to choose from.
    ///
    /// # Panics
    /// If there are more or fewer, or some are not in the section.
    #[track_caller]
    pub fn explain(&self, document: &Value, path: &str, count: usize, heading: &str) {
        let words = words(document, path);
        assert_eq!(words.len(), count, "words at `{path}`: {words:?}");
        let section = self.section(heading);
        let unexplained: Vec<_> = words.iter().filter(|word| !section.contains(&format!("`{word}`"))).collect();
        assert!(unexplained.is_empty(), "{heading} does not explain {unexplained:?}, words of `{path}`");
    }
}

/// Paths of fields, all that a document has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields(BTreeSet<String>);

impl Fields {
    /// All fields of a value. A list's elements are taken together; a list without elements, and `null`, have none.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        let mut found = BTreeSet::new();
        gather(value, "", &mut found);
        Self(found)
    }

    /// Without what lies below these paths; the paths themselves stay.
    ///
    /// # Panics
    /// If nothing lies below one of them: the example is then less than full, or the path is wrong.
    #[must_use]
    pub fn without(mut self, paths: &[&str]) -> Self {
        for path in paths {
            let before = self.0.len();
            self.0.retain(|field| below(field, path).is_none());
            assert!(self.0.len() < before, "the example has nothing below `{path}`");
        }
        self
    }

    /// What lies below these paths, by the paths that a document would have that begins there.
    ///
    /// # Panics
    /// If nothing lies below one of them.
    #[must_use]
    pub fn below(&self, paths: &[&str]) -> Self {
        let mut found = BTreeSet::new();
        for path in paths {
            let own: Vec<_> = self.0.iter().filter_map(|field| below(field, path)).map(str::to_owned).collect();
            assert!(!own.is_empty(), "the example has nothing below `{path}`");
            found.extend(own);
        }
        Self(found)
    }

    /// Compares them with a section's table, in both directions. What is wrong is in words, a line a field.
    fn compare(&self, section: &str) -> Result<(), String> {
        let documented = documented(section);
        let missing = self.0.difference(&documented).map(|field| format!("`{field}` is not in the table"));
        let stale =
            documented.difference(&self.0).map(|field| format!("`{field}` is in the table, not in the document"));
        let problems: Vec<String> = missing.chain(stale).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let level = |line: &str| Some(line.chars().take_while(|letter| *letter == '#').count()).filter(|level| *level > 0);
    let (mut begin, mut position) = (None, 0);
    for line in page.split_inclusive('\n') {
        match begin {
            None if line.trim_end() == heading => begin = Some(position + line.len()),
            Some(begin) if level(line).is_some_and(|level_here| Some(level_here) <= level(heading)) => {
                return &page[begin..position];
            }
            _ => {}
        }
        position += line.len();
    }
    begin.map_or_else(|| panic!("the page has no `{heading}`"), |begin| &page[begin..])
}

/// Every text that the fields at a path hold, and the names of their fields where they are objects: the words of a choice.
fn words(value: &Value, path: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather_words(value, path, "", &mut found);
    found
}

fn gather(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                gather(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| gather(value, &format!("{at}[]"), found)),
        _ => {}
    }
}

fn gather_words(value: &Value, path: &str, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if at == path => {
            found.insert(text.clone());
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                if at == path {
                    found.insert(name.clone());
                }
                let here = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                gather_words(value, path, &here, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| gather_words(value, path, &format!("{at}[]"), found)),
        _ => {}
    }
}

/// What remains of a field's path below another: `low` of `interval.low` below `interval`.
fn below<'a>(field: &'a str, path: &str) -> Option<&'a str> {
    field.strip_prefix(path)?.trim_start_matches("[]").strip_prefix('.')
}

/// The first column of a section's table.
fn documented(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PAGE: &str = "# Title\n\n## One\n\n| path | what |\n|---|---|\n| `a` | `x` or `y` |\n| `a[].b` | c |\n\n### Part\n\n## Two\n\n| `z` | z |\n";

    fn names(fields: &Fields) -> Vec<&str> {
        fields.0.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_path_has_every_name_on_the_way_and_no_position() {
        let fields = Fields::of(&json!({ "a": [{ "b": 1 }, { "c": { "d": null } }], "e": [[1, { "f": 1 }]] }));
        assert_eq!(names(&fields), ["a", "a[].b", "a[].c", "a[].c.d", "e", "e[][].f"]);
        assert_eq!(names(&fields.below(&["a", "e"])), ["b", "c", "c.d", "f"]);
        assert_eq!(names(&fields.without(&["a[].c", "e"])), ["a", "a[].b", "a[].c", "e"]);
    }

    #[test]
    #[should_panic(expected = "nothing below `b`")]
    fn an_example_that_lacks_a_part_is_noticed() {
        let _ = Fields::of(&json!({ "a": 1, "b": null })).without(&["b"]);
    }

    #[test]
    fn a_table_is_compared_in_both_directions() {
        let one = section(PAGE, "## One");
        assert!(one.contains("### Part") && !one.contains("`z`"), "{one}");
        assert_eq!(Fields::of(&json!({ "a": [{ "b": 1 }] })).compare(one), Ok(()));
        let problems = Fields::of(&json!({ "a": 1, "new": 1 })).compare(one).unwrap_err();
        assert_eq!(problems, "`new` is not in the table\n`a[].b` is in the table, not in the document");
    }

    #[test]
    fn words_are_texts_and_the_names_of_choices() {
        let value = json!({ "a": ["x", { "deep": { "p": 1 } }], "b": "y" });
        assert_eq!(words(&value, "a[]").iter().collect::<Vec<_>>(), ["deep", "x"]);
        Tables(PAGE).explain(&value, "b", 1, "## One");
    }

    #[test]
    #[should_panic(expected = "## One does not explain [\"deep\"]")]
    fn a_word_without_a_line_is_noticed() {
        Tables(PAGE).explain(&json!({ "a": ["x", { "deep": { "p": 1 } }] }), "a[]", 2, "## One");
    }
}
