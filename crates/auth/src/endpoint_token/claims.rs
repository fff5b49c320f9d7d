//! The claims of the JWT: made from an identity, and turned into an identity again.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use postern_kinds::Impersonation;
use postern_kinds::scope::Scope;
use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::resolved_key::ResolvedKey;
use crate::scope::ScopeRules;

/// The claims of a token. The names are those of RFC 7519 and RFC 9068, and one of our own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The issuer: the external URL of the central server.
    pub iss: String,
    /// The name that access decisions see.
    pub sub: String,
    /// The audiences.
    pub aud: Vec<String>,
    /// When it was issued, in seconds since 1970.
    pub iat: i64,
    /// From when on it counts, in seconds since 1970.
    pub nbf: i64,
    /// Until when it counts, in seconds since 1970.
    pub exp: i64,
    /// Its id, for audit records.
    pub jti: String,
    /// All groups.
    pub groups: Vec<String>,
    /// The platform's own claims.
    #[serde(rename = "platform.sh")]
    pub platform: PlatformClaims,
}

/// The claims that only the platform defines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PlatformClaims {
    /// The store revision at which the claims were read. A later revocation of a key, the user or a team
    /// revokes the token. The wire name is `generation`.
    #[serde(rename = "generation")]
    pub revocation_revision: u64,
    /// The key that asked for the token, and the keys that created it.
    pub keys: Vec<KeyClaim>,
    /// The earliest expiry of these keys, in seconds since 1970, as known when the token was
    /// issued. A request that continues after the token's expiry ends at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys_end: Option<i64>,
    /// Whether the gateway issued the token for one long request. The gateway ends that request
    /// itself, so `exp` limits only its start. No caller gets such a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gateway_session: bool,
    /// The User object's name, if it is a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The Team object's name, if it is a team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The uid of the user or team; empty for a raw subject.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The names of the teams that the user is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// The uids of the user or team, and of the user's teams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub principal_uids: Vec<String>,
    /// The impersonator, if the subject is impersonated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<ActorClaim>,
    /// Further dependencies. They are the ids ([`impersonation_id`]) of the request's impersonation and of those by
    /// which its keys were created. The uids of the owners of the keys that created them follow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// The scopes that hold: all of them must allow a request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Scope>,
}

/// An access key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyClaim {
    /// The name of the OwnedAccessKey.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The impersonator: the owner of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ActorClaim {
    /// The name that access decisions see.
    pub sub: String,
    /// The uids of their user or team, and of their teams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub principal_uids: Vec<String>,
}

/// The bearer for which a token is issued.
#[derive(Clone, Copy, Debug)]
pub struct Bearer<'a> {
    /// The access key of the request.
    pub key: &'a ResolvedKey,
    /// The identity that the caller acts as: that of the key's owner, or an impersonated one.
    pub identity: &'a Identity,
    /// The impersonation that the request asked for.
    pub wanted: Option<&'a Impersonation>,
    /// A scope to narrow the token to, besides those of the key.
    pub scope: Option<&'a Scope>,
}

/// The circumstances in which a token is issued.
#[derive(Clone, Debug)]
pub struct Issuance {
    /// The issuer.
    pub issuer: String,
    /// The audiences.
    pub audiences: Vec<String>,
    /// The time, in seconds since 1970.
    pub issued_at: i64,
    /// For how many seconds it counts; it ends with the key in any case.
    pub ttl_seconds: i64,
    /// Its id, which no other token has.
    pub token_id: String,
    /// The store revision at which the bearer's identity was read, or an older one.
    pub revocation_revision: u64,
}

/// The entry in a list of revocations for all access keys of a user or team, by its uid. Tokens of a team's
/// members depend on the team, and not on its keys.
pub fn keys_of(owner_uid: &str) -> String {
    format!("keys-of:{owner_uid}")
}

/// The entry in a list of revocations for all tokens that depend on one impersonation. It is that of this identity,
/// by the access key with this uid.
pub fn impersonation_id(key_uid: &str, wanted: &Impersonation) -> String {
    // The form is the same for the same impersonation: the fields of a map are in order.
    let wanted = serde_json::to_vec(wanted).unwrap_or_default();
    let hash = digest(&SHA256, &wanted);
    format!("impersonation:{key_uid}:{}", hex::encode(hash.as_ref()))
}

impl Bearer<'_> {
    /// The dependencies of the token other than its keys and its bearer.
    fn dependencies(&self) -> Vec<String> {
        let impersonations = self.impersonations().into_iter();
        let impersonations = impersonations.map(|(uid, wanted)| impersonation_id(uid, wanted));
        let makers = self.key.ancestors.iter().map(|maker| &maker.owner_uid);
        let owners: BTreeSet<&String> =
            makers.filter(|uid| !uid.is_empty() && **uid != self.key.identity.uid).collect();
        impersonations.chain(owners.into_iter().cloned()).collect()
    }

    /// The impersonations that the token depends on: the uid of the access key, and the identity that it
    /// impersonates. `wanted` is that of the request.
    pub fn impersonations(&self) -> Vec<(&str, &Impersonation)> {
        let own = self.wanted.map(|wanted| (self.key.uid.as_str(), wanted));
        let of_makers = self.key.ancestors.iter();
        let of_makers =
            of_makers.filter_map(|maker| Some((maker.uid.as_str(), maker.impersonated.as_ref()?)));
        own.into_iter().chain(of_makers).collect()
    }

    /// The scopes that apply to the token: those of the key and of the keys that created it, and
    /// the one that the token is narrowed to.
    pub fn scopes(&self) -> Vec<Arc<ScopeRules>> {
        let mut scopes = self.identity.scopes.clone();
        if let Some(scope) = self.scope
            && !scopes.iter().any(|one| one.source() == scope)
        {
            scopes.push(Arc::new(ScopeRules::new(scope)));
        }
        scopes
    }
}

