//! Dependents: objects that are kept in step with another one, in its own transaction.

use std::collections::BTreeMap;

use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use super::AnyKind;
use crate::bound::BoundGrant;
use crate::context::Context;

/// An object as it is to be, as long as the object that it depends on is as it is.
#[derive(Clone, Debug)]
pub struct Dependent {
    /// Its kind.
    pub kind: &'static dyn AnyKind,
    /// Its namespace; `None` where the kind has none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Labels that it has. It may have others.
    pub labels: BTreeMap<String, String>,
    /// Annotations that it has. It may have others.
    pub annotations: BTreeMap<String, String>,
    /// All of its fields; none where the kind sets them itself.
    pub fields: Map<String, Value>,
    /// Whom it gives something, where it is a binding.
    pub grants: Vec<BoundGrant>,
    /// Whether it has a reference to its owner, the object that it depends on.
    pub owned: bool,
}

/// The dependents of an object, given those that there are now.
///
/// # Errors
/// 409 when one of them is in the way.
pub type Dependents<Spec> =
    fn(&ObjectMeta, &Spec, &[Object], &Context<'_>) -> Result<Vec<Dependent>, ApiError>;

/// Whether an existing dependent belongs to this object, not to an earlier object of the same name.
pub(crate) fn belongs_to(dependent: &Object, owner: &ObjectMeta) -> bool {
    let references = &dependent.metadata.owner_references;
    !owner.uid.is_empty() && references.iter().any(|one| one.uid == owner.uid)
}
