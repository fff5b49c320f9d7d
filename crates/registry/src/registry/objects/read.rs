//! Reads one object, or a list at the requested revision (`docs/reference/api.md#resourceversion`).

use std::collections::HashMap;
use std::sync::Arc;

use postern_kinds::namespace::Namespace;
use postern_kinds::{AnyKind as _, SelectableField};
use postern_meta::continue_token::ContinueToken;
use postern_meta::decode::decode_typed;
use postern_meta::event::WatchEventType;
use postern_meta::object::Object;
use postern_meta::options::{GetOptions, ListOptions, RequestedVersion, VersionMatch};
use postern_meta::selector::{FieldSelector, LabelSelector};
use postern_meta::status::ApiError;
use postern_store::{Error, ListRequest, Page, Position};

use super::observe::{Observer, observed};
use super::visibility::{permissions_changed, sees_all};
use crate::cache::{
    CacheEntry, CachedObject, Candidates, ObjectList, ResourceCache, SelectableFields, split_stored,
};
use crate::errors::from_store;
use crate::permit::{Coverage, Permit};
use crate::registry::{EncodedObject, Registry, key_of, not_found, unless_corrupt};
use crate::storage_key;

/// Attempts at one list while the permissions of its caller change.
const POLICY_ATTEMPTS: usize = 8;

/// The work between two pauses in which other tasks get the thread: a fraction of a millisecond.
pub(super) const BYTES_BETWEEN_PAUSES: usize = 128 * 1024;

/// The cost of a check whether an object is selected, in bytes to decode.
const BYTES_PER_CHECK: usize = 128;

/// A page of a list before it is encoded.
pub struct ObjectPage {
    /// In key order.
    pub objects: CoveredObjects,
    /// The version from which a watch can continue.
    pub version: Position,
    /// The token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// The number of objects after this page, if it is known.
    pub remaining: Option<usize>,
    /// Adds the fields that are not stored but that the caller sees, if there are any.
    pub observer: Option<Arc<Observer>>,
    /// Warnings for the client about objects that are missing in the page.
    pub warnings: Vec<String>,
    /// A second field that has the items of a list in plain JSON.
    pub also_as: Option<&'static str>,
}

/// Objects that a permit covers. Only a read with a permit makes them.
#[derive(Clone, Default)]
pub struct CoveredObjects(Vec<Arc<CachedObject>>);

impl CoveredObjects {
    /// Keeps the wanted objects.
    pub(crate) fn retain(&mut self, is_wanted: impl FnMut(&Arc<CachedObject>) -> bool) {
        self.0.retain(is_wanted);
    }
}

