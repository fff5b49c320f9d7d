//! Tokens that count, and every JWT that must not.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::{BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD as BASE64URL};
use postern_kinds::Impersonation;
use postern_kinds::principal::Lifetime;
use postern_kinds::scope::{Scope, ScopeSpace};
use serde_json::json;

use super::*;
use crate::attributes::{Attributes, Request, RequestTarget};
use crate::identity::Identity;
use crate::policy::{Decision, Policy};
use crate::resolved_key::{Activity, Ancestor, ResolvedKey};
use crate::scope::ScopeRules;

const ISSUER: &str = "https://postern.example.com";
const NOW: i64 = 1_800_000_000;
const CLUSTER: &str = "3b0f";

fn ada(scopes: &[Scope]) -> Identity {
    Identity {
        name: "oidc|ada".to_owned(),
        uid: "u-ada".to_owned(),
        groups: ["platform:user:ada", "platform:team:db", "system:authenticated"]
            .map(str::to_owned)
            .to_vec(),
        user: Some("ada".to_owned()),
        teams: vec!["db".to_owned()],
        principal_uids: vec!["u-ada".to_owned(), "t-db".to_owned()],
        access_key: "laptop".to_owned(),
        scopes: scopes.iter().map(|scope| Arc::new(ScopeRules::new(scope))).collect(),
        ..Identity::default()
    }
}

fn key(identity: Identity) -> ResolvedKey {
    ResolvedKey {
        uid: "k-laptop".to_owned(),
        identity: Arc::new(identity),
        ..ResolvedKey::default()
    }
}

fn issuance() -> Issuance {
    Issuance {
        issuer: ISSUER.to_owned(),
        audiences: vec![cluster_audience(CLUSTER)],
        issued_at: NOW,
        ttl_seconds: 600,
        token_id: "id-1".to_owned(),
        revocation_revision: 70,
    }
}

fn claims_of(key: &ResolvedKey) -> Claims {
    let bearer = Bearer { key, identity: &key.identity, wanted: None, scope: None };
    Claims::of(&bearer, issuance())
}

fn claims() -> Claims {
    claims_of(&key(ada(&[])))
}

/// A key, and a verifier at the cluster that knows it.
fn pair() -> (SigningKey, Verifier) {
    let signing = SigningKey::generate().unwrap();
    let verifier = Verifier::new(ISSUER, [cluster_audience(CLUSTER), GENERAL_AUDIENCE.to_owned()]);
    verifier.set_keys(&JwkSet { keys: vec![signing.public()] });
    (signing, verifier)
}

fn token(signing: &SigningKey, claims: &Claims) -> String {
    signing.issue(claims).unwrap().expose().to_owned()
}

