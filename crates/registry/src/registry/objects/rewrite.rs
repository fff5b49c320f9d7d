//! The loop of each change to an existing object: read it, admit the change, and store it if the object is still as
//! it was read. Otherwise start again.

use postern_meta::status::ApiError;

use super::commit::CommitError;
use super::observe::observed_json;
use super::side_records::RecordsOf;
use crate::admit::{Admitted, Previous};
use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry, key_of, not_found, unless_corrupt};
use crate::secret_record::SecretRecord;

/// Attempts at one change. In each round one writer succeeds, so the change fails only if this many other writers are
/// faster in a row.
const ATTEMPTS: usize = 64;

impl Registry {
    /// Changes an object. `admit` gets its current state, and may run more than once.
    ///
    /// # Errors
    /// 404; the errors of `admit`; 409 if other writers were faster in each attempt.
    pub(crate) async fn rewrite(
        &self,
        permit: &Permit,
        dry_run: bool,
        admit: impl Fn(Previous, SecretRecord) -> Result<Admitted, ApiError>,
    ) -> Result<EncodedObject, ApiError> {
        let info = permit.kind().info();
        let resource = self.cache().of(info);
        let key = key_of(permit, resource)?;
        let namespace = permit.target().namespace.as_deref();
        let of = RecordsOf { kind: permit.kind(), namespace, name: permit.name() };
        for _ in 0..ATTEMPTS {
            self.cache().wait_until_current().await?;
            let previous = unless_corrupt(permit, resource.get(&key))?;
            let previous = previous.ok_or_else(|| not_found(permit.kind(), permit.name()))?;
            // Read after the object: the condition on the object would not detect an older record.
            let secrets = self.secret_record(of).await?;
            let admitted = admit(Previous::of(previous)?, secrets)?;
            match Box::pin(self.try_commit(admitted, dry_run)).await {
                Ok(stored) => return Ok(self.observed(permit, stored).await),
                Err(CommitError::Api(error)) => return Err(error),
                Err(CommitError::Changed(position)) => {
                    self.cache().wait_for_revision(position).await?;
                }
            }
        }
        Err(ApiError::conflict_modified(info.group_resource(), permit.name()))
    }

    /// The result of a write, with the observed fields for this caller. They are those after the write.
    pub(crate) async fn observed(&self, permit: &Permit, object: EncodedObject) -> EncodedObject {
        if permit.kind().info().observed_status.is_some() {
            // If the store does not answer, the write is answered with what is known.
            let _ = self.cache().wait_until_current().await;
        }
        EncodedObject {
            json: observed_json(self.cache(), self.source(), permit, object.json),
            cached: None,
            ..object
        }
    }
}
