//! Keeps roles and bindings as they have to be. Those that follow from another object, such as its
//! access rules, are put back after a hand edit. Aggregated ClusterRoles get the rules of those that
//! they select.
//!
//! The write of an object changes its own roles in its own transaction; this only repairs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postern_kinds::access::{MadeFor, made_for, member_role};
use postern_kinds::cluster_role::{AggregationRule, ClusterRole, Spec};
use postern_kinds::cluster_role_binding::ClusterRoleBinding;
use postern_kinds::project::Project;
use postern_kinds::rbac::PolicyRule;
use postern_kinds::role::Role;
use postern_kinds::role_binding::RoleBinding;
use postern_kinds::{AnyKind, Verb, all, of_reference};
use postern_meta::status::ApiError;
use postern_store::{Change, Position, Store, Txn};
use serde::Deserialize;
use serde_json::Value;

use crate::admit::Writing;
use crate::cache::{CachedObject, Next, ResourceCache};
use crate::errors::from_store;
use crate::events::{self, Happening};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The kinds that are looked after.
const KINDS: [&dyn AnyKind; 4] = [&Role, &RoleBinding, &ClusterRole, &ClusterRoleBinding];

/// The longest time until another try after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// ClusterRoles that are read at a time.
const ROLES_PER_READ: usize = 256;

/// An object whose roles may have been changed: its kind, namespace and name.
type Concerned = (String, String, Option<String>, String);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    let mut repair = Repair::new(registry);
    while let Err(error) = repair.make_all().await {
        tracing::warn!(inner = error.inner(), "roles of access rules could not be made: {error}");
        tokio::time::sleep(RETRY).await;
    }
    loop {
        progress.mark_unchanged();
        repair.catch_up();
        if repair.work().await {
            let _ = tokio::time::timeout(RETRY, progress.changed()).await;
        } else if progress.changed().await.is_err() {
            return;
        }
    }
}

struct Repair {
    registry: Arc<Registry>,
    /// Where it goes on reading, for each of [`KINDS`].
    cursors: [Position; 4],
    /// With the storage keys of the roles and bindings, by their place in [`KINDS`].
    concerned: BTreeMap<Concerned, BTreeSet<(usize, Arc<str>)>>,
    /// Has any ClusterRole changed?
    cluster_roles_changed: bool,
}

impl Repair {
    fn new(registry: Arc<Registry>) -> Self {
        let cursors =
            KINDS.map(|kind| Position::end_of(registry.cache().of(kind.info()).revision()));
        Self { registry, cursors, concerned: BTreeMap::new(), cluster_roles_changed: true }
    }

    /// Makes the roles of all objects again after a kind has got another subresource, which `*` has to list.
    async fn make_all(&self) -> Result<(), ApiError> {
        let registry = &self.registry;
        if has_roles_of_all(registry.store()).await.map_err(from_store)? {
            return Ok(());
        }
        for kind in all().iter().filter(|kind| kind.has_dependents()) {
            let (info, mut done, mut after) = (kind.info(), 0, None);
            loop {
                let page = registry.cache().of(info).page(after.as_deref(), ROLES_PER_READ);
                let Some(last) = page.last() else { break };
                after = Some(last.key().clone());
                for object in &page {
                    let (namespace, name) = storage_key::name_of(object.key());
                    let version = info.version.to_string();
                    let namespace = namespace.map(str::to_owned);
                    let one = (version, info.kind.to_owned(), namespace, name.to_owned());
                    match self.put_back(&one).await {
                        // One that cannot be written, in a namespace that is being deleted, keeps none
                        // of the others from it.
                        Err(error) if error.code() < 500 => {
                            tracing::warn!(object = one.3, "it gets no roles: {error}");
                        }
                        result => result?,
                    }
                }
                done += page.len();
                tracing::info!(
                    kind = info.kind,
                    done,
                    "objects get the roles of their access rules"
                );
            }
        }
        note_roles_of_all(registry.store()).await.map_err(from_store)
    }

    /// Reads all events since the last call.
    fn catch_up(&mut self) {
        for (index, kind) in KINDS.iter().enumerate() {
            let registry = self.registry.clone();
            let resource = registry.cache().of(kind.info());
            loop {
                match resource.events_after(self.cursors[index]) {
                    Next::Events(events) => {
                        self.cluster_roles_changed |= kind.info().kind == ClusterRole.info().kind;
                        for event in events {
                            self.cursors[index] = event.position();
                            self.note(index, &event.object);
                        }
                    }
                    Next::Idle(revision) => {
                        let end = Position::end_of(revision);
                        self.cursors[index] = self.cursors[index].max(end);
                        break;
                    }
                    Next::Expired(_) => self.relist(index, resource),
                }
            }
        }
    }

