//! What an access key with a scope may do to keys (decision 4, "No escape"): it makes and changes keys of its
//! own owner alone, which end with it. That their scope is within its own is checked in `auth`.

use postern_meta::object::OwnerReference;

use crate::context::CallerKey;
use crate::names::MANAGEMENT_V1;
use crate::principal::Owner;

/// The kind of access keys, in owner references.
const KIND: &str = "OwnedAccessKey";

/// Checks a key that a caller with a scoped key writes.
///
/// # Errors
/// What is wrong, for the message of a 403: another caller may write the same key.
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
            "the access key of the request has a scope, and makes and changes keys of its own \
                    owner alone"
                .to_owned(),
        );
    }
    if after_last_activity {
        return Err("the access key of the request has a scope, and each use of a key with \
                    spec.ttlAfterLastActivity would make that end later: leave it out"
            .to_owned());
    }
    Ok(())
}

/// Is this the reference to the key that made the object?
pub(crate) fn is_maker(reference: &OwnerReference) -> bool {
    reference.kind == KIND && reference.api_version == MANAGEMENT_V1.to_string()
}

/// Returns the reference to the key of the request, if that has a scope: what it makes ends with it.
pub(crate) fn reference(caller: &CallerKey) -> Option<OwnerReference> {
    caller.is_scoped.then(|| OwnerReference {
        api_version: MANAGEMENT_V1.to_string(),
        kind: KIND.to_owned(),
        name: caller.name.clone(),
        uid: caller.uid.clone(),
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scoped_key_makes_keys_of_its_own_owner_that_end_with_it() {
        let ada = Owner::User("ada".to_owned());
        let scoped = CallerKey {
            name: "k1".to_owned(),
            uid: "u1".to_owned(),
            is_scoped: true,
            owner: Some(ada.clone()),
            ..CallerKey::default()
        };
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
        let made = reference(&scoped).unwrap();
        assert!(is_maker(&made));
        assert_eq!((made.name.as_str(), made.uid.as_str()), ("k1", "u1"));
        assert!(reference(&free).is_none());
    }
}
