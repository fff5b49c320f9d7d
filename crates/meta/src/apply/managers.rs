//! The entries of `managedFields` in typed form, and how one write changes them.

use std::cmp::Ordering;

use super::compare::Comparison;
use super::fields_v1::InvalidFields;
use super::set::FieldSet;
use crate::object::{ManagedFieldsEntry, Operation};
use crate::time::Timestamp;

/// How many managers that update an object are told apart. Beyond it, the
/// oldest become one, as upstream.
pub const MAX_UPDATE_MANAGERS: usize = 10;

/// How many entries are read from one object.
pub const MAX_ENTRIES: usize = 1000;

/// The manager that the oldest updates belong to when there are too many.
pub const ANCIENT_CHANGES: &str = "ancient-changes";

/// The manager of a writer that did not say who it is.
const UNKNOWN: &str = "unknown";

const FIELDS_V1: &str = "FieldsV1";

/// Who writes, as entries tell writers apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// The name that the client gave itself, or that was made from its user agent.
    pub name: String,
    /// The group and version of the kind that is written.
    pub api_version: String,
    /// The sub-resource that is written through; empty for the object itself.
    pub subresource: String,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagedSet {
    /// Who. Two entries have the same name where one applied and one updated.
    pub manager: Manager,
    /// How: [`Operation::Apply`] or [`Operation::Update`].
    pub operation: Operation,
    /// When the manager last changed what it owns.
    pub time: Option<Timestamp>,
    /// What it owns.
    pub fields: FieldSet,
}

/// The entries of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Managers {
    entries: Vec<ManagedSet>,
}

impl Managers {
    /// Reads entries that a client sent.
    ///
    /// # Errors
    /// When one of them is not as the server writes it, or there are more than
    /// [`MAX_ENTRIES`]. Upstream then ignores them all, and so should callers.
    pub fn decode(entries: &[ManagedFieldsEntry]) -> Result<Self, InvalidFields> {
        if entries.len() > MAX_ENTRIES {
            return Err(InvalidFields::new("too many managers"));
        }
        let mut managers = Self::default();
        for entry in entries {
            managers.put(decode_entry(entry)?);
        }
        Ok(managers)
    }

    /// Reads the entries of an object as it is stored, without those that
    /// cannot be read.
    pub fn decode_stored(entries: &[ManagedFieldsEntry]) -> Self {
        let mut managers = Self::default();
        for entry in entries.iter().take(MAX_ENTRIES).filter_map(|entry| decode_entry(entry).ok()) {
            managers.put(entry);
        }
        managers
    }

    /// The entries as they stand in metadata, in their order.
    pub fn encode(mut self) -> Vec<ManagedFieldsEntry> {
        self.entries.sort_by(ManagedSet::order);
        self.entries.into_iter().map(encode_entry).collect()
    }

    /// The entries, in no particular order.
    pub fn entries(&self) -> &[ManagedSet] {
        &self.entries
    }

    /// Whether nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts an entry in the place of the one with the same identity, if there is one.
    pub fn put(&mut self, entry: ManagedSet) {
        match self.entries.iter_mut().find(|other| other.is_same(&entry)) {
            Some(other) => *other = entry,
            None => self.entries.push(entry),
        }
    }

    /// Takes `ignored`, and all below it, out of every entry.
    pub fn ignore(&mut self, ignored: &FieldSet) {
        for entry in &mut self.entries {
            entry.fields.subtract_below(ignored);
        }
    }

    /// Takes an update by `who` down: what changed is his alone, what is gone
    /// is nobody's. His time moves if he changed a value, or what he owns.
    ///
    /// Entries in other versions than his are dropped, as upstream does with
    /// versions that are not served: their paths cannot be compared.
    pub fn record_update(&mut self, changes: Comparison, who: &Manager, now: Timestamp) {
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
        self.entries.retain(|entry| entry.manager.api_version == who.api_version);
        for entry in &mut self.entries {
            let lost = entry.fields.subtract(&removed);
            if entry.is_same(&own) {
                if lost || !added.is_empty() || !modified.is_empty() {
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
        self.entries.retain(|entry| !entry.fields.is_empty());
        self.cap_updates();
    }

    /// Makes one of the oldest updates while there are too many.
    fn cap_updates(&mut self) {
        loop {
            let updates = self.entries.iter().filter(|entry| entry.operation == Operation::Update);
            if updates.count() <= MAX_UPDATE_MANAGERS {
                return;
            }
            let Some(mut oldest) = self.take_oldest_update() else { return };
            let ancient = self.entries.iter_mut().find(|entry| entry.is_ancient(&oldest));
            if let Some(ancient) = ancient {
                ancient.fields.unite(oldest.fields);
                ancient.time = ancient.time.max(oldest.time);
            } else {
                ANCIENT_CHANGES.clone_into(&mut oldest.manager.name);
                oldest.manager.subresource.clear();
                self.entries.push(oldest);
            }
        }
    }

    /// The oldest update that is not of [`ANCIENT_CHANGES`] already.
    fn take_oldest_update(&mut self) -> Option<ManagedSet> {
        let candidates =
            self.entries.iter().enumerate().filter(|(_, entry)| {
                entry.operation == Operation::Update && !entry.is_ancient(entry)
            });
        let (at, _) = candidates.min_by(|left, right| left.1.order(right.1))?;
        Some(self.entries.swap_remove(at))
    }
}

impl ManagedSet {
    /// The order in metadata: who applied first, then by time.
    fn order(&self, other: &Self) -> Ordering {
        self.order_key().cmp(&other.order_key())
    }

    fn order_key(&self) -> (Operation, i64, [&str; 3]) {
        let seconds = self.time.map_or(0, Timestamp::unix_seconds);
        let Manager { name, api_version, subresource } = &self.manager;
        (self.operation, seconds, [name, api_version, subresource])
    }

    /// Whether the two are one entry. Who applies stays the same in another version.
    fn is_same(&self, other: &Self) -> bool {
        let same_version = self.manager.api_version == other.manager.api_version;
        self.operation == other.operation
            && self.manager.name == other.manager.name
            && self.manager.subresource == other.manager.subresource
            && (same_version || self.operation == Operation::Apply)
    }

    /// Whether this is where old updates in the version of `other` are kept.
    fn is_ancient(&self, other: &Self) -> bool {
        self.operation == Operation::Update
            && self.manager.name == ANCIENT_CHANGES
            && self.manager.subresource.is_empty()
            && self.manager.api_version == other.manager.api_version
    }
}

/// Whether two lists of entries differ in nothing but their times.
pub fn same_but_for_times(left: &[ManagedFieldsEntry], right: &[ManagedFieldsEntry]) -> bool {
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

fn encode_entry(entry: ManagedSet) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        manager: entry.manager.name,
        operation: entry.operation,
        api_version: entry.manager.api_version,
        time: entry.time,
        fields_type: FIELDS_V1.to_owned(),
        fields_v1: Some(entry.fields.to_fields_v1()),
        subresource: entry.manager.subresource,
    }
}
