//! One secret that takes its data from another one: may its writer still read that, and what does it have?

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
use crate::events::{self, Happening};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::registry::sync_writers::inline_writer;
use crate::storage_key;

/// Writers with their identities, as of a version of what decides.
type Writers = (u64, HashMap<String, Option<Arc<Identity>>>);

/// The data of secrets that is kept while a batch is worked on, in bytes as it is stored.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// The data of secrets, with the positions that it is of, and how many bytes it has in all.
#[derive(Default)]
struct Sources {
    data: HashMap<Arc<str>, (Position, Arc<Data>)>,
    bytes: usize,
}

/// The data of a secret.
type Data = Map<String, Value>;

/// Data that is the same for many secrets, and found out once.
pub(super) struct Batch<'a> {
    pub(super) registry: &'a Registry,
    flow: &'a Flow,
    /// For whom no more may be copied now.
    refused: Mutex<HashSet<Arc<str>>>,
    writers: Mutex<Writers>,
    sources: Mutex<Sources>,
}

/// By whose right a secret takes data, and from what.
pub(super) struct Taker {
    writer: Option<String>,
    source: DataSource,
    may_read: bool,
    /// When the key that set the labels expires, in seconds since 1970, if it does.
    pub(super) ends_at: Option<i64>,
    /// For whom the copies are counted, if they are known.
    pub(super) counted_for: Option<Arc<str>>,
    /// Has it still to be written, when there is room for more copies?
    pub(super) is_waiting: bool,
}

impl Taker {
    fn of(batch: &Batch<'_>, object: &Object, source: DataSource) -> Self {
        let writer = object.metadata.annotations.get(SYNCED_FOR).cloned();
        let identity = writer.as_deref().and_then(|writer| batch.identity(writer));
        let may_read = identity.as_ref().is_some_and(|identity| batch.holds(identity, &source));
        let counted_for = identity.map(|identity| Arc::from(identity.name.as_str()));
        let ends_at = writer.as_deref().and_then(|writer| batch.end_of_key(writer));
        Self { writer, source, may_read, ends_at, counted_for, is_waiting: false }
    }

    /// Whether its writer may read the source as things are now, where they could not before, or
    /// may not any more; or until another time.
    pub(super) fn has_changed(&self, batch: &Batch<'_>) -> bool {
        let writer = self.writer.as_deref();
        batch.may_read(writer, &self.source) != self.may_read
            || writer.and_then(|writer| batch.end_of_key(writer)) != self.ends_at
    }
}

/// The result for a secret.
enum Outcome {
    Taken(Arc<Data>),
    Failed { reason: &'static str, message: String },
}

impl<'a> Batch<'a> {
    pub(super) fn new(registry: &'a Registry, flow: &'a Flow) -> Self {
        let refused = Mutex::default();
        Self { registry, flow, refused, writers: Mutex::default(), sources: Mutex::default() }
    }

    /// The identity of a writer now. Permissions may change while a batch is worked on.
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

    /// The time when the key of a writer expires, in seconds since 1970, if it does.
    fn end_of_key(&self, annotation: &str) -> Option<i64> {
        let writer = self.writer(annotation)?;
        let principals = self.registry.cache().principals();
        principals.is_key(&writer.key, &writer.key_uid).then(|| principals.end_of(&writer.key))?
    }

    /// The data of an object; `None` when there is none.
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

    /// Whether a copy for an owner had to wait already.
    pub(super) fn is_refused(&self, owner: &str) -> bool {
        self.refused.lock().contains(owner)
    }

    /// Counts the data that is about to be copied, also that to the mirror. Returns whether it may be.
    fn counts_copy(&self, taker: &Taker, of: &ObjectMeta) -> bool {
        let Some(owner) = &taker.counted_for else { return true };
        let account = self.flow.account(owner);
        if self.flow.copy_rate.check(&account).is_err() {
            self.refused.lock().insert(owner.clone());
            return false;
        }
        let copies = 1 + usize::from(is_mirrored(of));
        self.flow.copy_rate.count(&account, copies * self.stored_bytes(&taker.source));
        true
    }

    /// How long an object is as it is stored.
    fn stored_bytes(&self, of: &DataSource) -> usize {
        let info = of.kind.info();
        let key = storage_key::object(info, Some(&of.namespace), &of.name);
        let found = self.registry.cache().of(info).get(&key).ok().flatten();
        found.map_or(0, |found| found.json().len())
    }

    /// May a writer read a source, as things are now?
    fn may_read(&self, writer: Option<&str>, source: &DataSource) -> bool {
        let identity = writer.and_then(|writer| self.identity(writer));
        identity.is_some_and(|identity| self.holds(&identity, source))
    }

    fn holds(&self, identity: &Identity, source: &DataSource) -> bool {
        self.registry.cache().policy().satisfies(identity, &source.right().into())
    }