impl std::ops::Deref for CoveredObjects {
    type Target = [Arc<CachedObject>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl IntoIterator for CoveredObjects {
    type Item = Arc<CachedObject>;
    type IntoIter = std::vec::IntoIter<Arc<CachedObject>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The objects that a list or watch is for.
#[derive(Clone)]
pub(crate) struct Selection {
    /// The collection of the kind in the store.
    pub(crate) collection: String,
    /// The prefix of the storage keys.
    pub(crate) prefix: String,
    /// The prefix of all keys of the namespace, or of the kind. Continue tokens have the part after it.
    parent: String,
    /// The name that the permit is for, if it is for one object.
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    /// The selectable fields of the kind: to compare one, the object must be decoded.
    selectable: &'static [SelectableField],
    /// Whether the selectors name a selectable field.
    reads_objects: bool,
    selects_all: bool,
    /// The permit, if it does not cover all objects and must be checked for each one.
    permit: Option<Permit>,
    /// The permit of the past revision, which must cover an object as well.
    past_permit: Option<Permit>,
}

impl Selection {
    /// The selection of a permit and the options of a request.
    pub(crate) fn new(permit: &Permit, options: &ListOptions) -> Self {
        let target = permit.target();
        let collection = storage_key::collection(target.kind.info());
        // A read of one name in one namespace does not touch other objects, which may be corrupt.
        let whole = target.namespace.is_some() || !target.kind.info().is_namespaced();
        let parent = storage_key::in_namespace(&collection, target.namespace.as_deref());
        let mut fields = options.field_selector.clone();
        let prefix = match &target.name {
            Some(name) if whole => [&parent, name.as_str()].concat(),
            // The names with one prefix are one range of keys.
            None if whole => [&*parent, &fields.take_name_prefix().unwrap_or_default()].concat(),
            _ => parent.clone(),
        };
        let labels = options.label_selector.clone();
        let selectable = target.kind.info().selectable_fields;
        let reads_objects = selectable.iter().any(|field| fields.names(field.label));
        let name = target.name.clone();
        let permit = Some(permit.clone()).filter(|permit| !permit.covers_all());
        let selects_all =
            name.is_none() && labels.is_everything() && fields.is_everything() && permit.is_none();
        Self {
            collection,
            prefix,
            parent,
            name,
            labels,
            fields,
            selectable,
            reads_objects,
            selects_all,
            permit,
            past_permit: None,
        }
    }

    /// Whether the object is selected.
    pub(crate) fn matches(&self, object: &CachedObject) -> bool {
        self.is_selected(object, &SelectableFields::default()) && self.is_covered(object)
    }

    /// Whether the permit covers a key, by its name alone. For corrupt objects.
    fn covers_key(&self, key: &str) -> bool {
        let permits = [&self.permit, &self.past_permit].into_iter().flatten();
        permits.into_iter().all(|permit| permit.covers_key(key))
    }

    /// Whether the object is selected and this permit covers it; the permit of the selection does not count. `read`
    /// has the decoded fields of the object.
    pub(super) fn matches_under(
        &self,
        permit: &Permit,
        object: &CachedObject,
        read: &SelectableFields,
    ) -> bool {
        self.is_selected(object, read) && permit.covers(object)
    }

    fn is_selected(&self, object: &CachedObject, read: &SelectableFields) -> bool {
        if !object.key().starts_with(&self.prefix) {
            return false;
        }
        if self.selects_all {
            return true;
        }
        let (namespace, name) = storage_key::split(&self.collection, object.key());
        if self.name.as_deref().is_some_and(|wanted| wanted != name) {
            return false;
        }
        if !(self.labels.is_everything() || self.labels.matches(object.labels())) {
            return false;
        }
        self.fields.matches(|field| match field {
            "metadata.name" => Some(name),
            "metadata.namespace" => Some(namespace.unwrap_or_default()),
            label => read.get(self.selectable, object, label),
        })
    }

    /// The cost of a check of an object, in bytes.
    pub(super) fn bytes_per_check(&self, object: &CachedObject) -> usize {
        if self.reads_objects { object.json().len().max(BYTES_PER_CHECK) } else { BYTES_PER_CHECK }
    }

    /// The same selection with another permit of the same caller.
    pub(super) fn under(&self, permit: &Permit) -> Self {
        let permit = Some(permit.clone()).filter(|permit| !permit.covers_all());
        let selects_all = self.name.is_none()
            && self.labels.is_everything()
            && self.fields.is_everything()
            && permit.is_none();
        Self { selects_all, permit, ..self.clone() }
    }

    /// The key after which the page of a token starts.
    ///
    /// # Errors
    /// 400 for a token of another list.
    fn after(&self, token: &ContinueToken) -> Result<String, ApiError> {
        let after = format!("{}{}", self.parent, token.start);
        if after.starts_with(&self.prefix) {
            return Ok(after);
        }
        let why = "continue key is not valid: it does not point to an object of this list";
        Err(ApiError::bad_request(why))
    }

    /// The objects that the permit can cover, if it names them or their owners.
    fn candidates(&self) -> Option<Candidates<'_>> {
        match self.permit.as_ref()?.coverage() {
            Coverage::All => None,
            Coverage::Some(covered) => {
                Some(Candidates { named: Some(&covered.named), owners: covered.owners()? })
            }
            Coverage::KeysOf(keys) => {
                Some(Candidates { named: None, owners: vec![keys.owner.owner.clone()] })
            }
        }
    }

    fn is_covered(&self, object: &CachedObject) -> bool {
        let permits = self.permit.iter().chain(&self.past_permit);
        permits.into_iter().all(|permit| permit.covers(object))
    }
}

/// The revision that a list is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListRevision {
    /// The present revision of the cache, without a minimum.
    Any,
    /// At least the newest revision at the time of the request.
    MostRecent,
    /// This revision or a later one.
    NotOlderThan(Position),
    /// Exactly this revision.
    Exactly(Position),
}

impl Registry {
    /// Reads one object.
    ///
    /// # Errors
    /// 404; 504 if the cache does not reach the requested revision in time.
    pub async fn get(
        &self,
        permit: &Permit,
        options: &GetOptions,
    ) -> Result<EncodedObject, ApiError> {
        match options.resource_version {
            None => self.cache().wait_for_request(permit.oldest_revision()).await?,
            Some(RequestedVersion::Any) => {}
            Some(RequestedVersion::At(version)) => {
                self.cache().wait_for_revision(Position::from_packed(version)).await?;
            }
        }
        let kind = permit.kind();
        let resource = self.cache().of(kind.info());
        let found = resource.get(&key_of(permit, resource)?);
        // The permit is decided again if permissions have changed before the object was read.
        let renewed = permit.renewed(self.cache(), self.source())?;
        let permit = renewed.as_ref().unwrap_or(permit);
        let found = unless_corrupt(permit, found)?;
        let found = found.ok_or_else(|| not_found(kind, permit.name()))?;
        permit.check(&found)?;
        let object = observed(self.cache(), self.source(), permit, options.extended, found);
        Ok(EncodedObject::of_cached(object))
    }

