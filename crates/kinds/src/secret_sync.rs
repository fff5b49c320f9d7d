//! Objects that take their data from another object: a `ProjectSecret` from a `SharedSecret`, a core Secret from a
//! `ProjectSecret`. Labels name the source. See `docs/reference/shared-secrets.md#secret-sync`.
//!
//! This module decides which writes of such an object are valid. A controller of the server copies
//! the data, and checks each time that the writer of the labels may still read the source.

use std::collections::BTreeMap;

use crate::context::Reading;
use crate::kind::DataSource;
use crate::prelude::*;

/// The annotation with the identity that set the labels: the right of that identity to read counts.
/// Only the server sets it.
pub const SYNCED_FOR: &str = "platform.sh/synced-for";

/// The label of a `ProjectSecret` with the name of the `SharedSecret` that it takes its data from.
pub const SHARED_SECRET_NAME: &str = "platform.sh/sharedsecret-name";

/// The label with its namespace; the home namespace, when absent.
pub const SHARED_SECRET_NAMESPACE: &str = "platform.sh/sharedsecret-namespace";

/// The label of a `ProjectSecret` that is mirrored to a core Secret of its name: `"true"`.
pub const MIRROR: &str = "platform.sh/mirror";

/// The label of such a mirror: `"true"`.
pub const IS_MIRROR: &str = "platform.sh/project-secret";

/// The label of a core Secret in a project with the name of the `ProjectSecret` that it takes its data from.
pub const PROJECT_SECRET_NAME: &str = "platform.sh/project-secret-name";

/// The condition that says whether the data is that of the other object.
pub const SYNCED: &str = "Synced";

/// The condition that says whether the mirror is there.
pub const MIRRORED: &str = "Mirrored";

type Data = BTreeMap<String, SecretText>;

/// A state of an object that may take its data from another one.
pub(crate) struct State<'a> {
    /// Where from.
    pub(crate) source: Option<DataSource>,
    /// The data of the object.
    pub(crate) data: &'a Data,
}

impl State<'_> {
    fn has_source_of(&self, other: Option<&State<'_>>) -> bool {
        let other = other.and_then(|other| other.source.as_ref());
        self.source.as_ref().zip(other).is_some_and(|(one, other)| one.is_same(other))
    }
}

/// The data after a write. The present data stays while it comes from the same object. Of another
/// object, no data has been copied yet.
pub(crate) fn prepared(
    new: &State<'_>,
    old: Option<&State<'_>>,
    ctx: &Context<'_>,
) -> Option<Data> {
    if ctx.is_server() || new.source.is_none() {
        return None;
    }
    let old = old?;
    if new.has_source_of(Some(old)) {
        // A caller without the right to read the data cannot find it out by guessing.
        return (new.data.is_empty() || ctx.reading == Reading::Refused).then(|| old.data.clone());
    }
    let was_taken =
        old.source.is_some() && (new.data == old.data || ctx.reading == Reading::Refused);
    was_taken.then(Data::new)
}

/// Adds an error for data that a client writes where the server brings it.
pub(crate) fn validate(
    path: &str,
    new: &State<'_>,
    old: Option<&State<'_>>,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    let Some(source) = &new.source else { return };
    let is_as_it_was = new.has_source_of(old) && old.is_some_and(|old| old.data == new.data);
    if !ctx.is_server() && !new.data.is_empty() && !is_as_it_was {
        let (kind, namespace, name) = source.place();
        let detail = format!(
            "must be empty: the labels say that the data comes from the {kind} \"{name}\" in the \
             namespace \"{namespace}\""
        );
        errors.push(FieldError::forbidden(path, detail));
    }
}

/// The right to read where the data is taken from, where that is new.
pub(crate) fn required_right(
    new: Option<&DataSource>,
    old: Option<&DataSource>,
) -> Option<RequiredRight> {
    let new = new.filter(|new| old.is_none_or(|old| !old.is_same(new)))?;
    Some(new.right().into())
}

/// Whether a `ProjectSecret` has a mirror.
pub fn is_mirrored(metadata: &ObjectMeta) -> bool {
    metadata.labels.get(MIRROR).is_some_and(|value| value == "true")
}
