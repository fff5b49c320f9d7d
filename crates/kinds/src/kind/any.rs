//! The object-safe twin of [`Kind`], which the server, the client and the command line work with:
//! it decodes typed fields, asks the kind, and encodes them again.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use postern_meta::decode;
use postern_meta::field::FieldErrors;
use postern_meta::names::NameRule;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::schema::Schema;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ownership::{self, Owned, Ownership, OwnershipPart};
use super::zeros::LeftOut;
use super::{
    Companion, DataSource, Dependent, DraftOf, Info, Kind, NoEffect, StoredAs, StrictFields,
    UniqueKey, no_effect, unserved, zeros,
};
use crate::claim_match::ClaimMatch;
use crate::column::{Cell, ColumnInfo};
use crate::context::{Context, Observations};
use crate::fields::{Draft, FieldType, Fields, Layout, keep_in_spec};
use crate::kubeconfig_ref::KubeconfigRef;
use crate::names::MANAGEMENT_V1;
use crate::principal::{AccessChange, OwnedBy, Owner, Principals, delegated_right};
use crate::rbac::{Granted, GrantedRoles, PolicyChange};
use crate::right::{RequiredRight, Right};
use crate::scope::Scope;
use crate::ties;
use crate::verb::Verb;
use crate::write_only::WriteOnlyField;

/// The field with the desired state.
const SPEC: &str = "spec";

/// The results of preparing an object: all of them together, because the fields are decoded once.
#[derive(Debug)]
pub struct Prepared {
    /// The owner of the object, for a kind with delegated rights.
    pub owner: Option<Owner>,
    /// The uid of the user or team that the object belongs to, for a kind with access rules. It is stored next to the
    /// object.
    pub owner_uid: Option<String>,
    /// Rights that the write requires beyond its verb on the object: all of them.
    pub required_rights: Vec<RequiredRight>,
    /// The access that a credential gives, for a kind of credentials. A caller whose own key has a scope can create
    /// none with more access.
    pub carried: Option<Carried>,
    /// The permissions that a role or a binding gives to others. Its writer must hold them, or be allowed to give them.
    pub granted: Option<Granted>,
    /// ClusterRoles that are given in a namespace: to each of them, the same applies there.
    pub granted_roles: Option<GrantedRoles>,
    /// Can the object have dependents? `false` is certain.
    pub has_dependents: bool,
    /// Everything that is invalid in the object's own fields, or the error of [`Kind::validate`].
    /// Not to be returned to callers without the rights.
    pub verdict: Result<FieldErrors, ApiError>,
}

/// The access that a credential gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// All that its owner may do.
    Everything,
    /// At most what this scope names.
    Scope(Box<Scope>),
}

/// The object-safe twin of [`Kind`].
pub trait AnyKind: Send + Sync {
    /// Names, scope, verbs and actions.
    fn info(&self) -> &'static Info;

    /// The schema of whole objects: for OpenAPI, unknown fields and types.
    fn schema(&self) -> &'static Schema;

    /// The place of the fields of its objects.
    fn layout(&self) -> Layout;

    /// The stored kind of which it is another version.
    fn stored_as(&self) -> Option<StoredAs>;

    /// The rule for the names of its objects.
    fn name_rule(&self) -> NameRule;

    /// The columns of a table between name and age.
    fn columns(&self) -> &'static [ColumnInfo];

    /// The cells of these columns; they are empty if the object cannot be decoded.
    fn cells(&self, object: &Object) -> Vec<Cell>;

    /// Prepares an object for a write, and returns what the kind says about it.
    ///
    /// # Errors
    /// 400 if it cannot be decoded as this kind.
    fn prepare(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        ctx: &Context<'_>,
    ) -> Result<Prepared, ApiError>;

    /// The fields that clients write and no client reads back.
    fn write_only(&self) -> &'static [WriteOnlyField];

