//! Dependents: objects that the server writes with an object, in its transaction. Examples are the Roles and
//! RoleBindings of access rules, and the namespace of a project.
//!
//! The kind tells the dependents of an object. This module compares them with the existing objects.

use postern_kinds::{AnyKind, Dependent, Verb};
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::status::ApiError;
use serde_json::Map;

use super::view::{AdmissionView, Previous};
use super::write::{Admitted, ObjectNames};
use super::{Writing, create, delete, update};
use crate::permit::Permit;
use crate::secret_record::SecretRecord;

/// An object before and after a write; `None` if it does not exist.
#[derive(Clone, Copy)]
pub(super) struct Transition<'a> {
    pub(super) kind: &'static dyn AnyKind,
    pub(super) old: Option<&'a Object>,
    pub(super) new: Option<&'a Object>,
}

/// Admits the changes of the object's dependents, in the same transaction.
///
/// # Errors
/// The errors of the kind; 409 if the name of a dependent of a new object exists already.
pub(super) fn with_dependents(
    view: &AdmissionView<'_>,
    permit: &Permit,
    admitted: Admitted,
    of: Transition<'_>,
) -> Result<Admitted, ApiError> {
    let Transition { kind, old, new } = of;
    if !kind.has_dependents() {
        return Ok(admitted);
    }
    let bound = old.or(new).map(|object| view.bound_grants(kind, object, &[])).unwrap_or_default();
    let dependents =
        |object: &Object, previous: &[Object]| view.dependents(permit, object, previous, &bound);
    // The names of both states, so that an existing object with the name of a new dependent is found.
    let mut named = old.map_or(Ok(Vec::new()), |old| dependents(old, &[]))?;
    for one in new.map_or(Ok(Vec::new()), |new| dependents(new, &[]))? {
        if !named.iter().any(|known| is_same(known, &one)) {
            named.push(one);
        }
    }
    let mut there = Vec::new();
    for one in named {
        let found = view.read(one.kind, one.namespace.as_deref(), &one.name)?;
        there.extend(found.map(|found| (one, found)));
    }
    let previous: Vec<Object> = there.iter().map(|(_, found)| found.object.clone()).collect();
    // If the object has no record of its bound names, its present dependents tell them.
    let bound = old.map(|old| view.bound_grants(kind, old, &previous)).unwrap_or_default();
    let dependents = |object: &Object| view.dependents(permit, object, &previous, &bound);
    let wanted = new.map_or(Ok(Vec::new()), dependents)?;
    let mut all = admitted;
    all.bound.extend(new.map(|new| ObjectNames::of(kind, new, &wanted)));
    for (one, found) in there {
        if !wanted.iter().any(|wanted| is_same(wanted, &one)) {
            let permit = permit_for(&one, Verb::Delete);
            all = all.with(delete(view, &permit, found, 0, None)?);
        }
    }
    for one in &wanted {
        let owner = new.filter(|_| one.owned).map(|new| reference_to(kind, new));
        all = all.with(apply_dependent(view, one, owner)?);
    }
    Ok(all)
}

/// Admits the write that gives a dependent its wanted state.
pub(super) fn apply_dependent(
    view: &AdmissionView<'_>,
    wanted: &Dependent,
    owner: Option<OwnerReference>,
) -> Result<Admitted, ApiError> {
    let writing = Writing::by_server();
    let Some(previous) = view.read(wanted.kind, wanted.namespace.as_deref(), &wanted.name)? else {
        let permit = permit_for(wanted, Verb::Create);
        return create(view, &permit, object_of(wanted, owner), &writing);
    };
    let Previous { object: old, .. } = &previous;
    let mut object = old.clone();
    object.metadata.labels.extend(wanted.labels.clone());
    object.metadata.annotations.extend(wanted.annotations.clone());
    if let Some(owner) = owner {
        object.metadata.owner_references = vec![owner];
    }
    for (name, value) in &wanted.fields {
        object.fields.insert(name.clone(), value.clone());
    }
    let permit = permit_for(wanted, Verb::Update);
    update(view, &permit, object, previous, SecretRecord::default(), &writing)
}

fn is_same(one: &Dependent, other: &Dependent) -> bool {
    one.kind.info().kind == other.kind.info().kind
        && one.namespace == other.namespace
        && one.name == other.name
}

fn permit_for(dependent: &Dependent, verb: Verb) -> Permit {
    Permit::for_server(dependent.kind, verb, dependent.namespace.as_deref(), &dependent.name)
}

fn object_of(dependent: &Dependent, owner: Option<OwnerReference>) -> Object {
    let info = dependent.kind.info();
    let metadata = ObjectMeta {
        name: dependent.name.clone(),
        namespace: dependent.namespace.clone().unwrap_or_default(),
        labels: dependent.labels.clone(),
        annotations: dependent.annotations.clone(),
        owner_references: owner.into_iter().collect(),
        ..ObjectMeta::default()
    };
    let fields: Map<_, _> = dependent.fields.clone();
    Object { api_version: info.version.to_string(), kind: info.kind.to_owned(), metadata, fields }
}

pub(super) fn reference_to(kind: &'static dyn AnyKind, object: &Object) -> OwnerReference {
    let info = kind.info();
    OwnerReference {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        name: object.metadata.name.clone(),
        uid: object.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