    /// Looks at all objects of a kind, when events are gone.
    fn relist(&mut self, index: usize, resource: &ResourceCache) {
        self.cursors[index] = Position::end_of(resource.revision());
        self.cluster_roles_changed = true;
        for object in resource.page(None, usize::MAX) {
            self.note(index, &object);
        }
    }

    /// Notes the object that a role or binding follows from, if there is one, and if the two were not
    /// written together.
    fn note(&mut self, index: usize, object: &CachedObject) {
        let Some(one) = self.maker_of(object.key()) else { return };
        if self.has_other_revision(&one, object.position().revision()) {
            self.concerned.entry(one).or_default().insert((index, object.key().clone()));
        }
    }

    /// The object that a role or binding is made for, by its name alone, which only the server gives: a hand
    /// edit can take off labels and owner references.
    fn maker_of(&self, key: &str) -> Option<Concerned> {
        let (namespace, name) = storage_key::name_of(key);
        let (kind, namespace, name): (&dyn AnyKind, _, _) = match made_for(name)? {
            MadeFor::AccessRules { plural, name } => {
                let has_it = |kind: &&&dyn AnyKind| {
                    let info = kind.info();
                    info.plural == plural
                        && info.is_namespaced() == namespace.is_some()
                        && kind.has_dependents()
                };
                (*all().iter().find(has_it)?, namespace.map(str::to_owned), name.to_owned())
            }
            MadeFor::Members => {
                let policy = self.registry.cache().policy();
                let project = match namespace {
                    Some(namespace) => policy.projects().of(namespace)?,
                    None => member_role(name)?,
                };
                (&Project, None, project.to_owned())
            }
        };
        let info = kind.info();
        Some((info.version.to_string(), info.kind.to_owned(), namespace, name))
    }

    /// Is an object there, and was it written last at another revision than this one?
    fn has_other_revision(
        &self,
        (api_version, kind, namespace, name): &Concerned,
        at: u64,
    ) -> bool {
        let Some(kind) = of_reference(api_version, kind) else { return false };
        let namespace = namespace.as_deref().filter(|_| kind.info().is_namespaced());
        let key = storage_key::object(kind.info(), namespace, name);
        match self.registry.cache().of(kind.info()).get(&key) {
            Ok(None) => false,
            Ok(Some(object)) => object.position().revision() != at,
            Err(_) => true,
        }
    }

    /// Repairs what was noted. Returns whether anything failed; that is tried again.
    async fn work(&mut self) -> bool {
        let mut failed = BTreeMap::new();
        while let Some((one, roles)) = self.concerned.pop_first() {
            let before = self.positions(&roles);
            if let Err(error) = self.put_back(&one).await {
                let inner = error.inner().unwrap_or_default();
                tracing::warn!(object = one.3, inner, "roles could not be put back: {error}");
                failed.insert(one, roles);
                continue;
            }
            let _ = self.registry.cache().wait_until_current().await;
            let was_put_back = |((_, key), (then, now)): (&(usize, Arc<str>), (&_, &_))| {
                (then != now).then(|| key.clone())
            };
            let after = self.positions(&roles);
            let mut changed = roles.iter().zip(before.iter().zip(&after)).filter_map(was_put_back);
            if let Some(role) = changed.next() {
                self.record(&one, &role).await;
            }
        }
        self.concerned = failed;
        if std::mem::take(&mut self.cluster_roles_changed)
            && let Err(error) = self.aggregate().await
        {
            tracing::warn!(inner = error.inner(), "roles could not be aggregated: {error}");
            self.cluster_roles_changed = true;
        }
        self.cluster_roles_changed || !self.concerned.is_empty()
    }

    /// The positions of roles and bindings; `None` for those that are not there.
    fn positions(&self, roles: &BTreeSet<(usize, Arc<str>)>) -> Vec<Option<Position>> {
        let position = |(index, key): &(usize, Arc<str>)| {
            let kind = KINDS.get(*index)?;
            let found = self.registry.cache().of(kind.info()).get(key).ok().flatten();
            found.map(|found| found.position())
        };
        roles.iter().map(position).collect()
    }