    /// The fields that only who may `get` the object is shown.
    fn read_protected(&self) -> &'static [&'static [&'static str]];

    /// The most bytes that an object has as JSON, where the kind has a limit of its own.
    fn max_bytes(&self) -> Option<usize>;

    /// The fields in which nothing is ignored.
    fn strict_fields(&self) -> StrictFields;

    /// The prefix of the name that the server generates when the client gives none.
    fn name_prefix(&self) -> Option<&'static str>;

    /// Whether permissions on the owner of an object apply to the object.
    fn is_delegated(&self) -> bool;

    /// The owner of an object, given its JSON; `None` where [`AnyKind::is_delegated`] is
    /// false, and for an object that names no owner or cannot be decoded.
    fn owner(&self, json: &[u8]) -> Option<Owner>;

    /// The owner of an object, and the uid of the owner that the object belongs to. Otherwise as [`AnyKind::owner`].
    fn owned_by(&self, json: &[u8]) -> Option<OwnedBy>;

    /// The verb on an owner that counts as a verb on what they own, for a kind with delegated
    /// rights.
    fn verb_on_owner(&self, verb: Verb) -> Option<&'static str>;

    /// The right on the owner of an object that counts as the right to a verb on the object.
    fn delegated_right(&self, verb: Verb, owner: &Owner) -> Option<Right>;

    /// Whether a create requires the right on the owner, also of callers that may create every object of the kind.
    fn needs_right_on_owner(&self) -> bool;

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
    /// and the [kept fields](AnyKind::kept_fields) except those that are `removed`. Returns the kept fields that were
    /// put back.
    fn keep_unnamed(&self, new: &mut Object, old: &Object, removed: &[&str]) -> Vec<&'static str>;

    /// The names of the fields of the spec that a replacement keeps if it does not name them.
    fn kept_fields(&self) -> &'static [&'static str];

    /// The fields, and values of fields, that are kept and have no effect.
    fn no_effect(&self) -> Cow<'static, [NoEffect]>;

    /// The warnings about a new object with such fields.
    fn no_effect_warnings(&self, fields: &Map<String, Value>) -> Vec<String> {
        no_effect::warnings(&self.no_effect(), fields)
    }

    /// Removes the fields of other servers that ask for nothing from an object. Returns an error for each that asks for
    /// something.
    fn take_unserved(&self, object: &mut Value) -> FieldErrors;

    /// The right by which a caller may do this to a part of an object, given its name; `None` where there is
    /// none.
    fn partial_right(&self, verb: Verb, name: &str) -> Option<Right>;

    /// Whether the quotas of a project limit the number of its objects.
    fn is_counted_in_quotas(&self) -> bool;

    /// The name of the cluster that an object is on; `None` for an object on none, and for one
    /// that cannot be decoded.
    fn on_cluster(&self, object: &Object) -> Option<String>;

    /// The place of the kubeconfig by which an object is reached. `None` for an object that has none, and for one that
    /// cannot be decoded.
    fn kubeconfig(&self, object: &Object) -> Option<KubeconfigRef>;

    /// The TrustedIssuer whose tokens an object accepts, and the claims that these must have. `None` for a kind that
    /// accepts none, and for an object that cannot be decoded.
    fn claim_matches(&self, object: &Object) -> Option<(String, Vec<ClaimMatch>)>;

    /// The object that an object with this metadata takes its data from. Of a core Secret it counts in
    /// the namespaces of projects alone.
    fn data_source(&self, metadata: &ObjectMeta) -> Option<DataSource>;

    /// Whether its objects are targets of the gateway, so that their status has a phase.
    fn has_phase(&self) -> bool;

    /// Whether a kubeconfig can give the route to its objects.
    fn may_have_kubeconfig(&self) -> bool;

    /// Whether its objects have dependents.
    fn has_dependents(&self) -> bool;

    /// Can a change of an object change its dependents? `false` is certain.
    fn changes_dependents(&self, new: &Object, old: &Object) -> bool;

    /// The objects that are to be kept in step with an object, which has its uid. `previous` are
    /// those that there are now under the names that the dependents have or had: whom they name by uid
    /// is still who is meant. So the uids of a hand edit are taken as they are.
    ///
    /// # Errors
    /// 400 if the object cannot be decoded as this kind, 409 when an object is in the way.
    fn dependents(
        &self,
        object: &Object,
        previous: &[Object],
        ctx: &Context<'_>,
    ) -> Result<Vec<Dependent>, ApiError>;

    /// The objects that an object ends with, each in the form of an owner reference.
    fn ties(&self, object: &Object) -> Vec<OwnerReference>;

    /// A stored object of an earlier version in the form of this one; `None` if it has this form already. In the earlier
    /// form, ties are owner references.
    fn upgraded(&self, json: &[u8]) -> Option<Object>;

    /// Whether the removal of an object changes others: see [`AnyKind::on_remove`].
    fn has_companions(&self) -> bool;

    /// The changes of other objects that go with the removal of one.
    ///
    /// # Errors
    /// 409 if there are more of them than one transaction takes.
    fn on_remove(
        &self,
        metadata: &ObjectMeta,
        principals: &dyn Principals,
    ) -> Result<Vec<Companion>, ApiError>;

