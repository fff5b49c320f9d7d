//! Changing an object: read it, work out what it shall be, store that if it is still as it was
//! read, and else start again.

use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;

use super::commit::Refused;
use super::side_records::SecretRecord;
use super::{Answer, Registry, key_of, not_found};
use crate::cache::CachedObject;
use crate::stages::admit::{self, Admitted, Previous, Writing};
use crate::stages::authorize::Permit;

/// How often a change is worked out anew because another writer was faster. Each round, one
/// writer wins, so this many have to be faster in a row.
const ATTEMPTS: usize = 64;

impl Registry {
    /// Replaces or patches an object: `change` makes the wanted state of the current one. It may
    /// run more than once.
    ///
    /// # Errors
    /// As wire contract 1.5 says. What the client expects of the resourceVersion and uid stands
    /// in the object that `change` returns: 409 when it does not hold.
    pub(crate) async fn update(
        &self,
        permit: &Permit,
        writing: &Writing,
        change: impl Fn(&Object) -> Result<Object, ApiError>,
    ) -> Result<Answer, ApiError> {
        self.rewrite(permit, writing.dry_run, |previous, kept| {
            permit.check(&previous.object)?;
            let wanted = change(&previous.object)?;
            check_address(permit, &wanted)?;
            check_version(permit, &wanted, &previous.cached)?;
            admit::update(self, permit, wanted, previous, kept, writing)
        })
        .await
    }

    /// Replaces an object by what a client has read and modified.
    ///
    /// # Errors
    /// As [`Registry::update`]; 422 when the resourceVersion is missing, since the client could
    /// undo another's change without knowing (decision 8).
    pub(crate) async fn replace(
        &self,
        permit: &Permit,
        writing: &Writing,
        object: Object,
    ) -> Result<Answer, ApiError> {
        self.update(permit, writing, |_| {
            if object.metadata.resource_version.is_empty() {
                let mut errors = FieldErrors::default();
                let path = "metadata.resourceVersion";
                errors.push(FieldError::invalid(path, 0_i64, "must be specified for an update"));
                let kind = permit.kind().info().group_kind();
                return Err(ApiError::invalid(kind, &object.metadata.name, errors));
            }
            Ok(object.clone())
        })
        .await
    }

    /// The loop of everything that changes an object which exists.
    pub(super) async fn rewrite(
        &self,
        permit: &Permit,
        dry_run: bool,
        admit: impl Fn(Previous, SecretRecord) -> Result<Admitted, ApiError>,
    ) -> Result<Answer, ApiError> {
        let info = permit.kind().info();
        let resource = self.cache().of(info);
        let key = key_of(permit, resource)?;
        let name = permit.target().name.as_deref().unwrap_or_default();
        for _ in 0..ATTEMPTS {
            self.cache().wait_until_current().await?;
            let previous = resource.get(&key)?;
            let previous = previous.ok_or_else(|| not_found(permit.kind(), name))?;
            // Read after the object: were it older, the object's own condition could not tell.
            let kept = self.secret_record(permit.kind(), name).await?;
            match self.try_commit(admit(Previous::of(previous)?, kept)?, dry_run).await {
                Ok(answer) => return Ok(answer),
                Err(Refused::Error(error)) => return Err(error),
                Err(Refused::Changed(found)) => self.cache().wait_for_revision(found).await?,
            }
        }
        Err(ApiError::conflict_modified(info.group_resource(), name))
    }
}

/// Name and namespace of what was sent must be those of the URL.
fn check_address(permit: &Permit, wanted: &Object) -> Result<(), ApiError> {
    let target = permit.target();
    let name = target.name.as_deref().unwrap_or_default();
    if wanted.metadata.name != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            wanted.metadata.name
        )));
    }
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let sent = wanted.metadata.namespace.as_str();
    if !sent.is_empty() && sent != namespace {
        return Err(ApiError::bad_request(format!(
            "the namespace of the object ({sent}) does not match the namespace on the URL \
             ({namespace})"
        )));
    }
    Ok(())
}

/// A resourceVersion in what was sent must be the current one.
fn check_version(
    permit: &Permit,
    wanted: &Object,
    previous: &CachedObject,
) -> Result<(), ApiError> {
    let sent = wanted.metadata.resource_version.as_str();
    if sent.is_empty() || sent == previous.position().to_string() {
        return Ok(());
    }
    if sent.parse::<u64>().is_err() {
        return Err(ApiError::bad_request("invalid resource version: it must be a number"));
    }
    let resource = permit.kind().info().group_resource();
    Err(ApiError::conflict_modified(resource, &wanted.metadata.name))
}