    /// The size of the object of a permit, in bytes; 0 if it does not exist, and for a collection.
    pub fn stored_bytes(&self, permit: &Permit) -> usize {
        let resource = self.cache().of(permit.kind().info());
        let found = key_of(permit, resource).ok().and_then(|key| resource.get(&key).ok().flatten());
        found.map_or(0, |object| object.json().len())
    }

    /// Reads one object as it is stored, without the observed fields of a response.
    ///
    /// # Errors
    /// The errors of [`Registry::get`].
    pub(crate) async fn stored(&self, permit: &Permit) -> Result<Object, ApiError> {
        self.cache().wait_until_current().await?;
        let resource = self.cache().of(permit.kind().info());
        let found = resource.get(&key_of(permit, resource)?);
        let renewed = permit.renewed(self.cache(), self.source())?;
        let permit = renewed.as_ref().unwrap_or(permit);
        let found = unless_corrupt(permit, found)?;
        let found = found.ok_or_else(|| not_found(permit.kind(), permit.name()))?;
        permit.check(&found)?;
        found.decode()
    }

    /// Reads a page of a list.
    ///
    /// # Errors
    /// 410 if the requested revision is compacted, 504 if it is in the future.
    pub async fn list(
        &self,
        permit: &Permit,
        options: &ListOptions,
    ) -> Result<ObjectPage, ApiError> {
        let mut selection = Selection::new(permit, options);
        let resource = self.cache().of(permit.kind().info());
        let token = options.continue_token.as_deref().map(ContinueToken::decode).transpose()?;
        let at = requested_revision(options, token.as_ref());
        self.wait_for(at, permit.oldest_revision()).await?;
        let after = token.as_ref().map(|token| selection.after(token)).transpose()?;
        let after = after.as_deref();
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        let list = match at {
            ListRevision::Exactly(version) if resource.revision() != version.revision() => {
                let (token, revision) = (token.as_ref(), version.revision());
                self.past_list(permit, &mut selection, token, limit, revision).await?
            }
            _ => {
                let (list, _) = self.visible(permit, &selection, after, limit).await?;
                match at {
                    // The cache has changed since the check above.
                    ListRevision::Exactly(version) if list.revision != version.revision() => {
                        let (token, revision) = (token.as_ref(), version.revision());
                        self.past_list(permit, &mut selection, token, limit, revision).await?
                    }
                    _ => list,
                }
            }
        };
        Ok(ObjectPage {
            observer: Observer::new(self, permit, options.extended).map(Arc::new),
            ..page_of(list, &selection)
        })
    }

