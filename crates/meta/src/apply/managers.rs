//! The entries of `managedFields` in typed form, and how one write changes them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::Comparison;
use super::element::InvalidFields;
use super::set::FieldSet;
use crate::object::{ManagedFieldsEntry, Operation};
use crate::time::Timestamp;

/// Maximum number of managers with the operation `Update` on one object. Beyond
/// it, the oldest are merged into one, as upstream.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// Maximum number of entries that a client may send.
pub const MAX_ENTRIES: usize = 1000;

/// The manager that the oldest updates are attributed to when there are too many.
pub const ANCIENT_CHANGES: &str = "ancient-changes";

/// The manager of the fields that an object had before its first apply, if no owner was known.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager of a write without a manager's name.
const UNKNOWN: &str = "unknown";

const FIELDS_V1: &str = "FieldsV1";

/// The identity of a writer in `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// The name that the client chose, or that was made from its user agent.
    pub name: String,
    /// The group and version of the kind that is written.
    pub api_version: String,
    /// The subresource through which it writes; empty for the object itself.
    pub subresource: String,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedSet {
    /// The manager. It can have two entries, one for each operation.
    pub manager: Manager,
    /// [`Operation::Apply`] or [`Operation::Update`].
    pub operation: Operation,
    /// When the manager last changed the fields that it owns.
    pub time: Option<Timestamp>,
    /// The fields that it owns.
    pub fields: FieldSet,
}

/// The entries of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers {
    entries: Vec<ManagedSet>,
}

impl Managers {
    /// Decodes entries that a client sent.
    ///
    /// # Errors
    /// When one of them is invalid, or there are more than [`MAX_ENTRIES`]. Upstream
    /// then ignores them all, and so should callers.
    pub fn decode(entries: &[ManagedFieldsEntry]) -> Result<Self, InvalidFields> {
        if entries.len() > MAX_ENTRIES {
            return Err(InvalidFields::new("too many managers"));
        }
        let sets: Result<Vec<_>, _> = entries.iter().map(decode_entry).collect();
        Ok(Self::of(sets?))
    }

    /// Decodes the entries of a stored object, without those that are invalid.
    pub fn decode_stored(entries: &[ManagedFieldsEntry]) -> Self {
        Self::of(entries.iter().filter_map(|entry| decode_entry(entry).ok()).collect())
    }

    /// The managers with these entries. Of several with one identity, the last counts.
    fn of(sets: Vec<ManagedSet>) -> Self {
        if sets.len() < 2 {
            return Self { entries: sets };
        }
        let mut by_identity = BTreeMap::new();
        for (index, set) in sets.iter().enumerate() {
            by_identity.insert(set.identity(), index);
        }
        let mut last: Vec<usize> = by_identity.into_values().collect();
        last.sort_unstable();
        let mut last = last.into_iter().peekable();
        let is_last = |(index, set)| last.next_if_eq(&index).map(|_| set);
        Self { entries: sets.into_iter().enumerate().filter_map(is_last).collect() }
    }

    /// The entries as metadata has them, in their order.
    pub fn encode(self) -> Vec<ManagedFieldsEntry> {
        self.encode_after(Vec::new())
    }

    /// The entries as metadata has them. An entry with the same fields in `before` takes their encoding from there.
    /// Entries of `before` are found in their order there, and the others are encoded.
    pub(super) fn encode_after(self, before: Vec<ManagedFieldsEntry>) -> Vec<ManagedFieldsEntry> {
        let mut before = before.into_iter();
        let mut entries: Vec<_> = (self.entries.into_iter())
            .map(|entry| {
                let known =
                    before.find(|known| entry.is_of(known)).and_then(|known| known.fields_v1);
                let known = known.filter(|fields| entry.fields.is_encoded_as(fields));
                (entry, known)
            })
            .collect();
        entries.sort_by(|(left, _), (right, _)| left.order(right));
        entries.into_iter().map(|(entry, known)| encode_entry(entry, known)).collect()
    }

