//! The declaration of a kind: one implementation of [`Kind`] is one file of this crate.
//!
//! A kind is written with typed fields. The server works with [`AnyKind`], which decodes them once
//! for each write. A kind declares a hook for each thing in which it differs from the others.
//! Nothing here reads a clock or decides about permissions.

use std::borrow::Cow;

use postern_meta::field::FieldErrors;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::schema::Schema;
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use crate::claim_match::ClaimMatch;
use crate::column::Cell;
use crate::context::{Context, Observations};
use crate::fields::{Draft, FieldType, Fields, keep_in_spec};
use crate::kubeconfig_ref::KubeconfigRef;
use crate::principal::{AccessChange, OwnedBy, Owner, Principals, delegated_right, key_verb};
use crate::rbac::{Granted, GrantedRoles, PolicyChange};
use crate::right::{RequiredRight, Right};
use crate::verb::Verb;
use ownership::Ownership;

pub mod action;
mod any;
mod data_source;
pub(crate) mod dependent;
mod info;
mod no_effect;
pub(crate) mod ownership;
mod parts;
mod stored_as;
mod strict;
mod unserved;
mod write;
mod zeros;

pub use any::{AnyCredential, Carried, Prepared};
pub use data_source::DataSource;
pub use dependent::{Dependent, Dependents};
pub use info::{Info, ResourceScope, SelectableField, UpdateRule, ValuesAt};
pub use no_effect::NoEffect;
pub use parts::{ClaimMatches, Credential, Parts};
pub use stored_as::StoredAs;
pub use strict::StrictFields;
pub use unserved::UnservedField;
pub use write::Write;
pub use zeros::is_zero;

/// The draft of a kind.
pub type DraftOf<K> = Draft<Fields<<K as Kind>::Spec, <K as Kind>::Status>>;

/// The write of an object of a kind.
pub type WriteOf<'a, K> = Write<'a, Fields<<K as Kind>::Spec, <K as Kind>::Status>>;

/// A key that only one object of a kind may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    /// The field that it comes from, for errors.
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// Whether it is a place that belongs to one object. A place that is already taken is a
    /// conflict; another value that already exists is invalid.
    pub is_place: bool,
}

/// A change of another object that goes with a write, in the same transaction. It is admitted as
/// any change is.
pub struct Companion {
    /// The kind of the other object.
    pub kind: &'static dyn AnyKind,
    /// Its namespace; `None` where the kind has none.
    pub namespace: Option<String>,
    /// Its name. If there is no such object, nothing is changed.
    pub name: String,
    /// Changes its fields.
    pub change: FieldsChange,
}

/// A change of the fields next to `metadata`.
pub type FieldsChange = Box<dyn Fn(&mut Map<String, Value>) + Send + Sync>;

/// The changes of other objects that go with the removal of an object.
///
/// # Errors
/// 409 when there are more of them than one transaction takes.
pub type OnRemove = fn(&ObjectMeta, &dyn Principals) -> Result<Vec<Companion>, ApiError>;

