//! Reads without a permit, for decisions: the gateway, actions and the audit log look up where an object is, or
//! whether it exists. Objects that are read here cannot be put into a response.

use std::sync::Arc;

use memchr::memmem::Finder;
use postern_kinds::AnyKind;
use postern_meta::decode::decode_typed;
use postern_meta::status::ApiError;
use postern_store::Position;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::admit::Previous;
use crate::cache::CachedObject;
use crate::errors::from_store;
use crate::registry::Registry;
use crate::storage_key;

/// The metadata of a stored object, as far as it identifies the object: for types that have a part of the object.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct StoredMetadata {
    pub(crate) uid: String,
}

/// An object that a decision is based on. Callers cannot take its bytes out.
pub struct ForDecision(Arc<CachedObject>);

impl std::fmt::Debug for ForDecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ForDecision {
    /// The position of its last change.
    pub fn position(&self) -> Position {
        self.0.position()
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        storage_key::name_of(self.0.key()).1
    }

    /// Its namespace, if its kind has one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        storage_key::name_of(self.0.key()).0
    }

    /// The decoded part of the object that decides.
    ///
    /// # Errors
    /// 500 if the object cannot be decoded.
    pub fn part<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        decode_typed(&self.0.json()).map_err(|_| self.undecoded())
    }

    /// The same, kept with the object: for a part that requests read often, and that has no secret values.
    ///
    /// # Errors
    /// As for [`ForDecision::part`].
    pub fn kept_part<T>(&self) -> Result<Arc<T>, ApiError>
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        self.0.kept_part().map_err(|_| self.undecoded())
    }

    /// The error of a part that cannot be decoded. The decoder's own may quote stored content.
    fn undecoded(&self) -> ApiError {
        ApiError::internal("an object cannot be read", self.0.key().to_string())
    }

    /// The object as the previous state of a write that a permit covers.
    pub(crate) fn into_previous(self) -> Result<Previous, ApiError> {
        Previous::of(self.0)
    }

    /// The cached object, to check whether a permit covers it.
    pub(crate) fn into_cached(self) -> Arc<CachedObject> {
        self.0
    }

    /// Whether it is the object that a write changes.
    pub(crate) fn is(&self, other: &Previous) -> bool {
        self.0.key() == other.cached.key()
    }

    /// Whether its bytes contain a text. If not, the object cannot name the thing.
    pub(crate) fn has_text(&self, text: &Finder<'_>) -> bool {
        text.find(&self.0.json()).is_some()
    }
}

impl Registry {
    /// Reads an object for a decision; `None` if it does not exist.
    ///
    /// # Errors
    /// 500 if it is corrupt.
    pub fn read_to_decide(
        &self,
        kind: &dyn AnyKind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<ForDecision>, ApiError> {
        let info = kind.info();
        let found = self.cache().of(info).get(&storage_key::object(info, namespace, name))?;
        Ok(found.map(ForDecision))
    }

    /// Reads all objects of a kind or of a namespace for a decision. Also returns the keys of corrupt objects.
    pub(crate) fn all_to_decide(
        &self,
        kind: &dyn AnyKind,
        namespace: Option<&str>,
    ) -> (Vec<ForDecision>, Vec<Arc<str>>) {
        let resource = self.cache().of(kind.info());
        let prefix = storage_key::in_namespace(resource.prefix(), namespace);
        let list = resource.list_intact(&prefix, None, 0);
        (list.objects.into_iter().map(ForDecision).collect(), list.left_out)
    }

    /// Reads at most `limit` intact objects for a decision, in key order after `after`.
    pub fn page_to_decide(
        &self,
        kind: &dyn AnyKind,
        after: Option<&ForDecision>,
        limit: usize,
    ) -> Vec<ForDecision> {
        let after = after.map(|after| &**after.0.key());
        self.cache().of(kind.info()).page(after, limit).into_iter().map(ForDecision).collect()
    }

    /// Reads at most `limit` intact objects of a namespace, as [`Registry::page_to_decide`].
    pub(crate) fn page_of_namespace_to_decide(
        &self,
        kind: &dyn AnyKind,
        namespace: &str,
        after: Option<&ForDecision>,
        limit: usize,
    ) -> Vec<ForDecision> {
        let start = storage_key::object(kind.info(), Some(namespace), "");
        let after = after.map_or(&*start, |after| &**after.0.key());
        let page = self.cache().of(kind.info()).page(Some(after), limit);
        page.into_iter().take_while(|one| one.key().starts_with(&*start)).map(ForDecision).collect()
    }

    /// The namespace and name of the object that has a unique key, as the store has it now. The cache is at least as
    /// new as the result.
    ///
    /// # Errors
    /// The errors of the store; 504 if the cache does not catch up.
    pub async fn holder_of(
        &self,
        kind: &dyn AnyKind,
        unique_key: &str,
    ) -> Result<Option<(String, String)>, ApiError> {
        let key = storage_key::unique_key(kind.info(), unique_key);
        let record = self.store().get(&key).await.map_err(from_store)?.value;
        let Some(record) = record else { return Ok(None) };
        // The object may have been created or moved after the cache's last event.
        self.cache().wait_until_current().await?;
        let holder: Option<String> = decode_typed(&record.value).ok();
        let holder = holder.as_deref().and_then(|holder| holder.split_once('/'));
        Ok(holder.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())))
    }
}
