//! The object-safe twin of [`Kind`], which the server, the client and the command line work with:
//! it decodes typed fields, asks the kind, and encodes them again.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use postern_meta::decode;
use postern_meta::field::FieldErrors;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use postern_meta::schema::Schema;
use postern_meta::status::ApiError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ownership::{self, Owned, Ownership};
use super::zeros::LeftOut;
use super::{AnyKind, Dependent, DraftOf, Info, Kind, UniqueKey, Write, zeros};
use crate::claim_match::ClaimMatch;
use crate::column::Cell;
use crate::context::Context;
use crate::fields::{Draft, FieldType, Fields, Layout};
use crate::kubeconfig_ref::KubeconfigRef;
use crate::names::MANAGEMENT_V1;
use crate::principal::{AccessChange, OwnedBy, Owner};
use crate::rbac::{Granted, GrantedRoles, PolicyChange};
use crate::right::RequiredRight;
use crate::scope::Scope;
use crate::ties;

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
    /// The access that a credential gives, for a kind of credentials. A caller with a scoped key
    /// can create no credential with more access.
    pub carried: Option<Carried>,
    /// The permissions that a role or a binding gives to others. Its writer must hold them, or be allowed to give them.
    pub granted: Option<Granted>,
    /// ClusterRoles that are given in a namespace: to each of them, the same applies there.
    pub granted_roles: Option<GrantedRoles>,
    /// Whether the object can have dependents. `false` is certain.
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
    /// At most the access that this scope names.
    Scope(Box<Scope>),
}

/// The hooks of a kind of credentials, for objects as they are stored.
#[derive(Clone, Copy, Debug)]
pub struct AnyCredential {
    pub(super) needs_right_on_owner: bool,
    pub(super) owned_by: fn(&[u8]) -> Option<OwnedBy>,
    pub(super) ties: fn(&Object) -> Vec<OwnerReference>,
    pub(super) upgraded: fn(&[u8]) -> Option<Object>,
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
    match K::INFO.layout {
        Layout::SpecAndStatus => decode::decode_typed(json).ok(),
        Layout::TopLevel => {
            let TopLevel { metadata, spec } = decode::decode_typed(json).ok()?;
            Some(SpecOnly { metadata, spec })
        }
    }
}

