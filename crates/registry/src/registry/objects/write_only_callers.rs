//! Callers that may write an object but may not get it (`docs/reference/api.md#write-without-read`). A pipeline can
//! set a secret that it may not get, and the response tells it nothing about the stored values.

use bytes::Bytes;
use postern_kinds::Verb;
use postern_kinds::write_only::LAST_APPLIED;
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use crate::permit::Permit;
use crate::registry::{EncodedObject, Registry, decoded};

impl Registry {
    /// The response to a write, without the fields that only callers with the permission to get the object may see.
    ///
    /// # Errors
    /// 500 if the object cannot be decoded, which is a bug.
    pub fn for_writer(
        &self,
        permit: &Permit,
        object: EncodedObject,
    ) -> Result<EncodedObject, ApiError> {
        if self.may_read_written(permit, &object) {
            return Ok(object);
        }
        let protected = permit.kind().info().read_protected;
        let mut written = decoded(&object)?;
        for path in protected {
            remove(&mut written.fields, path);
        }
        written.metadata.annotations.remove(LAST_APPLIED);
        // They name fields, including the keys of `data`.
        written.metadata.managed_fields.clear();
        Ok(EncodedObject { json: Bytes::from(written.to_json_bytes()), cached: None, ..object })
    }

    /// Whether the caller may get all fields of the object that it has written, under the newest policy of the cache.
    pub fn may_read_written(&self, permit: &Permit, object: &EncodedObject) -> bool {
        // A create names the object in its body, or has no name.
        permit.kind().info().read_protected.is_empty()
            || match permit.name() {
                "" => object.created().is_some_and(|created| self.may_read(permit, &created.name)),
                name => self.may_read(permit, name),
            }
    }

    /// Checks that the caller may get the object that it writes, for operations that compare or copy its values.
    /// `reason` names the operation.
    ///
    /// # Errors
    /// 403 in the words of kube-apiserver.
    pub fn check_may_read(&self, permit: &Permit, reason: &str) -> Result<(), ApiError> {
        let is_open = permit.kind().info().read_protected.is_empty();
        if is_open || self.may_read(permit, permit.name()) {
            return Ok(());
        }
        Err(ApiError::forbidden(permit.kind().info().group_resource(), permit.name(), reason))
    }

    /// Whether the caller may get an object, under the newest policy: the caller of a create owns the new object.
    fn may_read(&self, permit: &Permit, name: &str) -> bool {
        let namespace = permit.target().namespace.as_deref();
        permit.caller_may_under(&self.cache().policy(), Verb::Get.as_str(), namespace, name)
    }
}

fn remove(fields: &mut Map<String, Value>, path: &[&str]) {
    match path {
        [] => {}
        [last] => {
            fields.remove(*last);
        }
        [first, rest @ ..] => {
            if let Some(Value::Object(inner)) = fields.get_mut(*first) {
                remove(inner, rest);
            }
        }
    }
}