    /// The entries, in no particular order.
    pub fn entries(&self) -> &[ManagedSet] {
        &self.entries
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an entry, or replaces the one with the same identity.
    pub fn put(&mut self, entry: ManagedSet) {
        match self.entries.iter_mut().find(|other| other.is_same(&entry)) {
            Some(other) => *other = entry,
            None => self.entries.push(entry),
        }
    }

    /// Removes the entry with the identity of `entry`, and returns it.
    pub(super) fn take(&mut self, entry: &ManagedSet) -> Option<ManagedSet> {
        let index = self.entries.iter().position(|other| other.is_same(entry))?;
        Some(self.entries.swap_remove(index))
    }

    /// Drops the entries in other API versions than this one, as upstream does with versions that
    /// are not served: their paths cannot be compared.
    pub(super) fn retain_version(&mut self, api_version: &str) {
        self.entries.retain(|entry| entry.manager.api_version == api_version);
    }

    /// Removes these paths from every entry. Times stay: no manager has changed its own fields.
    pub(super) fn subtract(&mut self, paths: &FieldSet) {
        for entry in &mut self.entries {
            entry.fields.subtract(paths);
        }
    }

    /// Removes these paths from every entry but that of the applies of `manager`.
    pub(super) fn subtract_from_others(&mut self, manager: &Manager, paths: &FieldSet) {
        let is_own =
            |entry: &ManagedSet| entry.operation == Operation::Apply && entry.manager == *manager;
        for entry in self.entries.iter_mut().filter(|entry| !is_own(entry)) {
            entry.fields.subtract(paths);
        }
    }

    /// Gives each entry the time that it has in `live`, if it has the same fields there.
    pub(super) fn keep_times(&mut self, live: &Self) {
        let before: BTreeMap<_, _> =
            live.entries.iter().map(|entry| (entry.identity(), entry)).collect();
        for entry in &mut self.entries {
            if let Some(before) = before.get(&entry.identity())
                && before.fields == entry.fields
            {
                entry.time = before.time;
            }
        }
    }

    /// Drops entries without fields, and merges the oldest updates if there are too many. If no entry
    /// has fields and `keeps_one`, the first one stays: an object without entries is not tracked, and
    /// its next apply would make one manager the owner of all that it has.
    pub(super) fn normalize(&mut self, keeps_one: impl FnOnce() -> bool) {
        if self.entries.iter().all(|entry| entry.fields.is_empty()) && keeps_one() {
            // The oldest one: a manager that owns nothing, either, does not take its place.
            self.entries.truncate(1);
            return;
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
        self.cap_updates();
    }

    /// Removes `ignored`, and everything below it, from every entry.
    pub fn ignore(&mut self, ignored: &FieldSet) {
        for entry in &mut self.entries {
            entry.fields.subtract_below(ignored);
        }
    }

    /// Records an update by a manager: it alone owns the changed fields, and no manager owns the
    /// removed ones. The time of its entry becomes `now` if it changed a value, or the fields that
    /// it owns.
    ///
    /// Entries in other API versions than the manager's are dropped. If no manager owns anything,
    /// an entry without fields stays if it `keeps_one`.
    pub(super) fn record_update(
        &mut self,
        changes: Comparison,
        who: &Manager,
        now: Timestamp,
        keeps_one: impl FnOnce() -> bool,
    ) {
        let Comparison { added, modified, removed } = changes;
        let mut own = ManagedSet {
            manager: who.clone(),
            operation: Operation::Update,
            time: Some(now),
            fields: FieldSet::new(),
        };
        if own.manager.name.is_empty() {
            UNKNOWN.clone_into(&mut own.manager.name);
        }
        self.retain_version(&who.api_version);
        for entry in &mut self.entries {
            let was_owner = entry.fields.subtract(&removed);
            if entry.is_same(&own) {
                if was_owner || !added.is_empty() || !modified.is_empty() {
                    entry.time = own.time;
                }
            } else {
                entry.fields.subtract(&added);
                entry.fields.subtract(&modified);
            }
        }
        own.fields = modified;
        own.fields.unite(added);
        match self.entries.iter_mut().find(|entry| entry.is_same(&own)) {
            Some(entry) => entry.fields.unite(own.fields),
            None => self.entries.push(own),
        }
        self.normalize(keeps_one);
    }

    /// Merges the oldest updates into one if there are too many. All entries are in one API
    /// version.
    fn cap_updates(&mut self) {
        if self.entries.len() <= MAX_UPDATE_MANAGERS {
            return;
        }
        let (mut updates, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.entries)
            .into_iter()
            .partition(|entry| entry.operation == Operation::Update);
        self.entries = others;
        if updates.len() > MAX_UPDATE_MANAGERS {
            // The entry for old updates comes first, and takes in the oldest others.
            updates.sort_by(|left, right| {
                let is_recent = |entry: &ManagedSet| !entry.is_ancient(entry);
                is_recent(left).cmp(&is_recent(right)).then_with(|| left.order(right))
            });
            let recent = updates.split_off(updates.len() - (MAX_UPDATE_MANAGERS - 1));
            self.entries.extend(merged(updates));
            updates = recent;
        }
        self.entries.append(&mut updates);
    }
}

/// The entry for old updates that has the fields of all of `oldest`.
fn merged(oldest: Vec<ManagedSet>) -> Option<ManagedSet> {
    let time = oldest.iter().filter_map(|entry| entry.time).max();
    let manager = oldest.first()?.manager.clone();
    let manager =
        Manager { name: ANCIENT_CHANGES.to_owned(), subresource: String::new(), ..manager };
    let fields = FieldSet::union_of(oldest.into_iter().map(|entry| entry.fields));
    Some(ManagedSet { manager, operation: Operation::Update, time, fields })
}

impl ManagedSet {
    /// Compares in the order of entries in metadata: those of applies first, then by time.
    fn order(&self, other: &Self) -> Ordering {
        self.order_key().cmp(&other.order_key())
    }

    fn order_key(&self) -> (Operation, i64, [&str; 3]) {
        let seconds = self.time.map_or(0, Timestamp::unix_seconds);
        let Manager { name, api_version, subresource } = &self.manager;
        (self.operation, seconds, [name, api_version, subresource])
    }

    /// The identity of an entry. For applies, the API version is no part of it.
    fn identity(&self) -> (Operation, &str, &str, &str) {
        let Manager { name, api_version, subresource } = &self.manager;
        let version = if self.operation == Operation::Apply { "" } else { api_version };
        (self.operation, name, subresource, version)
    }

    /// Whether the two are one entry.
    fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    /// Whether an encoded entry is of the same manager and operation.
    fn is_of(&self, entry: &ManagedFieldsEntry) -> bool {
        self.operation == entry.operation
            && self.manager.name == entry.manager
            && self.manager.subresource == entry.subresource
    }

    /// Whether this is the entry for old updates in the API version of `other`.
    fn is_ancient(&self, other: &Self) -> bool {
        self.operation == Operation::Update
            && self.manager.name == ANCIENT_CHANGES
            && self.manager.subresource.is_empty()
            && self.manager.api_version == other.manager.api_version
    }
}

/// Whether two lists of entries are equal, apart from their times.
pub fn equal_except_times(left: &[ManagedFieldsEntry], right: &[ManagedFieldsEntry]) -> bool {
    let same = |(left, right): (&ManagedFieldsEntry, &ManagedFieldsEntry)| {
        left.manager == right.manager
            && left.operation == right.operation
            && left.api_version == right.api_version
            && left.fields_type == right.fields_type
            && left.fields_v1 == right.fields_v1
            && left.subresource == right.subresource
    };
    left.len() == right.len() && left.iter().zip(right).all(same)
}

fn decode_entry(entry: &ManagedFieldsEntry) -> Result<ManagedSet, InvalidFields> {
    if entry.operation == Operation::Unknown {
        return Err(InvalidFields::new("an operation is neither Apply nor Update"));
    }
    if entry.api_version.is_empty() {
        return Err(InvalidFields::new("an apiVersion is missing"));
    }
    if entry.fields_type != FIELDS_V1 {
        return Err(InvalidFields::new("a fieldsType is not FieldsV1"));
    }
    let fields = match &entry.fields_v1 {
        Some(fields) => FieldSet::from_fields_v1(fields)?,
        None => FieldSet::new(),
    };
    Ok(ManagedSet {
        manager: Manager {
            name: entry.manager.clone(),
            api_version: entry.api_version.clone(),
            subresource: entry.subresource.clone(),
        },
        operation: entry.operation,
        time: entry.time,
        fields,
    })
}

fn encode_entry(entry: ManagedSet, known: Option<Value>) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: entry.manager.name,
        operation: entry.operation,
        api_version: entry.manager.api_version,
        time: entry.time,
        fields_type: FIELDS_V1.to_owned(),
        fields_v1: Some(known.unwrap_or_else(|| entry.fields.to_fields_v1())),
        subresource: entry.manager.subresource,
    }
}
