//! OwnedAccessKey: a bearer credential for people and pipelines (specification 2.3, decision 3).
//!
//! The value of a key is never in the stored object. The server stores only its digest, in a side
//! record. The last use of the key is in another record, and is added to `status` when the object is
//! returned.

use crate::prelude::*;
use crate::scope::Scope;
use crate::{team, user};

/// The path of the key's value.
pub const KEY_PATH: &[&str] = &["spec", "key"];

/// Minimum length of a key that a client supplies, in characters.
pub const MIN_KEY_CHARS: usize = 32;

/// Maximum length of a key that a client supplies: that of a bearer credential.
pub const MAX_KEY_CHARS: usize = 8 * 1024;

/// Minimum `ttl` of a key with `ttlAfterLastActivity`, in seconds. A use is stored about a minute
/// later, so a key with a shorter `ttl` could expire while it is in use.
pub const MIN_TTL_AFTER_ACTIVITY_SECONDS: i64 = 300;

/// The values of `spec.type`: what manages a key.
const TYPES: &[&str] = &["User", "Login", "Other", "Reset", "OIDCRefreshToken"];

/// The kind.
pub struct OwnedAccessKey;

/// What an object holds next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// Whose key it is, how long it lives and what it may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.OwnedAccessKeySpec")]
pub struct Spec {
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// What the key is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The User whose key it is. One of user, team and subject; by default the caller's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The Team whose key it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// Any other identity that the key stands for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Groups that the key's bearer is in, beyond its owner's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// The bearer token. Answered once, by the request that creates the key, and never again;
    /// made by the server when it is absent. A new value replaces the old one.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub key: SecretText,
    /// A disabled key exists, but gives no access.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Seconds that the key lives; absent or 0 for ever, where the server sets no maximum.
    #[serde(skip_serializing_if = "is_zero")]
    pub ttl: i64,
    /// Count `ttl` from the key's last use instead of its creation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ttl_after_last_activity: bool,
    /// What the key may reach at most. A scope without content reaches nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Who manages the key: User, Login, Other, Reset or `OIDCRefreshToken`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub r#type: String,
    /// Data of a single sign-on that the key came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// When the identity was refreshed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_refresh: Option<Timestamp>,
    /// Set when the key is a refresh token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_provider: Option<OidcProvider>,
    /// Deprecated: the key whose single sign-on data this one shares.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Deprecated: use identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_login: Option<OidcLogin>,
}

/// Data of a single sign-on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyIdentity")]
pub struct Identity {
    /// The user's subject at the identity provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_id: String,
    /// The user's name there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The name that they prefer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred_username: String,
    /// Their e-mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// Whether the address was verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub email_verified: bool,
    /// Their groups there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// The connector through which they came.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connector: String,
    /// Data that the connector needs later. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub connector_data: SecretText,
    /// When the identity was refreshed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_refresh: Option<Timestamp>,
}

/// What a refresh token was made for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyOIDCProvider")]
pub struct OidcProvider {
    /// The client that the token was made for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// The nonce of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// Where the client was sent back to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub redirect_uri: String,
    /// The scopes that were asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scopes: String,
}

/// Deprecated: the tokens of a login.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyOIDCLogin")]
pub struct OidcLogin {
    /// The ID token. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub id_token: SecretText,
    /// The access token. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub access_token: SecretText,
    /// The refresh token. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub refresh_token: SecretText,
    /// When the ID token was refreshed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refresh: Option<Timestamp>,
}

/// What the server knows about the key's use.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.OwnedAccessKeyStatus")]
pub struct Status {
    /// When the key was used last. Set by the server, to about a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Spec {
    /// Returns the owner of the key; `None` when none is named.
    pub fn owner(&self) -> Option<Owner> {
        if !self.user.is_empty() {
            Some(Owner::User(self.user.clone()))
        } else if !self.team.is_empty() {
            Some(Owner::Team(self.team.clone()))
        } else if !self.subject.is_empty() {
            Some(Owner::Subject(self.subject.clone()))
        } else {
            None
        }
    }

    fn owners_given(&self) -> usize {
        [&self.user, &self.team, &self.subject].iter().filter(|name| !name.is_empty()).count()
    }
}

/// Returns the verb on a user or team that counts as a verb on its keys (decision 3).
fn verb_on_owner(verb: Verb) -> &'static str {
    match verb {
        Verb::Create => "createkey",
        Verb::Get | Verb::List | Verb::Watch => "getkey",
        Verb::Update | Verb::Patch => "updatekey",
        Verb::Delete | Verb::DeleteCollection => "deletekey",
    }
}

/// Returns what authentication needs to know about a key.
fn facts(metadata: &ObjectMeta, spec: &Spec) -> KeyFacts {
    KeyFacts {
        uid: metadata.uid.clone(),
        owner: spec.owner(),
        groups: spec.groups.clone(),
        disabled: spec.disabled,
        lifetime: Lifetime {
            created_unix_seconds: metadata.creation_timestamp.map_or(0, Timestamp::unix_seconds),
            ttl_seconds: spec.ttl,
            after_last_activity: spec.ttl_after_last_activity,
        },
        scoped: spec.scope.is_some(),
    }
}

