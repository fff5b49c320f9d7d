//! WorkloadIdentity: which tokens of a trusted issuer are exchanged for access keys, of which owner and scope. See
//! `docs/reference/workload-identity.md`.

use std::sync::Arc;

use postern_meta::names::dns1123_subdomain;

use crate::claim_match::ClaimMatch;
use crate::key_attenuation;
use crate::prelude::*;
use crate::principal::{WorkloadFacts, delegated_right, key_verb};
use crate::schema_rule::IMMUTABLE;
use crate::scope::{self, Scope};
use crate::ties;

/// The lifetime of an exchanged key, in seconds, and its limits.
pub const DEFAULT_TTL_SECONDS: i64 = 15 * 60;
const MAX_TTL_SECONDS: i64 = 3600;
const MIN_TTL_SECONDS: i64 = 60;

/// The most keys of a workload identity at once, by default and at most.
pub const DEFAULT_MAX_LIVE: i64 = 100;
const MAX_MAX_LIVE: i64 = 10_000;

/// The most claims of a list.
pub const MAX_CLAIMS: usize = 16;

/// The maximum size as JSON, in bytes: an owner may have many.
const MAX_OBJECT_BYTES: usize = 64 * 1024;

/// The kind.
pub struct WorkloadIdentity;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The tokens, and the access that a workload with such a token gets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.WorkloadIdentitySpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The purpose of the workload.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The name of the TrustedIssuer. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// The claims that a token must have, each with one of its values. All must match. Which are mandatory depends on the
    /// type of the issuer. Required.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub r#match: Vec<ClaimMatch>,
    /// The user or team that owns the keys of the workload. The caller needs `createkey` on it. By
    /// default the caller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = IMMUTABLE))]
    pub owner: Option<UserOrTeam>,
    /// The maximum access of the keys. Required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The lifetime of a key in seconds, 60 to 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_TTL_SECONDS))]
    pub ttl: Option<i64>,
    /// The most keys that are valid at once, 1 to 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_MAX_LIVE))]
    pub max_live: Option<i64>,
    /// Whether the workload identity is disabled. Then no token is exchanged for it, and its keys give no access.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
}

/// The facts that the server adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.WorkloadIdentityStatus")]
pub struct Status {
    /// The uid of the user or team that owns it. It ends with this owner. Set by the server, and never changed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner_uid: String,
    /// The access key that created the workload identity, if its keys are valid only as long as that one is. Set by the
    /// server, and never changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maker: Option<Maker>,
}

impl Spec {
    /// The lifetime of a key, in seconds.
    pub fn ttl_seconds(&self) -> i64 {
        self.ttl.unwrap_or(DEFAULT_TTL_SECONDS)
    }

    /// The most keys that are valid at once.
    pub fn max_live(&self) -> i64 {
        self.max_live.unwrap_or(DEFAULT_MAX_LIVE)
    }

    /// The owner of the keys; `None` when none is named.
    pub fn key_owner(&self) -> Option<Owner> {
        let owner = self.owner.as_ref()?;
        match (owner.user.as_str(), owner.team.as_str()) {
            ("", "") => None,
            (user, "") => Some(Owner::User(user.to_owned())),
            (_, team) => Some(Owner::Team(team.to_owned())),
        }
    }
}

fn ties_of(status: &Status) -> Ties<'_> {
    Ties { owner_uid: &status.owner_uid, maker: status.maker.as_ref(), workload: None }
}

