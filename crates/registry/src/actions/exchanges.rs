//! Exchanges of the tokens of workloads for access keys. This module does not handle HTTP or the
//! tokens.

use postern_kinds::cluster::Cluster;
use postern_kinds::owned_access_key::{Fields, Identity, OwnedAccessKey, Spec, Status, Workload};
use postern_kinds::trusted_issuer::{self, TrustedIssuer};
use postern_kinds::workload_identity::{self, WorkloadIdentity};
use postern_kinds::{AnyKind, Owner, Principals as _, SecretText, Verb};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use postern_oidc::workload::{self, IssuerType, Mismatch};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::admit::Writing;
use crate::operations;
use crate::permit::Permit;
use crate::registry::{Registry, decoded};
use crate::storage_key;

/// The field manager of exchanged keys.
const MANAGER: &str = "postern-exchange";

/// The type of exchanged keys.
const TYPE: &str = "Other";

/// The most trusted issuers that are looked through for the one that a token names.
const MAX_LISTED: usize = 200;

/// Characters of a subject that is recorded.
const MAX_SUBJECT_CHARS: usize = 256;

/// A workload identity with its trusted issuer, as they are stored now.
pub struct Accepting {
    name: String,
    uid: String,
    spec: workload_identity::Spec,
    status: workload_identity::Status,
    issuer_type: IssuerType,
    /// The uid of the trusted issuer.
    issuer_uid: String,
    binding: Binding,
    /// The trusted issuer.
    pub issuer: TokenIssuer,
}

/// A trusted issuer, as it is stored now.
#[derive(Clone)]
pub struct TokenIssuer {
    /// The spec of the TrustedIssuer.
    pub spec: trusted_issuer::Spec,
    /// The Cluster that is the issuer, if one is.
    pub cluster: Option<IssuingCluster>,
}

/// Whether a workload identity is bound to the uid of its trusted issuer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// It is.
    Bound,
    /// The issuer did not exist when the workload identity named it. The first exchange binds it.
    FirstExchange,
}

/// A Cluster that issues tokens, as it is stored now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IssuingCluster {
    /// Its name.
    pub name: String,
    /// Its uid, which is the one that the trusted issuer was bound to.
    pub uid: String,
    /// Its generation. With another one, it may be reached elsewhere.
    pub generation: i64,
}

