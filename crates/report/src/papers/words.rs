//! What each experiment is, in words: data/experiments.toml.

use serde::Deserialize;

const DATA: &str = include_str!("../../data/experiments.toml");

/// The words of one experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    /// Its name on the command line.
    pub name: String,
    /// The question it answers.
    pub question: String,
    /// What the paper did.
    pub did: String,
    /// What this does.
    pub does: String,
    /// What differs, one sentence each.
    pub differs: Vec<String>,
    /// What it needs, one phrase each.
    pub needs: Vec<String>,
    /// What may be concluded and what not, one sentence each.
    pub conclude: Vec<String>,
    /// About how long it takes.
    pub time: String,
}

/// All experiments, in the order they are listed. The data is part of the program; a test holds that it parses.
pub fn experiments() -> Vec<Words> {
    #[derive(Deserialize)]
    struct File {
        experiment: Vec<Words>,
    }
    toml::from_str::<File>(DATA).map(|file| file.experiment).unwrap_or_default()
}

/// The words of one.
pub fn experiment(name: &str) -> Option<Words> {
    experiments().into_iter().find(|words| words.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_words_and_a_paper() {
        assert_eq!(experiments().len(), 8);
        for words in experiments() {
            assert!(!super::super::papers_of(&words.name).is_empty(), "{}", words.name);
            assert!(words.question.ends_with('?') && !words.needs.is_empty(), "{}", words.name);
        }
    }
}