impl Kind for WorkloadIdentity {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "WorkloadIdentity",
        plural: "workloadidentities",
        singular: "workloadidentity",
        confidential: false,
        description: "WorkloadIdentity says which tokens of a trusted issuer are exchanged for access keys.",
        strict_fields: Some(StrictFields {
            no_null_below: &["spec.scope", "spec.ttl", "spec.maxLive", "spec.match", "spec.owner"],
            ..StrictFields::OF_CREDENTIALS
        }),
        max_bytes: Some(MAX_OBJECT_BYTES),
        columns: &[
            ColumnInfo::text("Issuer", "The trusted issuer."),
            ColumnInfo::text("Owner", "The user or team whose keys the workload gets."),
            ColumnInfo::boolean("Enabled", "Whether tokens are exchanged."),
            ColumnInfo::integer("TTL Seconds", "The lifetime of a key in seconds.").wide(),
        ],
        ..Info::DEFAULT
    };

    const PARTS: Parts<Spec, Status> = Parts {
        access_role: Some(AccessRole::Workload(|metadata, spec| WorkloadFacts {
            uid: metadata.uid.clone(),
            disabled: spec.disabled,
            scope: spec.scope.clone().map(Arc::new),
            ttl_seconds: spec.ttl_seconds(),
        })),
        claim_matches: Some(|spec| (&spec.issuer, &spec.r#match)),
        credential: Some(Credential {
            owner: Spec::key_owner,
            needs_right_on_owner: true,
            scope: |spec| spec.scope.as_ref(),
            ties: ties_of,
        }),
        ..Parts::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        if old.is_none() && spec.key_owner().is_none() {
            let [user, team] = [&ctx.caller.user, &ctx.caller.team];
            let owner = UserOrTeam {
                user: user.clone().unwrap_or_default(),
                team: team.clone().filter(|_| user.is_none()).unwrap_or_default(),
            };
            spec.owner = Some(owner);
        }
        // Zero is no absent value: it is refused.
        spec.ttl.get_or_insert(DEFAULT_TTL_SECONDS);
        spec.max_live.get_or_insert(DEFAULT_MAX_LIVE);
        let owner = spec.key_owner();
        let status = match old {
            None => Status {
                owner_uid: ties::owner_uid(owner.as_ref(), ctx),
                maker: ctx.caller_key.and_then(key_attenuation::maker),
            },
            Some(old) => old.fields.status.clone(),
        };
        ties::remove_references(&mut new.metadata, owner.as_ref(), &ties_of(&status));
        new.fields.status = status;
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = write.spec();
        if spec.issuer.is_empty() {
            errors.push(FieldError::required("spec.issuer", "must name a TrustedIssuer"));
        } else {
            errors.check_value("spec.issuer", &spec.issuer, dns1123_subdomain(&spec.issuer));
        }
        validate_owner(spec, write.old_spec(), write.ctx, errors);
        if let Some(scope) = &spec.scope {
            scope::validate(scope, "spec.scope", errors);
        } else {
            let detail = "must limit what the workload may do";
            errors.push(FieldError::required("spec.scope", detail));
        }
        let (ttl, max_live) = (spec.ttl_seconds(), spec.max_live());
        if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&ttl) {
            let detail = format!("must be {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS} seconds");
            errors.push(FieldError::invalid("spec.ttl", ttl, detail));
        }
        if !(1..=MAX_MAX_LIVE).contains(&max_live) {
            let detail = format!("must be 1 to {MAX_MAX_LIVE}");
            errors.push(FieldError::invalid("spec.maxLive", max_live, detail));
        }
        if errors.is_empty() { check_caller_key(write) } else { Ok(()) }
    }

    /// A change gives keys of the owner, as a create does.
    fn required_rights(write: &Write<'_, Fields>) -> Vec<RequiredRight> {
        let is_same = write.old_spec() == Some(write.spec());
        let owner = write.spec().key_owner().filter(|_| !is_same);
        let right = owner.and_then(|owner| delegated_right(key_verb(Verb::Create), &owner));
        right.map(RequiredRight::from).into_iter().collect()
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        vec![
            Cell::Text(spec.issuer.clone()),
            Cell::Text(spec.owner.clone().unwrap_or_default().display_name()),
            Cell::Text((!spec.disabled).to_string()),
            Cell::Number(spec.ttl_seconds()),
        ]
    }
}

/// Checks that the keys of a workload identity do not outlive the key of its writer, nor do more than it.
///
/// # Errors
/// 403: another caller may write the same.
fn check_caller_key(write: &Write<'_, Fields>) -> Result<(), ApiError> {
    let &Write { new, old, ctx } = write;
    let Some(key) = ctx.caller_key else { return Ok(()) };
    let refused = |why: String| {
        ApiError::forbidden(WorkloadIdentity::INFO.group_resource(), &new.metadata.name, why)
    };
    key_attenuation::check(key, write.spec().key_owner().as_ref(), false).map_err(refused)?;
    if let Some(old) = old {
        let maker = old.fields.status.maker.as_ref();
        let change = key_attenuation::KeyChange {
            maker,
            is_made: maker.is_some_and(|maker| maker.uid == key.uid),
            widens: old.fields.spec != new.fields.spec,
        };
        key_attenuation::check_change(key, change).map_err(refused)?;
    }
    let ends_with_key = new.fields.status.maker.as_ref().is_some_and(|maker| maker.uid == key.uid);
    if key.ends_at().is_some() && !key.is_login && !ends_with_key {
        let why = "the access key of the request expires, and a workload identity does not: use a key without expiry \
                   or of type Login";
        return Err(refused(why.to_owned()));
    }
    Ok(())
}

fn validate_owner(spec: &Spec, old: Option<&Spec>, ctx: &Context<'_>, errors: &mut FieldErrors) {
    const PATH: &str = "spec.owner";
    if let Some(old) = old {
        if old.owner != spec.owner {
            errors.push(FieldError::immutable(PATH));
        }
        return;
    }
    let owner = spec.owner.clone().unwrap_or_default();
    if owner.user.is_empty() == owner.team.is_empty() {
        let detail = "exactly one of user and team must be given";
        errors.push(FieldError::invalid(PATH, BadValue::Omitted, detail));
        return;
    }
    if let Some(principal) = owner.principal()
        && ctx.uid_of(principal).is_none()
    {
        let (path, name) = match principal {
            Principal::User(name) => ("spec.owner.user", name),
            Principal::Team(name) => ("spec.owner.team", name),
        };
        errors.push(FieldError::not_found(path, name));
    }
}
