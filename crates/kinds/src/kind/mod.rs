//! The declaration of a kind: one implementation of [`Kind`] is one file of this crate.
//!
//! A kind is written with typed fields. The server works with [`AnyKind`], which decodes them once
//! for each write. A kind declares a hook for each thing in which it differs from the others.
//! Nothing here reads a clock or decides who may do what.

use postern_meta::field::FieldErrors;
use postern_meta::names::NameRule;
use postern_meta::object::ObjectMeta;
use postern_meta::status::ApiError;
use serde_json::{Map, Value};

use crate::claim_match::ClaimMatch;
use crate::column::{Cell, ColumnInfo};
use crate::context::{Context, Observations};
use crate::fields::{Draft, FieldType, Fields, Layout};
use crate::kubeconfig_ref::KubeconfigRef;
use crate::principal::{AccessRole, Delegation, Principals};
use crate::rbac::{Granted, GrantedRoles, PolicyPart};
use crate::right::{RequiredRight, Right};
use crate::scope::Scope;
use crate::ties::Ties;
use crate::verb::Verb;
use crate::write_only::WriteOnlyField;
use ownership::OwnershipPart;

pub mod action;
mod any;
mod data_source;
pub(crate) mod dependent;
mod info;
mod no_effect;
pub(crate) mod ownership;
mod stored_as;
mod strict;
mod unserved;
mod zeros;

pub use any::{AnyKind, Carried, Prepared};
pub use data_source::DataSource;
pub use dependent::{Dependent, Dependents};
pub use info::{Info, ResourceScope, SelectableField};
pub use no_effect::NoEffect;
pub use stored_as::StoredAs;
pub use strict::StrictFields;
pub use unserved::UnservedField;
pub use zeros::is_zero;

/// The draft of a kind.
pub type DraftOf<K> = Draft<Fields<<K as Kind>::Spec, <K as Kind>::Status>>;

/// A key that only one object of a kind may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueKey {
    /// The field that it comes from, for errors.
    pub field: &'static str,
    /// The value.
    pub value: String,
    /// Is it a place that belongs to one object? A place that is already taken is a conflict; another value that
    /// already exists is invalid.
    pub is_place: bool,
}

/// The unique keys of an object.
pub type UniqueKeys<Spec> = fn(&ObjectMeta, &Spec) -> Vec<UniqueKey>;

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

/// The name of the cluster that an object is on; `None` for an object on none.
pub type OnCluster<Spec> = fn(&Spec) -> Option<&str>;

/// The place of the kubeconfig by which an object is reached; `None` for an object that has none.
pub type KubeconfigOf<Spec> = fn(&Spec) -> Option<&KubeconfigRef>;

/// The object that an object takes its data from; `None` for one that has data of its own.
pub type DataSourceOf = fn(&ObjectMeta) -> Option<DataSource>;

/// The TrustedIssuer whose tokens an object accepts, and the claims that these must have.
pub type ClaimMatches<Spec> = fn(&Spec) -> (&str, &[ClaimMatch]);

/// The objects that an object ends with.
pub type TiesOf<Status> = for<'a> fn(&'a Status) -> Ties<'a>;

/// The right by which a caller who may `get` an object may also do this to a part of it, given its name; `None`
/// for a verb without one. The kind's [`Kind::required_rights`] ask for the whole right where a write changes more.
pub type PartialRight = fn(Verb, &str) -> Option<Right>;

/// The scope of a credential; `None` for one without.
pub type CarriedScope<Spec> = fn(&Spec) -> Option<&Scope>;

