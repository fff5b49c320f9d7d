//! The users and teams that the names in access rules and among members mean: the uids that they
//! had when they were added. A later user or team of the same name has none of it, independently of
//! the Roles and bindings that are made from them.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A grant to one user or team, with the uid of that user or team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundGrant {
    /// The role of a member, or the verbs and resources of an access rule.
    pub what: String,
    /// The group of the user or team.
    pub group: String,
    /// Their uid; empty for a grant to no existing user or team.
    pub uid: String,
}

/// The start of [`BoundGrant::what`] of members.
const MEMBER: &str = "member:";

impl BoundGrant {
    /// Whether it is the role of a member of a project.
    pub fn is_of_member(&self) -> bool {
        self.what.starts_with(MEMBER)
    }
}

/// The grant of a member with this role.
pub(crate) fn of_member(cluster_role: &str) -> String {
    format!("{MEMBER}{cluster_role}")
}

/// The uids of grants from before a write, each to be taken once.
pub(crate) struct KnownUids<'a> {
    grants: Vec<Option<&'a BoundGrant>>,
    /// Which of them are of a group.
    of_group: HashMap<&'a str, Vec<usize>>,
}

impl<'a> KnownUids<'a> {
    pub(crate) fn new(grants: &'a [BoundGrant]) -> Self {
        let mut of_group: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, grant) in grants.iter().enumerate() {
            of_group.entry(&grant.group).or_default().push(index);
        }
        Self { grants: grants.iter().map(Some).collect(), of_group }
    }

    /// The uids to which wanted grants are bound, in their order; `None` for a grant that is new. A grant that is the
    /// same after the write keeps its uid. The remaining uids belong to changed grants: an added verb, or another role,
    /// is for the user or team that was meant, and not for a namesake.
    pub(crate) fn take_all(&mut self, wanted: &[(&str, &str)]) -> Vec<Option<String>> {
        let same: Vec<Option<String>> = wanted
            .iter()
            .map(|(what, group)| self.take(group, |grant| grant.what == *what))
            .collect();
        let changed = |((what, group), uid): (&(&str, &str), Option<String>)| {
            let is_member = what.starts_with(MEMBER);
            uid.or_else(|| self.take(group, |grant| grant.what.starts_with(MEMBER) == is_member))
        };
        wanted.iter().zip(same).map(changed).collect()
    }

    fn take(&mut self, group: &str, is_it: impl Fn(&BoundGrant) -> bool) -> Option<String> {
        let indices = self.of_group.get(group)?;
        let found = indices.iter().find(|index| self.grants[**index].is_some_and(&is_it))?;
        self.grants[*found].take().map(|grant| grant.uid.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(what: &str, group: &str, uid: &str) -> BoundGrant {
        let [what, group, uid] = [what, group, uid].map(str::to_owned);
        BoundGrant { what, group, uid }
    }

    #[test]
    fn a_namesake_has_nothing_of_a_grant_that_is_changed() {
        let known = [
            grant("get s", "ada", "old"),
            grant("get s", "bob", "b1"),
            grant("member:viewer", "ada", "old"),
        ];
        for (wanted, uids) in [
            (&[("get s", "ada")][..], &[Some("old")][..]),
            (&[("get,list s", "ada")], &[Some("old")]),
            (&[("member:admin", "ada")], &[Some("old")]),
            // One more rule is for the user that has the name when the rule is added.
            (&[("list s", "ada"), ("get s", "ada")], &[None, Some("old")]),
            (&[("get s", "ada"), ("get s", "ada")], &[Some("old"), None]),
            (&[("update s", "carol"), ("get,list s", "ada")], &[None, Some("old")]),
            (&[("member:viewer", "ada"), ("member:admin", "ada")], &[Some("old"), None]),
            (&[("member:viewer", "bob")], &[None]),
        ] {
            let found = KnownUids::new(&known).take_all(wanted);
            let found: Vec<_> = found.iter().map(Option::as_deref).collect();
            assert_eq!(found, uids, "{wanted:?}");
        }
    }
}
