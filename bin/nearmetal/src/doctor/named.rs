//! Rules and thresholds, by the names that users write.

use nearmetal_rules::{Rule, Settings, rule};

/// The rule of this name.
pub(crate) fn known(text: &str) -> Result<&'static Rule, String> {
    rule(text).ok_or_else(|| format!("unknown rule `{text}`: `nearmetal doctor --list` shows all rules"))
}

/// The default thresholds with these in their place, each as `NAME=VALUE`.
pub(crate) fn settings(changes: &[String]) -> Result<Settings, String> {
    let mut values = serde_json::to_value(Settings::default()).map_err(|error| error.to_string())?;
    for change in changes {
        let (name, value) = change.split_once('=').ok_or_else(|| format!("`{change}` is not NAME=VALUE"))?;
        let known = values.get_mut(name).ok_or_else(|| {
            format!("unknown threshold `{name}`: `nearmetal doctor --list` shows all thresholds and their defaults")
        })?;
        *known = serde_json::from_str(value).map_err(|_| format!("threshold `{name}`: `{value}` is not a number"))?;
    }
    serde_json::from_value(values).map_err(|error| format!("thresholds: {error}"))
}