fn header(signing: &SigningKey) -> String {
    format!(r#"{{"alg":"ES256","typ":"at+jwt","kid":"{}"}}"#, signing.id())
}

fn payload(claims: &Claims) -> String {
    serde_json::to_string(claims).unwrap()
}

fn encoded(text: &str) -> String {
    BASE64URL.encode(text)
}

#[test]
fn a_token_gives_the_identity_that_it_was_issued_for() {
    let (signer, verifier) = pair();
    let scopes = [
        Scope { allow_platform_cli: true, ..Scope::default() },
        Scope {
            spaces: vec![ScopeSpace { project: "web".to_owned(), space: "dev".to_owned() }],
            ..Scope::default()
        },
    ];
    let mut asking = key(ada(&scopes));
    let maker = Ancestor {
        name: "ci".to_owned(),
        uid: "k-ci".to_owned(),
        lifetime: Lifetime::default(),
        activity: Arc::default(),
        impersonated: None,
        owner_uid: String::new(),
        is_login: false,
    };
    asking.ancestors.push(maker);
    let found = verifier.verify(&token(&signer, &claims_of(&asking)), NOW).unwrap();
    assert_eq!(*found.identity, *asking.identity);
    assert_eq!((found.expires, found.token_id.as_str()), (NOW + 600, "id-1"));
    let keys: Vec<_> = found.claims.platform.keys.iter().map(|key| &*key.uid).collect();
    assert_eq!(keys, ["k-laptop", "k-ci"]);
}

#[test]
fn the_scopes_of_a_token_are_judged_by_the_same_policy() {
    let (signing, verifier) = pair();
    let asking = key(ada(&[]));
    let scope: Scope =
        serde_json::from_value(json!({ "spaces": [{ "project": "web", "space": "dev" }] }))
            .unwrap();
    let bearer =
        Bearer { key: &asking, identity: &asking.identity, wanted: None, scope: Some(&scope) };
    let claims = Claims::of(&bearer, issuance());
    let found = verifier.verify(&token(&signing, &claims), NOW).unwrap();
    for (space, expected) in [("dev", Decision::Allow), ("prod", Decision::Deny)] {
        let request = Request {
            attributes: Attributes::Resource {
                verb: "get",
                group: "",
                resource: "pods",
                subresource: "",
                namespace: "web-dev",
                name: "p",
            },
            target: RequestTarget::ProjectSpace { project: "web", space },
        };
        let policy = Policy::default();
        assert_eq!(policy.decide_request(&found.identity, &request), expected, "{space}");
    }
}

#[test]
fn a_token_of_an_impersonation_has_the_scopes_of_the_bearer_and_depends_on_both() {
    let (signing, verifier) = pair();
    let scope = Scope { allow_platform_cli: true, ..Scope::default() };
    let asking = key(ada(&[scope]));
    let bob = Identity {
        name: "bob".to_owned(),
        uid: "u-bob".to_owned(),
        principal_uids: vec!["u-bob".to_owned()],
        access_key: "laptop".to_owned(),
        scopes: asking.identity.scopes.clone(),
        is_impersonated: true,
        ..Identity::default()
    };
    let bearer = Bearer { key: &asking, identity: &bob, wanted: None, scope: None };
    let text = token(&signing, &Claims::of(&bearer, issuance()));
    assert_eq!(*verifier.verify(&text, NOW).unwrap().identity, bob);
    let of_keys = [keys_of("u-ada"), keys_of("t-db")];
    let of_principals = ["u-bob", "u-ada", "t-db", "k-laptop"].map(str::to_owned);
    for uid in of_principals.into_iter().chain(of_keys) {
        verifier.set_revocations([(uid.clone(), 71)]);
        assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::Revoked), "{uid}");
    }
    verifier.set_revocations([(keys_of("u-bob"), 71)]);
    assert!(verifier.verify(&text, NOW).is_ok(), "the key belongs to another owner");
}

#[test]
fn all_keys_of_an_owner_can_be_revoked_and_those_of_a_team_leave_its_members_theirs() {
    let (signing, verifier) = pair();
    let team = Identity {
        name: "platform:team:db".to_owned(),
        uid: "t-db".to_owned(),
        team: Some("db".to_owned()),
        principal_uids: vec!["t-db".to_owned()],
        ..ada(&[])
    };
    let text = |identity| token(&signing, &claims_of(&key(identity)));
    let (of_member, of_team) = (text(ada(&[])), text(team));
    let revoked = Err(TokenRefusal::Revoked);
    for (owner, member, team) in [("t-db", false, true), ("u-ada", true, false)] {
        verifier.set_revocations([(keys_of(owner), 71)]);
        assert_eq!(verifier.verify(&of_member, NOW).map(drop) == revoked, member, "{owner}");
        assert_eq!(verifier.verify(&of_team, NOW).map(drop) == revoked, team, "{owner}");
    }
}

