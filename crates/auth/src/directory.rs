//! A snapshot of the keys and users that may get in.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bearer::Refusal;
use crate::digest::Digest;
use crate::identity::{
    ALL_USERS_GROUP, AUTHENTICATED_GROUP, Identity, PLATFORM_AUTHENTICATED_GROUP,
};

/// What stands behind a key's digest: which key it is. Stored beside the OwnedAccessKey object,
/// in the same transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DigestRecord {
    /// The OwnedAccessKey's name.
    pub name: String,
    /// Its uid: a re-created namesake is another key.
    pub uid: String,
}

/// What of an OwnedAccessKey decides who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// The object's uid.
    pub uid: String,
    /// The User whose key it is.
    pub user: String,
    /// Switched off?
    pub disabled: bool,
}

/// What of a User decides who gets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFacts {
    /// The object's uid.
    pub uid: String,
    /// The name that access decisions see instead of the object's own.
    pub subject: String,
    /// The groups on the object.
    pub groups: Vec<String>,
    /// Switched off?
    pub disabled: bool,
}

/// Keys and users as they are at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Digest of a key's value → which key it is.
    pub digests: HashMap<Digest, DigestRecord>,
    /// `OwnedAccessKey`s by name.
    pub keys: HashMap<String, KeyFacts>,
    /// Users by name.
    pub users: HashMap<String, UserFacts>,
}

impl Facts {
    fn identify(&self, record: &DigestRecord) -> Result<Arc<Identity>, Refusal> {
        let key = self.keys.get(&record.name).filter(|key| key.uid == record.uid);
        let key = key.ok_or(Refusal::Unknown)?;
        let user = self.users.get(&key.user).ok_or(Refusal::Unknown)?;
        if key.disabled || user.disabled {
            return Err(Refusal::Disabled);
        }
        Ok(Arc::new(identity_of(&record.name, &key.user, user)))
    }
}

/// Who shows which key. Worked out once for each state of the facts, so that a request costs one
/// look.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    facts: Facts,
    identities: HashMap<Digest, Result<Arc<Identity>, Refusal>>,
}

impl From<Facts> for Directory {
    fn from(facts: Facts) -> Self {
        let found = facts.digests.iter().map(|(digest, record)| (*digest, facts.identify(record)));
        Self { identities: found.collect(), facts }
    }
}

impl Directory {
    /// What it was worked out from.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Who shows this key?
    ///
    /// # Errors
    /// Says why nobody does.
    pub fn identify(&self, digest: &Digest) -> Result<Arc<Identity>, Refusal> {
        self.identities.get(digest).cloned().unwrap_or(Err(Refusal::Unknown))
    }
}

fn identity_of(key_name: &str, user_name: &str, user: &UserFacts) -> Identity {
    let mut groups = user.groups.clone();
    groups.extend([
        format!("platform:user:{user_name}"),
        ALL_USERS_GROUP.to_owned(),
        PLATFORM_AUTHENTICATED_GROUP.to_owned(),
        AUTHENTICATED_GROUP.to_owned(),
    ]);
    let name = if user.subject.is_empty() { user_name } else { user.subject.as_str() };
    Identity {
        name: name.to_owned(),
        uid: user.uid.clone(),
        groups,
        user: Some(user_name.to_owned()),
        access_key: key_name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> (Facts, Digest) {
        let digest = Digest::from_hex(&"ab".repeat(32)).unwrap();
        let mut facts = Facts::default();
        facts.digests.insert(digest, DigestRecord { name: "k".to_owned(), uid: "1".to_owned() });
        facts.keys.insert(
            "k".to_owned(),
            KeyFacts { uid: "1".to_owned(), user: "ada".to_owned(), disabled: false },
        );
        facts.users.insert(
            "ada".to_owned(),
            UserFacts {
                uid: "2".to_owned(),
                subject: String::new(),
                groups: vec!["ops".to_owned()],
                disabled: false,
            },
        );
        (facts, digest)
    }

    #[test]
    fn a_known_key_has_its_users_groups() {
        let (facts, digest) = facts();
        let identity = Directory::from(facts).identify(&digest).unwrap();
        assert_eq!(identity.name, "ada");
        for group in ["ops", "platform:user:ada", "platform:user:*", "system:authenticated"] {
            assert!(identity.is_in(group), "{group}");
        }
        assert!(!identity.is_in("system:masters"));
    }

    #[test]
    fn a_subject_takes_the_names_place() {
        let (mut facts, digest) = facts();
        facts.users.get_mut("ada").unwrap().subject = "oidc|7".to_owned();
        assert_eq!(Directory::from(facts).identify(&digest).unwrap().name, "oidc|7");
    }

    #[test]
    fn refusals() {
        let (facts, digest) = facts();
        let refused = |change: &dyn Fn(&mut Facts)| {
            let mut changed = facts.clone();
            change(&mut changed);
            Directory::from(changed).identify(&digest).unwrap_err()
        };
        assert_eq!(refused(&|d| d.digests.clear()), Refusal::Unknown);
        assert_eq!(refused(&|d| d.keys.clear()), Refusal::Unknown);
        assert_eq!(refused(&|d| d.users.clear()), Refusal::Unknown);
        // A namesake made after the key was deleted has another uid.
        assert_eq!(
            refused(&|d| d.keys.get_mut("k").unwrap().uid = "9".to_owned()),
            Refusal::Unknown
        );
        assert_eq!(refused(&|d| d.keys.get_mut("k").unwrap().disabled = true), Refusal::Disabled);
        assert_eq!(
            refused(&|d| d.users.get_mut("ada").unwrap().disabled = true),
            Refusal::Disabled
        );
    }
}
