//! The copy of data to one synced secret: whether its writer may still read the source, and the data of the source.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use postern_auth::identity::Identity;
use postern_auth::writer::Writer;
use postern_flow::Flow;
use postern_kinds::secret_sync::{SYNCED, SYNCED_FOR, is_mirrored};
use postern_kinds::{AnyKind, Condition, DataSource, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_store::Position;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{current, data_of};
use crate::admit::{Part, Writing, data_source};
use crate::events::{self, NewEvent};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::registry::readers::{NotedSecret, Reader, uid_of};
use crate::registry::sync_writers::inline_writer;
use crate::storage_key;

/// The identities of writers, at one version of the access state.
type Writers = (u64, HashMap<String, Option<Arc<Identity>>>);

/// The maximum bytes of source data that is kept during a batch, by its stored size.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// The data of source secrets, each with its position, and the bytes of all of it.
#[derive(Default)]
struct Sources {
    data: HashMap<Arc<str>, (Position, Arc<Data>)>,
    bytes: usize,
}

/// The data of a secret.
type Data = Map<String, Value>;

/// Data that many secrets share, read once for a batch.
pub(super) struct Batch<'a> {
    pub(super) registry: &'a Registry,
    flow: &'a Flow,
    /// The owners that have used up their rate limit for copies.
    refused: Mutex<HashSet<Arc<str>>>,
    writers: Mutex<Writers>,
    sources: Mutex<Sources>,
}

/// The source of a secret, and the writer that must have permission to read it.
pub(super) struct SyncTarget {
    writer: Option<String>,
    source: DataSource,
    may_read: bool,
    /// The expiry of the key that set the labels, in seconds since 1970, if it expires.
    pub(super) ends_at: Option<i64>,
    /// The owner with the rate limit that counts the copies, if it is known.
    pub(super) counted_for: Option<Arc<str>>,
    /// Whether the copy waits for the rate limit.
    pub(super) is_waiting: bool,
}

impl SyncTarget {
    fn of(batch: &Batch<'_>, object: &Object, source: DataSource) -> Self {
        let writer = object.metadata.annotations.get(SYNCED_FOR).cloned();
        let identity = writer.as_deref().and_then(|writer| batch.identity(writer));
        let may_read =
            identity.as_ref().is_some_and(|identity| batch.has_permission(identity, &source));
        let counted_for = identity.map(|identity| Arc::from(identity.name.as_str()));
        let ends_at = writer.as_deref().and_then(|writer| batch.end_of_key(writer));
        Self { writer, source, may_read, ends_at, counted_for, is_waiting: false }
    }

    /// Whether the writer's permission to read the source, or its expiry, differs from the recorded one.
    pub(super) fn has_changed(&self, batch: &Batch<'_>) -> bool {
        let writer = self.writer.as_deref();
        batch.may_read(writer, &self.source) != self.may_read
            || writer.and_then(|writer| batch.end_of_key(writer)) != self.ends_at
    }
}

/// The result for a secret.
enum Outcome {
    Data(Arc<Data>),
    Failed { reason: &'static str, message: String },
}

impl<'a> Batch<'a> {
    pub(super) fn new(registry: &'a Registry, flow: &'a Flow) -> Self {
        let refused = Mutex::default();
        Self { registry, flow, refused, writers: Mutex::default(), sources: Mutex::default() }
    }

    /// The present identity of a writer. Permissions may change during a batch.
    fn identity(&self, writer: &str) -> Option<Arc<Identity>> {
        let cache = self.registry.cache();
        let version = cache.access_version();
        let mut writers = self.writers.lock();
        if writers.0 != version {
            *writers = (version, HashMap::new());
        }
        let known = writers.1.entry(writer.to_owned()).or_insert_with(|| {
            let writer = self.writer(writer)?;
            let now = self.registry.source().now().unix_seconds();
            let logout = cache.logout_of(&writer.key_uid);
            let (principals, policy) = (cache.principals(), cache.policy());
            writer.identity_now(&principals, &policy, logout.as_deref(), now).map(Arc::new)
        });
        known.clone()
    }