/// A kind, written for its own typed fields.
pub trait Kind: Sized + Send + Sync + 'static {
    /// The desired state.
    type Spec: FieldType;

    /// The observed state.
    type Status: FieldType;

    /// Names, scope, verbs and actions.
    const INFO: Info;

    /// Where its fields are. A kind with [`Layout::TopLevel`] has no status.
    const LAYOUT: Layout = Layout::SpecAndStatus;

    /// The stored kind of which it is another version; `None` for a kind with objects of its own.
    const STORED_AS: Option<StoredAs> = None;

    /// The rule for the names of its objects.
    const NAME_RULE: NameRule = NameRule::Subdomain;

    /// The columns of a table between name and age.
    const COLUMNS: &'static [ColumnInfo] = &[];

    /// Fields that clients write and no client reads back.
    const WRITE_ONLY: &'static [WriteOnlyField] = &[];

    /// The fields that only callers who may `get` the object receive, also in the response to their own write. See
    /// `docs/reference/api.md#write-without-read`.
    const READ_PROTECTED: &'static [&'static [&'static str]] = &[];

    /// The prefix of the name that the server generates when the client gives neither `name` nor
    /// `generateName`; `None` where that is an error.
    const NAME_PREFIX: Option<&'static str> = None;

    /// The most bytes that an object of this kind has as JSON, where it has a limit of its own.
    const MAX_BYTES: Option<usize> = None;

    /// Fields that grant or narrow access, in which nothing is ignored, whatever the client asks for.
    const STRICT_FIELDS: StrictFields = StrictFields::of(&Self::INFO);

    /// Fields of the platform's clients that this server does not have.
    const UNSERVED_FIELDS: &'static [UnservedField] = &[];

    /// Fields of the platform's clients that this server keeps, and that have no effect. Those of access rules are not
    /// among them.
    const NO_EFFECT: &'static [NoEffect] = &[];

    /// Fields of the spec that the platform's clients do not know, by their names: a PUT that does not name one keeps
    /// it, and null removes it.
    const KEPT_FIELDS: &'static [&'static str] = &[];

    /// The owner and the access rules of its objects.
    const OWNERSHIP: Option<OwnershipPart<Self::Spec>> = None;

    /// Objects that are kept in step with one, beyond those of its access rules.
    const DEPENDENTS: Option<Dependents<Self::Spec>> = None;

    /// The right that opens a write of an object to callers who may change a part of it alone.
    const PARTIAL_RIGHT: Option<PartialRight> = None;

    /// Whether the quotas of a project limit the number of its objects in the project's namespace.
    const COUNTED_IN_QUOTAS: bool = false;

    /// The cluster that an object is on, for a kind whose objects a project allows on some clusters only;
    /// `None` from it for an object that is on none.
    const ON_CLUSTER: Option<OnCluster<Self::Spec>> = None;

    /// The kubeconfig by which an object is reached, for a kind whose objects are reached by one.
    const KUBECONFIG: Option<KubeconfigOf<Self::Spec>> = None;

    /// The object that an object takes its data from, for a kind whose objects can.
    const DATA_SOURCE: Option<DataSourceOf> = None;

    /// The keys that only one object of the kind may have, beyond its name.
    const UNIQUE_KEYS: Option<UniqueKeys<Self::Spec>> = None;

    /// Rights on the owner of an object that count as rights on the object.
    const DELEGATION: Option<Delegation<Self::Spec>> = None;

    /// The role of its objects in authentication.
    const ACCESS_ROLE: Option<AccessRole<Self::Spec, Self::Status>> = None;

    /// The role of its objects in the policy: who may do what.
    const POLICY_PART: Option<PolicyPart<Self::Spec>> = None;

    /// The scope that its objects carry, for a kind whose objects are credentials; `None` from it for a
    /// credential that has no scope.
    const CARRIED_SCOPE: Option<CarriedScope<Self::Spec>> = None;

    /// The tokens that its objects accept, for a kind whose objects do.
    const CLAIM_MATCHES: Option<ClaimMatches<Self::Spec>> = None;

    /// The objects that an object ends with, by records of the server's. The garbage collector deletes it with the first of
    /// them, whatever owner references it has. A kind with [`Kind::DELEGATION`] has them.
    const TIES: Option<TiesOf<Self::Status>> = None;

    /// Changes of other objects that go with the removal of one.
    const ON_REMOVE: Option<OnRemove> = None;

    /// Fields of the status that are observed, not stored.
    const OBSERVED_STATUS: Option<ObservedStatus> = None;

    /// Sets what the server decides: defaults, and what a client may not set. `old` is the stored
    /// object, on an update.
    fn prepare(_new: &mut DraftOf<Self>, _old: Option<&DraftOf<Self>>, _ctx: &Context<'_>) {}

    /// Adds everything that is invalid in a prepared object to `errors`. Its metadata is checked
    /// elsewhere, and its managed fields are not set yet.
    ///
    /// # Errors
    /// 400 for input that cannot be decoded as this kind, and 403 for a name that is reserved. What
    /// is invalid (422) goes into `errors`.
    fn validate(
        _new: &DraftOf<Self>,
        _old: Option<&DraftOf<Self>>,
        _ctx: &Context<'_>,
        _errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// The rights that the write of a prepared object requires beyond its verb on the object:
    /// all of them.
    fn required_rights(
        _new: &DraftOf<Self>,
        _old: Option<&DraftOf<Self>>,
        _ctx: &Context<'_>,
    ) -> Vec<RequiredRight> {
        Vec::new()
    }

    /// The rights that every create requires beyond its verb, whatever the object has. [`Self::required_rights`] has them,
    /// too.
    fn rights_to_create() -> Vec<RequiredRight> {
        Vec::new()
    }

    /// The permissions that the write of a prepared object gives to others, which its writer must hold or be allowed to
    /// give. `None` for a write that gives nothing.
    fn granted(_new: &DraftOf<Self>, _old: Option<&DraftOf<Self>>) -> Option<Granted> {
        None
    }

    /// The roles that the write of a prepared object gives to others in a namespace, beyond what
    /// [`Self::granted`] returns; `None` for a write that gives none.
    fn granted_roles(
        _new: &DraftOf<Self>,
        _old: Option<&DraftOf<Self>>,
        _ctx: &Context<'_>,
    ) -> Option<GrantedRoles> {
        None
    }

    /// Warnings to the client about an object that is allowed.
    fn warnings(_metadata: &ObjectMeta) -> Vec<String> {
        Vec::new()
    }

    /// The cells of [`Self::COLUMNS`].
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
