//! Revocation of endpoint tokens, each a JWT, and their signing keys: on one server, and on two servers with one store.

use postern_auth::digest::Digest;
use postern_auth::endpoint_token::{
    Bearer, Claims, GENERAL_AUDIENCE, Issuance, MAX_SESSION_SECONDS, TokenRefusal, Verifier,
    keys_of,
};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Principal, Principals as _, SecretText};
use postern_meta::options::DeleteOptions;
use serde_json::{Value, json};

use super::super::issued_tokens;
use super::fleet::{Fleet, on_every_fleet};
use super::*;
use crate::registry::issued_tokens::Subjects;

const ISSUER: &str = "https://postern.test";
const TTL_SECONDS: i64 = 3600;

/// The subjects of a token that depends on one key.
fn subjects(key_uid: &str) -> Subjects {
    Subjects { keys: vec![key_uid.to_owned()], impersonations: Vec::new() }
}

impl Fixture {
    /// A token for the bearer of a key, issued and signed by this server.
    pub(super) async fn token(&self, digest: &Digest) -> SecretText {
        let cache = self.registry.cache();
        let now = self.clock.now();
        let expires = now.unix_seconds() + TTL_SECONDS;
        let key = self.identify(digest, now.unix_seconds()).unwrap();
        self.registry.note(&subjects(&key.uid), expires).await.unwrap();
        cache.wait_until_current().await.unwrap();
        let revocation_revision = cache.applied();
        let issuance = Issuance {
            issuer: ISSUER.to_owned(),
            audiences: vec![GENERAL_AUDIENCE.to_owned()],
            issued_at: now.unix_seconds(),
            ttl_seconds: TTL_SECONDS,
            token_id: "id".to_owned(),
            revocation_revision,
        };
        let bearer = Bearer { key: &key, identity: &key.identity, wanted: None, scope: None };
        let claims = Claims::of(&bearer, issuance);
        cache.signing_keys().signer(now).unwrap().issue(&claims).unwrap()
    }

    /// The rejection of a token by an agent with the newest configuration of this server.
    pub(super) fn verified(&self, token: &SecretText) -> Option<TokenRefusal> {
        let verifier = Verifier::new(ISSUER, [GENERAL_AUDIENCE.to_owned()]);
        verifier.set_keys(self.registry.cache().signing_keys().public());
        verifier.set_revocations(self.registry.cache().revocations());
        verifier.verify(token.expose(), self.clock.now().unix_seconds()).err()
    }
}

const KEY: At<'_> = at(&OwnedAccessKey, "laptop");
const TEAM: At<'_> = at(&Team, "db");
const ADA: At<'_> = at(&User, "ada");
const BOB: At<'_> = at(&User, "bob");

async fn update(server: &Fixture, at: At<'_>, spec: Value) {
    let set = |object: &mut Value| {
        let fields = object["spec"].as_object_mut().unwrap();
        fields.extend(spec.as_object().unwrap().clone());
    };
    server.change(at, set).await;
}

/// Creates the users and a team with one of them.
async fn make_team(server: &Fixture) {
    server.make(ADA, json!({})).await;
    server.make(TEAM, json!({ "spec": { "users": ["ada"] } })).await;
}

/// Checks what agents of all servers say about a token.
async fn check(fleet: &Fleet, token: &SecretText, refusal: Option<TokenRefusal>, case: &str) {
    for server in fleet.current().await {
        assert_eq!(server.verified(token), refusal, "{case}");
    }
}

/// Sets what providers say of a user.
async fn set_sso(server: &Fixture, user: &str, said: Value) {
    server.change(at(&User, user), |object| object["status"] = json!({ "sso": said })).await;
}

#[tokio::test]
async fn a_change_of_a_key_its_user_or_their_teams_revokes_tokens_from_before() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        make_team(one).await;
        one.make(BOB, json!({})).await;
        let value = "0123456789012345678901234567890123456789";
        for (changed, spec) in [
            (KEY, json!({ "groups": ["x"] })),
            (KEY, json!({ "scope": { "allowPlatformCli": true } })),
            (KEY, json!({ "ttl": 9000 })),
            (KEY, json!({ "key": value })),
            (ADA, json!({ "groups": ["y"] })),
            (ADA, json!({ "subject": "oidc|ada" })),
            (TEAM, json!({ "groups": ["z"] })),
            (TEAM, json!({ "users": ["bob"] })),
            (TEAM, json!({ "users": ["bob", "ada"] })),
            (ADA, json!({ "disabled": true })),
        ] {
            fleet.current().await;
            let digest = one.key_of("laptop", "ada", json!({})).await;
            let token = one.token(&digest).await;
            update(one, changed, spec.clone()).await;
            let case = format!("{}: {spec}", changed.name);
            check(&fleet, &token, Some(TokenRefusal::Revoked), &case).await;
            one.delete(KEY).await;
        }
    })
    .await;
}

