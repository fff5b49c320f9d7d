//! Keeps roles and bindings correct. Generated roles, such as those of access rules, are restored after a hand edit.
//! Aggregated ClusterRoles get the rules of the roles that they select.
//!
//! The write of an object changes its own roles in its own transaction. This controller only repairs.

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
use postern_telemetry::log_limited;
use serde::Deserialize;
use serde_json::Value;

use super::cursor::{Cursor, CursorRead};
use crate::admit::Writing;
use crate::cache::CachedObject;
use crate::errors::from_store;
use crate::events::{self, NewEvent};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The watched kinds.
const KINDS: [&dyn AnyKind; 4] = [&Role, &RoleBinding, &ClusterRole, &ClusterRoleBinding];

/// The longest time between a failure and the next attempt.
const RETRY: Duration = Duration::from_secs(5);

/// The ClusterRoles that are read in one step.
const ROLES_PER_READ: usize = 256;

/// The API version, kind, namespace and name of an object. Its generated roles may have been
/// changed.
type SourceId = (String, String, Option<String>, String);

/// Runs until it is dropped.
pub async fn run(registry: Arc<Registry>) {
    let mut progress = registry.cache().subscribe();
    let mut repair = Repair::new(registry.clone());
    registry.servers().turn("roles").await;
    while let Err(error) = repair.generate_all().await {
        log_limited!(
            warn,
            inner = error.inner(),
            "the roles of access rules could not be generated: {error}"
        );
        tokio::time::sleep(RETRY).await;
    }
    loop {
        registry.servers().turn("roles").await;
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
    /// The cursor in the events of each of [`KINDS`].
    cursors: [Cursor; 4],
    /// The storage keys of the changed roles and bindings, each with the index of its kind in [`KINDS`].
    concerned: BTreeMap<SourceId, BTreeSet<(usize, Arc<str>)>>,
    /// Whether a ClusterRole has changed.
    cluster_roles_changed: bool,
}

impl Repair {
    fn new(registry: Arc<Registry>) -> Self {
        let cursors = KINDS.map(|kind| Cursor::after_present(registry.cache().of(kind.info())));
        Self { registry, cursors, concerned: BTreeMap::new(), cluster_roles_changed: true }
    }

    /// Generates the roles of all objects again after a kind has got a new subresource, because roles for `*` list
    /// it.
    async fn generate_all(&self) -> Result<(), ApiError> {
        let registry = &self.registry;
        if has_roles_of_all(registry.store()).await.map_err(from_store)? {
            return Ok(());
        }
        for kind in all().iter().filter(|kind| kind.has_dependents()) {
            let (info, mut done) = (kind.info(), 0);
            for page in registry.cache().of(info).pages(ROLES_PER_READ) {
                for object in &page {
                    let (namespace, name) = storage_key::name_of(object.key());
                    let version = info.version.to_string();
                    let namespace = namespace.map(str::to_owned);
                    let one = (version, info.kind.to_owned(), namespace, name.to_owned());
                    match self.restore(&one).await {
                        // An object that cannot be written, such as one in a terminating namespace, must not block
                        // the others.
                        Err(error) if error.code() < 500 => {
                            log_limited!(
                                warn,
                                object = one.3,
                                "the roles of the object could not be generated: {error}"
                            );
                        }
                        result => result?,
                    }
                }
                done += page.len();
                log_limited!(info, kind = info.kind, done, "generated the roles of access rules");
            }
        }
        note_roles_of_all(registry.store()).await.map_err(from_store)
    }

    /// Reads all events since the last call.
    fn catch_up(&mut self) {
        let registry = self.registry.clone();
        for (index, kind) in KINDS.iter().enumerate() {
            let resource = registry.cache().of(kind.info());
            while let Some(read) = self.cursors[index].next(resource) {
                self.cluster_roles_changed |= kind.info().kind == ClusterRole.info().kind;
                match read {
                    CursorRead::Events(events) => {
                        for event in &events {
                            self.note(index, &event.object);
                        }
                    }
                    CursorRead::Expired => {
                        for object in resource.page(None, usize::MAX) {
                            self.note(index, &object);
                        }
                    }
                }
            }
        }
    }

    /// Notes the object that a role or binding is generated from, if there is one, and if both were not written
    /// together.
    fn note(&mut self, index: usize, object: &CachedObject) {
        let Some(one) = self.source_of(object.key()) else { return };
        if self.has_other_revision(&one, object.position().revision()) {
            self.concerned.entry(one).or_default().insert((index, object.key().clone()));
        }
    }

    /// The object that a role or binding is generated from. Its name is enough, because only the server uses such
    /// names. A hand edit can remove labels and owner references.
    fn source_of(&self, key: &str) -> Option<SourceId> {
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

    /// Whether an object exists and was last written at another revision.
    fn has_other_revision(&self, (api_version, kind, namespace, name): &SourceId, at: u64) -> bool {
        let Some(kind) = of_reference(api_version, kind) else { return false };
        let namespace = namespace.as_deref().filter(|_| kind.info().is_namespaced());
        let key = storage_key::object(kind.info(), namespace, name);
        match self.registry.cache().of(kind.info()).get(&key) {
            Ok(None) => false,
            Ok(Some(object)) => object.position().revision() != at,
            Err(_) => true,
        }
    }

    /// Repairs the noted objects. Returns whether anything failed; that is tried again.
    async fn work(&mut self) -> bool {
        let mut failed = BTreeMap::new();
        while let Some((one, roles)) = self.concerned.pop_first() {
            let before = self.positions(&roles);
            if let Err(error) = self.restore(&one).await {
                let inner = error.inner().unwrap_or_default();
                log_limited!(
                    warn,
                    object = one.3,
                    inner,
                    "generated roles could not be restored: {error}"
                );
                failed.insert(one, roles);
                continue;
            }
            let _ = self.registry.cache().wait_until_current().await;
            let was_restored = |((_, key), (then, now)): (&(usize, Arc<str>), (&_, &_))| {
                (then != now).then(|| key.clone())
            };
            let after = self.positions(&roles);
            let mut changed = roles.iter().zip(before.iter().zip(&after)).filter_map(was_restored);
            if let Some(role) = changed.next() {
                self.record(&one, &role).await;
            }
        }
        self.concerned = failed;
        if std::mem::take(&mut self.cluster_roles_changed)
            && let Err(error) = self.aggregate().await
        {
            log_limited!(warn, inner = error.inner(), "roles could not be aggregated: {error}");
            self.cluster_roles_changed = true;
        }
        self.cluster_roles_changed || !self.concerned.is_empty()
    }

    /// The positions of roles and bindings; `None` for each one that does not exist.
    fn positions(&self, roles: &BTreeSet<(usize, Arc<str>)>) -> Vec<Option<Position>> {
        let position = |(index, key): &(usize, Arc<str>)| {
            let kind = KINDS.get(*index)?;
            let found = self.registry.cache().of(kind.info()).get(key).ok().flatten();
            found.map(|found| found.position())
        };
        roles.iter().map(position).collect()
    }

    /// Records an event for an object, after one of its roles was restored.
    async fn record(&self, (api_version, kind, namespace, name): &SourceId, role: &str) {
        let Some(kind) = of_reference(api_version, kind) else { return };
        let namespace = namespace.as_deref().filter(|_| kind.info().is_namespaced());
        let role = storage_key::display_name(role);
        let message = format!("{role} is generated from this object; a manual edit was reverted");
        let Some(object) = events::subject(&self.registry, kind, namespace, name) else { return };
        let what = NewEvent { object: &object, reason: "RolePutBack", message: &message };
        events::warn(&self.registry, &what).await;
    }

    /// Writes an object unchanged, so that its roles are generated.
    async fn restore(
        &self,
        (api_version, kind, namespace, name): &SourceId,
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

    /// Gives each aggregated ClusterRole the rules of the roles that it selects.
    async fn aggregate(&self) -> Result<(), ApiError> {
        let mut roles: BTreeMap<String, (BTreeMap<String, String>, Spec)> = BTreeMap::new();
        let resource = self.registry.cache().of(ClusterRole.info());
        for page in resource.pages(ROLES_PER_READ) {
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

/// The rules of an aggregated role: each rule once, in the order of the role names.
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

/// Whether all objects have the roles of their access rules, with the present subresources of the kinds.
///
/// # Errors
/// The errors of the store.
async fn has_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<bool> {
    let note = store.get(storage_key::ROLES_OF_ALL).await?.value;
    Ok(note.is_some_and(|note| note.value == subresources_of_all()))
}

/// Notes that all objects have the roles of their access rules.
///
/// # Errors
/// The errors of the store.
async fn note_roles_of_all(store: &Arc<dyn Store>) -> postern_store::Result<()> {
    let value = subresources_of_all();
    let note = Change::Put { key: storage_key::ROLES_OF_ALL.into(), value };
    let txn = Txn { conditions: Vec::new(), changes: vec![note] };
    store.commit(txn).await.map(|_| ())
}

/// The subresources of each kind, which roles for all subresources list. If a kind gets a new one, these roles are
/// generated again.
fn subresources_of_all() -> Bytes {
    let kinds = all().iter().filter(|kind| kind.has_dependents()).map(|kind| kind.info());
    let lines = kinds.map(|info| {
        let subresources: Vec<&str> = info.subresources().collect();
        format!("{}: {}\n", info.plural, subresources.join(" "))
    });
    Bytes::from(lines.collect::<String>())
}
