//! What a check found.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cure::Cure;
use crate::rule::Severity;

/// The answer of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The rule is kept.
    Clean,
    /// It is broken by these objects; never empty.
    Broken(Vec<Object>),
    /// It says nothing about this host or domain.
    NotApplicable,
    /// These paths or facts are missing.
    CannotTell(Vec<String>),
}

impl Outcome {
    /// Broken if there are objects.
    pub fn of(objects: Vec<Object>) -> Self {
        if objects.is_empty() { Self::Clean } else { Self::Broken(objects) }
    }

    /// Broken by one object if there is one.
    pub fn one(object: Option<Object>) -> Self {
        Self::of(object.into_iter().collect())
    }

    /// No host was given.
    pub fn no_host() -> Self {
        Self::unknown("a host (--capture)")
    }

    /// One answer for two definitions that are alike in this; the running one may need other cures than the stored one.
    pub(crate) fn joined(&self, other: &Self) -> Option<Self> {
        let (Self::Broken(left), Self::Broken(right)) = (self, other) else {
            return (self == other).then(|| self.clone());
        };
        let alike = left.len() == right.len() && left.iter().zip(right).all(|(left, right)| left.says_the_same(right));
        alike.then(|| Self::Broken(left.iter().zip(right).map(|(left, right)| left.with_cures_of(right)).collect()))
    }

    /// A missing path.
    pub fn unknown(path: impl Into<String>) -> Self {
        Self::CannotTell(vec![path.into()])
    }
}

/// One thing that breaks a rule: what it is, what it is like, what it should be like.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Object {
    /// `disk vda`, `vCPU 3`, `node 1`, ….
    pub what: String,
    /// What was found.
    pub found: String,
    /// What would be good.
    pub wanted: String,
    /// What cures it; empty where nothing that a program should do by itself does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cures: Vec<Cure>,
}

impl Object {
    /// An object.
    pub fn new(what: impl Into<String>, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self { what: what.into(), found: found.into(), wanted: wanted.into(), cures: Vec::new() }
    }

    fn says_the_same(&self, other: &Self) -> bool {
        (&self.what, &self.found, &self.wanted) == (&other.what, &other.found, &other.wanted)
    }

    fn with_cures_of(&self, other: &Self) -> Self {
        let mut joined = self.clone();
        joined.cures.extend(other.cures.iter().filter(|cure| !self.cures.contains(cure)).cloned());
        joined
    }

    /// With these things to do against it, if any.
    #[must_use]
    pub(crate) fn cured_by_all(mut self, cures: impl IntoIterator<Item = Cure>) -> Self {
        self.cures.extend(cures);
        self
    }

    /// With one more thing to do against it.
    #[must_use]
    pub fn cured_by(mut self, cure: Cure) -> Self {
        self.cures.push(cure);
        self
    }
}

impl fmt::Display for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {} (wanted: {})", self.what, self.found, self.wanted)
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Scope {
    /// The host.
    Host,
    /// A domain.
    Domain {
        /// Its name.
        name: String,
        /// Which of its definitions.
        which: Which,
    },
}

/// Which definition of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Which {
    /// The one it runs with, and what the kernel shows.
    Running,
    /// The one it starts with next time.
    Defined,
    /// Both, alike.
    Both,
}

impl Which {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Defined => "defined",
            Self::Both => "running and defined",
        }
    }
}

/// A broken rule, with the objects that break it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Id of the rule.
    pub rule: String,
    /// What must happen next.
    pub severity: Severity,
    /// The host or a domain.
    pub scope: Scope,
    /// What breaks it; never empty.
    pub objects: Vec<Object>,
}

impl Finding {
    /// The evidence in one line: every object with what it is and what it should be.
    pub fn evidence(&self) -> String {
        self.objects.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// What it is about, in words.
    pub fn place(&self) -> String {
        match &self.scope {
            Scope::Host => "host".to_owned(),
            Scope::Domain { name, which: Which::Both } => name.clone(),
            Scope::Domain { name, which } => format!("{name} ({})", which.as_str()),
        }
    }
}
