//! Admits deletions: marks an object as terminating, or removes it if nothing blocks the deletion.

use std::sync::Arc;

use postern_kinds::namespace::Namespace;
use postern_kinds::principal::AccessChange;
use postern_kinds::user::{self, User};
use postern_kinds::{AnyKind, Companion, Owner, Verb, all, permanent_namespaces};
use postern_meta::object::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER, Object, ObjectMeta};
use postern_meta::options::Propagation;
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::Position;

use super::view::{AdmissionView, Previous};
use super::write::{Admitted, Write};
use super::{Writing, update, write_for};
use crate::permit::Permit;
use crate::secret_record::SecretRecord;
use crate::storage_key;

/// Admits the deletion of an object: marks it as terminating, or removes it if nothing blocks the deletion.
///
/// # Errors
/// 403 if the kind forbids it; 409 if one transaction cannot have all the changes.
pub(crate) fn delete(
    view: &AdmissionView<'_>,
    permit: &Permit,
    previous: Previous,
    grace_seconds: i64,
    propagation: Option<Propagation>,
) -> Result<Admitted, ApiError> {
    end(view, permit, previous, grace_seconds, propagation, Ending::Deletion)
}

/// Admits the end of an object. The deletion of the key of a login may take the groups that the login confirmed: see
/// [`taken_groups`].
///
/// # Errors
/// The errors of [`delete`].
pub(crate) fn end(
    view: &AdmissionView<'_>,
    permit: &Permit,
    previous: Previous,
    grace_seconds: i64,
    propagation: Option<Propagation>,
    ending: Ending,
) -> Result<Admitted, ApiError> {
    let kind = permit.kind();
    let old = &previous.object;
    permit.check(&previous.cached)?;
    view.check_delete(permit, &old.metadata)?;
    let groups = match ending {
        Ending::Deletion => taken_groups(view, kind, old),
        Ending::OwnLogout => None,
    };
    let mut object = old.clone();
    if !object.metadata.is_terminating() {
        propagate(&mut object.metadata, propagation);
    }
    mark_deleted(kind, &mut object, grace_seconds, view.now)?;
    let deleted = write_for(view, permit, object, previous, None)?;
    with_companions(view, deleted, groups.into_iter().collect())
}

/// How an object ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// It is deleted.
    Deletion,
    /// It is a session, and its user logs out of the console.
    OwnLogout,
}

/// The change that takes the groups of a connector from a user, with the deletion of the key of a login by it. Nothing is
/// taken while another login of the user by this connector confirms them, nor with a key that has ended already.
fn taken_groups(
    view: &AdmissionView<'_>,
    kind: &'static dyn AnyKind,
    key: &Object,
) -> Option<Companion> {
    let change = kind.is_delegated().then(|| kind.access_change(Some(&key.to_json_bytes())));
    let Some(Some(AccessChange::Key(Some(facts)))) = change else { return None };
    let (Some(connector), Some(Owner::User(user))) = (facts.connector, facts.owner) else {
        return None;
    };
    let (now, principals) = (view.now.unix_seconds(), view.cache.principals());
    let has_ended = principals.has_ended_before(&key.metadata.name, now + 1);
    let confirms = principals.has_other_login(&user, &connector.uid, &facts.uid, now);
    (!has_ended && !confirms).then(|| Companion {
        kind: &User,
        namespace: None,
        name: user,
        change: Box::new(move |fields| user::take_groups(fields, &connector.uid)),
    })
}

/// Admits the removal of a corrupt object, which the caller requested explicitly, because its finalizers are unknown.
///
/// # Errors
/// 403 if the kind forbids it.
pub(crate) fn delete_corrupt(
    view: &AdmissionView<'_>,
    permit: &Permit,
    key: Arc<str>,
    position: Position,
) -> Result<Admitted, ApiError> {
    permit.check_corrupt()?;
    let metadata = ObjectMeta { name: permit.name().to_owned(), ..ObjectMeta::default() };
    // The server creates such an object again.
    if !permit.credential().is_server() {
        view.check_delete(permit, &metadata)?;
    }
    check_is_empty(view, permit)?;
    let removal = Admitted::one(permit, permit.name(), Write::RemoveCorrupt { key, position });
    with_companions(view, removal, companions(view, permit.kind(), &metadata)?)
}