    /// The data that a secret is to have, or why it gets none, as things are now.
    fn outcome(&self, object: &Object, source: &DataSource) -> Result<Outcome, ApiError> {
        let what = format!(
            "{} \"{}\" in the namespace \"{}\"",
            source.kind.info().kind,
            source.name,
            source.namespace
        );
        let not_authorized = |who: &str| Outcome::Failed {
            reason: "NotAuthorized",
            message: format!("{who} may not read the {what}: the data stays as it was"),
        };
        let writer = object.metadata.annotations.get(SYNCED_FOR);
        let Some(identity) = writer.and_then(|writer| self.identity(writer)) else {
            return Ok(not_authorized("the writer of the labels is not known any more, and"));
        };
        if !self.holds(&identity, source) {
            return Ok(not_authorized(&identity.name));
        }
        Ok(match self.data(source)? {
            Some(data) => Outcome::Taken(data),
            None => Outcome::Failed {
                reason: "SourceNotFound",
                message: format!("there is no {what}: the data stays as it was"),
            },
        })
    }
}

/// Brings a secret the data that it takes from another one, if it does, and says in its status whether that
/// worked. Returns by whose right, as of before the data was looked at.
pub(super) async fn take(
    batch: &Batch<'_>,
    kind: &'static dyn AnyKind,
    key: &str,
) -> Result<Option<Taker>, ApiError> {
    let registry = batch.registry;
    let Some(object) = current(registry, kind, key)? else { return Ok(None) };
    let source = data_source(&registry.cache().policy(), kind, &object.metadata);
    if source.is_none() && condition_of(&object, SYNCED).is_none() {
        return Ok(None);
    }
    let mut taker = source.map(|source| Taker::of(batch, &object, source));
    let (wanted, mut failure) = decided(batch, kind, &object)?;
    // Most often nothing is to be done: who may do what changes for others.
    if wanted.fields != object.fields {
        if data_of(&wanted) != data_of(&object)
            && let Some(taker) = taker.take_if(|taker| !batch.counts_copy(taker, &object.metadata))
        {
            return Ok(Some(Taker { is_waiting: true, ..taker }));
        }
        let metadata = &object.metadata;
        let permit =
            Permit::for_server(kind, Verb::Update, Some(&metadata.namespace), &metadata.name);
        let writing = writing();
        // Decided on the object as it is in the transaction, even if it was written meanwhile.
        let update = operations::update(registry, &permit, &writing, |now| {
            decided(batch, kind, now).map(|(object, _)| object)
        });
        if let Some(refused) = refusal(update.await)? {
            say(registry, kind, &object, &refused).await?;
            failure = Some(refused);
        }
    }
    if let Some((reason, message)) = failure {
        events::warn(registry, &Happening { object: &object, reason, message: &message }).await;
    }
    Ok(taker)
}

/// Why a secret has not the data of its source: in one word, and for people.
pub(super) type Failure = (&'static str, String);

/// Why a write is refused, where to try it again would not help before something else changes.
///
/// # Errors
/// Those of a write that is to be tried again.
pub(super) fn refusal<T>(written: Result<T, ApiError>) -> Result<Option<Failure>, ApiError> {
    match written {
        Ok(_) => Ok(None),
        Err(error) if error.code() == 422 => Ok(Some(("Invalid", error.to_string()))),
        Err(error) => Err(error),
    }
}

/// Says in the status why the data of a secret stays as it is, where the kind has a status.
async fn say(
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

/// A secret as it is to be now, and what failed.
fn decided(
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
        Outcome::Taken(data) => {
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

/// How the server writes spec and status of a secret together.
pub(super) fn writing() -> Writing {
    Writing { part: Part::Action("sync"), ..Writing::by_server() }
}

/// Sets the data of a secret, where its kind has it.
pub(super) fn set_data(kind: &dyn AnyKind, object: &mut Object, data: Data) {
    let data = Value::Object(data);
    if kind.layout() == postern_kinds::Layout::TopLevel {
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

/// Removes a condition, if it is there.
pub(super) fn remove_condition(object: &mut Object, of: &str) {
    let mut conditions = conditions_of(object);
    let before = conditions.len();
    conditions.retain(|one| one.r#type != of);
    if conditions.len() < before {
        set_conditions(object, &conditions);
    }
}

/// Sets a condition: is it so, why, and the words for people. Of a kind without a status, nothing is said.
pub(super) fn set_condition(
    registry: &Registry,
    kind: &dyn AnyKind,
    object: &mut Object,
    of: &str,
    (is_so, reason, message): (bool, &str, String),
) {
    if kind.layout() == postern_kinds::Layout::TopLevel {
        return;
    }
    let mut conditions = conditions_of(object);
    let (status, reason) = (if is_so { "True" } else { "False" }, reason.to_owned());
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