/// Checks the form of a key that a client supplies.
fn check_key(key: &str) -> Result<(), String> {
    let printable = key.bytes().all(|byte| byte.is_ascii_graphic());
    if (MIN_KEY_CHARS..=MAX_KEY_CHARS).contains(&key.len()) && printable {
        return Ok(());
    }
    Err(format!(
        "must be {MIN_KEY_CHARS} to {MAX_KEY_CHARS} printable ASCII characters without spaces; \
         leave it out, and the server makes one"
    ))
}

impl Kind for OwnedAccessKey {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "OwnedAccessKey",
        plural: "ownedaccesskeys",
        singular: "ownedaccesskey",
        aliases: &["accesskey", "accesskeys", "key", "keys"],
        description: "OwnedAccessKey is a bearer credential of a user, a team or another subject.",
        ..Info::DEFAULT
    };

    const COLUMNS: &'static [ColumnInfo] = &[
        ColumnInfo::text("Owner", "The user, team or subject whose key it is."),
        ColumnInfo::boolean("Enabled", "Whether the key is switched on."),
        ColumnInfo::text("Last Activity", "How long ago the key was used."),
        ColumnInfo::integer("TTL Seconds", "Seconds that the key lives; 0 is for ever.").wide(),
        ColumnInfo::text("Display Name", "Name shown to people.").wide(),
    ];

    const WRITE_ONLY: &'static [WriteOnlyField] = &[
        WriteOnlyField { path: KEY_PATH, at_rest: AtRest::Digest, check: Some(check_key) },
        WriteOnlyField::value(&["spec", "identity", "connectorData"]),
        WriteOnlyField::value(&["spec", "oidcLogin", "idToken"]),
        WriteOnlyField::value(&["spec", "oidcLogin", "accessToken"]),
        WriteOnlyField::value(&["spec", "oidcLogin", "refreshToken"]),
    ];

    const NAME_PREFIX: Option<&'static str> = Some("key-");

    fn prepare(new: &mut Draft<Fields>, old: Option<&Draft<Fields>>, ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        if old.is_none() && spec.owners_given() == 0 {
            spec.user = ctx.caller.user.clone().unwrap_or_default();
            if spec.user.is_empty() {
                spec.team = ctx.caller.team.clone().unwrap_or_default();
            }
        }
        if spec.r#type.is_empty() {
            "User".clone_into(&mut spec.r#type);
        }
        // A key from before there was a maximum keeps its unlimited lifetime: a change of a label
        // must not make it expire.
        let was_unlimited = old.is_some_and(|old| old.fields.spec.ttl == 0);
        if spec.ttl == 0 && !was_unlimited {
            spec.ttl = ctx.access_key_max_ttl_seconds.unwrap_or(0);
        }
        new.fields.status = Status::default();
        match old {
            None => add_owner_reference(new, ctx),
            Some(old) => keep_owner_reference(new, old),
        }
    }

    fn validate(
        new: &Draft<Fields>,
        old: Option<&Draft<Fields>>,
        ctx: &Context<'_>,
        errors: &mut FieldErrors,
    ) -> Result<(), ApiError> {
        let spec = &new.fields.spec;
        validate_owner(spec, old.map(|old| &old.fields.spec), ctx, errors);
        for (index, group) in spec.groups.iter().enumerate() {
            let path = format!("spec.groups[{index}]");
            check_identity(&path, group, errors);
            refuse_system(&path, group, errors);
        }
        if !TYPES.contains(&spec.r#type.as_str()) {
            errors.push(FieldError::not_supported("spec.type", spec.r#type.as_str(), TYPES));
        }
        let unchanged = old.is_some_and(|old| {
            let old = &old.fields.spec;
            (old.ttl, old.ttl_after_last_activity) == (spec.ttl, spec.ttl_after_last_activity)
        });
        if !unchanged {
            validate_ttl(spec, ctx.access_key_max_ttl_seconds, errors);
        }
        Ok(())
    }

    fn cells(object: &Draft<Fields>) -> Vec<Cell> {
        let spec = &object.fields.spec;
        let owner = match spec.owner() {
            Some(Owner::User(name)) => format!("user/{name}"),
            Some(Owner::Team(name)) => format!("team/{name}"),
            Some(Owner::Subject(name)) => name,
            None => String::new(),
        };
        let activity = object.fields.status.last_activity;
        vec![
            Cell::Text(owner),
            Cell::Text((!spec.disabled).to_string()),
            activity.map_or(Cell::Text("<never>".to_owned()), |at| Cell::Age(Some(at))),
            Cell::Number(spec.ttl),
            Cell::Text(spec.display_name.clone()),
        ]
    }

    fn required_rights(new: &Spec, old: Option<&Spec>) -> Vec<RequiredRight> {
        let had = old.map(|old| old.groups.as_slice()).unwrap_or_default();
        let added = new.groups.iter().filter(|group| !had.contains(group));
        let groups = added.map(|group| Right::cluster("impersonate", "", "groups", group));
        let subject = Some(&new.subject).filter(|name| old.is_none() && !name.is_empty());
        let subject = subject.map(|name| Right::cluster("impersonate", "", "users", name));
        groups.chain(subject).map(RequiredRight::from).collect()
    }

    const DELEGATION: Option<Delegation<Spec>> =
        Some(Delegation { owner: Spec::owner, verb: verb_on_owner });

    const ACCESS_ROLE: Option<AccessRole<Spec>> = Some(AccessRole::Key(facts));

    const OBSERVED_STATUS: Option<ObservedStatus> = Some(|name, uid, observations| {
        let at = observations.last_activity(name, uid);
        at.map(|at| ("lastActivity", at.to_string().into())).into_iter().collect()
    });
}

/// Adds a reference to the owner, so that the garbage collector deletes the key with its owner: a
/// later owner of the same name must not get the key.
fn add_owner_reference(new: &mut Draft<Fields>, ctx: &Context<'_>) {
    let Some(owner) = new.fields.spec.owner() else { return };
    let Some(principal) = owner.principal() else { return };
    let Some(uid) = ctx.principals.uid(principal) else { return };
    let (info, name) = match principal {
        Principal::User(name) => (&user::User::INFO, name),
        Principal::Team(name) => (&team::Team::INFO, name),
    };
    ensure_reference(
        &mut new.metadata.owner_references,
        &OwnerReference {
            api_version: info.version.to_string(),
            kind: info.kind.to_owned(),
            name: name.to_owned(),
            uid,
            ..OwnerReference::default()
        },
    );
}

/// Adds a reference, unless the same one is there. Another reference with the same uid is removed,
/// because a uid may be there only once.
fn ensure_reference(references: &mut Vec<OwnerReference>, wanted: &OwnerReference) {
    let identity = |one: &OwnerReference| {
        (one.api_version.clone(), one.kind.clone(), one.name.clone(), one.uid.clone())
    };
    if references.iter().any(|one| identity(one) == identity(wanted)) {
        return;
    }
    references.retain(|one| one.uid != wanted.uid);
    references.push(wanted.clone());
}

/// Keeps the reference to the owner, which a client may not remove.
fn keep_owner_reference(new: &mut Draft<Fields>, old: &Draft<Fields>) {
    let spec = &old.fields.spec;
    let is_owner = |one: &&OwnerReference| {
        (one.kind == "User" && one.name == spec.user)
            || (one.kind == "Team" && one.name == spec.team)
    };
    for reference in old.metadata.owner_references.iter().filter(is_owner) {
        ensure_reference(&mut new.metadata.owner_references, reference);
    }
}

fn validate_owner(spec: &Spec, old: Option<&Spec>, ctx: &Context<'_>, errors: &mut FieldErrors) {
    if let Some(old) = old {
        let fields = [
            ("spec.user", &spec.user, &old.user),
            ("spec.team", &spec.team, &old.team),
            ("spec.subject", &spec.subject, &old.subject),
        ];
        for (path, new, old) in fields {
            if new != old {
                errors.push(FieldError::immutable(path));
            }
        }
        return;
    }
    if spec.owners_given() != 1 {
        let detail = "exactly one of user, team and subject must be given";
        errors.push(FieldError::invalid("spec", BadValue::Omitted, detail));
        return;
    }
    if !spec.subject.is_empty() {
        check_identity("spec.subject", &spec.subject, errors);
        refuse_system("spec.subject", &spec.subject, errors);
    }
    let owner = spec.owner();
    if let Some(principal) = owner.as_ref().and_then(Owner::principal)
        && ctx.principals.uid(principal).is_none()
    {
        let (path, name) = match principal {
            Principal::User(name) => ("spec.user", name),
            Principal::Team(name) => ("spec.team", name),
        };
        errors.push(FieldError::not_found(path, name));
    }
}

fn refuse_system(path: &str, name: &str, errors: &mut FieldErrors) {
    if name.starts_with("system:") {
        errors.push(FieldError::invalid(path, name, "may not begin with system:"));
    }
}

fn validate_ttl(spec: &Spec, max_seconds: Option<i64>, errors: &mut FieldErrors) {
    let ttl = spec.ttl;
    if ttl < 0 {
        let detail = "must be a number of seconds, or 0 for ever";
        errors.push(FieldError::invalid("spec.ttl", ttl, detail));
    } else if spec.ttl_after_last_activity && ttl < MIN_TTL_AFTER_ACTIVITY_SECONDS {
        let detail = format!(
            "must be at least {MIN_TTL_AFTER_ACTIVITY_SECONDS} seconds with ttlAfterLastActivity"
        );
        errors.push(FieldError::invalid("spec.ttl", ttl, detail));
    }
    if let Some(max) = max_seconds.filter(|max| ttl > *max) {
        let detail = format!("must be at most {max} seconds, the server's maximum");
        errors.push(FieldError::invalid("spec.ttl", ttl, detail));
    }
}