#[test]
fn a_token_never_outlives_its_key() {
    let lifetime = |ttl_seconds, after_last_activity| Lifetime {
        created_unix_seconds: NOW,
        ttl_seconds,
        after_last_activity,
        idle_seconds: 0,
    };
    let mut asking = key(ada(&[]));
    assert_eq!(claims_of(&asking).exp, NOW + 600);
    assert_eq!(claims_of(&asking).platform.keys_end, None);
    asking.lifetime = lifetime(1000, false);
    assert_eq!(claims_of(&asking).exp, NOW + 600);
    // Streams that outlive the token know the key's end.
    assert_eq!(claims_of(&asking).platform.keys_end, Some(NOW + 1000));
    asking.lifetime = lifetime(100, false);
    assert_eq!(claims_of(&asking).exp, NOW + 100);
    asking.lifetime = lifetime(300, true);
    asking.activity = Arc::new(Activity::at(NOW + 50));
    assert_eq!(claims_of(&asking).exp, NOW + 350);
    asking.ancestors.push(Ancestor {
        name: "ci".to_owned(),
        uid: "k-ci".to_owned(),
        lifetime: lifetime(70, false),
        activity: Arc::default(),
        impersonated: None,
        owner_uid: String::new(),
        is_login: false,
    });
    assert_eq!(claims_of(&asking).exp, NOW + 70);
    assert_eq!(claims_of(&asking).platform.keys_end, Some(NOW + 70));
}

#[test]
fn cve_2023_22482_and_vault_2024_5798_issuer_audience_and_times_are_checked() {
    let (signing, verifier) = pair();
    let with = |change: &dyn Fn(&mut Claims)| {
        let mut claims = claims();
        change(&mut claims);
        verifier.verify(&token(&signing, &claims), NOW).map(|_| ())
    };
    let other = "https://other.example.com";
    let audience = |text: &str| vec![text.to_owned()];
    let general = audience(GENERAL_AUDIENCE);
    let elsewhere = audience(&cluster_audience("ffff"));
    let both = [elsewhere.clone(), claims().aud].concat();
    assert_eq!(with(&|_| ()), Ok(()));
    assert_eq!(with(&|claims| claims.aud = general.clone()), Ok(()));
    assert_eq!(with(&|claims| claims.aud = both.clone()), Ok(()));
    assert_eq!(with(&|claims| claims.iss = other.to_owned()), Err(TokenRefusal::Issuer));
    assert_eq!(with(&|claims| claims.iss = format!("{ISSUER}/")), Err(TokenRefusal::Issuer));
    assert_eq!(with(&|claims| claims.aud.clear()), Err(TokenRefusal::Audience));
    assert_eq!(with(&|claims| claims.aud = elsewhere.clone()), Err(TokenRefusal::Audience));
    assert_eq!(with(&|claims| claims.exp = NOW - 59), Ok(()));
    assert_eq!(with(&|claims| claims.exp = NOW - 60), Err(TokenRefusal::Expired));
    assert_eq!(with(&|claims| claims.exp = i64::MIN), Err(TokenRefusal::Expired));
    assert_eq!(with(&|claims| claims.nbf = NOW + 60), Ok(()));
    assert_eq!(with(&|claims| claims.nbf = NOW + 61), Err(TokenRefusal::NotYetValid));
}

