//! The keys that a key ends with: those that created it, its parent, and those that the parent ends with.

use postern_kinds::Owner;
use postern_kinds::principal::{KeyFacts, Maker};

use super::{MAX_ANCESTORS, PrincipalIndex};

/// The most keys that a parent may itself end with. The child may have as many makers.
const MAX_ANCESTORS_OF_PARENT: usize = MAX_ANCESTORS / 2;

impl PrincipalIndex {
    /// The uid of the key with this name, if the key has this owner and can be the parent of a key.
    /// It must not end with the child, and end with at most [`MAX_ANCESTORS_OF_PARENT`] other keys.
    pub(super) fn uid_of_parent(
        &self,
        name: &str,
        owner: &Owner,
        child_uid: &str,
    ) -> Option<String> {
        let key = self.keys.get(name).filter(|key| key.owner.as_ref() == Some(owner))?;
        let ancestors = self.ties(key)?;
        let uid_of = |(name, _): &(&str, _)| self.keys.get(*name).map(|key| key.uid.as_str());
        let is_circle = ancestors.iter().any(|one| uid_of(one) == Some(child_uid));
        let is_usable =
            self.has_owner(key) && !is_circle && ancestors.len() <= MAX_ANCESTORS_OF_PARENT;
        is_usable.then(|| key.uid.clone())
    }

    /// The names of the keys that a key ends with, its own maker first, and after all makers the parents. A key that
    /// created another one has the record of it in that key. `None` when one of them is gone, or there are more than
    /// [`MAX_ANCESTORS`].
    pub(super) fn ties<'a>(
        &'a self,
        key: &'a KeyFacts,
    ) -> Option<Vec<(&'a str, Option<&'a Maker>)>> {
        let makers = self.makers(key)?.into_iter();
        let mut ties: Vec<_> = makers.map(|(name, maker)| (name, Some(maker))).collect();
        let (mut current, mut looked) = (key, 0);
        loop {
            if let Some(uid) = &current.parent_uid {
                let name = self.key_of_uid.get(uid)?;
                if !ties.iter().any(|(known, _)| known == name) {
                    ties.push((name, None));
                    let makers = self.makers(self.keys.get(name)?)?.into_iter();
                    ties.extend(makers.map(|(name, maker)| (name, Some(maker))));
                }
            }
            if ties.len() > MAX_ANCESTORS {
                return None;
            }
            let Some((name, _)) = ties.get(looked) else { return Some(ties) };
            current = self.keys.get(*name)?;
            looked += 1;
        }
    }
}
