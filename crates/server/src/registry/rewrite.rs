//! The loop of everything that changes an object which exists: read it, have the change admitted,
//! store that if the object is still as it was read, and else start again.

use postern_meta::status::ApiError;

use super::commit::Refused;
use super::observe::observed_json;
use super::side_records::RecordsOf;
use super::{EncodedObject, Registry, key_of, not_found};
use crate::secret_record::SecretRecord;
use crate::stages::admit::{Admitted, Previous};
use crate::stages::authorize::Permit;

/// How often a change is worked out anew because another writer was faster. Each round, one
/// writer wins, so this many have to be faster in a row.
const ATTEMPTS: usize = 64;

impl Registry {
    /// Changes an object; `admit` is given its current state, and may run more than once.
    ///
    /// # Errors
    /// 404; those of `admit`; 409 when other writers were faster each time.
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
            let previous = resource.get(&key)?;
            let previous = previous.ok_or_else(|| not_found(permit.kind(), permit.name()))?;
            // Read after the object: were it older, the object's own condition could not tell.
            let secrets = self.secret_record(of).await?;
            match self.try_commit(admit(Previous::of(previous)?, secrets)?, dry_run).await {
                Ok(answer) => return Ok(self.observed(permit, answer)),
                Err(Refused::Error(error)) => return Err(error),
                Err(Refused::Changed(found)) => self.cache().wait_for_revision(found).await?,
            }
        }
        Err(ApiError::conflict_modified(info.group_resource(), permit.name()))
    }

    /// Returns what a write came to, as it answers this caller.
    pub(crate) fn observed(&self, permit: &Permit, answer: EncodedObject) -> EncodedObject {
        EncodedObject { json: observed_json(self.cache(), permit, answer.json) }
    }
}