/// The parts of a stored object that decide about access.
#[derive(Deserialize)]
#[serde(bound = "Spec: FieldType, Status: FieldType")]
struct AccessObject<Spec, Status> {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// Reads an object of a kind with [`Parts::access_role`], all of which have a spec and a status.
fn access_object<K: Kind>(json: &[u8]) -> Option<AccessObject<K::Spec, K::Status>> {
    decode::decode_typed(json).ok()
}

fn draft<K: Kind>(object: &Object) -> Result<DraftOf<K>, ApiError> {
    Ok(Draft { metadata: object.metadata.clone(), fields: fields::<K>(object)? })
}

fn fields<K: Kind>(object: &Object) -> Result<Fields<K::Spec, K::Status>, ApiError> {
    // Deserialising from the borrowed map copies each string once and nothing else.
    let fields = match K::INFO.layout {
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

/// The zero values that a client sent in the spec of a kind of our own group, and that its encoding leaves out.
fn sent_zeros<K: Kind>(sent: &Object, spec: &K::Spec) -> Option<LeftOut> {
    let is_ours = K::INFO.version == MANAGEMENT_V1 && K::INFO.layout == Layout::SpecAndStatus;
    let sent = sent.fields.get(SPEC).filter(|sent| is_ours && zeros::has_zero(sent))?;
    zeros::left_out(sent, &serde_json::to_value(spec).ok()?)
}

fn encode<K: Kind>(draft: DraftOf<K>, object: &mut Object) -> Result<(), ApiError> {
    let fields = match K::INFO.layout {
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

fn owned_by<K: Kind>(json: &[u8]) -> Option<OwnedBy> {
    let credential = K::PARTS.credential?;
    let object = access_object::<K>(json)?;
    let owner = (credential.owner)(&object.spec)?;
    let uid = (credential.ties)(&object.status).owner_uid.to_owned();
    Some(OwnedBy { owner, uid })
}

fn ties_of<K: Kind>(object: &Object) -> Vec<OwnerReference> {
    let (Some(credential), Ok(fields)) = (K::PARTS.credential, fields::<K>(object)) else {
        return Vec::new();
    };
    let owner = (credential.owner)(&fields.spec);
    (credential.ties)(&fields.status).references(owner.as_ref())
}

fn upgraded<K: Kind>(json: &[u8]) -> Option<Object> {
    let credential = K::PARTS.credential?;
    let mut object: Object = decode::decode_typed(json).ok()?;
    let fields = fields::<K>(&object).ok()?;
    let owner = (credential.owner)(&fields.spec);
    let ties = (credential.ties)(&fields.status);
    ties::upgrade(&mut object, owner.as_ref(), &ties).then_some(object)
}

impl<K: Kind> AnyKind for K {
    fn info(&self) -> &'static Info {
        const { assert!(K::INFO.is_complete(), "a kind must have names and a description") }
        &K::INFO
    }

    fn schema(&self) -> &'static Schema {
        match K::INFO.layout {
            Layout::SpecAndStatus => schema_of::<Fields<K::Spec, K::Status>>(),
            Layout::TopLevel => schema_of::<K::Spec>(),
        }
    }

    fn cells(&self, object: &Object) -> Vec<Cell> {
        draft::<K>(object).map_or_else(
            |_| K::INFO.columns.iter().map(|_| Cell::Text(String::new())).collect(),
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
        if let (Some(part), None) = (K::PARTS.ownership, &old) {
            ownership::set_owner((part.owner_mut)(&mut draft.fields.spec), ctx);
        }
        if !K::INFO.is_stored() {
            draft.fields.status = K::Status::default();
        }
        K::prepare(&mut draft, old.as_ref(), ctx);
        let write = Write { new: &draft, old: old.as_ref(), ctx };
        let mut errors = FieldErrors::new();
        let mut required_rights = K::required_rights(&write);
        let (mut has_dependents, mut owner_uid) = (K::PARTS.dependents.is_some(), None);
        if let Some(part) = K::PARTS.ownership {
            let new_ownership = (part.get)(write.spec());
            let old_ownership = write.old_spec().map(part.get);
            owner_uid = ownership::owner_uid_after(&new_ownership, old_ownership.as_ref(), ctx);
            has_dependents |= new_ownership.rules().next().is_some();
            let of = Owned { info: &K::INFO, metadata: &draft.metadata };
            let (rights, invalid) =
                (part.rules.check)(of, &new_ownership, old_ownership.as_ref(), ctx);
            required_rights.extend(rights);
            errors.extend(invalid);
        }
        let credential = K::PARTS.credential.as_ref();
        let owner = credential.and_then(|credential| (credential.owner)(&draft.fields.spec));
        let carried = credential.map(|credential| match (credential.scope)(&draft.fields.spec) {
            Some(scope) => Carried::Scope(Box::new(scope.clone())),
            None => Carried::Everything,
        });
        let granted = K::granted(&write);
        let granted_roles = K::granted_roles(&write);
        let verdict = K::validate(&write, &mut errors).map(|()| errors);
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

    fn credential(&self) -> Option<AnyCredential> {
        K::PARTS.credential.map(|credential| AnyCredential {
            needs_right_on_owner: credential.needs_right_on_owner,
            owned_by: owned_by::<K>,
            ties: ties_of::<K>,
            upgraded: upgraded::<K>,
        })
    }

    fn rights_to_create(&self) -> Vec<RequiredRight> {
        K::rights_to_create()
    }

    fn has_access_role(&self) -> bool {
        K::PARTS.access_role.is_some()
    }

    fn access_change(&self, json: Option<&[u8]>) -> Option<AccessChange> {
        let role = K::PARTS.access_role?;
        let object = json.and_then(access_object::<K>);
        let parts = object.as_ref().map(|object| (&object.metadata, &object.spec, &object.status));
        Some(role.change(parts))
    }

    fn has_policy_part(&self) -> bool {
        K::PARTS.policy.is_some() || K::PARTS.ownership.is_some()
    }

    fn policy_change(&self, json: Option<&[u8]>, owner_uid: Option<&str>) -> Option<PolicyChange> {
        let Some(part) = K::PARTS.policy else {
            let uid = owner_uid.filter(|uid| json.is_some() && !uid.is_empty());
            let owner = || PolicyChange::Owner(K::INFO.group_resource(), uid.map(str::to_owned));
            return K::PARTS.ownership.map(|_| owner());
        };
        let object = json.and_then(spec_of::<K>);
        Some(part.change(object.as_ref().map(|object| (&object.metadata, &object.spec))))
    }

    fn unique_keys(&self, object: &Object) -> Result<Vec<UniqueKey>, ApiError> {
        let Some(of) = K::PARTS.unique_keys else { return Ok(Vec::new()) };
        Ok(of(&object.metadata, &fields::<K>(object)?.spec))
    }

    fn has_ownership(&self) -> bool {
        K::PARTS.ownership.is_some()
    }

    fn ownership(&self, object: &Object) -> Option<Ownership> {
        let part = K::PARTS.ownership?;
        fields::<K>(object).ok().map(|fields| (part.get)(&fields.spec))
    }

    fn on_cluster(&self, object: &Object) -> Option<String> {
        let of = K::PARTS.on_cluster?;
        of(&fields::<K>(object).ok()?.spec).map(str::to_owned)
    }

    fn kubeconfig(&self, object: &Object) -> Option<KubeconfigRef> {
        let of = K::PARTS.kubeconfig?;
        of(&fields::<K>(object).ok()?.spec).cloned()
    }

    fn claim_matches(&self, object: &Object) -> Option<(String, Vec<ClaimMatch>)> {
        let of = K::PARTS.claim_matches?;
        let spec = fields::<K>(object).ok()?.spec;
        let (issuer, list) = of(&spec);
        Some((issuer.to_owned(), list.to_vec()))
    }

    fn has_phase(&self) -> bool {
        K::PARTS.kubeconfig.is_some() || K::PARTS.on_cluster.is_some()
    }

    fn may_have_kubeconfig(&self) -> bool {
        K::PARTS.kubeconfig.is_some()
    }

    fn has_dependents(&self) -> bool {
        K::PARTS.ownership.is_some() || K::PARTS.dependents.is_some()
    }

    fn changes_dependents(&self, new: &Object, old: &Object) -> bool {
        let access =
            |object| self.ownership(object).map(|ownership| (ownership.access, ownership.extra));
        K::PARTS.dependents.is_some() || access(new) != access(old)
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
        let own = K::PARTS
            .dependents
            .map(|dependents| dependents(&object.metadata, &spec, previous, ctx))
            .transpose()?;
        let mut all = own.unwrap_or_default();
        if let Some(part) = K::PARTS.ownership {
            let of = Owned { info: &K::INFO, metadata: &object.metadata };
            all.extend((part.rules.dependents)(of, &(part.get)(&spec), ctx)?);
        }
        Ok(all)
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