#[tokio::test]
async fn other_changes_and_new_tokens_are_not_revoked() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        make_team(one).await;
        one.make(BOB, json!({})).await;
        fleet.current().await;
        let digest = one.key_of("laptop", "ada", json!({})).await;
        let token = one.token(&digest).await;
        update(one, KEY, json!({ "displayName": "Laptop" })).await;
        update(one, ADA, json!({ "displayName": "Ada" })).await;
        update(one, BOB, json!({ "groups": ["x"] })).await;
        update(one, TEAM, json!({ "users": ["ada", "bob"] })).await;
        check(&fleet, &token, None, "").await;
        let said = |groups: &[&str], at: &str| json!([{ "connector": "corp", "groups": groups, "refreshed": at }]);
        set_sso(one, "ada", said(&["corp:a"], "2026-01-01T00:00:00Z")).await;
        let token = one.token(&digest).await;
        set_sso(one, "ada", said(&["corp:a"], "2026-01-01T00:15:00Z")).await;
        check(&fleet, &token, None, "the provider has said the same again").await;
        set_sso(one, "ada", said(&[], "2026-01-01T00:30:00Z")).await;
        check(&fleet, &token, Some(TokenRefusal::Revoked), "").await;
        let token = one.token(&digest).await;
        update(one, ADA, json!({ "groups": ["x"] })).await;
        for server in fleet.current().await {
            assert_eq!(server.verified(&token), Some(TokenRefusal::Revoked));
            let newer = server.token(&digest).await;
            assert_eq!(server.verified(&newer), None);
        }
    })
    .await;
}

#[tokio::test]
async fn cve_2023_22650_who_is_gone_takes_their_tokens_with_them() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        for gone in [KEY, TEAM, ADA] {
            make_team(one).await;
            fleet.current().await;
            let digest = one.key_of("laptop", "ada", json!({})).await;
            let token = one.token(&digest).await;
            assert_eq!(one.verified(&token), None);
            one.delete(gone).await;
            check(&fleet, &token, Some(TokenRefusal::Revoked), gone.name).await;
            for left in [KEY, TEAM, ADA] {
                let _ = one.try_delete(left, DeleteOptions::default()).await;
            }
            fleet.current().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_revocation_is_dropped_when_every_token_from_before_has_expired() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        let digest = one.key("laptop", json!({})).await;
        one.token(&digest).await;
        update(one, KEY, json!({ "groups": ["x"] })).await;
        fleet.tidy().await;
        assert_eq!(fleet.stored("/revocations/").await.len(), 1);
        // A note covers one hour more than the token and its streams need; each clock may differ by a minute.
        one.pass_seconds(TTL_SECONDS + MAX_SESSION_SECONDS + 3600 + 119);
        fleet.tidy().await;
        assert_eq!(fleet.stored("/revocations/").await.len(), 1);
        one.pass_seconds(1);
        fleet.tidy().await;
        for prefix in ["/revocations/", "/issued-tokens/"] {
            assert_eq!(fleet.stored(prefix).await, Vec::<String>::new());
        }
        for server in fleet.current().await {
            assert_eq!(server.registry.cache().revocations(), []);
        }
    })
    .await;
}

#[tokio::test]
async fn what_no_token_depends_on_is_not_revoked() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        one.make(ADA, json!({})).await;
        let with_token = one.key_of("other", "ada", json!({})).await;
        one.key_of("laptop", "ada", json!({})).await;
        update(one, ADA, json!({ "groups": ["x"] })).await;
        update(one, KEY, json!({ "groups": ["x"] })).await;
        assert_eq!(fleet.stored("/revocations/").await, Vec::<String>::new());
        one.token(&with_token).await;
        one.delete(KEY).await;
        assert_eq!(fleet.stored("/revocations/").await, Vec::<String>::new());
        for changed in [at(&OwnedAccessKey, "other"), ADA] {
            update(one, changed, json!({ "groups": ["y"] })).await;
        }
        assert_eq!(fleet.stored("/revocations/").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn what_the_store_knows_nothing_of_is_revoked_as_if_it_were_noted() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        let note = async |is_new| {
            let store = one.registry.store();
            let now = one.clock.now();
            issued_tokens::note_unknown(&**store, is_new, now, 24 * 3600).await.unwrap();
            fleet.current().await;
        };
        one.key("laptop", json!({})).await;
        // For a store of an older version or a restored store, the issued tokens are unknown.
        note(false).await;
        update(one, KEY, json!({ "groups": ["x"] })).await;
        fleet.tidy().await;
        assert_eq!(fleet.stored("/revocations/").await.len(), 1);
        // The next start finds the note, and does not extend it.
        one.pass_seconds(24 * 3600 + MAX_SESSION_SECONDS + 119);
        note(false).await;
        fleet.tidy().await;
        assert_eq!(fleet.stored("/revocations/").await.len(), 1);
        one.pass_seconds(1);
        note(false).await;
        fleet.tidy().await;
        assert_eq!(fleet.stored("/revocations/").await, Vec::<String>::new());
        update(one, KEY, json!({ "groups": ["y"] })).await;
        assert_eq!(fleet.stored("/revocations/").await, Vec::<String>::new());
        assert_eq!(fleet.stored("/issued-tokens/").await, ["/issued-tokens/unknown"]);
    })
    .await;
}

