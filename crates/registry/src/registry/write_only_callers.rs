//! Callers that may write and not read (`docs/reference/api.md#write-without-read`). A pipeline can set a
//! secret that it may not get, and learns nothing by it.

use bytes::Bytes;
use postern_kinds::Verb;
use postern_kinds::write_only::LAST_APPLIED;
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use super::{EncodedObject, Registry, decoded};
use crate::permit::Permit;

impl Registry {
    /// The result of a write as its writer may see it: without what only those see who may
    /// get the object.
    ///
    /// # Errors
    /// 500 when the object cannot be read back: a bug.
    pub fn for_writer(
        &self,
        permit: &Permit,
        object: EncodedObject,
    ) -> Result<EncodedObject, ApiError> {
        let protected = permit.kind().read_protected();
        if protected.is_empty() {
            return Ok(object);
        }
        // A create names the object in its body, or not at all.
        let may_read = match permit.name() {
            "" => object.created().is_some_and(|created| self.may_read(permit, &created.name)),
            name => self.may_read(permit, name),
        };
        if may_read {
            return Ok(object);
        }
        let mut written = decoded(&object)?;
        for path in protected {
            remove(&mut written.fields, path);
        }
        written.metadata.annotations.remove(LAST_APPLIED);
        // They name the fields, keys of data among them.
        written.metadata.managed_fields.clear();
        Ok(EncodedObject { json: Bytes::from(written.to_json_bytes()), ..object })
    }

    /// Checks that a caller may get the object that they write, for what compares or copies it. `reason`
    /// says what does.
    ///
    /// # Errors
    /// 403 in kube-apiserver's words.
    pub fn check_may_read(&self, permit: &Permit, reason: &str) -> Result<(), ApiError> {
        let is_open = permit.kind().read_protected().is_empty();
        if is_open || self.may_read(permit, permit.name()) {
            return Ok(());
        }
        Err(ApiError::forbidden(permit.kind().info().group_resource(), permit.name(), reason))
    }

    /// Whether the caller may get an object. The newest policy decides, since a caller that has just created an
    /// object owns it.
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
