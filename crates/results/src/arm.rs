//! What is compared, as data: an arm is one way of running a load. No list of all arms exists anywhere.

use serde::{Deserialize, Serialize};

/// What an arm stands for beside the others; charts colour by it, and comparisons start from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The load on the host itself, without a guest: the reference of everything.
    Bare,
    /// What the plan, or the winner of a race, replaces: the domain as found, QEMU's or libvirt's default.
    AsFound,
    /// What is proposed: the domain as planned, or the winner of a race.
    Planned,
    /// Any other way.
    Other,
}

/// One arm by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArmName {
    /// Its id in tables and files, stable over versions.
    pub id: String,
    /// What a person calls it.
    pub title: String,
    /// What it stands for.
    pub role: Role,
}

/// Ids of the arms that most experiments have.
pub const BARE_SLICE: &str = "bare-slice";
/// See [`ArmName::planned`].
pub const PLANNED: &str = "planned";
/// See [`ArmName::as_found`].
pub const AS_FOUND: &str = "as-found";
/// See [`ArmName::virt_install`].
pub const VIRT_INSTALL: &str = "virt-install";

impl ArmName {
    /// An arm of that name.
    pub fn new(id: &str, title: &str, role: Role) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), role }
    }

    /// The load on the host, confined to the guest's slice.
    pub fn bare_slice() -> Self {
        Self::new(BARE_SLICE, "bare slice", Role::Bare)
    }

    /// The domain as planned.
    pub fn planned() -> Self {
        Self::new(PLANNED, "planned", Role::Planned)
    }

    /// The domain as it was found.
    pub fn as_found() -> Self {
        Self::new(AS_FOUND, "as found", Role::AsFound)
    }

    /// As found, with the driver options virt-install writes: cache=none, io=native.
    pub fn virt_install() -> Self {
        Self::new(VIRT_INSTALL, "virt-install", Role::Other)
    }

    /// The arm that a document of version 1 means by its id alone.
    pub(crate) fn known(id: &str) -> Self {
        [Self::bare_slice(), Self::planned(), Self::as_found(), Self::virt_install()]
            .into_iter()
            .find(|arm| arm.id == id)
            .unwrap_or_else(|| Self::new(id, id, Role::Other))
    }

    /// Whether no guest is in it.
    pub fn is_bare(&self) -> bool {
        self.role == Role::Bare
    }
}

/// Which arms are set against which, by their place in the list: all against bare metal, what is proposed first, and
/// what is proposed against what it replaces.
pub fn against(arms: &[ArmName]) -> Vec<(usize, usize)> {
    let of = |role: Role| (0..arms.len()).filter(move |arm| arms[*arm].role == role);
    let subjects: Vec<usize> = of(Role::Planned).chain(of(Role::AsFound)).chain(of(Role::Other)).collect();
    let bare = of(Role::Bare).flat_map(|bare| subjects.iter().map(move |subject| (*subject, bare)));
    let replaced = subjects.iter().filter(|arm| arms[**arm].role != Role::Planned);
    let proposed = of(Role::Planned).flat_map(|planned| replaced.clone().map(move |other| (planned, *other)));
    bare.chain(proposed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_set_against_bare_metal_and_the_plan_against_what_it_replaces() {
        let arms = [ArmName::bare_slice(), ArmName::as_found(), ArmName::planned(), ArmName::virt_install()];
        assert_eq!(against(&arms), [(2, 0), (1, 0), (3, 0), (2, 1), (2, 3)]);
        assert_eq!(against(&arms[..1]), []);
        assert_eq!(against(&arms[1..3]), [(1, 0)], "without bare metal the rest still compares");
    }

    #[test]
    fn an_id_of_an_older_document_is_known_again() {
        assert_eq!(ArmName::known("virt-install"), ArmName::virt_install());
        assert_eq!(ArmName::known("else").role, Role::Other);
    }
}
