//! The objects of the tests: where they are, and how they are made, changed and deleted.

use postern_auth::digest::Digest;
use postern_kinds::AnyKind;
use postern_meta::options::GetOptions;

use super::*;
use crate::credential::Credential;
use crate::registry::decoded;
use crate::storage_key;

pub(crate) type AnyKindRef = &'static dyn AnyKind;

/// An object of a kind that has this namespace and name.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(super) kind: AnyKindRef,
    pub(super) namespace: Option<&'a str>,
    pub(super) name: &'a str,
}

/// An object without a namespace.
pub(crate) const fn at(kind: AnyKindRef, name: &str) -> At<'_> {
    At { kind, namespace: None, name }
}

/// An object in a namespace.
pub(crate) const fn within<'a>(namespace: &'a str, kind: AnyKindRef, name: &'a str) -> At<'a> {
    At { kind, namespace: Some(namespace), name }
}

/// A shared secret in the default namespace.
pub(crate) fn secret(name: &str) -> At<'_> {
    within("platform", &SharedSecret, name)
}

impl At<'_> {
    /// The permit of the server for the object.
    pub(crate) fn permit(self, verb: Verb) -> Permit {
        Permit::for_server(self.kind, verb, self.namespace, self.name)
    }

    /// The key under which it is stored.
    pub(crate) fn key(self) -> Arc<str> {
        storage_key::object(self.kind.info(), self.namespace, self.name)
    }

    /// The object with these fields. The metadata is among them, and gets the name.
    pub(crate) fn object(self, fields: &Value) -> Object {
        let info = self.kind.info();
        let mut whole = json!({ "apiVersion": info.version.to_string(), "kind": info.kind });
        whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        whole["metadata"]["name"] = self.name.into();
        Object::from_value(whole).unwrap()
    }
}

impl Fixture {
    /// Waits until the server knows everything that is stored.
    pub(crate) async fn current(&self) {
        self.registry.cache().wait_until_current().await.unwrap();
    }

    pub(crate) async fn try_make(&self, at: At<'_>, fields: Value) -> Result<Object, ApiError> {
        let (permit, writing) = (at.permit(Verb::Create), Writing::by_server());
        let made = operations::create(&self.registry, &permit, at.object(&fields), &writing).await;
        decoded(&made?)
    }

    pub(crate) async fn make(&self, at: At<'_>, fields: Value) -> Object {
        self.try_make(at, fields).await.unwrap()
    }

    pub(crate) async fn read(&self, at: At<'_>) -> Result<Object, ApiError> {
        let found = self.registry.get(&at.permit(Verb::Get), &GetOptions::default()).await;
        decoded(&found?)
    }

    pub(crate) async fn try_change(
        &self,
        at: At<'_>,
        change: impl Fn(&mut Value),
    ) -> Result<Object, ApiError> {
        let (permit, writing) = (at.permit(Verb::Update), Writing::by_server());
        let changed = operations::update(&self.registry, &permit, &writing, |object| {
            let mut value = object.clone().into_value();
            change(&mut value);
            Ok(Object::from_value(value).unwrap())
        });
        decoded(&changed.await?)
    }

    pub(crate) async fn change(&self, at: At<'_>, change: impl Fn(&mut Value)) -> Object {
        self.try_change(at, change).await.unwrap()
    }

    /// Deletes an object. Returns whether it is still there, terminating.
    pub(crate) async fn try_delete(
        &self,
        at: At<'_>,
        options: DeleteOptions,
    ) -> Result<bool, ApiError> {
        let permit = at.permit(Verb::Delete);
        let deleted = operations::delete(&self.registry, &permit, &options).await?;
        Ok(deleted.is_terminating)
    }

    pub(crate) async fn delete(&self, at: At<'_>) {
        self.try_delete(at, DeleteOptions::default()).await.unwrap();
    }

    /// Removes an object although it may be corrupt.
    pub(crate) async fn remove(&self, at: At<'_>) {
        let options = DeleteOptions { ignore_store_read_error: true, ..DeleteOptions::default() };
        self.try_delete(at, options).await.unwrap();
        self.current().await;
    }

    /// Commits changes as another server would.
    pub(crate) async fn commit(&self, changes: Vec<Change>) -> u64 {
        self.store.commit(Txn { conditions: vec![], changes }).await.unwrap()
    }

    /// The credential of the bearer of a key.
    pub(super) fn credential(&self, digest: Digest) -> Credential {
        let key = self.identify(&digest, self.clock.now().unix_seconds()).unwrap();
        Credential::of_key(key.identity.clone(), digest)
    }
}
