//! Reading a JSON document that says which schema it is of.

use nearmetal_load::LoadError;
use serde::de::DeserializeOwned;

use crate::error::ResultsError;

/// Why a document is not `what`: the reason and how the text begins.
pub(crate) fn unreadable(what: &str, why: String, text: &str) -> ResultsError {
    LoadError::Unreadable { what: what.to_owned(), why, text: text.chars().take(80).collect() }.into()
}

/// Reads `what`, of which `schema` is the only version this program knows.
///
/// # Errors
/// Not of its form, or of another schema.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    what: &str,
    schema: &str,
    schema_of: impl FnOnce(&T) -> &str,
) -> Result<T, ResultsError> {
    let document: T = serde_json::from_str(text).map_err(|error| unreadable(what, error.to_string(), text))?;
    let found = schema_of(&document);
    if found != schema {
        return Err(unreadable(what, format!("its schema is `{found}`, and this version reads `{schema}`"), text));
    }
    Ok(document)
}