/// A token, and the expected refusal.
type Wrong = (&'static str, String, TokenRefusal);

/// Good parts of a token: header, payload, and the token itself.
fn parts(signing: &SigningKey) -> (String, String, String) {
    (header(signing), payload(&claims()), token(signing, &claims()))
}

/// Texts that are no token in form.
fn wrong_in_form(signing: &SigningKey) -> Vec<Wrong> {
    let (head, said, good) = parts(signing);
    let (before, signature) = good.rsplit_once('.').unwrap();
    let padded = BASE64_URL_SAFE.encode(BASE64URL.decode(signature).unwrap());
    vec![
        ("nothing", String::new(), TokenRefusal::Malformed),
        ("an access key", "pst_01234567_abc_2dbcmK".to_owned(), TokenRefusal::Malformed),
        ("two parts", before.to_owned(), TokenRefusal::Malformed),
        ("four parts", format!("{good}.x"), TokenRefusal::Malformed),
        ("five parts", format!("{good}.x.y"), TokenRefusal::Malformed),
        (
            "no signature",
            format!("{}.{}.", encoded(&head), encoded(&said)),
            TokenRefusal::Malformed,
        ),
        ("padding", format!("{before}.{padded}"), TokenRefusal::Malformed),
        ("a blank", format!("{good} "), TokenRefusal::Malformed),
        ("1 MiB and one", "x".repeat(MAX_TUNNEL_TOKEN_BYTES + 1), TokenRefusal::TooLong),
    ]
}

/// Tokens with another header, signed by the right key all the same.
fn wrong_in_header(signing: &SigningKey) -> Vec<Wrong> {
    let (head, said, _) = parts(signing);
    let with = |from: &str, to: &str| {
        let head = head.replacen(from, to, 1);
        signing.sign(head.as_bytes(), said.as_bytes()).unwrap()
    };
    let of_none = encoded(&head.replace("ES256", "none"));
    // The attack on readers that take the algorithm from the token: the public key is no secret.
    let input = format!("{}.{}", encoded(&head.replace("ES256", "HS256")), encoded(&said));
    let public = serde_json::to_vec(&signing.public()).unwrap();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public), input.as_bytes());
    let long = format!("{{{}", " ".repeat(600));
    vec![
        ("alg none", format!("{of_none}.{}.x", encoded(&said)), TokenRefusal::Algorithm),
        ("alg none, signed", with("ES256", "none"), TokenRefusal::Algorithm),
        ("alg in other letters", with("ES256", "es256"), TokenRefusal::Algorithm),
        ("HS256 by key", format!("{input}.{}", BASE64URL.encode(tag)), TokenRefusal::Algorithm),
        ("RS256", with("ES256", "RS256"), TokenRefusal::Algorithm),
        ("typ JWT", with("at+jwt", "JWT"), TokenRefusal::Type),
        ("no typ", with(r#""typ":"at+jwt","#, ""), TokenRefusal::Type),
        ("no kid", with(signing.id(), ""), TokenRefusal::UnknownKey),
        ("crit", with("{", r#"{"crit":["exp"],"#), TokenRefusal::CriticalHeader),
        ("crit of nothing", with("{", r#"{"crit":null,"#), TokenRefusal::Header),
        ("a key in the header", with("{", r#"{"jwk":{},"#), TokenRefusal::Header),
        ("alg twice", with("{", r#"{"alg":"none","#), TokenRefusal::Header),
        ("nested", with("{", r#"{"cty":"JWT","#), TokenRefusal::Nested),
        ("a long header", with("{", &long), TokenRefusal::Header),
    ]
}

/// Tokens with another signature or payload.
fn wrong_in_what_is_signed(signing: &SigningKey) -> Vec<Wrong> {
    let (head, said, good) = parts(signing);
    let other = SigningKey::generate().unwrap();
    let with = |said: &str| signing.sign(head.as_bytes(), said.as_bytes()).unwrap();
    let (before, signature) = good.rsplit_once('.').unwrap();
    let mut flipped = BASE64URL.decode(signature).unwrap();
    flipped[5] ^= 1;
    let flipped = format!("{before}.{}", BASE64URL.encode(flipped));
    let admin = encoded(&payload(&Claims { sub: "admin".to_owned(), ..claims() }));
    let swapped = format!("{}.{admin}.{signature}", encoded(&head));
    let under_this_kid = other.sign(head.as_bytes(), said.as_bytes()).unwrap();
    let twice = said.replacen('{', r#"{"sub":"x","#, 1);
    let unknown = said.replacen('{', r#"{"act":{},"#, 1);
    vec![
        ("by another key", token(&other, &claims()), TokenRefusal::UnknownKey),
        ("by another key under this kid", under_this_kid, TokenRefusal::Signature),
        ("a flipped signature", flipped, TokenRefusal::Signature),
        ("a swapped payload", swapped, TokenRefusal::Signature),
        ("a token as payload", with(&good), TokenRefusal::Claims),
        ("a claim twice", with(&twice), TokenRefusal::Claims),
        ("an unknown claim", with(&unknown), TokenRefusal::Claims),
    ]
}

#[test]
fn cve_2022_29165_no_jwt_is_trusted_that_is_not_one_of_ours() {
    let (signing, verifier) = pair();
    let wrong =
        [wrong_in_form(&signing), wrong_in_header(&signing), wrong_in_what_is_signed(&signing)];
    for (what, text, why) in wrong.concat() {
        assert_eq!(verifier.verify(&text, NOW), Err(why), "{what}");
    }
    assert_eq!(verifier.cached(), 0, "nothing of it is remembered");
    assert!(verifier.verify(&token(&signing, &claims()), NOW).is_ok());
}

#[test]
fn what_would_narrow_a_scope_is_not_overlooked() {
    let (signing, verifier) = pair();
    let asking = key(ada(&[Scope { allow_platform_cli: true, ..Scope::default() }]));
    let said = payload(&claims_of(&asking));
    let newer = said.replace(r#""allowPlatformCli":true"#, r#""allowPlatformCli":true,"hours":8"#);
    assert_ne!(said, newer);
    let text = signing.sign(header(&signing).as_bytes(), newer.as_bytes()).unwrap();
    assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::Claims));
}

#[test]
fn older_generations_are_refused_at_once_also_of_tokens_seen_before() {
    let (signing, verifier) = pair();
    let text = token(&signing, &claims());
    for uid in ["k-laptop", "u-ada", "t-db"] {
        verifier.set_revocations([]);
        assert!(verifier.verify(&text, NOW).is_ok());
        verifier.revoke("u-other", 99);
        verifier.revoke(uid, 70);
        assert!(verifier.verify(&text, NOW).is_ok(), "it was issued as of that change");
        verifier.revoke(uid, 71);
        assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::Revoked), "{uid}");
        verifier.revoke(uid, 69);
        assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::Revoked), "{uid}");
    }
    verifier.set_revocations([("u-ada", 71), ("u-ada", 5)].map(|(uid, at)| (uid.to_owned(), at)));
    assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::Revoked));
}

/// Any client can send tokens with made-up key ids. The verifier then reads nothing after the id and keeps nothing.
/// It asks no other service, since it knows none.
#[test]
fn a_flood_of_unknown_keys_leaves_nothing_behind() {
    const FLOOD: usize = 20_000;
    let (signing, verifier) = pair();
    let good = token(&signing, &claims());
    assert!(verifier.verify(&good, NOW).is_ok());
    let before = format!("{verifier:?}");
    let rest = good.split_once('.').unwrap().1;
    let header = header(&signing);
    // Read, it would be refused for its form.
    let unreadable = format!("{0}.{0}", "!".repeat(3000));
    for number in 0..FLOOD {
        let of_nobody = encoded(&header.replace(signing.id(), &format!("kid-{number}")));
        let rest = if number % 2 == 0 { rest } else { &unreadable };
        let refused = verifier.verify(&format!("{of_nobody}.{rest}"), NOW);
        assert_eq!(refused, Err(TokenRefusal::UnknownKey));
    }
    assert_eq!((verifier.cached(), format!("{verifier:?}")), (1, before));
    assert!(verifier.verify(&good, NOW).is_ok(), "who was seen before is not forgotten for it");
}

#[test]
fn a_dropped_key_counts_no_more_at_once_also_for_tokens_seen_before() {
    let (old, verifier) = pair();
    let new = SigningKey::generate().unwrap();
    let (of_old, of_new) = (token(&old, &claims()), token(&new, &claims()));
    assert!(verifier.verify(&of_old, NOW).is_ok());
    assert_eq!(verifier.verify(&of_new, NOW), Err(TokenRefusal::UnknownKey));
    verifier.set_keys(&JwkSet { keys: vec![old.public(), new.public()] });
    assert!(verifier.verify(&of_old, NOW).is_ok());
    assert!(verifier.verify(&of_new, NOW).is_ok());
    verifier.set_keys(&JwkSet { keys: vec![new.public()] });
    assert_eq!(verifier.verify(&of_old, NOW), Err(TokenRefusal::UnknownKey));
    assert!(verifier.verify(&of_new, NOW).is_ok());
}

#[test]
fn a_token_seen_before_expires_all_the_same() {
    let (signing, verifier) = pair();
    let text = token(&signing, &claims());
    assert!(verifier.verify(&text, NOW).is_ok());
    assert!(verifier.verify(&text, NOW + 659).is_ok());
    assert_eq!(verifier.verify(&text, NOW + 660), Err(TokenRefusal::Expired));
    assert_eq!(verifier.cached(), 0);
}

#[test]
fn the_cache_is_bounded() {
    let (signing, verifier) = pair();
    let mut claims = claims();
    claims.groups = vec!["g".repeat(5000)];
    let first = token(&signing, &claims);
    let fits = cache::HALF_BYTES / first.len();
    for index in 0..2 * fits + 10 {
        claims.jti = format!("id-{index}");
        assert!(verifier.verify(&token(&signing, &claims), NOW).is_ok());
        assert!(verifier.verify(&first, NOW).is_ok());
        assert!(verifier.cached() <= 2 * fits + 2);
    }
}

#[test]
fn a_key_survives_its_storage_and_prints_nothing() {
    let made = SigningKey::generate().unwrap();
    let read = SigningKey::from_pkcs8(&made.to_pkcs8().unwrap()).unwrap();
    assert_eq!((read.id(), read.public()), (made.id(), made.public()));
    assert_eq!(format!("{made:?}"), format!("SigningKey({})", made.id()));
    assert_eq!(made.id().len(), 43);
    assert!(SigningKey::from_pkcs8(b"x").is_err());
}

#[test]
fn published_keys_that_are_not_ours_in_form_are_left_out() {
    let (signing, verifier) = pair();
    let text = token(&signing, &claims());
    let good = signing.public();
    let other = SigningKey::generate().unwrap().public();
    for wrong in [
        Jwk { kty: "RSA".to_owned(), ..good.clone() },
        Jwk { alg: "RS256".to_owned(), ..good.clone() },
        Jwk { x: other.x.clone(), ..good.clone() },
        // Another key under the id of this one.
        Jwk { kid: good.kid.clone(), ..other },
        Jwk { y: good.x.clone(), ..good.clone() },
    ] {
        verifier.set_keys(&JwkSet { keys: vec![wrong.clone()] });
        assert_eq!(verifier.verify(&text, NOW), Err(TokenRefusal::UnknownKey), "{wrong:?}");
    }
    verifier
        .set_keys(&JwkSet { keys: vec![Jwk { kty: "RSA".to_owned(), ..Jwk::default() }, good] });
    assert!(verifier.verify(&text, NOW).is_ok());
}

#[test]
fn a_token_that_would_be_too_long_is_not_issued() {
    let (signing, _) = pair();
    let mut claims = claims();
    claims.groups = vec!["g".repeat(MAX_TOKEN_BYTES)];
    assert_eq!(signing.issue(&claims).unwrap_err(), IssueError::TooLong);
}

#[test]
fn a_refusal_has_nothing_of_the_token() {
    let (signing, verifier) = pair();
    let text = token(&signing, &claims()).replace('.', "!");
    let refusal = verifier.verify(&text, NOW).unwrap_err();
    assert!(!refusal.to_string().contains(&text[..8]));
    assert!(format!("{verifier:?}").contains(signing.id()));
}

#[test]
fn a_token_depends_on_the_owners_of_the_keys_that_created_its_key_and_on_impersonations() {
    let (signing, verifier) = pair();
    let wanted = Impersonation { user: "bob".to_owned(), ..Impersonation::default() };
    let mut asking = key(ada(&[]));
    asking.ancestors.push(Ancestor {
        name: "maker".to_owned(),
        uid: "k-maker".to_owned(),
        owner_uid: "u-maker".to_owned(),
        lifetime: Lifetime::default(),
        activity: Arc::default(),
        impersonated: Some(wanted.clone()),
        is_login: false,
    });
    // Many revocations of keys are folded into one of all keys of their owner.
    let of_keys = keys_of("u-maker");
    for uid in ["k-maker", "u-maker", &impersonation_id("k-maker", &wanted), &of_keys] {
        let text = token(&signing, &claims_of(&asking));
        assert!(verifier.verify(&text, NOW).is_ok());
        let revocation_revision = claims_of(&asking).platform.revocation_revision;
        verifier.revoke(uid, revocation_revision + 1);
        assert_eq!(verifier.verify(&text, NOW).err(), Some(TokenRefusal::Revoked), "{uid}");
        verifier.set_revocations([]);
    }
}
