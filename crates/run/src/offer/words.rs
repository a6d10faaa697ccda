//! An offer in the words of batch systems.
//!
//! HTCondor: lines `Attribute = value` for STARTD_CRON; lists are texts for `stringListMember`. Slurm: words of a node's line in
//! slurm.conf. Both have names that they cannot hold: such an image is named by its hash, and another word is left out.

use std::collections::BTreeMap;

use super::{Offer, OfferedFlavour, OfferedImage};

impl Offer {
    /// Attributes for an HTCondor machine. HTCondor runs nobody's jobs as root, so flavours that only root can have are none, and
    /// those that the service gives to a group have a list of their own. Unknown ones are left out, so that an expression over
    /// them is undefined.
    pub fn classad(&self) -> String {
        let mut lines = vec!["Nearmetal = true".to_owned()];
        let mut list = |name: &str, words: Option<Vec<String>>| {
            lines.extend(words.map(|words| format!("{name} = \"{}\"", words.join(","))));
        };
        list("NearmetalFlavours", self.flavour_names(|flavour| in_a_session(flavour, flavour.fit)));
        list("NearmetalFlavoursNow", self.flavour_names(|flavour| in_a_session(flavour, flavour.fit_now)));
        list("NearmetalFlavoursOfService", self.flavour_names(|flavour| of_the_service(flavour, flavour.fit)));
        list("NearmetalImages", self.image_words());
        list("NearmetalNodes", Some(self.nodes.iter().map(|node| node.node.to_string()).collect()));
        list("NearmetalFunctions", Some(self.functions.iter().map(|one| one.function.to_string()).collect()));
        list("NearmetalFunctionKinds", Some(self.kinds().into_keys().collect()));
        lines.extend(self.cpus.as_ref().map(|cpus| format!("NearmetalPUs = {}", cpus.len())));
        lines.extend(self.free_cpus.as_ref().map(|cpus| format!("NearmetalFreePUs = {}", cpus.len())));
        lines.join("\n")
    }

    /// `Features=…` of a Slurm node, a word for each flavour, image and kind of function. Flavours and images do not change while runs
    /// come and go; functions are those free now. Flavours that only root can have are among them: Slurm runs jobs of root's.
    pub fn slurm(&self) -> String {
        let mut words = vec!["nearmetal".to_owned()];
        let mut add = |kind: &str, names: Vec<String>| {
            words.extend(names.into_iter().map(|name| format!("{kind}.{name}")));
        };
        add("flavour", self.flavour_names(|flavour| flavour.fit).unwrap_or_default());
        add("image", self.image_words().unwrap_or_default());
        add("function", self.kinds().into_keys().collect());
        format!("Features={}", words.join(","))
    }

    /// Functions by kind. A kind is nearmetal's own word.
    fn kinds(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for one in &self.functions {
            *kinds.entry(one.kind.clone()).or_default() += 1;
        }
        kinds
    }

    /// Names of flavours of which at least one guest fits; `None` where that is unknown of each.
    fn flavour_names(&self, fit: impl Fn(&OfferedFlavour) -> Option<u32>) -> Option<Vec<String>> {
        let flavours = self.flavours.as_ref()?;
        if !flavours.is_empty() && flavours.iter().all(|flavour| fit(flavour).is_none()) {
            return None;
        }
        let fitting = flavours.iter().filter(|flavour| fit(flavour).is_some_and(|fit| fit > 0));
        Some(fitting.map(|flavour| flavour.name.clone()).collect())
    }

    fn image_words(&self) -> Option<Vec<String>> {
        Some(self.images.as_ref()?.iter().map(image_word).collect())
    }
}

/// Guests of a flavour that users without root can start.
fn in_a_session(flavour: &OfferedFlavour, fit: Option<u32>) -> Option<u32> {
    fit.map(|fit| if flavour.session { fit } else { 0 })
}

/// Guests of a flavour that users without root can start through the service alone.
fn of_the_service(flavour: &OfferedFlavour, fit: Option<u32>) -> Option<u32> {
    fit.map(|fit| if flavour.open_to.is_some() && !flavour.session { fit } else { 0 })
}

/// The name of an image if every engine takes it as one word, else the beginning of its hash.
fn image_word(image: &OfferedImage) -> String {
    let plain = |name: &&String| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) && !name.is_empty()
    };
    image.name.as_ref().filter(plain).cloned().unwrap_or_else(|| image.image.chars().take(12).collect())
}
