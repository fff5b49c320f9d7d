//! The parent of an access key: another key of the same owner, with which it ends (`spec.parent`,
//! `docs/reference/access-keys.md#parent`). A value from before keys had parents is a label: such a key has no
//! `status.parentUid`.

use crate::prelude::*;
use crate::principal::{delegated_right, key_verb};

/// The parent that a key names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyParent<'a> {
    /// `spec.parent`; empty for none.
    pub(crate) name: &'a str,
    /// `status.parentUid`; empty if the key does not end with it.
    pub(crate) uid: &'a str,
}

/// The uid of the parent of a written key of this uid and owner; empty for a key without one.
pub(crate) fn uid_of(
    (uid, owner): (&str, Option<&Owner>),
    name: &str,
    old: Option<KeyParent<'_>>,
    ctx: &Context<'_>,
) -> String {
    if let Some(old) = old.filter(|old| old.name == name) {
        return old.uid.to_owned();
    }
    let known = Some(name).filter(|name| !name.is_empty());
    let known = known.and_then(|name| ctx.principals.parent_uid(name, owner?, uid));
    known.filter(|known| known != uid).unwrap_or_default()
}

/// Adds an error if a write names a parent that the key cannot have. The server decides when a session and the key of a
/// login end: these have none.
pub(crate) fn validate(
    new: KeyParent<'_>,
    old: Option<KeyParent<'_>>,
    is_of_login: bool,
    errors: &mut FieldErrors,
) {
    let is_changed = old.is_none_or(|old| old.name != new.name);
    if !is_changed || new.name.is_empty() {
        return;
    }
    if is_of_login {
        let detail = "a session and the key of a login have no parent";
        errors.push(FieldError::forbidden("spec.parent", detail));
    } else if new.uid.is_empty() {
        let detail = "must name another access key of the same owner, which does not end with this key and ends with at \
                      most 8 others";
        errors.push(FieldError::invalid("spec.parent", new.name, detail));
    }
}

impl KeyParent<'_> {
    /// Whether a key no longer ends with the parent that it had. It then gives more than before.
    pub(crate) fn is_removed_by(self, new: KeyParent<'_>) -> bool {
        !self.uid.is_empty() && self.uid != new.uid
    }
}

/// The right to remove or change the parent of a key: that to create a key of this owner.
pub(crate) fn right_to_create(info: &Info, owner: Option<&Owner>) -> RequiredRight {
    let right = RequiredRight::from(Right::cluster("create", info.version.group, info.plural, ""));
    match owner.and_then(|owner| delegated_right(key_verb(Verb::Create), owner)) {
        Some(on_owner) => right.or(on_owner),
        None => right,
    }
}
