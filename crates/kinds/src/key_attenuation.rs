//! The limits on keys that a limited access key creates or changes. A key is limited by a scope, by its own maker, and
//! while it impersonates. The keys that it creates end with it. `auth` checks that the scope of a created key is within
//! its own. See `docs/reference/access-keys.md#keys-that-create-keys`.

use postern_meta::object::OwnerReference;

use crate::context::CallerKey;
use crate::names::MANAGEMENT_V1;
use crate::principal::{Maker, Owner};

/// The kind of access keys, in owner references.
const KIND: &str = "OwnedAccessKey";

/// Checks a key that a caller with a scoped key writes.
///
/// # Errors
/// The text of a 403, which gives the reason. Another caller may write the same key.
pub(crate) fn check(
    caller: &CallerKey,
    owner: Option<&Owner>,
    after_last_activity: bool,
) -> Result<(), String> {
    if !caller.is_scoped {
        return Ok(());
    }
    if owner != caller.owner.as_ref() {
        return Err(
            "the access key of the request has a scope, and can create or change only keys of its \
             own owner"
                .to_owned(),
        );
    }
    if after_last_activity {
        return Err("the access key of the request has a scope: omit spec.ttlAfterLastActivity, \
                    because each use would extend the key"
            .to_owned());
    }
    Ok(())
}

/// A change of a key that exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyChange<'a> {
    /// The maker of the key, if it has one.
    pub(crate) maker: Option<&'a Maker>,
    /// Whether the caller's key created it, directly or through another key.
    pub(crate) is_made: bool,
    /// Whether the change widens the key, or gives the writer everything that the key carries.
    pub(crate) widens: bool,
}

/// Checks a change of a key that exists. A deletion is not a change: it gives no permission.
///
/// # Errors
/// The text of a 403. A limited key would otherwise take over a key that outlives it.
pub(crate) fn check_change(caller: &CallerKey, change: KeyChange<'_>) -> Result<(), String> {
    let KeyChange { maker: of, is_made, widens } = change;
    // Access that comes from impersonation ends with the right to this very impersonation.
    if caller.impersonated.is_some() && widens && of != maker(caller).as_ref() {
        return Err("a request under impersonation cannot enable or widen a key that it did not \
                    create (value, lifetime, scope, groups, type Login): create a new key"
            .to_owned());
    }
    if is_made {
        return Ok(());
    }
    if caller.is_scoped {
        return Err(
            "the access key of the request has a scope, and can change only keys that it, \
                    or keys created by it, created"
                .to_owned(),
        );
    }
    if caller.has_maker {
        return Err(
            "the access key of the request ends with the key that created it, and can change only \
             keys that it, or keys created by it, created"
                .to_owned(),
        );
    }
    Ok(())
}

/// Checks that a key may change another one at all, by some change that does not widen it.
///
/// # Errors
/// The text of a 403.
pub fn check_any_change(
    caller: &CallerKey,
    owner: Option<&Owner>,
    maker: Option<&Maker>,
    is_made: bool,
) -> Result<(), String> {
    check(caller, owner, false)?;
    check_change(caller, KeyChange { maker, is_made, widens: false })
}

/// The maker that is recorded with a key that this one creates; `None` if the created key is independent of it.
pub(crate) fn maker(caller: &CallerKey) -> Option<Maker> {
    let is_limited = caller.is_scoped || caller.has_maker || caller.impersonated.is_some();
    is_limited.then(|| Maker {
        name: caller.name.clone(),
        uid: caller.uid.clone(),
        impersonated: caller.impersonated.clone(),
    })
}

/// The owner reference to the maker of a key.
pub(crate) fn reference(maker: &Maker) -> OwnerReference {
    OwnerReference {
        api_version: MANAGEMENT_V1.to_string(),
        kind: KIND.to_owned(),
        name: maker.name.clone(),
        uid: maker.uid.clone(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::impersonation::Impersonation;

    fn scoped() -> CallerKey {
        CallerKey {
            name: "k1".to_owned(),
            uid: "u1".to_owned(),
            is_scoped: true,
            owner: Some(Owner::User("ada".to_owned())),
            ..CallerKey::default()
        }
    }

    fn acting() -> CallerKey {
        let user = "bob".to_owned();
        let impersonated = Some(Impersonation { user, ..Impersonation::default() });
        CallerKey { is_scoped: false, impersonated, ..scoped() }
    }

    #[test]
    fn a_scoped_key_makes_keys_of_its_own_owner() {
        let (ada, scoped) = (Owner::User("ada".to_owned()), scoped());
        let free = CallerKey { is_scoped: false, ..scoped.clone() };
        let (bob, team) = (Owner::User("bob".to_owned()), Owner::Team("ada".to_owned()));
        for (caller, owner, after_last_activity, allowed) in [
            (&scoped, Some(&ada), false, true),
            (&scoped, Some(&ada), true, false),
            (&scoped, Some(&bob), false, false),
            (&scoped, Some(&team), false, false),
            (&scoped, None, false, false),
            (&free, Some(&bob), true, true),
        ] {
            let checked = check(caller, owner, after_last_activity);
            assert_eq!(checked.is_ok(), allowed, "{owner:?}, {after_last_activity}: {checked:?}");
        }
    }

    #[test]
    fn what_a_limited_key_creates_ends_with_it() {
        let scoped = scoped();
        let free = CallerKey { is_scoped: false, ..scoped.clone() };
        let made = CallerKey { has_maker: true, ..free.clone() };
        for limited in [&scoped, &made, &acting()] {
            let maker = maker(limited).unwrap();
            assert_eq!((maker.name.as_str(), maker.uid.as_str()), ("k1", "u1"));
            assert_eq!(maker.impersonated, limited.impersonated);
            assert_eq!(reference(&maker).uid, "u1");
        }
        assert_eq!(maker(&free), None);
    }

    #[test]
    fn a_limited_key_changes_only_what_it_created() {
        let scoped = scoped();
        let free = CallerKey { is_scoped: false, ..scoped.clone() };
        let made = CallerKey { has_maker: true, ..free.clone() };
        let same = maker(&acting());
        let another = maker(&scoped);
        for (caller, maker, is_made, widens, allowed) in [
            (&scoped, &another, true, true, true),
            (&scoped, &None, false, false, false),
            (&made, &another, true, true, true),
            (&made, &None, false, false, false),
            (&acting(), &same, true, true, true),
            // It created the key under another identity. The right to that impersonation says nothing about this one.
            (&acting(), &another, true, true, false),
            (&acting(), &None, false, true, false),
            (&acting(), &None, false, false, true),
            (&free, &None, false, true, true),
        ] {
            let change = KeyChange { maker: maker.as_ref(), is_made, widens };
            let checked = check_change(caller, change);
            assert_eq!(checked.is_ok(), allowed, "{caller:?}, {change:?}: {checked:?}");
        }
    }
}