    /// Whether the status has fields that are observed, not stored.
    fn is_observed(&self) -> bool;

    /// The observed status fields for an object of a name and uid.
    fn observed_status(
        &self,
        name: &str,
        uid: &str,
        observations: &dyn Observations,
    ) -> Vec<(&'static str, Value)>;

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

impl std::fmt::Debug for dyn AnyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.info().kind)
    }
}

/// A whole object. Only its schema is used.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the derived schema uses the fields")]
struct Whole<F> {
    /// Version of the schema that this object follows, as `group/version`. The server takes
    /// the endpoint's when it is absent, and refuses any other.
    #[serde(default)]
    api_version: String,
    /// The kind of this object, in CamelCase. If it is absent, the server takes the kind of the endpoint. Cannot be
    /// changed.
    #[serde(default)]
    kind: String,
    /// The metadata that all objects have: name, labels, annotations and the server's own bookkeeping.
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(flatten)]
    fields: F,
}

/// The schema of whole objects with these fields. It is made once for each type.
fn schema_of<F: JsonSchema + 'static>() -> &'static Schema {
    // A static of a generic function is shared between all its instances, so this is a map.
    static SCHEMAS: OnceLock<Mutex<HashMap<TypeId, &'static Schema>>> = OnceLock::new();
    let schemas = SCHEMAS.get_or_init(Mutex::default);
    let mut schemas = schemas.lock().unwrap_or_else(PoisonError::into_inner);
    schemas
        .entry(TypeId::of::<F>())
        .or_insert_with(|| Box::leak(Box::new(Schema::of::<Whole<F>>())))
}

/// The part of an object that authentication and ownership use, decoded directly from its JSON.
#[derive(Deserialize)]
#[serde(bound = "Spec: FieldType")]
struct SpecOnly<Spec> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
}

/// The same of a kind that has its fields at the top level.
#[derive(Deserialize)]
#[serde(bound = "Spec: FieldType")]
struct TopLevel<Spec> {
    metadata: ObjectMeta,
    #[serde(flatten)]
    spec: Spec,
}

fn spec_of<K: Kind>(json: &[u8]) -> Option<SpecOnly<K::Spec>> {
    match K::LAYOUT {
        Layout::SpecAndStatus => decode::decode_typed(json).ok(),
        Layout::TopLevel => {
            let TopLevel { metadata, spec } = decode::decode_typed(json).ok()?;
            Some(SpecOnly { metadata, spec })
        }
    }
}

/// The parts of a stored object that say who has access.
#[derive(Deserialize)]
#[serde(bound = "Spec: FieldType, Status: FieldType")]
struct AccessObject<Spec, Status> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// Reads an object of a kind with [`Kind::ACCESS_ROLE`], all of which have a spec and a status.
fn access_object<K: Kind>(json: &[u8]) -> Option<AccessObject<K::Spec, K::Status>> {
    decode::decode_typed(json).ok()
}

fn draft<K: Kind>(object: &Object) -> Result<DraftOf<K>, ApiError> {
    Ok(Draft { metadata: object.metadata.clone(), fields: fields::<K>(object)? })
}

fn fields<K: Kind>(object: &Object) -> Result<Fields<K::Spec, K::Status>, ApiError> {
    // Deserialising from the borrowed map copies each string once and nothing else.
    let fields = match K::LAYOUT {
        Layout::SpecAndStatus => Fields::deserialize(&object.fields),
        Layout::TopLevel => K::Spec::deserialize(&object.fields).map(Fields::of),
    };
    fields.map_err(|_| {
        // The schema has checked the types already; serde's own text could quote a value.
        ApiError::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}",
            kind = K::INFO.kind,
            version = K::INFO.version.version,
        ))
    })
}

/// The owner and the access rules of an object, after a write and before.
fn ownerships<K: Kind>(
    part: &OwnershipPart<K::Spec>,
    new: &DraftOf<K>,
    old: Option<&DraftOf<K>>,
) -> (Ownership, Option<Ownership>) {
    ((part.get)(&new.fields.spec), old.map(|old| (part.get)(&old.fields.spec)))
}

/// The zero values that a client sent in the spec of a kind of our own group, and that its encoding leaves out.
fn sent_zeros<K: Kind>(sent: &Object, spec: &K::Spec) -> Option<LeftOut> {
    let is_ours = K::INFO.version == MANAGEMENT_V1 && K::LAYOUT == Layout::SpecAndStatus;
    let sent = sent.fields.get(SPEC).filter(|sent| is_ours && zeros::has_zero(sent))?;
    zeros::left_out(sent, &serde_json::to_value(spec).ok()?)
}