    fn writer(&self, annotation: &str) -> Option<Arc<Writer>> {
        let inline = inline_writer(annotation).map(Arc::new);
        inline.or_else(|| self.registry.cache().sync_writer(annotation))
    }

    /// The expiry of a writer's key, in seconds since 1970, if it expires.
    fn end_of_key(&self, annotation: &str) -> Option<i64> {
        let writer = self.writer(annotation)?;
        let principals = self.registry.cache().principals();
        principals.is_key(&writer.key, &writer.key_uid).then(|| principals.end_of(&writer.key))?
    }

    /// The data of an object; `None` if it does not exist.
    fn data(&self, source: &DataSource) -> Result<Option<Arc<Data>>, ApiError> {
        let info = source.kind.info();
        let key = storage_key::object(info, Some(&source.namespace), &source.name);
        let Some(found) = self.registry.cache().of(info).get(&key)? else { return Ok(None) };
        let mut sources = self.sources.lock();
        if let Some((at, data)) = sources.data.get(&key)
            && *at == found.position()
        {
            return Ok(Some(data.clone()));
        }
        if sources.bytes > MAX_KEPT_BYTES {
            *sources = Sources::default();
        }
        let data = Arc::new(data_of(&found.decode()?));
        sources.bytes += found.json().len();
        sources.data.insert(key, (found.position(), data.clone()));
        Ok(Some(data))
    }

    /// Whether a copy for an owner already had to wait.
    pub(super) fn is_refused(&self, owner: &str) -> bool {
        self.refused.lock().contains(owner)
    }

    /// Counts the bytes of a copy, including the copy to the mirror. Returns whether the rate limit permits it.
    fn counts_copy(&self, target: &SyncTarget, of: &ObjectMeta) -> bool {
        let Some(owner) = &target.counted_for else { return true };
        let account = self.flow.account(owner);
        if self.flow.copy_rate.check(&account).is_err() {
            self.refused.lock().insert(owner.clone());
            return false;
        }
        let copies = 1 + usize::from(is_mirrored(of));
        self.flow.copy_rate.count(&account, copies * self.stored_bytes(&target.source));
        true
    }

    /// The stored size of an object.
    fn stored_bytes(&self, of: &DataSource) -> usize {
        let info = of.kind.info();
        let key = storage_key::object(info, Some(&of.namespace), &of.name);
        let found = self.registry.cache().of(info).get(&key).ok().flatten();
        found.map_or(0, |found| found.json().len())
    }

    /// Notes the copy to a secret in this state, if the readers of its source are noted.
    fn note_copy(&self, kind: &dyn AnyKind, of: &ObjectMeta) {
        let source = data_source(&self.registry.cache().policy(), kind, of);
        let Some(DataSource { kind, namespace, name }) = source else { return };
        let info = kind.info();
        let key = storage_key::object(info, Some(&namespace), &name);
        let writer = of.annotations.get(SYNCED_FOR).and_then(|writer| self.identity(writer));
        let source = self.registry.cache().of(info).get(&key).ok().flatten();
        let (Some(writer), Some(source)) = (writer, source.filter(|_| info.notes_readers())) else {
            return;
        };
        let json = source.json();
        let Some(uid) = uid_of(&json) else { return };
        let copy = storage_key::holder(Some(&of.namespace), &of.name);
        let now = self.registry.source().now().unix_seconds();
        let (secret, reader) = (NotedSecret { key: &key, uid }, Reader::of_copy(&writer, &copy));
        self.registry.reader_notes().note(secret, &writer.name, reader, now);
    }

    /// Whether a writer may read a source now.
    fn may_read(&self, writer: Option<&str>, source: &DataSource) -> bool {
        let identity = writer.and_then(|writer| self.identity(writer));
        identity.is_some_and(|identity| self.has_permission(&identity, source))
    }

    fn has_permission(&self, identity: &Identity, source: &DataSource) -> bool {
        self.registry.cache().policy().satisfies(identity, &source.right().into())
    }