    /// Records with an object that one of its roles has been put back.
    async fn record(&self, (api_version, kind, namespace, name): &Concerned, role: &str) {
        let Some(kind) = of_reference(api_version, kind) else { return };
        let namespace = namespace.as_deref().filter(|_| kind.info().is_namespaced());
        let key = storage_key::object(kind.info(), namespace, name);
        let found = self.registry.cache().of(kind.info()).get(&key);
        let Ok(Some(Ok(object))) = found.map(|found| found.map(|found| found.decode())) else {
            return;
        };
        let role = storage_key::display_name(role);
        let message = format!("{role} follows from it, was edited by hand, and has been put back");
        let what = Happening { object: &object, reason: "RolePutBack", message: &message };
        events::warn(&self.registry, &what).await;
    }

    /// Writes an object as it is, with the roles that follow from it.
    async fn put_back(
        &self,
        (api_version, kind, namespace, name): &Concerned,
    ) -> Result<(), ApiError> {
        let Some(kind) = of_reference(api_version, kind) else { return Ok(()) };
        let namespace = namespace.as_deref().filter(|_| kind.info().is_namespaced());
        let permit = Permit::for_server(kind, Verb::Update, namespace, name);
        let writing = Writing::by_server();
        let same = operations::update(&self.registry, &permit, &writing, |now| Ok(now.clone()));
        match same.await {
            Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
            _ => Ok(()),
        }
    }

    /// Gives each aggregated ClusterRole the rules of those that it selects.
    async fn aggregate(&self) -> Result<(), ApiError> {
        let mut roles: BTreeMap<String, (BTreeMap<String, String>, Spec)> = BTreeMap::new();
        let resource = self.registry.cache().of(ClusterRole.info());
        let mut after = None;
        loop {
            let page = resource.page(after.as_deref(), ROLES_PER_READ);
            let Some(last) = page.last() else { break };
            after = Some(last.key().clone());
            for object in &page {
                let Ok(object) = object.decode() else { continue };
                let Ok(spec) = Spec::deserialize(&object.fields) else { continue };
                roles.insert(object.metadata.name, (object.metadata.labels, spec));
            }
            tokio::task::yield_now().await;
        }
        for (name, (_, spec)) in &roles {
            let Some(aggregation) = &spec.aggregation_rule else { continue };
            let gathered = gathered(name, aggregation, &roles);
            if gathered != spec.rules {
                self.set_rules(name, &gathered).await?;
            }
        }
        Ok(())
    }

    async fn set_rules(&self, name: &str, rules: &[PolicyRule]) -> Result<(), ApiError> {
        let value = serde_json::to_value(rules).unwrap_or(Value::Null);
        let permit = Permit::for_server(&ClusterRole, Verb::Update, None, name);
        let writing = Writing::by_server();
        let update = operations::update(&self.registry, &permit, &writing, |current| {
            let mut object = current.clone();
            object.fields.insert("rules".to_owned(), value.clone());
            Ok(object)
        });
        match update.await {
            Err(error) if !matches!(error.code(), 404 | 409) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The rules that an aggregated role gathers: each once, by the names of the roles.
fn gathered(
    name: &str,
    aggregation: &AggregationRule,
    roles: &BTreeMap<String, (BTreeMap<String, String>, Spec)>,
) -> Vec<PolicyRule> {
    let mut gathered: Vec<PolicyRule> = Vec::new();
    for (of, (labels, spec)) in roles {
        if of == name || !aggregation.selects(labels) {
            continue;
        }
        for rule in &spec.rules {
            if !gathered.contains(rule) {
                gathered.push(rule.clone());
            }
        }
    }
    gathered
}

/// Whether all objects have the roles of their access rules, with the subresources that kinds have now.
///
/// # Errors
/// The store's.
async fn has_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<bool> {
    let note = store.get(storage_key::ROLES_OF_ALL).await?.value;
    Ok(note.is_some_and(|note| note.value == subresources_of_all()))
}

/// Notes that all objects have the roles of their access rules.
///
/// # Errors
/// The store's.
async fn note_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<()> {
    let value = subresources_of_all();
    let note = Change::Put { key: storage_key::ROLES_OF_ALL.into(), value };
    let txn = Txn { conditions: Vec::new(), changes: vec![note] };
    store.commit(txn).await.map(|_| ())
}

/// The subresources of each kind, which roles with all subresources list. When a kind gets another one, these
/// roles are made again.
fn subresources_of_all() -> Bytes {
    let kinds = all().iter().filter(|kind| kind.has_dependents()).map(|kind| kind.info());
    let lines = kinds.map(|info| {
        let subresources: Vec<&str> = info.subresources().collect();
        format!("{}: {}\n", info.plural, subresources.join(" "))
    });
    Bytes::from(lines.collect::<String>())
}
