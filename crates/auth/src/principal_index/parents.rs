//! The keys that a key ends with: those that created it, its parent, and those that the parent ends with.

use postern_kinds::principal::{KeyFacts, Maker};

use super::{MAX_ANCESTORS, PrincipalIndex};

impl PrincipalIndex {
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
