//! The figures as data/papers holds them: a file for each paper.

use serde::Deserialize;

use super::ours::Ours;

const DATA: [&str; 5] = [
    include_str!("../../data/papers/huynh-2012.toml"),
    include_str!("../../data/papers/wagner-2010.toml"),
    include_str!("../../data/papers/sarkar-2013.toml"),
    include_str!("../../data/papers/chierici-2011.toml"),
    include_str!("../../data/papers/worley-2010.toml"),
];

/// One paper.
#[derive(Deserialize)]
pub(super) struct File {
    pub(super) paper: Paper,
    pub(super) figure: Vec<Figure>,
}

/// Whose figures they are, and how they were taken.
#[derive(Deserialize)]
pub(super) struct Paper {
    pub(super) name: String,
    pub(super) method: String,
}

/// One figure as the paper's text states it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    /// Experiments of `nearmetal experiment` in whose page it stands.
    pub(super) experiments: Vec<String>,
    pub(super) section: String,
    pub(super) what: String,
    pub(super) configuration: String,
    /// Bytes of a request, where one is stated.
    pub(super) request: Option<u64>,
    /// Its qualifier included.
    pub(super) value: String,
    /// Empty where the paper gives a direction only.
    pub(super) unit: String,
    #[serde(default)]
    pub(super) side: Side,
    /// What of the two may be compared.
    pub(super) compares: Option<String>,
    /// What of ours stands beside it; without it, the planned guest at the same request size.
    pub(super) ours: Option<Ours>,
}

/// Of whom a figure is.
#[derive(Deserialize, Clone, Copy, PartialEq, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Side {
    Bare,
    #[default]
    Guest,
}

/// The papers, in the order they are shown. The data is part of the program; a test holds that it parses.
pub(super) fn all() -> Vec<File> {
    DATA.iter().filter_map(|text| toml::from_str(text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_parses() {
        for text in DATA {
            let file: File = toml::from_str(text).unwrap();
            assert!(!file.figure.is_empty() && !file.paper.method.is_empty());
            for figure in file.figure {
                assert!(!figure.value.is_empty() && !figure.experiments.is_empty(), "{}", figure.what);
                // Without ours, it says why.
                let nothing = figure.compares.as_ref().is_some_and(|compares| compares.starts_with("Nothing: "));
                assert!(figure.request.is_some() || figure.ours.is_some() || nothing, "{}", figure.what);
            }
        }
    }
}
