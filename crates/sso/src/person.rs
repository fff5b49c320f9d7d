//! The person of a login: the claims of the identity provider, and the rules of a connector.

use super::redeem::Tokens;
use super::refused::Refused;
use super::sso::session_hash;
use postern_kinds::connector;
use postern_oidc::jwt::Claims;
use postern_oidc::mapping::{self, LoginRefused, ProviderGroups};
use postern_registry::actions::logins::Person;
use serde_json::{Map, Value};

/// The claims of a provider about a user.
pub(super) struct UserClaims {
    /// The claims of the ID token and of the UserInfo response.
    pub(super) all: Map<String, Value>,
    /// The groups as the provider names them; none if the connector has no claim for them.
    pub(super) groups: Result<ProviderGroups, LoginRefused>,
}

impl UserClaims {
    /// The groups; none, if the provider names none. `None` if it has more than it says, or some that cannot be used.
    pub(super) fn known_groups(&self) -> Option<&[String]> {
        known_groups(&self.groups)
    }
}

/// See [`UserClaims::known_groups`].
pub(super) fn known_groups(groups: &Result<ProviderGroups, LoginRefused>) -> Option<&[String]> {
    match groups {
        Ok(groups) => Some(&groups.accepted),
        Err(LoginRefused::NoGroups | LoginRefused::GroupsForm) => Some(&[]),
        Err(_) => None,
    }
}

/// The refusal of a login without its groups. If they are not known, it says nothing about the user.
pub(super) fn without_groups(refused: LoginRefused) -> Refused {
    match refused {
        LoginRefused::NoGroups | LoginRefused::GroupsForm => Refused::of_user(refused.to_string()),
        unknown => Refused::forbidden(unknown),
    }
}

/// The person of an ID token, if the connector allows them.
///
/// # Errors
/// Why they may not log in.
pub(super) fn person_of(
    spec: &connector::Spec,
    tokens: &Tokens,
    claims: &Claims,
    said: &UserClaims,
) -> Result<Person, Refused> {
    let all = &said.all;
    let groups = said.groups.clone().map_err(without_groups)?;
    check_allowed(spec, all, &groups.accepted)?;
    let name = mapping::user_name(all, &spec.username_claim);
    let text = |claim: &str| {
        let text = all.get(claim).and_then(Value::as_str).unwrap_or_default();
        text.chars().take(256).collect()
    };
    let session = claims.text("sid").filter(|session| !session.is_empty());
    Ok(Person {
        issuer: spec.issuer.clone(),
        subject: claims.subject().map_err(Refused::forbidden)?.to_owned(),
        name: name.map_err(Refused::forbidden)?,
        username: text(&spec.username_claim),
        display_name: text("name"),
        email: text("email"),
        email_verified: all.get("email_verified") == Some(&Value::Bool(true)),
        groups: groups.accepted,
        rejected_groups: groups.rejected,
        session: session.map(session_hash).unwrap_or_default(),
        id_token: tokens.id_token.clone().unwrap_or_default(),
        refresh_token: tokens.refresh_token.clone(),
    })
}

/// Checks that the connector allows a user with these claims and groups.
///
/// # Errors
/// Why it does not.
pub(super) fn check_allowed(
    spec: &connector::Spec,
    claims: &Map<String, Value>,
    groups: &[String],
) -> Result<(), Refused> {
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    let allowed = allow_of(spec).check(claims, &groups);
    allowed.map_err(|refused| Refused::of_user(refused.to_string()))
}

/// Whether the groups are among the claims of the UserInfo endpoint.
pub(super) fn has_groups_in_user_info(spec: &connector::Spec) -> bool {
    spec.has_groups_in_user_info() && !spec.groups_claim.is_empty()
}

/// Whether a claim that the connector needs is missing in the ID token. A provider may leave the claims of scopes to the
/// UserInfo endpoint (`OpenID` Connect Core 1.0 section 5.4).
pub(super) fn lacks_claims(spec: &connector::Spec, claims: &Map<String, Value>) -> bool {
    let needs_email = spec.allow.as_ref().is_some_and(|allow| !allow.email_domains.is_empty());
    !claims.contains_key(&spec.username_claim) || (needs_email && !claims.contains_key("email"))
}

/// The groups of a person as the provider names them; none if the connector has no claim for them.
pub(super) fn groups_of(
    spec: &connector::Spec,
    claims: &Map<String, Value>,
) -> Result<ProviderGroups, LoginRefused> {
    if spec.groups_claim.is_empty() {
        return Ok(ProviderGroups::default());
    }
    mapping::groups(claims, &spec.groups_claim)
}

/// The users that a connector allows. One that says nothing allows none.
fn allow_of(spec: &connector::Spec) -> mapping::Allow {
    match &spec.allow {
        Some(allow) if allow.everyone => mapping::Allow::Everyone,
        Some(allow) if !allow.email_domains.is_empty() => {
            mapping::Allow::EmailDomains(allow.email_domains.clone())
        }
        Some(allow) => mapping::Allow::Groups(allow.groups.clone()),
        None => mapping::Allow::Groups(Vec::new()),
    }
}
