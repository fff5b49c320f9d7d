//! From client-side apply to server-side apply. The configuration that kubectl applied on its own
//! side is in an annotation, and does not conflict with the one that it applies now.

use super::compare::compare;
use super::ownership::{ownable, set_of};
use super::set::FieldSet;
use super::track::TrackedKind;
use crate::decode::{Format, decode};
use crate::object::Object;
use crate::validate::{MAX_ANNOTATIONS_BYTES, annotations_bytes};

/// The annotation in which client-side apply keeps the configuration it sent.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The only manager for whom the annotation counts, as upstream: kubectl's default for server-side
/// apply.
pub(super) const KUBECTL: &str = "kubectl";

/// The fields that client-side apply set and that still have its values; `None` if there is
/// no annotation, or none that says so in terms of `api_version`.
pub(super) fn fields_of(
    live: &Object,
    kind: &TrackedKind<'_>,
    api_version: &str,
) -> Option<FieldSet> {
    let text = live.metadata.annotations.get(LAST_APPLIED)?;
    let mut applied = decode(text.as_bytes(), Format::Json).ok()?.value;
    kind.schema.prune_unknown(&mut applied);
    let applied = Object::from_value(applied).ok()?;
    if applied.api_version != api_version {
        return None;
    }
    let (applied, live) = (ownable(&applied), ownable(live));
    let changes = compare(&applied, &live, kind.schema);
    let mut fields = set_of(&applied, kind.schema);
    fields.subtract(&changes.modified);
    fields.subtract(&changes.removed);
    fields.subtract(&changes.added);
    Some(fields)
}

/// Puts `configuration` into the annotation of `object`, if it has one, so that client-side apply
/// could go on from there. An annotation that would be too long is dropped, as upstream.
pub(super) fn refresh(object: &mut Object, configuration: &Object) {
    let annotations = &mut object.metadata.annotations;
    if annotations.get(LAST_APPLIED).is_none_or(String::is_empty) {
        return;
    }
    let mut applied = configuration.clone();
    applied.metadata.annotations.remove(LAST_APPLIED);
    annotations.insert(LAST_APPLIED.to_owned(), format!("{}\n", applied.into_value()));
    if annotations_bytes(annotations) > MAX_ANNOTATIONS_BYTES {
        annotations.remove(LAST_APPLIED);
    }
}
