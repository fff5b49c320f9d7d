//! The references of a credential to what it ends with: its owner, and the key that made it. A client can neither remove
//! one, nor add one to a later owner of the same name.

use postern_meta::object::{ObjectMeta, OwnerReference};

use crate::context::Context;
use crate::kind::Kind;
use crate::principal::{Owner, Principal};
use crate::{team, user};

/// Adds a reference to the owner, so that the garbage collector deletes the credential with its owner: a later owner of
/// the same name must not get it.
pub(crate) fn add_owner_reference(
    references: &mut Vec<OwnerReference>,
    owner: &Owner,
    ctx: &Context<'_>,
) {
    let Some(principal) = owner.principal() else { return };
    let uid = ctx.uid_of(principal);
    // Which reference is that to the owner is not the client's to say.
    references.retain(|one| !owner.is_named_by(one) || Some(&one.uid) == uid.as_ref());
    let Some(uid) = uid else { return };
    let (info, name) = match principal {
        Principal::User(name) => (&user::User::INFO, name),
        Principal::Team(name) => (&team::Team::INFO, name),
    };
    ensure_reference(
        references,
        &OwnerReference {
            api_version: info.version.to_string(),
            kind: info.kind.to_owned(),
            name: name.to_owned(),
            uid,
            ..OwnerReference::default()
        },
    );
}

/// Adds a reference, unless the same one is there. Another reference with the same uid is removed,
/// because a uid may be there only once.
pub(crate) fn ensure_reference(references: &mut Vec<OwnerReference>, wanted: &OwnerReference) {
    let identity = |one: &OwnerReference| {
        (one.api_version.clone(), one.kind.clone(), one.name.clone(), one.uid.clone())
    };
    if references.iter().any(|one| identity(one) == identity(wanted)) {
        return;
    }
    references.retain(|one| one.uid != wanted.uid);
    references.push(wanted.clone());
}

/// Keeps the reference to the owner as it was. A client may not remove it, nor add one to a later owner
/// of the same name.
pub(crate) fn keep_owner_reference(new: &mut ObjectMeta, old: &ObjectMeta, owner: &Owner) {
    let named = |one: &&OwnerReference| owner.is_named_by(one);
    let old: Vec<_> = old.owner_references.iter().filter(named).collect();
    let references = &mut new.owner_references;
    references.retain(|one| !named(&one) || old.iter().any(|old| old.uid == one.uid));
    for reference in old {
        ensure_reference(references, reference);
    }
}