fn encode<K: Kind>(draft: DraftOf<K>, object: &mut Object) -> Result<(), ApiError> {
    let fields = match K::LAYOUT {
        Layout::SpecAndStatus => serde_json::to_value(&draft.fields),
        Layout::TopLevel => serde_json::to_value(&draft.fields.spec),
    };
    match fields {
        Ok(Value::Object(fields)) => {
            object.metadata = draft.metadata;
            object.fields = fields;
            Ok(())
        }
        _ => Err(ApiError::internal("the object could not be encoded", K::INFO.kind)),
    }
}

impl<K: Kind> AnyKind for K {
    fn info(&self) -> &'static Info {
        const { assert!(K::INFO.is_complete(), "a kind must have names and a description") }
        &K::INFO
    }

    fn schema(&self) -> &'static Schema {
        match K::LAYOUT {
            Layout::SpecAndStatus => schema_of::<Fields<K::Spec, K::Status>>(),
            Layout::TopLevel => schema_of::<K::Spec>(),
        }
    }

    fn layout(&self) -> Layout {
        K::LAYOUT
    }

    fn stored_as(&self) -> Option<StoredAs> {
        K::STORED_AS
    }

    fn name_rule(&self) -> NameRule {
        K::NAME_RULE
    }

    fn columns(&self) -> &'static [ColumnInfo] {
        K::COLUMNS
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        draft::<K>(object).map_or_else(
            |_| K::COLUMNS.iter().map(|_| Cell::Text(String::new())).collect(),
            |draft| K::cells(&draft),
        )
    }

    fn prepare(
        &self,
        new: &mut Object,
        old: Option<&Object>,
        ctx: &Context<'_>,
    ) -> Result<Prepared, ApiError> {
        let fields = fields::<K>(new)?;
        let zeros = sent_zeros::<K>(new, &fields.spec);
        let old = old.map(draft::<K>).transpose()?;
        let mut draft = Draft { metadata: std::mem::take(&mut new.metadata), fields };
        if let (Some(part), None) = (K::OWNERSHIP, &old) {
            ownership::set_owner((part.owner_mut)(&mut draft.fields.spec), ctx);
        }
        K::prepare(&mut draft, old.as_ref(), ctx);
        let mut errors = FieldErrors::new();
        let mut required_rights = K::required_rights(&draft, old.as_ref(), ctx);
        let (mut has_dependents, mut owner_uid) = (K::DEPENDENTS.is_some(), None);
        if let Some(part) = K::OWNERSHIP {
            let (new_ownership, old_ownership) = ownerships::<K>(&part, &draft, old.as_ref());
            owner_uid = ownership::owner_uid_after(&new_ownership, old_ownership.as_ref(), ctx);
            has_dependents |= new_ownership.rules().next().is_some();
            let of = Owned { info: &K::INFO, metadata: &draft.metadata };
            let (rights, invalid) =
                (part.rules.check)(of, &new_ownership, old_ownership.as_ref(), ctx);
            required_rights.extend(rights);
            errors.extend(invalid);
        }
        let owner = K::DELEGATION.and_then(|delegation| (delegation.owner)(&draft.fields.spec));
        let carried = K::CARRIED_SCOPE.map(|scope| match scope(&draft.fields.spec) {
            Some(scope) => Carried::Scope(Box::new(scope.clone())),
            None => Carried::Everything,
        });
        let granted = K::granted(&draft, old.as_ref());
        let granted_roles = K::granted_roles(&draft, old.as_ref(), ctx);
        let verdict = K::validate(&draft, old.as_ref(), ctx, &mut errors).map(|()| errors);
        encode::<K>(draft, new)?;
        if let (Some(zeros), Some(spec)) = (zeros, new.fields.get_mut(SPEC)) {
            zeros.restore(spec);
        }
        Ok(Prepared {
            owner,
            owner_uid,
            required_rights,
            carried,
            granted,
            granted_roles,
            has_dependents,
            verdict,
        })
    }

    fn write_only(&self) -> &'static [WriteOnlyField] {
        K::WRITE_ONLY
    }

    fn read_protected(&self) -> &'static [&'static [&'static str]] {
        K::READ_PROTECTED
    }

    fn max_bytes(&self) -> Option<usize> {
        K::MAX_BYTES
    }

    fn strict_fields(&self) -> StrictFields {
        K::STRICT_FIELDS
    }

    fn name_prefix(&self) -> Option<&'static str> {
        K::NAME_PREFIX
    }

    fn is_delegated(&self) -> bool {
        K::DELEGATION.is_some()
    }

    fn owner(&self, json: &[u8]) -> Option<Owner> {
        self.owned_by(json).map(|owned| owned.owner)
    }

    fn owned_by(&self, json: &[u8]) -> Option<OwnedBy> {
        let (delegation, ties) = K::DELEGATION.zip(K::TIES)?;
        let object = access_object::<K>(json)?;
        let owner = (delegation.owner)(&object.spec)?;
        let uid = ties(&object.status).owner_uid.to_owned();
        Some(OwnedBy { owner, uid })
    }

    fn verb_on_owner(&self, verb: Verb) -> Option<&'static str> {
        K::DELEGATION.map(|delegation| (delegation.verb)(verb))
    }

    fn delegated_right(&self, verb: Verb, owner: &Owner) -> Option<Right> {
        delegated_right((K::DELEGATION?.verb)(verb), owner)
    }

    fn needs_right_on_owner(&self) -> bool {
        K::DELEGATION.is_some_and(|delegation| delegation.is_always_needed)
    }

    fn rights_to_create(&self) -> Vec<RequiredRight> {
        K::rights_to_create()
    }

    fn has_access_role(&self) -> bool {
        K::ACCESS_ROLE.is_some()
    }

    fn access_change(&self, json: Option<&[u8]>) -> Option<AccessChange> {
        let role = K::ACCESS_ROLE?;
        let object = json.and_then(access_object::<K>);
        let parts = object.as_ref().map(|object| (&object.metadata, &object.spec, &object.status));
        Some(role.change(parts))
    }

    fn has_policy_part(&self) -> bool {
        K::POLICY_PART.is_some() || K::OWNERSHIP.is_some()
    }

    fn policy_change(&self, json: Option<&[u8]>, owner_uid: Option<&str>) -> Option<PolicyChange> {
        let Some(part) = K::POLICY_PART else {
            let uid = owner_uid.filter(|uid| json.is_some() && !uid.is_empty());
            let owner = || PolicyChange::Owner(K::INFO.group_resource(), uid.map(str::to_owned));
            return K::OWNERSHIP.map(|_| owner());
        };
        let object = json.and_then(spec_of::<K>);
        Some(part.change(object.as_ref().map(|object| (&object.metadata, &object.spec))))
    }

    fn unique_keys(&self, object: &Object) -> Result<Vec<UniqueKey>, ApiError> {
        let Some(of) = K::UNIQUE_KEYS else { return Ok(Vec::new()) };
        Ok(of(&object.metadata, &fields::<K>(object)?.spec))
    }

    fn has_ownership(&self) -> bool {
        K::OWNERSHIP.is_some()
    }

    fn ownership(&self, object: &Object) -> Option<Ownership> {
        let part = K::OWNERSHIP?;
        fields::<K>(object).ok().map(|fields| (part.get)(&fields.spec))
    }

    fn keep_unnamed(&self, new: &mut Object, old: &Object, removed: &[&str]) -> Vec<&'static str> {
        let owner = self
            .ownership(new)
            .zip(self.ownership(old))
            .and_then(|(new, old)| old.owner.filter(|_| new.principal().is_none()));
        if let Some(owner) = owner {
            ownership::set_owner_field(&mut new.fields, K::LAYOUT, &owner);
        }
        let unnamed = K::KEPT_FIELDS.iter().copied().filter(|name| !removed.contains(name));
        unnamed.filter(|name| keep_in_spec(&mut new.fields, &old.fields, name)).collect()
    }

    fn kept_fields(&self) -> &'static [&'static str] {
        K::KEPT_FIELDS
    }

    fn no_effect(&self) -> Cow<'static, [NoEffect]> {
        let of_access = K::OWNERSHIP.map(|_| ownership::NO_EFFECT);
        no_effect::table(K::NO_EFFECT, of_access)
    }

    fn take_unserved(&self, object: &mut Value) -> FieldErrors {
        unserved::take(K::UNSERVED_FIELDS, object)
    }

    fn partial_right(&self, verb: Verb, name: &str) -> Option<Right> {
        K::PARTIAL_RIGHT?(verb, name)
    }

    fn is_counted_in_quotas(&self) -> bool {
        K::COUNTED_IN_QUOTAS
    }

    fn on_cluster(&self, object: &Object) -> Option<String> {
        let of = K::ON_CLUSTER?;
        of(&fields::<K>(object).ok()?.spec).map(str::to_owned)
    }

    fn kubeconfig(&self, object: &Object) -> Option<KubeconfigRef> {
        let of = K::KUBECONFIG?;
        of(&fields::<K>(object).ok()?.spec).cloned()
    }

    fn claim_matches(&self, object: &Object) -> Option<(String, Vec<ClaimMatch>)> {
        let of = K::CLAIM_MATCHES?;
        let spec = fields::<K>(object).ok()?.spec;
        let (issuer, list) = of(&spec);
        Some((issuer.to_owned(), list.to_vec()))
    }

    fn data_source(&self, metadata: &ObjectMeta) -> Option<DataSource> {
        K::DATA_SOURCE?(metadata)
    }

    fn has_phase(&self) -> bool {
        K::KUBECONFIG.is_some() || K::ON_CLUSTER.is_some()
    }

    fn may_have_kubeconfig(&self) -> bool {
        K::KUBECONFIG.is_some()
    }

    fn has_dependents(&self) -> bool {
        K::OWNERSHIP.is_some() || K::DEPENDENTS.is_some()
    }

    fn changes_dependents(&self, new: &Object, old: &Object) -> bool {
        let access =
            |object| self.ownership(object).map(|ownership| (ownership.access, ownership.extra));
        K::DEPENDENTS.is_some() || access(new) != access(old)
    }

    fn dependents(
        &self,
        object: &Object,
        previous: &[Object],
        ctx: &Context<'_>,
    ) -> Result<Vec<Dependent>, ApiError> {
        if !self.has_dependents() {
            return Ok(Vec::new());
        }
        let spec = fields::<K>(object)?.spec;
        let own = K::DEPENDENTS
            .map(|dependents| dependents(&object.metadata, &spec, previous, ctx))
            .transpose()?;
        let mut all = own.unwrap_or_default();
        if let Some(part) = K::OWNERSHIP {
            let of = Owned { info: &K::INFO, metadata: &object.metadata };
            all.extend((part.rules.dependents)(of, &(part.get)(&spec), ctx)?);
        }
        Ok(all)
    }

    fn ties(&self, object: &Object) -> Vec<OwnerReference> {
        let (Some(of), Ok(fields)) = (K::TIES, fields::<K>(object)) else { return Vec::new() };
        let owner = K::DELEGATION.and_then(|delegation| (delegation.owner)(&fields.spec));
        of(&fields.status).references(owner.as_ref())
    }

    fn upgraded(&self, json: &[u8]) -> Option<Object> {
        let (delegation, of) = K::DELEGATION.zip(K::TIES)?;
        let mut object: Object = decode::decode_typed(json).ok()?;
        let fields = fields::<K>(&object).ok()?;
        let owner = (delegation.owner)(&fields.spec);
        ties::upgrade(&mut object, owner.as_ref(), &of(&fields.status)).then_some(object)
    }

    fn has_companions(&self) -> bool {
        K::ON_REMOVE.is_some()
    }

    fn on_remove(
        &self,
        metadata: &ObjectMeta,
        principals: &dyn Principals,
    ) -> Result<Vec<Companion>, ApiError> {
        K::ON_REMOVE.map_or(Ok(Vec::new()), |companions| companions(metadata, principals))
    }

    fn is_observed(&self) -> bool {
        K::OBSERVED_STATUS.is_some()
    }

    fn observed_status(
        &self,
        name: &str,
        uid: &str,
        observations: &dyn Observations,
    ) -> Vec<(&'static str, Value)> {
        K::OBSERVED_STATUS.map_or(Vec::new(), |observe| observe(name, uid, observations))
    }

    fn warnings(&self, metadata: &ObjectMeta) -> Vec<String> {
        K::warnings(metadata)
    }

    fn check_delete(&self, metadata: &ObjectMeta, ctx: &Context<'_>) -> Result<(), ApiError> {
        K::check_delete(metadata, ctx)
    }

    fn begin_delete(&self, object: &mut Object) -> Result<(), ApiError> {
        let mut draft = draft::<K>(object)?;
        K::begin_delete(&mut draft.fields);
        encode::<K>(draft, object)
    }

    fn blocks_deletion(&self, object: &Object) -> Result<bool, ApiError> {
        Ok(K::blocks_deletion(&fields::<K>(object)?.spec))
    }
}

#[cfg(test)]
mod tests;
