//! Admitted writes to one object or several, as the registry takes them.
//!
//! Only admission makes an [`Admitted`]. This module checks nothing.

use std::sync::Arc;

use postern_kinds::write_only::WriteOnlyValues;
use postern_kinds::{AnyKind, Dependent, grants_of};
use postern_meta::object::Object;
use postern_store::Position;

use super::counted::Limit;
use super::members::Member;
use super::view::{Previous, key_of_names};
use crate::cache::{BoundNames, CachedObject};
use crate::permit::Permit;
use crate::secret_record::SecretRecord;

/// The identity that removes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remover {
    /// The server itself.
    Server,
    /// The user or team with this uid: it sent the deletion, which removes the object at once. The
    /// uid is empty for another identity.
    Principal(String),
    /// Unknown: the object was already terminating, or the caller impersonates.
    Unknown,
}

impl Remover {
    /// The remover of an object. `previous` is the object as it was read.
    pub(super) fn of(permit: &Permit, previous: &Object) -> Self {
        let credential = permit.credential();
        if previous.metadata.is_terminating() || credential.is_acting() {
            Self::Unknown
        } else if credential.is_server() {
            Self::Server
        } else {
            Self::Principal(credential.bearer().uid.clone())
        }
    }
}

/// A write to one object.
pub(crate) enum Write {
    /// A new object.
    Create {
        /// The new object.
        object: Object,
        /// The uid of its owner, if it has one.
        owner_uid: Option<String>,
        /// The values written into write-only fields.
        write_only: WriteOnlyValues,
    },
    /// A new state for an object that is as it was read.
    Replace {
        /// The new state.
        object: Object,
        /// The uid of its owner, if it has one.
        owner_uid: Option<String>,
        /// The object as it was read.
        previous: Previous,
        /// The values written into write-only fields.
        write_only: WriteOnlyValues,
        /// The secret record of these fields.
        secrets: SecretRecord,
    },
    /// The removal of an object that is as it was read.
    Remove {
        /// The last state, which is in the response.
        object: Object,
        /// The object as it was read.
        previous: Previous,
        /// The identity that removes it.
        by: Remover,
    },
    /// The removal of a corrupt object.
    RemoveCorrupt {
        /// The storage key.
        key: Arc<str>,
        /// The position of the last change.
        position: Position,
    },
    /// No write, because nothing changes.
    Unchanged(Arc<CachedObject>),
}

/// A write to one object, with the identity of the object.
pub(crate) struct AdmittedChange {
    /// Its kind.
    pub(crate) kind: &'static dyn AnyKind,
    /// The namespace, if the kind has one.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// The write.
    pub(crate) write: Write,
    /// The users that it adds to a team. They must stay unchanged until the commit.
    pub(crate) members: Vec<Member>,
    /// The limits that a new object has, which hold at the commit.
    pub(crate) limits: Vec<Limit>,
}

/// A write that may be stored: one change or several, all in one transaction or none. The first change is the
/// requested one, and its result is the response.
pub(crate) struct Admitted {
    /// Boxed, so that the value is small: it is moved often, and futures have it.
    pub(super) first: Box<AdmittedChange>,
    pub(super) others: Vec<AdmittedChange>,
    /// The bound names of the objects, if they may have changed.
    pub(super) bound: Vec<ObjectNames>,
}

impl ObjectNames {
    /// The users and teams that an object names, by its dependents.
    pub(super) fn of(kind: &dyn AnyKind, object: &Object, dependents: &[Dependent]) -> Self {
        let (uid, grants) = (object.metadata.uid.clone(), grants_of(dependents));
        Self { key: key_of_names(kind, &object.metadata), names: BoundNames { uid, grants } }
    }
}

/// The bound names of an object.
pub(crate) struct ObjectNames {
    /// The storage key of the record.
    pub(crate) key: Arc<str>,
    /// The record.
    pub(crate) names: BoundNames,
}

impl Admitted {
    pub(super) fn one(permit: &Permit, name: &str, write: Write) -> Self {
        let (kind, namespace) = (permit.kind(), permit.target().namespace.clone());
        let (name, members, limits) = (name.to_owned(), Vec::new(), Vec::new());
        let first = AdmittedChange { kind, namespace, name, write, members, limits };
        Self { first: Box::new(first), others: Vec::new(), bound: Vec::new() }
    }

    /// The write with the users that it adds to a team.
    pub(super) fn with_members(mut self, members: Vec<Member>) -> Self {
        self.first.members = members;
        self
    }

    /// The write with the bound names of its object.
    pub(super) fn with_names(mut self, names: Option<ObjectNames>) -> Self {
        self.bound.extend(names);
        self
    }

    /// The write with the limits that its new object has.
    pub(super) fn with_limits(mut self, limits: Vec<Limit>) -> Self {
        self.first.limits = limits;
        self
    }

    /// Both writes as one, with the response of this one. Parts of `other` without a change are left out.
    #[must_use]
    pub(crate) fn with(mut self, other: Self) -> Self {
        let changes = std::iter::once(*other.first).chain(other.others);
        self.others.extend(changes.filter(|one| !matches!(one.write, Write::Unchanged(_))));
        self.bound.extend(other.bound);
        self
    }

    /// The change that gives the response its result.
    pub(crate) fn first(&self) -> &AdmittedChange {
        &self.first
    }

    /// Whether the requested object is removed.
    pub(crate) fn removes(&self) -> bool {
        matches!(self.first.write, Write::Remove { .. } | Write::RemoveCorrupt { .. })
    }

    /// The parts for the registry: the change that gives the response its result, the other
    /// changes, and the bound names.
    pub(crate) fn into_parts(self) -> (Box<AdmittedChange>, Vec<AdmittedChange>, Vec<ObjectNames>) {
        (self.first, self.others, self.bound)
    }
}