#[tokio::test]
async fn a_note_that_is_newer_than_the_identity_does_not_count() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        one.key("laptop", json!({})).await;
        fleet.current().await;
        let (registry, before) = (&one.registry, one.registry.cache().applied());
        let expires = one.clock.now().unix_seconds() + TTL_SECONDS;
        assert!(!registry.is_noted(&subjects("uid"), expires, before));
        registry.note(&subjects("uid"), expires).await.unwrap();
        for server in fleet.current().await {
            let registry = &server.registry;
            assert!(
                !registry.is_noted(&subjects("uid"), expires, before),
                "a change may lie between"
            );
            assert!(registry.is_noted(&subjects("uid"), expires, registry.cache().applied()));
            assert!(!registry.is_noted(
                &subjects("uid"),
                expires + 7200,
                registry.cache().applied()
            ));
        }
    })
    .await;
}

#[tokio::test]
async fn a_change_revokes_a_token_that_another_server_issued_a_moment_ago() {
    on_every_fleet(async |fleet| {
        let (one, other) = (fleet.one(), fleet.other());
        one.make(ADA, json!({})).await;
        let digest = one.key_of("laptop", "ada", json!({})).await;
        fleet.current().await;
        for number in 0..20 {
            // Each server may or may not know the change of the other.
            let group = json!({ "groups": [format!("g{number}")] });
            let change = update(one, KEY, group.clone());
            let (token, ()) = tokio::join!(other.token(&digest), change);
            let before = fleet.current().await[0].verified(&token).is_none();
            update(one, ADA, group).await;
            let after = fleet.current().await[0].verified(&token);
            assert_eq!(after, Some(TokenRefusal::Revoked), "it counted before: {before}");
        }
    })
    .await;
}

#[tokio::test]
async fn many_revocations_of_one_owner_are_folded_and_revoke_no_less() {
    on_every_fleet(async |fleet| {
        let one = fleet.one();
        let mut tokens = Vec::new();
        for number in 0..600 {
            let digest = one.key("laptop", json!({})).await;
            tokens.push(one.token(&digest).await);
            one.delete(KEY).await;
            if number == 540 {
                fleet.tidy().await;
            }
        }
        for _ in 0..4 {
            fleet.tidy().await;
        }
        let left = fleet.stored("/revocations/").await.len();
        assert!(left < 100, "{left}");
        // The keys are revoked, not the owner: the tokens of a team's members depend on the team.
        let owner = one.registry.cache().principals().uid(Principal::User("admin")).unwrap();
        let revoked: Vec<_> =
            one.registry.cache().revocations().into_iter().map(|(uid, _)| uid).collect();
        assert!(revoked.contains(&keys_of(&owner)) && !revoked.contains(&owner));
        for server in fleet.current().await {
            for token in &tokens {
                assert_eq!(server.verified(token), Some(TokenRefusal::Revoked));
            }
        }
        let digest = one.key("laptop", json!({})).await;
        let token = one.token(&digest).await;
        assert_eq!(fleet.current().await[0].verified(&token), None);
    })
    .await;
}

#[tokio::test]
async fn servers_agree_on_the_keys_that_sign_and_on_those_that_are_dropped() {
    on_every_fleet(async |fleet| {
        let (one, other) = (fleet.one(), fleet.other());
        let digest = one.key("laptop", json!({})).await;
        fleet.current().await;
        let token = one.token(&digest).await;
        assert_eq!(other.verified(&token), None);
        let rotate = |server: &Fixture, force| {
            let (registry, now) = (server.registry.clone(), server.clock.now());
            async move {
                let policy = registry.token_policy();
                signing_keys::rotate(registry.store(), now, policy, force).await.unwrap()
            }
        };
        // Both servers rotate at once: one key is announced.
        let (first, second) = tokio::join!(rotate(one, false), rotate(other, false));
        assert_eq!(first.kid, second.kid);
        rotate(other, true).await;
        fleet.current().await;
        assert_eq!(other.verified(&token), None, "its key is published until it has expired");
        let newer = one.token(&digest).await;
        let old = one.registry.cache().signing_keys().public().keys[0].kid.clone();
        signing_keys::drop_key(one.registry.store(), one.clock.now(), &old).await.unwrap();
        for server in fleet.current().await {
            assert_eq!(server.verified(&token), Some(TokenRefusal::UnknownKey));
            assert_eq!(server.verified(&newer), None);
        }
    })
    .await;
}