    /// Reads the access keys of one owner. The permit is for this action on the owner.
    ///
    /// # Errors
    /// 404 if the owner does not exist; otherwise the errors of [`Registry::list`].
    pub(crate) async fn access_keys_of(
        &self,
        permit: &Permit,
        options: &ListOptions,
    ) -> Result<ObjectPage, ApiError> {
        self.cache().wait_until_current().await?;
        let owners = self.cache().of(permit.kind().info());
        let found = unless_corrupt(permit, owners.get(&key_of(permit, owners)?))?;
        let found = found.ok_or_else(|| not_found(permit.kind(), permit.name()))?;
        let page = self.list(&permit.keys_of(&found)?, options).await?;
        // Clients of the platform read this field, and Kubernetes clients read the items.
        Ok(ObjectPage { also_as: Some("accessKeys"), ..page })
    }

    /// The objects of a selection that a caller may see, with the permit that decided. List and permit are of the
    /// same revision.
    ///
    /// # Errors
    /// The errors of [`selected`]; 409 if the permissions keep changing.
    pub(super) async fn visible(
        &self,
        permit: &Permit,
        selection: &Selection,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(ObjectList, Permit), ApiError> {
        let resource = self.cache().of(permit.kind().info());
        let (mut permit, mut selection) = (permit.clone(), selection.clone());
        for _ in 0..POLICY_ATTEMPTS {
            let list = selected(resource, &selection, after, limit).await?;
            let Some(renewed) = self.at_revision(&permit, list.revision)? else {
                return Ok((list, permit));
            };
            if renewed.coverage() == permit.coverage() {
                return Ok((list, renewed));
            }
            selection = selection.under(&renewed);
            permit = renewed;
        }
        let resource = permit.kind().info().group_resource();
        let text = "the permissions of the caller changed during the list: try again";
        Err(ApiError::conflict(resource, permit.name(), text))
    }

    /// The permit with the present identity of its caller and the policy of a revision; `None` if the permit has both
    /// already. It is renewed after the list was made, so the permissions are at least as new as the list.
    fn at_revision(&self, permit: &Permit, revision: u64) -> Result<Option<Permit>, ApiError> {
        if permit.credential().is_server() {
            return Ok(None);
        }
        let renewed = permit.renewed(self.cache(), self.source())?;
        let current = renewed.as_ref().unwrap_or(permit);
        match self.cache().policy_at(revision) {
            Some(then) if !Arc::ptr_eq(&then, current.policy()) => current.under(then).map(Some),
            _ => Ok(renewed),
        }
    }

    /// The permit as it was at a past revision, with the policy and the identity of that time. It covers the objects
    /// that the caller could list then. This holds for every kind, even if the caller may list everything now.
    ///
    /// # Errors
    /// 410 if the past permissions are unknown, or the caller could see nothing then. 410 also if the namespace of the
    /// permit was another one then.
    pub(super) async fn permit_at(
        &self,
        permit: &Permit,
        revision: u64,
    ) -> Result<Permit, ApiError> {
        if permit.credential().is_server() {
            return Ok(permit.clone());
        }
        let since = permit.credential().since(&self.cache().principals());
        // The server knows no identities from before it loaded the store. A member of system:masters sees everything
        // then and now, so the client does not have to list again after each start.
        if sees_all(permit) && (since <= revision || since == self.cache().loaded_at()) {
            return Ok(permit.clone());
        }
        if since > revision {
            return Err(permissions_changed());
        }
        let then = self.cache().policy_at(revision).ok_or_else(permissions_changed)?;
        let permit = permit.under(then).map_err(|_| permissions_changed())?;
        let namespace = permit.target().namespace.as_deref();
        if let Some(namespace) = namespace
            && !self.is_same_namespace(namespace, revision).await?
        {
            return Err(permissions_changed());
        }
        Ok(permit)
    }

    /// Whether a namespace is the one that had this name at a past revision. Permissions in the present namespace do
    /// not cover the objects of an earlier one.
    ///
    /// # Errors
    /// The errors of the store; 410 if the revision is compacted.
    async fn is_same_namespace(&self, namespace: &str, revision: u64) -> Result<bool, ApiError> {
        let info = Namespace.info();
        let key = storage_key::object(info, None, namespace);
        let Some(now) = self.cache().of(info).get(&key)? else { return Ok(false) };
        if now.position().revision() <= revision {
            return Ok(true);
        }
        let (prefix, limit) = (key.to_string(), 1);
        let request = ListRequest { prefix, after: None, limit, at: Some(revision) };
        let page = self.store().list(request).await.map_err(from_store)?;
        let then = page.entries.into_iter().find(|entry| entry.key == key);
        let Some(Ok(then)) = then.map(|entry| decode_typed::<Object>(split_stored(&entry.value).0))
        else {
            return Ok(false);
        };
        Ok(then.metadata.uid == now.decode()?.metadata.uid)
    }

    /// Removes from a past list the objects of an earlier namespace of the same name.
    async fn leave_out_earlier_namespaces(&self, list: &mut ObjectList) -> Result<(), ApiError> {
        let mut is_same = HashMap::new();
        for object in &list.objects {
            if let (Some(namespace), _) = storage_key::name_of(object.key())
                && !is_same.contains_key(namespace)
            {
                let same = self.is_same_namespace(namespace, list.revision).await?;
                is_same.insert(namespace.to_owned(), same);
            }
        }
        list.objects.retain(|object| {
            let (namespace, _) = storage_key::name_of(object.key());
            namespace.is_none_or(|namespace| is_same.get(namespace).is_some_and(|same| *same))
        });
        Ok(())
    }

    async fn wait_for(&self, at: ListRevision, as_of: Option<u64>) -> Result<(), ApiError> {
        match at {
            ListRevision::Any => Ok(()),
            ListRevision::MostRecent => self.cache().wait_for_request(as_of).await,
            ListRevision::NotOlderThan(version) | ListRevision::Exactly(version) => {
                self.cache().wait_for_revision(version).await
            }
        }
    }

    /// A list at a past revision. It contains the objects that the caller could see then and can see now. An object
    /// may have had another owner or another value under the same name. The selection is then that of this list: the number
    /// of its objects is unknown if the caller could not see all of them then.
    async fn past_list(
        &self,
        permit: &Permit,
        selection: &mut Selection,
        token: Option<&ContinueToken>,
        limit: usize,
        revision: u64,
    ) -> Result<ObjectList, ApiError> {
        let then = self.permit_at(permit, revision).await.map_err(|expired| match token {
            Some(token) => ApiError::expired_continue(token.newest().encode()),
            None => expired,
        })?;
        let after = token.map(|token| selection.after(token)).transpose()?;
        selection.past_permit = Some(then).filter(|then| !then.covers_all());
        selection.selects_all &= selection.past_permit.is_none();
        let resource = self.cache().of(permit.kind().info());
        let left = token.and_then(|token| usize::try_from(token.remaining?).ok());
        let past = self.read_past(resource, selection, after.as_deref(), left, limit, revision);
        let past = past.await;
        let mut past = past.map_err(|error| past_error(error, token))?;
        // If the permit is for one namespace, `permit_at` has checked that it is the same one.
        if permit.target().namespace.is_none() && !sees_all(permit) {
            self.leave_out_earlier_namespaces(&mut past).await?;
        }
        Ok(past)
    }

    /// Reads a list at a past revision from the store: the objects after a key, and the number of remaining objects
    /// if it is known. The store counts all objects for it. Corrupt objects are left out and named, as in a list of
    /// the present state.
    async fn read_past(
        &self,
        resource: &ResourceCache,
        selection: &Selection,
        after: Option<&str>,
        left: Option<usize>,
        limit: usize,
        revision: u64,
    ) -> Result<ObjectList, Error> {
        let mut after = after.map(Arc::from);
        let (objects, left_out) = (Vec::new(), Vec::new());
        let mut list = ObjectList { objects, remaining: 0, revision, left_out };
        let counts = limit > 0 && selection.selects_all && left.is_none();
        loop {
            let page = if counts {
                // A corrupt object counts for the limit of the store's page, but not for the client's page.
                let (prefix, limit) = (selection.prefix.clone(), limit - list.objects.len());
                let request = ListRequest { prefix, after, limit, at: Some(revision) };
                self.store().list(request).await?
            } else {
                self.store().next_page(&selection.prefix, revision, after).await?
            };
            let remaining = usize::try_from(page.remaining).unwrap_or(usize::MAX);
            after = page.last_key().cloned();
            add_page(resource, selection, page, &mut list)?;
            if counts && (list.objects.len() >= limit || remaining == 0 || after.is_none()) {
                list.remaining = remaining;
                return Ok(list);
            }
            let has_more = limit > 0 && list.objects.len() > limit;
            if !counts && (after.is_none() || has_more) {
                truncate_page(&mut list, has_more.then_some(limit), left.unwrap_or_default());
                return Ok(list);
            }
        }
    }
}

/// Adds the selected objects of a past page to a list.
///
/// # Errors
/// [`Error::Corrupt`] for a corrupt object, if a list of the present state would also fail: see [`selected`].
fn add_page(
    resource: &ResourceCache,
    selection: &Selection,
    page: Page,
    list: &mut ObjectList,
) -> Result<(), Error> {
    let may_leave_out = selection.permit.is_some() || resource.kind().has_access_role();
    let mut leave_out = |key: Arc<str>, reason: String| {
        // An object that the caller may not get does not exist for the caller, corrupt or not.
        if !selection.covers_key(&key) {
            return Ok(());
        }
        if !may_leave_out {
            return Err(Error::Corrupt { key: Some(key), reason });
        }
        list.left_out.push(key);
        Ok(())
    };
    for corrupt in page.corrupt {
        leave_out(corrupt.key, corrupt.reason)?;
    }
    for entry in page.entries {
        let added = WatchEventType::Added;
        match resource.to_entry(&entry.key, entry.position, added, &entry.value) {
            CacheEntry::Intact(object) if selection.matches(&object) => list.objects.push(object),
            CacheEntry::Corrupt { reason, .. } => leave_out(entry.key, (*reason).to_owned())?,
            CacheEntry::Intact(_) => {}
        }
    }
    Ok(())
}

/// Cuts a past list after a page, and sets the number of remaining objects. `left` is the number before this page. If
/// the number of selected objects is unknown, the list only says that there are more.
fn truncate_page(list: &mut ObjectList, limit: Option<usize>, left: usize) {
    let Some(limit) = limit else { return };
    list.objects.truncate(limit);
    if let Some(last) = list.objects.last() {
        // The next page names the later keys.
        list.left_out.retain(|key| key < last.key());
    }
    list.remaining = left.saturating_sub(list.objects.len() + list.left_out.len()).max(1);
}

/// The objects of a selection in the cache. It pauses between pieces of work.
///
/// # Errors
/// 500 if an object is corrupt: see [`ResourceCache::list`].
pub(super) async fn selected(
    resource: &ResourceCache,
    selection: &Selection,
    after: Option<&str>,
    limit: usize,
) -> Result<ObjectList, ApiError> {
    if selection.selects_all {
        return resource.list(&selection.prefix, after, limit);
    }
    let candidates = selection.candidates();
    let candidates = candidates
        .and_then(|candidates| resource.list_candidates(&selection.prefix, after, &candidates));
    let mut list = match candidates {
        Some(list) => list,
        // An object that the caller may not get does not exist for the caller, corrupt or not.
        None if selection.permit.is_some() => resource.list_intact(&selection.prefix, after, 0),
        None => resource.list(&selection.prefix, after, 0)?,
    };
    list.left_out.retain(|key| selection.covers_key(key));
    let mut steps = Pace::new();
    let mut objects: Vec<Arc<CachedObject>> = Vec::new();
    for object in std::mem::take(&mut list.objects) {
        steps.step(selection.bytes_per_check(&object)).await;
        if !selection.matches(&object) {
            continue;
        }
        if limit > 0 && objects.len() == limit {
            list.remaining = 1;
            // The next page names the later keys.
            list.left_out.retain(|key| objects.last().is_some_and(|last| key < last.key()));
            break;
        }
        objects.push(object);
    }
    list.objects = objects;
    Ok(list)
}

/// Gives the thread to other tasks in the middle of long work.
struct Pace {
    left: usize,
}

impl Pace {
    fn new() -> Self {
        Self { left: BYTES_BETWEEN_PAUSES }
    }