/// Checks that a corrupt namespace is empty before it is removed. Its content would belong to the next namespace of
/// that name, which may be in another project. The server creates the permanent namespaces again, so these are
/// exempt.
///
/// # Errors
/// 409 with the name of an object in it.
fn check_is_empty(view: &AdmissionView<'_>, permit: &Permit) -> Result<(), ApiError> {
    let (info, name) = (permit.kind().info(), permit.name());
    if info.kind != Namespace.info().kind || permanent_namespaces().contains(&name) {
        return Ok(());
    }
    for kind in all().iter().filter(|kind| kind.info().is_namespaced()) {
        let resource = view.cache.of(kind.info());
        let list = resource.list_intact(
            &storage_key::in_namespace(resource.prefix(), Some(name)),
            None,
            1,
        );
        let first = list.objects.first().map(|object| object.key()).or(list.left_out.first());
        if let Some(key) = first {
            let message = format!(
                "the namespace is corrupt and not empty, and its content would belong to the next namespace of that \
                 name: delete the content first, such as {}",
                storage_key::display_name(key)
            );
            return Err(ApiError::conflict(info.group_resource(), name, message));
        }
    }
    Ok(())
}

/// Admits that the server no longer blocks an object's deletion. If nothing else blocks it, the object is removed.
///
/// # Errors
/// 500 if the stored object cannot be decoded as its kind.
pub(crate) fn release(
    view: &AdmissionView<'_>,
    permit: &Permit,
    object: Object,
    previous: Previous,
) -> Result<Admitted, ApiError> {
    write_for(view, permit, object, previous, None)
}

/// The changes of other objects that the removal of an object requires. A later object of the same name makes them
/// too, in case an object names the removed one by then.
///
/// # Errors
/// 409 if they are too many for one transaction.
pub(super) fn companions(
    view: &AdmissionView<'_>,
    kind: &'static dyn AnyKind,
    metadata: &ObjectMeta,
) -> Result<Vec<Companion>, ApiError> {
    let Some(on_remove) = kind.info().on_remove else { return Ok(Vec::new()) };
    on_remove(metadata, &*view.cache.principals())
}

/// Admits changes in the same transaction as a write.
pub(super) fn with_companions(
    view: &AdmissionView<'_>,
    write: Admitted,
    companions: Vec<Companion>,
) -> Result<Admitted, ApiError> {
    companions.into_iter().try_fold(write, |all, companion| {
        let Companion { kind, namespace, name, change } = companion;
        let Some(previous) = view.read(kind, namespace.as_deref(), &name)? else { return Ok(all) };
        let permit = Permit::for_server(kind, Verb::Update, namespace.as_deref(), &name);
        let mut object = previous.object.clone();
        change(&mut object.fields);
        let (secrets, writing) = (SecretRecord::default(), Writing::by_server());
        Ok(all.with(update(view, &permit, object, previous, secrets, &writing)?))
    })
}

/// Sets the finalizer of a propagation policy. Without a policy, the finalizers are unchanged.
fn propagate(metadata: &mut ObjectMeta, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Foreground) => Some(FOREGROUND_FINALIZER),
        Some(Propagation::Orphan) => Some(ORPHAN_FINALIZER),
        Some(Propagation::Background) => None,
    };
    let gc_finalizers = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];
    metadata.finalizers.retain(|one| !gc_finalizers.contains(&one.as_str()));
    metadata.finalizers.extend(wanted.map(str::to_owned));
}

/// Sets `deletionTimestamp`, or moves it to an earlier time, and never to a later one. A second deletion does not
/// change finalizers (`docs/reference/api.md#deletion`).
fn mark_deleted(
    kind: &'static dyn AnyKind,
    object: &mut Object,
    grace_seconds: i64,
    now: Timestamp,
) -> Result<(), ApiError> {
    let metadata = &mut object.metadata;
    let (Some(due), Some(old_grace)) =
        (metadata.deletion_timestamp, metadata.deletion_grace_period_seconds)
    else {
        metadata.deletion_timestamp = Some(later(now, grace_seconds));
        metadata.deletion_grace_period_seconds = Some(grace_seconds);
        metadata.generation += 1;
        return kind.begin_delete(object);
    };
    if grace_seconds < old_grace {
        let shortened = later(due, grace_seconds - old_grace);
        metadata.deletion_timestamp = Some(shortened.max(now));
        metadata.deletion_grace_period_seconds = Some(grace_seconds);
    }
    Ok(())
}

fn later(from: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(from.unix_seconds().saturating_add(seconds))
}
