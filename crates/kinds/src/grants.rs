//! The grants of objects to users and teams, read back from the Roles and bindings that are made from them.

use postern_meta::object::{Object, ObjectMeta};
use serde::Deserialize as _;

use crate::access::{MadeFor, made_for, member_role};
use crate::bindings::subject_uids;
use crate::bound::{BoundGrant, of_member};
use crate::kind::dependent::{Dependent, belongs_to};
use crate::rbac::of_rule;
use crate::role;

/// The grants in these dependents.
pub fn grants_of(dependents: &[Dependent]) -> Vec<BoundGrant> {
    dependents.iter().flat_map(|one| one.grants.clone()).collect()
}

/// The grants in the stored dependents of an object, for an object that is older than the records of grants.
pub fn grants_of_stored(dependents: &[Object], owner: &ObjectMeta) -> Vec<BoundGrant> {
    let own = || dependents.iter().filter(|one| belongs_to(one, owner));
    let rule = |name: &str| {
        let role = own().find(|one| one.metadata.name == name && one.fields.contains_key("rules"));
        let spec = role::Spec::deserialize(&role?.fields).ok()?;
        Some(of_rule(spec.rules.first()?))
    };
    let bindings = own().filter(|one| one.fields.contains_key("roleRef"));
    let grants = bindings.filter_map(|binding| {
        let name = binding.metadata.name.as_str();
        let what = match made_for(name)? {
            MadeFor::AccessRules { .. } => rule(name)?,
            // That of all members together follows from those of the roles.
            MadeFor::Members if binding.metadata.namespace.is_empty() => return None,
            MadeFor::Members => of_member(member_role(name)?),
        };
        let uids = subject_uids(&binding.metadata)?;
        let grant = move |(group, uid)| BoundGrant { what: what.clone(), group, uid };
        Some(uids.into_iter().map(grant))
    });
    grants.flatten().collect()
}