/// Fields of the status that are not stored, but observed when the object is returned. The arguments
/// are its name and uid.
pub type ObservedStatus = fn(&str, &str, &dyn Observations) -> Vec<(&'static str, Value)>;

/// A kind, written for its own typed fields.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The desired state.
    type Spec: FieldType;

    /// The observed state.
    type Status: FieldType;

    /// Names, scope, verbs and actions, and everything else that is known without typed fields.
    const INFO: Info;

    /// The meaning of its objects for the rest of the server: hooks that read typed fields.
    const PARTS: Parts<Self::Spec, Self::Status> = Parts::DEFAULT;

    /// Sets the server's fields: defaults, and fields that a client may not set. `old` is the
    /// stored object, on an update. The status of a kind that is not stored is empty already.
    fn prepare(_new: &mut DraftOf<Self>, _old: Option<&DraftOf<Self>>, _ctx: &Context<'_>) {}

    /// Adds everything that is invalid in a prepared object to `errors`. Its metadata is checked
    /// elsewhere, and its managed fields are not set yet.
    ///
    /// # Errors
    /// 400 for input that cannot be decoded as this kind, and 403 for a name that is reserved. What
    /// is invalid (422) goes into `errors`.
    fn validate(_write: &WriteOf<'_, Self>, _errors: &mut FieldErrors) -> Result<(), ApiError> {
        Ok(())
    }

    /// The rights that the write of a prepared object requires beyond its verb on the object:
    /// all of them.
    fn required_rights(_write: &WriteOf<'_, Self>) -> Vec<RequiredRight> {
        Vec::new()
    }

    /// The rights that every create requires beyond its verb, for any content of the object.
    /// [`Self::required_rights`] has them, too.
    fn rights_to_create() -> Vec<RequiredRight> {
        Vec::new()
    }

    /// The permissions that the write of a prepared object gives to others, which its writer must hold or be allowed to
    /// give. `None` for a write that gives nothing.
    fn granted(_write: &WriteOf<'_, Self>) -> Option<Granted> {
        None
    }

    /// The roles that the write of a prepared object gives to others in a namespace, beyond the
    /// result of [`Self::granted`]; `None` for a write that gives none.
    fn granted_roles(_write: &WriteOf<'_, Self>) -> Option<GrantedRoles> {
        None
    }

    /// Warnings to the client about an object that is allowed.
    fn warnings(_metadata: &ObjectMeta) -> Vec<String> {
        Vec::new()
    }

    /// The cells of [`Info::columns`].
    fn cells(_object: &DraftOf<Self>) -> Vec<Cell> {
        Vec::new()
    }

    /// Checks that an object with this metadata may be deleted at all.
    ///
    /// # Errors
    /// 403 if it may not.
    fn check_delete(_metadata: &ObjectMeta, _ctx: &Context<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Sets the fields that say that deletion was requested.
    fn begin_delete(_fields: &mut Fields<Self::Spec, Self::Status>) {}

    /// Whether anything but `metadata.finalizers` blocks the deletion until a controller is done.
    fn blocks_deletion(_spec: &Self::Spec) -> bool {
        false
    }
}

/// The object-safe twin of [`Kind`].
pub trait AnyKind: Send + Sync {
    /// Names, scope, verbs and actions.
    fn info(&self) -> &'static Info;

    /// The schema of whole objects: for OpenAPI, unknown fields and types.
    fn schema(&self) -> &'static Schema;

    /// The cells of its columns; they are empty if the object cannot be decoded.
    fn cells(&self, object: &Object) -> Vec<Cell>;

    /// Prepares an object for a write, and returns the result of the kind's hooks.
    ///
    /// # Errors
    /// 400 if it cannot be decoded as this kind.
    fn prepare(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        ctx: &Context<'_>,
    ) -> Result<Prepared, ApiError>;

    /// The hooks of a kind of credentials.
    fn credential(&self) -> Option<AnyCredential>;

    /// Whether permissions on the owner of an object apply to the object.
    fn is_delegated(&self) -> bool {
        self.credential().is_some()
    }

    /// The owner of an object, given its JSON; `None` where [`AnyKind::is_delegated`] is
    /// false, and for an object that names no owner or cannot be decoded.
    fn owner(&self, json: &[u8]) -> Option<Owner> {
        self.owned_by(json).map(|owned| owned.owner)
    }

    /// The owner of an object, and the uid of the owner that the object belongs to. Otherwise as [`AnyKind::owner`].
    fn owned_by(&self, json: &[u8]) -> Option<OwnedBy> {
        (self.credential()?.owned_by)(json)
    }

    /// The verb on an owner that counts as a verb on the owned objects, for a kind with delegated
    /// rights.
    fn verb_on_owner(&self, verb: Verb) -> Option<&'static str> {
        self.is_delegated().then(|| key_verb(verb))
    }

    /// The right on the owner of an object that counts as the right to a verb on the object.
    fn delegated_right(&self, verb: Verb, owner: &Owner) -> Option<Right> {
        delegated_right(self.verb_on_owner(verb)?, owner)
    }

    /// Whether a create requires the right on the owner, also of callers that may create every object of the kind.
    fn needs_right_on_owner(&self) -> bool {
        self.credential().is_some_and(|credential| credential.needs_right_on_owner)
    }

    /// The objects that an object ends with, each in the form of an owner reference.
    fn ties(&self, object: &Object) -> Vec<OwnerReference> {
        self.credential().map_or(Vec::new(), |credential| (credential.ties)(object))
    }

    /// A stored object of an earlier version in the form of this one; `None` if it has this form already. In the earlier
    /// form, ties are owner references.
    fn upgraded(&self, json: &[u8]) -> Option<Object> {
        (self.credential()?.upgraded)(json)
    }

    /// The rights that every create requires beyond its verb.
    fn rights_to_create(&self) -> Vec<RequiredRight>;

    /// Whether authentication uses its objects.
    fn has_access_role(&self) -> bool;

    /// The change that an object is for authentication, given its JSON, or `None` for an
    /// object that was removed. An object that cannot be decoded, or is being deleted, gives no
    /// access: its change has no facts.
    fn access_change(&self, json: Option<&[u8]>) -> Option<AccessChange>;

    /// Whether its objects affect authorization, by their content or by their owners.
    fn has_policy_part(&self) -> bool;

    /// The change that an object is for the policy, given its JSON, or `None` for an object that was removed. An object
    /// that cannot be decoded gives no permissions.
    fn policy_change(&self, json: Option<&[u8]>, owner_uid: Option<&str>) -> Option<PolicyChange>;

    /// The keys of the object that no other object of its kind may have, beyond its name.
    ///
    /// # Errors
    /// 400 if the object cannot be decoded as this kind.
    fn unique_keys(&self, object: &Object) -> Result<Vec<UniqueKey>, ApiError>;

    /// Whether its objects have an owner and access rules.
    fn has_ownership(&self) -> bool;

    /// The owner and the access rules of an object; `None` for a kind without, and for an object
    /// that cannot be decoded.
    fn ownership(&self, object: &Object) -> Option<Ownership>;

    /// Puts back the fields that a replacement of an object keeps because it does not name them. These are the owner,
    /// and the [kept fields](Info::kept_fields) except those that are `removed`. Returns the kept fields that were
    /// put back.
    fn keep_unnamed(&self, new: &mut Object, old: &Object, removed: &[&str]) -> Vec<&'static str> {
        let info = self.info();
        let owner = self
            .ownership(new)
            .zip(self.ownership(old))
            .and_then(|(new, old)| old.owner.filter(|_| new.principal().is_none()));
        if let Some(owner) = owner {
            ownership::set_owner_field(&mut new.fields, info.layout, &owner);
        }
        let unnamed = info.kept_fields.iter().copied().filter(|name| !removed.contains(name));
        unnamed.filter(|name| keep_in_spec(&mut new.fields, &old.fields, name)).collect()
    }

    /// The fields, and values of fields, that are kept and have no effect.
    fn no_effect(&self) -> Cow<'static, [NoEffect]> {
        let of_access = self.has_ownership().then_some(ownership::NO_EFFECT);
        no_effect::table(self.info().no_effect, of_access)
    }

    /// The warnings about a new object with such fields.
    fn no_effect_warnings(&self, fields: &Map<String, Value>) -> Vec<String> {
        no_effect::warnings(&self.no_effect(), fields)
    }

    /// The name of the cluster that an object is on; `None` for an object on none, and for one
    /// that cannot be decoded.
    fn on_cluster(&self, object: &Object) -> Option<String>;

    /// The place of the kubeconfig by which an object is reached. `None` for an object that has none, and for one that
    /// cannot be decoded.
    fn kubeconfig(&self, object: &Object) -> Option<KubeconfigRef>;

    /// The TrustedIssuer of the tokens that an object accepts, and the claims that these must have.
    /// `None` for a kind that accepts none, and for an object that cannot be decoded.
    fn claim_matches(&self, object: &Object) -> Option<(String, Vec<ClaimMatch>)>;

    /// Whether its objects are targets of the gateway, so that their status has a phase.
    fn has_phase(&self) -> bool;

    /// Whether a kubeconfig can give the route to its objects.
    fn may_have_kubeconfig(&self) -> bool;

    /// Whether its objects have dependents.
    fn has_dependents(&self) -> bool;

    /// Whether a change of an object can change its dependents. `false` is certain.
    fn changes_dependents(&self, new: &Object, old: &Object) -> bool;

    /// The objects that are to be kept in step with an object, which has its uid. `previous` are
    /// the present objects under the names that the dependents have or had. The users and teams
    /// that they name by uid are still the ones that are meant. So the uids of a hand edit are
    /// taken as they are.
    ///
    /// # Errors
    /// 400 if the object cannot be decoded as this kind, 409 when an object is in the way.
    fn dependents(
        &self,
        object: &Object,
        previous: &[Object],
        ctx: &Context<'_>,
    ) -> Result<Vec<Dependent>, ApiError>;

    /// Warnings to the client about an object that is allowed.
    fn warnings(&self, metadata: &ObjectMeta) -> Vec<String>;

    /// Checks that an object with this metadata may be deleted at all.
    ///
    /// # Errors
    /// 403 if it may not.
    fn check_delete(&self, metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError>;

    /// Sets the fields that say that deletion was requested.
    ///
    /// # Errors
    /// 400 if the object cannot be decoded as this kind.
    fn begin_delete(&self, object: &mut Object) -> Result<(), ApiError>;

    /// Whether anything but `metadata.finalizers` blocks the deletion until a controller is done.
    ///
    /// # Errors
    /// 400 if the object cannot be decoded as this kind.
    fn blocks_deletion(&self, object: &Object) -> Result<bool, ApiError>;
}