impl Claims {
    /// The claims of a token that is issued for a bearer. It never outlives the key.
    pub fn of(bearer: &Bearer<'_>, issuance: Issuance) -> Self {
        let Bearer { key, identity, .. } = *bearer;
        let Issuance { issuer, audiences, issued_at, ttl_seconds, token_id, revocation_revision } =
            issuance;
        let end = issued_at.saturating_add(ttl_seconds);
        let own_key = KeyClaim { name: key.identity.access_key.clone(), uid: key.uid.clone() };
        let makers = key.ancestors.iter();
        let makers =
            makers.map(|maker| KeyClaim { name: maker.name.clone(), uid: maker.uid.clone() });
        let actor = identity.is_impersonated.then(|| ActorClaim {
            sub: key.identity.name.clone(),
            principal_uids: key.identity.principal_uids.clone(),
        });
        let scopes = bearer.scopes();
        Self {
            iss: issuer,
            sub: identity.name.clone(),
            aud: audiences,
            iat: issued_at,
            nbf: issued_at,
            exp: key.ends_at().map_or(end, |key_end| end.min(key_end)),
            jti: token_id,
            groups: identity.groups.clone(),
            platform: PlatformClaims {
                revocation_revision,
                keys: std::iter::once(own_key).chain(makers).collect(),
                keys_end: key.ends_at(),
                gateway_session: false,
                user: identity.user.clone(),
                team: identity.team.clone(),
                uid: identity.uid.clone(),
                teams: identity.teams.clone(),
                principal_uids: identity.principal_uids.clone(),
                actor,
                dependencies: bearer.dependencies(),
                scopes: scopes.iter().map(|scope| scope.source().clone()).collect(),
            },
        }
    }

    /// The identity of the bearer, with the scopes compiled.
    pub(super) fn identity(&self) -> Identity {
        let PlatformClaims { keys, user, team, uid, teams, principal_uids, actor, scopes, .. } =
            &self.platform;
        Identity {
            name: self.sub.clone(),
            uid: uid.clone(),
            groups: self.groups.clone(),
            user: user.clone(),
            team: team.clone(),
            teams: teams.clone(),
            principal_uids: principal_uids.clone(),
            access_key: keys.first().map(|key| key.name.clone()).unwrap_or_default(),
            scopes: scopes.iter().map(|scope| Arc::new(ScopeRules::new(scope))).collect(),
            is_impersonated: actor.is_some(),
            ..Identity::default()
        }
    }

    /// The uids of all possible owners of the key that asked for the token, or of a key that
    /// created it. If the caller impersonates, the uids of the caller's teams are included.
    pub(super) fn key_owners(&self) -> impl Iterator<Item = &str> {
        let PlatformClaims { uid, actor, dependencies, .. } = &self.platform;
        let own = actor.is_none().then_some(uid.as_str()).filter(|uid| !uid.is_empty());
        let of_actor = actor.iter().flat_map(|actor| &actor.principal_uids).chain(dependencies);
        own.into_iter().chain(of_actor.map(String::as_str))
    }

    /// The uids of all subjects that the token depends on: their permissions may change.
    pub(super) fn depends_on(&self) -> impl Iterator<Item = &str> {
        let PlatformClaims { keys, uid, principal_uids, actor, dependencies, .. } = &self.platform;
        let keys = keys.iter().map(|key| key.uid.as_str());
        let actors = actor.iter().flat_map(|actor| &actor.principal_uids);
        let principals = principal_uids.iter().chain(actors).chain(dependencies);
        let principals = principals.map(String::as_str);
        keys.chain([uid.as_str()]).chain(principals)
    }
}

/// A token that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The bearer, with the scopes that hold.
    pub identity: Arc<Identity>,
    /// Until when it counts, in seconds since 1970.
    pub expires: i64,
    /// Its id, for audit records.
    pub token_id: String,
    /// The claims.
    pub claims: Claims,
}

impl VerifiedToken {
    /// The end of the access key that asked for the token, or the earlier end of a key that created it.
    /// It is in seconds since 1970, as known at issue; `None` for never.
    pub fn keys_end(&self) -> Option<i64> {
        self.claims.platform.keys_end
    }

    /// Whether the gateway issued the token for one long request, which the gateway itself ends.
    pub fn is_for_gateway_session(&self) -> bool {
        self.claims.platform.gateway_session
    }

    /// The name of the owner of the key that asked for the token, even if the caller impersonates.
    pub fn owner(&self) -> &str {
        self.claims.platform.actor.as_ref().map_or(&self.claims.sub, |actor| &actor.sub)
    }
}
