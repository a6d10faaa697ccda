//! The pages in the repository, compared and rewritten.

use std::collections::BTreeSet;
use std::path::Path;

use nearmetal_host::files;

/// The longest page, in bytes. A longer one should become several.
pub(crate) const LONGEST: usize = 20_000;

/// One generated file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Where it lies below `docs`, such as `man/nearmetal-plan.1`.
    pub path: String,
    /// Its whole text, ending in a newline.
    pub text: String,
}

/// Compares the pages with the files below `docs`. Writes them first, and removes pages of commands that are gone, if
/// `UPDATE_GOLDENS` is set.
///
/// `others` are programs whose names begin with `program` and whose pages lie in the same directories.
///
/// # Errors
/// In words, one line a page: missing, out of date, left over, or longer than 20 kB.
pub fn check(docs: &Path, program: &str, others: &[&str], pages: &[Page]) -> Result<(), String> {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    let mut problems = Vec::new();
    for page in pages {
        if page.text.len() > LONGEST {
            problems.push(format!("{}: {} bytes, {LONGEST} at most", page.path, page.text.len()));
        }
        let path = docs.join(&page.path);
        if update {
            if let Some(directory) = path.parent() {
                files::create_dir_all(directory).map_err(|error| error.to_string())?;
            }
            files::write(&path, &page.text).map_err(|error| error.to_string())?;
        }
        match files::read_to_string(&path) {
            Ok(text) if text == page.text => {}
            Ok(_) => problems.push(format!("{}: differs from `{program} --help`", page.path)),
            Err(error) => problems.push(format!("{}: {error}", page.path)),
        }
    }
    for path in left_over(docs, program, others, pages)? {
        if update {
            files::remove(&docs.join(&path)).map_err(|error| error.to_string())?;
        } else {
            problems.push(format!("{path}: no command has this page"));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Files in the pages' directories that are named like a page of this program and are none.
fn left_over(docs: &Path, program: &str, others: &[&str], pages: &[Page]) -> Result<Vec<String>, String> {
    let of = |name: &str, program: &str| {
        name.strip_prefix(program).is_some_and(|rest| rest.starts_with('-') || rest.starts_with('.'))
    };
    let known: BTreeSet<&str> = pages.iter().map(|page| page.path.as_str()).collect();
    let directories: BTreeSet<&str> =
        known.iter().filter_map(|path| path.rsplit_once('/')).map(|(directory, _)| directory).collect();
    let mut found = Vec::new();
    for directory in directories {
        for file in files::list(&docs.join(directory)).map_err(|error| error.to_string())? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = format!("{directory}/{name}");
            if of(&name, program) && !others.iter().any(|other| of(&name, other)) && !known.contains(path.as_str()) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