    /// Counts the bytes of the next piece of work, and pauses if it is due.
    async fn step(&mut self, bytes: usize) {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
        } else {
            self.left = BYTES_BETWEEN_PAUSES;
            tokio::task::yield_now().await;
        }
    }
}

fn requested_revision(options: &ListOptions, token: Option<&ContinueToken>) -> ListRevision {
    if let Some(token) = token {
        // A token that came with a 410 has version 0: it continues at the newest revision.
        return match token.resource_version {
            0 => ListRevision::MostRecent,
            version => ListRevision::Exactly(Position::from_packed(version)),
        };
    }
    let Some(requested) = &options.resource_version else { return ListRevision::MostRecent };
    let RequestedVersion::At(version) = requested else { return ListRevision::Any };
    let version = Position::from_packed(*version);
    match options.version_match {
        Some(VersionMatch::Exact) => ListRevision::Exactly(version),
        // Without resourceVersionMatch, a limit means exactly this revision, as upstream for compatibility.
        None if options.limit > 0 => ListRevision::Exactly(version),
        Some(VersionMatch::NotOlderThan) | None => ListRevision::NotOlderThan(version),
    }
}

fn past_error(error: Error, token: Option<&ContinueToken>) -> ApiError {
    match (error, token) {
        (Error::Compacted { .. }, Some(token)) => {
            ApiError::expired_continue(token.newest().encode())
        }
        (error, _) => from_store(error),
    }
}

fn page_of(list: ObjectList, selection: &Selection) -> ObjectPage {
    let version = Position::end_of(list.revision);
    let more = list.remaining > 0;
    // The number of following objects is known only if nothing is filtered out.
    let remaining = (more && selection.selects_all).then_some(list.remaining);
    let continue_token = list.objects.last().filter(|_| more).map(|last| {
        let start = last.key().strip_prefix(&*selection.parent).unwrap_or_default().to_owned();
        let remaining = remaining.and_then(|remaining| u64::try_from(remaining).ok());
        ContinueToken { resource_version: version.packed(), start, remaining }.encode()
    });
    let warnings = list.left_out.iter().map(|key| left_out_warning(key)).collect();
    ObjectPage {
        objects: CoveredObjects(list.objects),
        version,
        continue_token,
        remaining,
        observer: None,
        warnings,
        also_as: None,
    }
}

fn left_out_warning(key: &str) -> String {
    let name = storage_key::display_name(key);
    format!("the stored object {name} is corrupt and is missing in the list")
}