    /// The data that a secret must have now, or the reason why it gets none.
    fn outcome(&self, object: &Object, source: &DataSource) -> Result<Outcome, ApiError> {
        let what = format!(
            "{} \"{}\" in the namespace \"{}\"",
            source.kind.info().kind,
            source.name,
            source.namespace
        );
        let not_authorized = |who: &str| Outcome::Failed {
            reason: "NotAuthorized",
            message: format!("{who} may not read the {what}; the last copy stays"),
        };
        let writer = object.metadata.annotations.get(SYNCED_FOR);
        let Some(identity) = writer.and_then(|writer| self.identity(writer)) else {
            return Ok(not_authorized("the writer of the labels is no longer known, and"));
        };
        if !self.has_permission(&identity, source) {
            return Ok(not_authorized(&identity.name));
        }
        Ok(match self.data(source)? {
            Some(data) => Outcome::Data(data),
            None => Outcome::Failed {
                reason: "SourceNotFound",
                message: format!("the {what} does not exist; the last copy stays"),
            },
        })
    }
}

/// Copies the source data to a secret, if it has a source, and reports the result in its status. Returns the
/// permission that it depends on, as of before the data was read.
pub(super) async fn copy_data(
    batch: &Batch<'_>,
    kind: &'static dyn AnyKind,
    key: &str,
) -> Result<Option<SyncTarget>, ApiError> {
    let registry = batch.registry;
    let Some(object) = current(registry, kind, key)? else { return Ok(None) };
    let source = data_source(&registry.cache().policy(), kind, &object.metadata);
    if source.is_none() && condition_of(&object, SYNCED).is_none() {
        return Ok(None);
    }
    let mut target = source.map(|source| SyncTarget::of(batch, &object, source));
    let (wanted, mut failure) = wanted_state(batch, kind, &object)?;
    // Most often there is no change: permissions change for other callers.
    if wanted.fields != object.fields {
        if data_of(&wanted) != data_of(&object)
            && let Some(target) =
                target.take_if(|target| !batch.counts_copy(target, &object.metadata))
        {
            return Ok(Some(SyncTarget { is_waiting: true, ..target }));
        }
        let metadata = &object.metadata;
        let permit =
            Permit::for_server(kind, Verb::Update, Some(&metadata.namespace), &metadata.name);
        let writing = writing();
        // Decided on the object in the transaction, which may have been written in the meantime. The copy is noted before
        // it is committed: no copy is missing, and one that another write prevents can be noted, too.
        let update = operations::update(registry, &permit, &writing, |now| {
            let (object, _) = wanted_state(batch, kind, now)?;
            if data_of(&object) != data_of(now) {
                batch.note_copy(kind, &now.metadata);
            }
            Ok(object)
        });
        if let Some(refused) = refusal(update.await)? {
            report(registry, kind, &object, &refused).await?;
            failure = Some(refused);
        }
    }
    if let Some((reason, message)) = failure {
        events::warn(registry, &NewEvent { object: &object, reason, message: &message }).await;
    }
    Ok(target)
}

/// The reason why a secret does not have the data of its source: in one word, and as a message.
pub(super) type Failure = (&'static str, String);

/// The reason why a write is rejected, if another attempt would fail before something else changes.
///
/// # Errors
/// The error of a write that must be tried again.
pub(super) fn refusal<T>(written: Result<T, ApiError>) -> Result<Option<Failure>, ApiError> {
    match written {
        Ok(_) => Ok(None),
        Err(error) if error.code() == 422 => Ok(Some(("Invalid", error.to_string()))),
        Err(error) => Err(error),
    }
}

/// Reports in the status why the data of a secret was not changed, if its kind has a status.
async fn report(
    registry: &Registry,
    kind: &'static dyn AnyKind,
    of: &Object,
    (reason, message): &Failure,
) -> Result<(), ApiError> {
    let metadata = &of.metadata;
    let with_condition = |now: &Object| {
        let mut object = now.clone();
        if object.metadata.uid == metadata.uid {
            let condition = (false, *reason, message.clone());
            set_condition(registry, kind, &mut object, SYNCED, condition);
        }
        object
    };
    if with_condition(of).fields == of.fields {
        return Ok(());
    }
    let permit = Permit::for_server(kind, Verb::Update, Some(&metadata.namespace), &metadata.name);
    let writing = writing();
    let update = operations::update(registry, &permit, &writing, |now| Ok(with_condition(now)));
    update.await.map(drop)
}

/// A secret as it must be now, and the failure, if any.
fn wanted_state(
    batch: &Batch<'_>,
    kind: &'static dyn AnyKind,
    now: &Object,
) -> Result<(Object, Option<Failure>), ApiError> {
    let registry = batch.registry;
    let mut object = now.clone();
    let source = data_source(&registry.cache().policy(), kind, &object.metadata);
    let Some(source) = source.filter(|_| !object.metadata.is_terminating()) else {
        remove_condition(&mut object, SYNCED);
        return Ok((object, None));
    };
    let (condition, failure) = match batch.outcome(&object, &source)? {
        Outcome::Data(data) => {
            if data_of(&object) != *data {
                set_data(kind, &mut object, Data::clone(&data));
            }
            ((true, "Synced", String::new()), None)
        }
        Outcome::Failed { reason, message } => {
            ((false, reason, message.clone()), Some((reason, message)))
        }
    };
    set_condition(registry, kind, &mut object, SYNCED, condition);
    Ok((object, failure))
}

/// The options with which the server writes spec and status of a secret together.
pub(super) fn writing() -> Writing {
    Writing { part: Part::Action("sync"), ..Writing::by_server() }
}

/// Sets the data of a secret, at the place where its kind has it.
pub(super) fn set_data(kind: &dyn AnyKind, object: &mut Object, data: Data) {
    let data = Value::Object(data);
    if kind.info().layout == postern_kinds::Layout::TopLevel {
        object.fields.insert("data".to_owned(), data);
        return;
    }
    let spec = object.fields.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(spec) = spec {
        spec.insert("data".to_owned(), data);
    }
}

fn conditions_of(object: &Object) -> Vec<Condition> {
    let conditions = object.fields.get("status").and_then(|status| status.get("conditions"));
    conditions.and_then(|conditions| Vec::deserialize(conditions).ok()).unwrap_or_default()
}

/// A condition of an object.
pub(super) fn condition_of(object: &Object, of: &str) -> Option<Condition> {
    conditions_of(object).into_iter().find(|one| one.r#type == of)
}

fn set_conditions(object: &mut Object, conditions: &[Condition]) {
    let value = serde_json::to_value(conditions).unwrap_or(Value::Null);
    let status = object.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(status) = status {
        status.insert("conditions".to_owned(), value);
    }
}

/// Removes a condition, if it exists.
pub(super) fn remove_condition(object: &mut Object, of: &str) {
    let mut conditions = conditions_of(object);
    let before = conditions.len();
    conditions.retain(|one| one.r#type != of);
    if conditions.len() < before {
        set_conditions(object, &conditions);
    }
}

/// Sets a condition: its status, reason and message. Kinds without a status have no conditions.
pub(super) fn set_condition(
    registry: &Registry,
    kind: &dyn AnyKind,
    object: &mut Object,
    of: &str,
    (is_true, reason, message): (bool, &str, String),
) {
    if kind.info().layout == postern_kinds::Layout::TopLevel {
        return;
    }
    let mut conditions = conditions_of(object);
    let (status, reason) = (if is_true { "True" } else { "False" }, reason.to_owned());
    let now = Some(registry.source().now());
    match conditions.iter_mut().find(|one| one.r#type == of) {
        Some(one) if one.status == status && one.reason == reason && one.message == message => {
            return;
        }
        Some(one) => {
            if one.status != status {
                one.last_transition_time = now;
            }
            status.clone_into(&mut one.status);
            (one.reason, one.message) = (reason, message);
        }
        None => conditions.push(Condition {
            r#type: of.to_owned(),
            status: status.to_owned(),
            last_transition_time: now,
            reason,
            message,
            ..Condition::default()
        }),
    }
    set_conditions(object, &conditions);
}
