//! Removing an object, at once or when nothing holds it any longer.

use postern_kinds::Verb;
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::options::{DeleteOptions, ListOptions, Propagation};
use postern_meta::status::ApiError;
use postern_store::Position;

use super::read::ListAnswer;
use super::{Answer, Registry, decoded, key_of};
use crate::stages::admit::{self, Previous};
use crate::stages::authorize::Permit;
use crate::storage_key;

/// A negative grace period counts as this, as upstream.
const SHORTEST_GRACE_SECONDS: i64 = 1;

/// What a deletion answers.
pub(crate) struct Deleted {
    /// The object, in its last or its lingering state.
    pub(crate) answer: Answer,
    /// The same, decoded.
    pub(crate) object: Object,
    /// Is it still there, waiting for finalizers or its time?
    pub(crate) lingers: bool,
}

impl Registry {
    /// Deletes an object, or marks it when something holds it.
    ///
    /// # Errors
    /// 404; 409 when a precondition does not hold.
    pub(crate) async fn delete(
        &self,
        permit: &Permit,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        if let Some(gone) = self.delete_damaged(permit, options).await? {
            return Ok(gone);
        }
        let grace = match options.grace_period_seconds.unwrap_or(0) {
            negative if negative < 0 => SHORTEST_GRACE_SECONDS,
            seconds => seconds,
        };
        let answer = self
            .rewrite(permit, options.dry_run, |previous, _| {
                // Whoever may not delete it learns nothing of its uid or version.
                if !permit.covers_all() {
                    permit.check(&previous.object)?;
                }
                check_preconditions(permit, options, &previous)?;
                admit::delete(permit, previous, grace, policy_of(options), self.source())
            })
            .await?;
        let object = decoded(&answer)?;
        let lingers = self.lingers(permit, &object)?;
        Ok(Deleted { answer, object, lingers })
    }

    /// What cannot be read can still be deleted, by those who ask for exactly that.
    async fn delete_damaged(
        &self,
        permit: &Permit,
        options: &DeleteOptions,
    ) -> Result<Option<Deleted>, ApiError> {
        let resource = self.cache().of(permit.kind().info());
        let key = key_of(permit, resource)?;
        let Some(position) = resource.damaged_at(&key).filter(|_| options.ignore_damage) else {
            return Ok(None);
        };
        let admitted = admit::delete_damaged(permit, key.into(), position)?;
        let answer = self.commit(admitted, options.dry_run).await?;
        let name = permit.target().name.clone().unwrap_or_default();
        let object = Object {
            api_version: String::new(),
            kind: String::new(),
            metadata: ObjectMeta { name, ..ObjectMeta::default() },
            fields: serde_json::Map::new(),
        };
        Ok(Some(Deleted { answer, object, lingers: false }))
    }

    /// Deletes all objects that a list would answer, one after the other: this is not atomic, and
    /// what is gone meanwhile is passed over.
    ///
    /// # Errors
    /// Those of the list, or of the first deletion that fails.
    pub(crate) async fn delete_collection(
        &self,
        permit: &Permit,
        which: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<ListAnswer, ApiError> {
        let list = self.list(permit, which).await?;
        let resource = self.cache().of(permit.kind().info());
        for object in &list.objects {
            let (namespace, name) = storage_key::split(resource.prefix(), object.key());
            match self.delete(&permit.narrowed(Verb::Delete, namespace, name), options).await {
                Err(error) if error.code() != 404 => return Err(error),
                _ => {}
            }
        }
        Ok(list)
    }

    fn lingers(&self, permit: &Permit, object: &Object) -> Result<bool, ApiError> {
        let due = object.metadata.deletion_timestamp.is_none_or(|due| due <= self.source().now());
        Ok(!due
            || !object.metadata.finalizers.is_empty()
            || permit.kind().blocks_deletion(object)?)
    }

    /// Lets go of what the server held an object by: `change` takes it out. For controllers.
    ///
    /// # Errors
    /// 404 when the object is gone already.
    pub(crate) async fn release(
        &self,
        permit: &Permit,
        change: impl Fn(&mut Object),
    ) -> Result<Answer, ApiError> {
        self.rewrite(permit, false, |previous, _| {
            let mut object = previous.object.clone();
            change(&mut object);
            admit::release(permit, object, previous, self.source())
        })
        .await
    }
}

/// What becomes of dependents, in the new words where the old ones were used.
fn policy_of(options: &DeleteOptions) -> Option<Propagation> {
    options.propagation.or(options
        .orphan_dependents
        .map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }))
}

fn check_preconditions(
    permit: &Permit,
    options: &DeleteOptions,
    previous: &Previous,
) -> Result<(), ApiError> {
    let resource = permit.kind().info().group_resource();
    let name = permit.target().name.as_deref().unwrap_or_default();
    if let Some(wanted) = &options.precondition_uid {
        let uid = &previous.object.metadata.uid;
        if wanted != uid {
            let text = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). \
                 The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(resource, name, &text));
        }
    }
    if let Some(wanted) = &options.precondition_resource_version {
        let found = previous.cached.position();
        if wanted.parse().map(Position::from_packed) != Ok(found) {
            let text = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the \
                 ResourceVersion in record ({found}). The object might have been modified"
            );
            return Err(ApiError::conflict(resource, name, &text));
        }
    }
    Ok(())
}