/// Why no key is given. The text is for the audit record: the caller learns only that the token does not count.
#[derive(Debug)]
pub enum NoKey {
    /// The workload identity, its issuer or its owner cannot be used.
    Unusable(&'static str),
    /// A claim does not match.
    Mismatch(Mismatch),
    /// The workload identity or the owner has as many valid keys as allowed.
    TooMany(String),
    /// The registry failed.
    Failed(ApiError),
}

impl From<ApiError> for NoKey {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// An access key that was exchanged for a token.
pub struct Exchanged {
    /// The name of the access key.
    pub access_key: String,
    /// The value of the access key.
    pub value: SecretText,
    /// Its lifetime in seconds.
    pub ttl_seconds: i64,
    /// The owner, as access decisions name it.
    pub owner: String,
}

#[derive(Deserialize)]
struct Stored<S, T = Value> {
    metadata: ObjectMeta,
    #[serde(bound(deserialize = "S: Deserialize<'de>"))]
    spec: S,
    #[serde(default = "Option::default", bound(deserialize = "T: Deserialize<'de>"))]
    status: Option<T>,
}

/// The workload identity of a name, with its issuer.
///
/// # Errors
/// [`NoKey::Unusable`] if one of them does not exist or is disabled.
pub async fn accepting(registry: &Registry, name: &str) -> Result<Accepting, NoKey> {
    registry.cache().wait_until_current().await?;
    let found = registry.read_to_decide(&WorkloadIdentity, None, name)?;
    let found = found.ok_or(NoKey::Unusable("there is no workload identity of this name"))?;
    let found: Stored<workload_identity::Spec, workload_identity::Status> = found.part()?;
    if found.spec.disabled || found.metadata.is_terminating() {
        return Err(NoKey::Unusable("the workload identity is disabled"));
    }
    let issuer = registry.read_to_decide(&TrustedIssuer, None, &found.spec.issuer)?;
    let issuer = issuer.ok_or(NoKey::Unusable("the trusted issuer does not exist"))?;
    let issuer: Stored<trusted_issuer::Spec> = issuer.part()?;
    let issuer_type = IssuerType::named(&issuer.spec.r#type);
    let issuer_type = issuer_type.ok_or(NoKey::Unusable("the trusted issuer has no known type"))?;
    if issuer.spec.disabled || issuer.metadata.is_terminating() {
        return Err(NoKey::Unusable("the trusted issuer is disabled"));
    }
    let names = storage_key::bound_names(WorkloadIdentity.info(), None, name);
    let names = registry.cache().bound_names(&names);
    let names = names.filter(|names| names.uid == found.metadata.uid);
    let binding = match names.as_ref().and_then(|names| names.issuer_uid(&found.spec.issuer)) {
        None => Binding::FirstExchange,
        Some(uid) if uid == issuer.metadata.uid => Binding::Bound,
        Some(_) => {
            let why = "the trusted issuer is gone, and a later one of its name is not trusted: delete the workload \
                       identity and create it again";
            return Err(NoKey::Unusable(why));
        }
    };
    Ok(Accepting {
        name: name.to_owned(),
        uid: found.metadata.uid,
        spec: found.spec,
        status: found.status.unwrap_or_default(),
        issuer_type,
        issuer_uid: issuer.metadata.uid.clone(),
        binding,
        issuer: TokenIssuer { cluster: issuing_cluster(registry, &issuer)?, spec: issuer.spec },
    })
}

/// The first enabled trusted issuer with this issuer in its tokens. If there are many trusted
/// issuers, only the first of them are checked.
pub fn enabled_issuer(registry: &Registry, issuer: &str) -> Option<TokenIssuer> {
    let issuers = registry.page_to_decide(&TrustedIssuer, None, MAX_LISTED);
    let mut issuers =
        issuers.iter().filter_map(|one| one.part::<Stored<trusted_issuer::Spec>>().ok());
    issuers.find_map(|one| {
        let is_enabled = !one.spec.disabled && !one.metadata.is_terminating();
        let cluster = issuing_cluster(registry, &one).ok()?;
        (is_enabled && one.spec.issuer == issuer).then_some(TokenIssuer { spec: one.spec, cluster })
    })
}

/// The Cluster of a trusted issuer. It must still be the one from when it was named.
fn issuing_cluster(
    registry: &Registry,
    issuer: &Stored<trusted_issuer::Spec>,
) -> Result<Option<IssuingCluster>, NoKey> {
    let name = issuer.spec.cluster.as_str();
    if name.is_empty() {
        return Ok(None);
    }
    if issuer.spec.issuer.is_empty() || issuer.spec.key_thumbprints.is_empty() {
        let why = "the trusted issuer of a Cluster needs spec.issuer and spec.keyThumbprints";
        return Err(NoKey::Unusable(why));
    }
    let gone = NoKey::Unusable(
        "the Cluster of the trusted issuer is gone, and a later one of its name is not trusted",
    );
    let bound = trusted_issuer::cluster_uid(&issuer.metadata, &issuer.spec);
    let Some(cluster) = registry.read_to_decide(&Cluster, None, name)? else { return Err(gone) };
    let cluster: Stored<Value> = cluster.part()?;
    if cluster.metadata.is_terminating() {
        return Err(NoKey::Unusable("the Cluster of the trusted issuer is being deleted"));
    }
    let ObjectMeta { uid, generation, .. } = cluster.metadata;
    if bound != Some(uid.as_str()) {
        return Err(gone);
    }
    Ok(Some(IssuingCluster { name: name.to_owned(), uid, generation }))
}

impl Accepting {
    /// The name of the trusted issuer.
    pub fn issuer_name(&self) -> &str {
        &self.spec.issuer
    }

    /// Checks that the claims of a verified token are those of this workload identity.
    ///
    /// # Errors
    /// [`NoKey::Mismatch`].
    pub fn check(&self, claims: &Map<String, Value>) -> Result<(), NoKey> {
        let list = workload::list_of(&self.spec.r#match);
        workload::check(self.issuer_type, &list, claims).map_err(NoKey::Mismatch)
    }

    /// Whether a token that was verified for an earlier reading counts for this one: the keys of the issuer are the same.
    fn has_verified(&self, earlier: &Self) -> bool {
        self.uid == earlier.uid
            && self.issuer_uid == earlier.issuer_uid
            && self.spec.issuer == earlier.spec.issuer
            && self.issuer.spec.issuer == earlier.issuer.spec.issuer
            && self.issuer.spec.ca_data == earlier.issuer.spec.ca_data
            && self.issuer.spec.key_thumbprints == earlier.issuer.spec.key_thumbprints
            && self.issuer.cluster == earlier.issuer.cluster
    }

    /// The seconds until the end of the access key that created the workload identity. `None` if
    /// the keys of the workload identity do not end with that key, or if it does not expire.
    ///
    /// # Errors
    /// [`NoKey::Unusable`] if that key no longer gives access: the keys of the workload identity
    /// would give none either.
    fn left_of_maker(&self, registry: &Registry, now: i64) -> Result<Option<i64>, NoKey> {
        let Some(maker) = &self.status.maker else { return Ok(None) };
        let ended = NoKey::Unusable("the access key that created the workload identity has ended");
        let (principals, policy) = (registry.cache().principals(), registry.cache().policy());
        let Ok(key) = principals.identify_by_uid(&maker.uid, now, &policy) else {
            return Err(ended);
        };
        let may_impersonate =
            |wanted| principals.may_impersonate(&maker.name, &maker.uid, wanted, now, &policy);
        if !maker.impersonated.as_ref().is_none_or(may_impersonate) {
            return Err(ended);
        }
        Ok(key.ends_at().map(|end| end.saturating_sub(now)))
    }

    /// The owner of its keys, as access decisions name it.
    ///
    /// # Errors
    /// [`NoKey::Unusable`] if the owner is gone or disabled.
    pub fn owner_name(&self, registry: &Registry) -> Result<String, NoKey> {
        self.owner(registry).map(|(_, name)| name)
    }

    /// The owner of its keys, also as access decisions name it. It must still be the one from when the workload identity was
    /// created.
    fn owner(&self, registry: &Registry) -> Result<(Owner, String), NoKey> {
        let gone = NoKey::Unusable("the owner of the workload identity is gone");
        let Some(owner) = self.spec.key_owner() else { return Err(gone) };
        let principals = registry.cache().principals();
        let Some(principal) = owner.principal() else { return Err(gone) };
        let uid = self.status.owner_uid.as_str();
        if uid.is_empty() || principals.uid(principal).as_deref() != Some(uid) {
            return Err(gone);
        }
        let identity = principals.identity_of_principal(principal, uid);
        let name = identity.map(|identity| identity.name);
        let name = name.ok_or(NoKey::Unusable("the owner of the workload identity is disabled"))?;
        Ok((owner, name))
    }
}

/// Gives an access key for the claims of a token that was verified for `verified`. Verifying may have waited for the issuer,
/// so the workload identity and its issuer are read again.
///
/// # Errors
/// See [`NoKey`].
pub async fn exchange(
    registry: &Registry,
    verified: &Accepting,
    claims: &Map<String, Value>,
) -> Result<Exchanged, NoKey> {
    let mut by = accepting(registry, &verified.name).await?;
    if by.binding == Binding::FirstExchange {
        bind(registry, &by.name).await?;
        by = accepting(registry, &verified.name).await?;
    }
    let by = &by;
    if !by.has_verified(verified) {
        let why = "the workload identity or its trusted issuer was replaced during the exchange";
        return Err(NoKey::Unusable(why));
    }
    by.check(claims)?;
    let (owner, owner_name) = by.owner(registry)?;
    let now = registry.source().now().unix_seconds();
    let limits = [registry.user_policy().max_ttl_seconds, by.left_of_maker(registry, now)?];
    let ttl = limits.into_iter().flatten().fold(by.spec.ttl_seconds(), i64::min);
    let key = key_of(by, &owner, claims, ttl)?;
    let writing = Writing::by(MANAGER);
    let creating = Permit::for_server(&OwnedAccessKey, Verb::Create, None, "");
    let created = operations::create(registry, &creating, key, &writing).await;
    let created = created.map_err(|error| match error.code() {
        // Nothing else forbids a write of the server.
        403 => NoKey::TooMany(error.status().message.clone()),
        _ => NoKey::Failed(error),
    })?;
    let mut created = decoded(&created)?;
    let value = match created.fields.get_mut("spec").and_then(|spec| spec.get_mut("key")) {
        Some(Value::String(value)) => SecretText::from(std::mem::take(value)),
        _ => return Err(ApiError::internal("the new key has no value", MANAGER).into()),
    };
    registry.cache().wait_until_current().await?;
    let access_key = created.metadata.name;
    Ok(Exchanged { access_key, value, ttl_seconds: ttl, owner: owner_name })
}

/// Binds a workload identity to the uid of its trusted issuer, by a write without a change.
async fn bind(registry: &Registry, name: &str) -> Result<(), ApiError> {
    let permit = Permit::for_server(&WorkloadIdentity, Verb::Update, None, name);
    let same = |now: &Object| Ok(now.clone());
    operations::update(registry, &permit, &Writing::by_server(), same).await.map(|_| ())
}

fn key_of(
    by: &Accepting,
    owner: &Owner,
    claims: &Map<String, Value>,
    ttl: i64,
) -> Result<Object, ApiError> {
    let subject = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
    let (user, team) = match owner {
        Owner::User(name) => (name.clone(), String::new()),
        Owner::Team(name) => (String::new(), name.clone()),
        Owner::Subject(_) => (String::new(), String::new()),
    };
    let spec = Spec {
        display_name: format!("Workload {}", by.name),
        user,
        team,
        scope: by.spec.scope.clone(),
        r#type: TYPE.to_owned(),
        ttl,
        identity: Some(Identity {
            user_id: subject.chars().take(MAX_SUBJECT_CHARS).collect(),
            connector: by.spec.issuer.clone(),
            ..Identity::default()
        }),
        ..Spec::default()
    };
    let workload = Workload { identity: by.name.clone(), uid: by.uid.clone() };
    let status =
        Status { maker: by.status.maker.clone(), workload: Some(workload), ..Status::default() };
    let Ok(Value::Object(fields)) = serde_json::to_value(Fields { spec, status }) else {
        return Err(ApiError::internal("the key could not be encoded", MANAGER));
    };
    let info = OwnedAccessKey.info();
    let metadata = ObjectMeta { generate_name: "workload-".to_owned(), ..ObjectMeta::default() };
    let (api_version, kind) = (info.version.to_string(), info.kind.to_owned());
    Ok(Object { api_version, kind, metadata, fields })
}
