//! Hostile tokens and documents, each of which breaks one rule; and logins of one browser.

use serde_json::{Value, json};

use super::discovery::{Discovery, DiscoveryRefused, address};
use super::id_token::{LoggedOut, Party, verify_id_token, verify_logout_token};
use super::jwks::{Algorithm, KeySet, KeysRefused};
use super::jwt::{MAX_TOKEN_BYTES, TokenRefused};
use super::login::{
    Client, Login, StateKey, StateRefused, challenge, is_return_path, logout_address,
};
use super::mapping::{self, Allow, LoginRefused, ProviderGroups};
use super::testing::{CLIENT, ISSUER, NOW, Provider, claims, header, with};

const PARTY: Party<'_> = Party { issuer: ISSUER, client_id: CLIENT, now: NOW };

fn verified(provider: &Provider, token: &str) -> Result<(), TokenRefused> {
    verify_id_token(token, &provider.keys(), PARTY, Some("n-0S6"), Some("access")).map(drop)
}

#[test]
fn the_address_of_a_logout_has_an_id_token_that_fits() {
    let address = |token: &str| {
        logout_address("https://idp.example/end?t=1", token, "a&b", "https://p.example/ui/")
    };
    let rest = "client_id=a%26b&post_logout_redirect_uri=https%3A%2F%2Fp.example%2Fui%2F";
    let endpoint = "https://idp.example/end?t=1";
    assert_eq!(address("x.y.z"), format!("{endpoint}&id_token_hint=x.y.z&{rest}"));
    assert_eq!(address(&"x".repeat(4097)), format!("{endpoint}&{rest}"));
}

#[test]
fn each_accepted_algorithm_verifies_with_its_own_type_of_key() {
    let provider = Provider::new();
    for algorithm in Algorithm::ALL {
        let token = provider.sign(algorithm, &header(algorithm), &claims());
        assert_eq!(verified(&provider, &token), Ok(()), "{algorithm:?}");
        // The header names another algorithm, or the key of another one.
        for other in Algorithm::ALL.into_iter().filter(|other| *other != algorithm) {
            let named = with(header(algorithm), "alg", json!(other.name()));
            let refused = verified(&provider, &provider.sign(algorithm, &named, &claims()));
            let is_rsa = |one| matches!(one, Algorithm::Rs256 | Algorithm::Ps256);
            let expected = if is_rsa(algorithm) && is_rsa(other) {
                TokenRefused::Signature
            } else {
                TokenRefused::UnknownKey
            };
            assert_eq!(refused, Err(expected), "{algorithm:?} as {other:?}");
        }
    }
}

#[test]
fn tokens_of_a_hostile_form_are_refused_each_with_its_reason() {
    use TokenRefused as R;
    let provider = Provider::new();
    let es = |head: Value| provider.sign(Algorithm::Es256, &head, &claims());
    let head = |name: &str, value: Value| es(with(header(Algorithm::Es256), name, value));
    let good = provider.token("x", json!(1));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (first, payload) = signed.split_once('.').unwrap();
    let text = |header: &str, claims: &str| provider.sign_text(Algorithm::Es256, header, claims);
    let plain_header = header(Algorithm::Es256).to_string();
    let twice = claims().to_string().replacen('{', r#"{"sub":"admin","#, 1);
    for (token, expected) in [
        (good.clone(), None),
        ("x".repeat(MAX_TOKEN_BYTES + 1), Some(R::TooLong)),
        (String::new(), Some(R::Malformed)),
        (signed.to_owned(), Some(R::Malformed)),
        (format!("{signed}."), Some(R::Malformed)),
        (format!("{good}.x"), Some(R::Malformed)),
        (format!("{first}..{signature}"), Some(R::Malformed)),
        (format!("{first}.{payload}=.{signature}"), Some(R::Signature)),
        (format!("{first}.{payload}.{signature}="), Some(R::Malformed)),
        (text("[]", "{}"), Some(R::Header)),
        (text(&plain_header.replacen('{', r#"{"alg":"none","#, 1), "{}"), Some(R::Header)),
        (head("crit", json!(["exp"])), Some(R::CriticalHeader)),
        (head("cty", json!("JWT")), Some(R::Nested)),
        (head("alg", json!("none")), Some(R::Algorithm)),
        (head("alg", json!("HS256")), Some(R::Algorithm)),
        (head("alg", json!("RS1")), Some(R::Algorithm)),
        (head("alg", json!("es256")), Some(R::Algorithm)),
        (head("alg", Value::Null), Some(R::Algorithm)),
        (head("typ", json!("at+jwt")), Some(R::Type)),
        (head("typ", json!("logout+jwt")), Some(R::Type)),
        (head("typ", json!(7)), Some(R::Type)),
        (head("typ", json!("jwt")), None),
        (head("typ", json!("application/JWT")), None),
        (head("typ", Value::Null), None),
        (head("kid", json!("other")), Some(R::UnknownKey)),
        (head("kid", json!(1)), Some(R::Header)),
        (head("kid", json!("rsa")), Some(R::UnknownKey)),
        // A key in the header is not used.
        (head("jwk", Provider::new().p256_key()), None),
        (format!("{first}.{payload}.{}", "A".repeat(86)), Some(R::Signature)),
        (text(&plain_header, "[]"), Some(R::Claims)),
        (text(&plain_header, "{"), Some(R::Claims)),
        (text(&plain_header, &twice), Some(R::Claims)),
    ] {
        assert_eq!(verified(&provider, &token).err(), expected, "{token}");
    }
}

#[test]
fn tokens_with_hostile_claims_are_refused_each_with_its_reason() {
    use TokenRefused as R;
    let provider = Provider::new();
    for (name, value, expected) in [
        ("iss", json!(format!("{ISSUER}/")), Some(R::Issuer)),
        ("iss", json!(ISSUER.to_uppercase()), Some(R::Issuer)),
        ("iss", json!([ISSUER]), Some(R::Issuer)),
        ("aud", json!("postern2"), Some(R::Audience)),
        ("aud", json!([]), Some(R::Audience)),
        ("aud", json!([CLIENT, 1]), Some(R::Audience)),
        ("aud", Value::Null, Some(R::Audience)),
        ("aud", json!([CLIENT]), None),
        ("aud", json!([CLIENT, "other"]), Some(R::AuthorizedParty)),
        ("azp", json!("other"), Some(R::AuthorizedParty)),
        ("azp", json!(CLIENT), None),
        ("exp", json!(NOW - 60), Some(R::Expired)),
        ("exp", json!(NOW - 59), None),
        ("exp", json!(f64::from(1_800_000_300) + 0.5), None),
        ("exp", json!("never"), Some(R::Expired)),
        ("exp", json!(1e300), Some(R::Expired)),
        ("exp", Value::Null, Some(R::Expired)),
        ("nbf", json!(NOW + 61), Some(R::NotYetValid)),
        ("nbf", json!("x"), Some(R::NotYetValid)),
        ("nbf", json!(NOW + 60), None),
        ("iat", json!(NOW + 61), Some(R::IssuedAt)),
        ("iat", Value::Null, Some(R::IssuedAt)),
        ("sub", Value::Null, Some(R::Subject)),
        ("sub", json!(""), Some(R::Subject)),
        ("sub", json!("x".repeat(256)), Some(R::Subject)),
        ("sub", json!("a\nb"), Some(R::Subject)),
        ("sub", json!(7), Some(R::Subject)),
        ("nonce", json!("n-0s6"), Some(R::Nonce)),
        ("nonce", Value::Null, Some(R::Nonce)),
        ("at_hash", json!("77QmUPtjPfzWtF2AnpK9RQ"), Some(R::AccessTokenHash)),
        ("events", json!({}), Some(R::LogoutToken)),
    ] {
        let token = provider.token(name, value.clone());
        assert_eq!(verified(&provider, &token).err(), expected, "{name} {value}");
    }
}

#[test]
fn an_access_token_belongs_to_its_id_token() {
    // The example of OpenID Connect Core 1.0, appendix A.3.
    let provider = Provider::new();
    let token = provider.token("at_hash", json!("77QmUPtjPfzWtF2AnpK9RQ"));
    let access = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y";
    let check = |access| verify_id_token(&token, &provider.keys(), PARTY, Some("n-0S6"), access);
    assert!(check(Some(access)).is_ok() && check(None).is_ok());
    assert_eq!(check(Some("another")).unwrap_err(), TokenRefused::AccessTokenHash);
}

#[test]
fn a_logout_token_has_its_event_and_no_nonce() {
    let provider = Provider::new();
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    let logout =
        with(with(with(claims(), "events", event), "nonce", Value::Null), "jti", json!("1"));
    let check = |claims: &Value, typ: &str| {
        let head = with(header(Algorithm::Es256), "typ", json!(typ));
        let token = provider.sign(Algorithm::Es256, &head, claims);
        verify_logout_token(&token, &provider.keys(), PARTY)
    };
    let subject = Some("248289761001".to_owned());
    let ended = LoggedOut { subject, session: None };
    assert_eq!(check(&logout, "logout+jwt"), Ok(ended.clone()));
    assert_eq!(check(&logout, "JWT"), Ok(ended));
    let of_session = with(with(logout.clone(), "sub", Value::Null), "sid", json!("s"));
    let session = LoggedOut { subject: None, session: Some("s".to_owned()) };
    assert_eq!(check(&of_session, "logout+jwt"), Ok(session));
    for (name, value) in [
        ("events", Value::Null),
        ("events", json!({ "http://schemas.openid.net/event/backchannel-logout": 1 })),
        ("events", json!({ "other": {} })),
        ("nonce", json!("n-0S6")),
        ("jti", Value::Null),
        ("sub", Value::Null),
    ] {
        let refused = check(&with(logout.clone(), name, value), "logout+jwt");
        assert_eq!(refused, Err(TokenRefused::NoLogoutToken), "{name}");
    }
    assert_eq!(check(&claims(), "JWT"), Err(TokenRefused::NoLogoutToken));
}

#[test]
fn only_keys_that_can_verify_are_taken() {
    let provider = Provider::new();
    let parse = |keys: Value| KeySet::parse(json!({ "keys": keys }).to_string().as_bytes());
    for (name, value, is_taken) in [
        ("use", json!("sig"), true),
        ("use", json!("enc"), false),
        ("use", json!(1), false),
        ("use", Value::Null, true),
        ("key_ops", json!(["verify"]), true),
        ("key_ops", json!(["encrypt"]), false),
        ("alg", json!("RS256"), true),
        ("alg", json!("PS256"), true),
        ("alg", json!("RS512"), false),
        ("alg", json!("ES256"), false),
        ("kty", json!("oct"), false),
        ("kty", Value::Null, false),
        // 1024 and 2047 bits, and 8200.
        ("n", json!("_".repeat(171)), false),
        ("n", json!(format!("f{}", "_".repeat(340))), false),
        ("n", json!("_".repeat(1367)), false),
        ("n", json!("!"), false),
    ] {
        let parsed = parse(json!([with(provider.rsa_key(), name, value.clone())]));
        assert_eq!(parsed.is_ok(), is_taken, "{name} {value}");
    }
    for wrong in ["P-521", "P-384", "secp256k1"] {
        assert!(parse(json!([with(provider.p256_key(), "crv", json!(wrong))])).is_err(), "{wrong}");
    }
    let many = |count| vec![provider.p256_key(); count];
    assert_eq!(parse(json!(many(100))).unwrap().len(), 100);
    assert_eq!(parse(json!(many(101))).unwrap_err(), KeysRefused::TooMany);
    assert_eq!(parse(json!([])).unwrap_err(), KeysRefused::NoKey);
    assert_eq!(parse(json!("x")).unwrap_err(), KeysRefused::Malformed);
    let large = " ".repeat(super::jwks::MAX_BYTES + 1);
    assert_eq!(KeySet::parse(large.as_bytes()).unwrap_err(), KeysRefused::TooLarge);
}

#[test]
fn a_token_without_a_key_id_needs_a_single_key() {
    let provider = Provider::new();
    let without = with(header(Algorithm::Es256), "kid", Value::Null);
    let token = provider.sign(Algorithm::Es256, &without, &claims());
    assert_eq!(verified(&provider, &token), Ok(()), "one key is for ES256");
    let two = json!({ "keys": [provider.p256_key(), Provider::new().p256_key()] });
    let two = KeySet::parse(two.to_string().as_bytes()).unwrap();
    let refused = verify_id_token(&token, &two, PARTY, None, None).unwrap_err();
    assert_eq!(refused, TokenRefused::AmbiguousKey);
}

fn document() -> Value {
    json!({
        "issuer": ISSUER,
        "authorization_endpoint": "https://login.example.com/auth",
        "token_endpoint": "https://login.example.com/token",
        "jwks_uri": "https://login.example.com/keys",
        "response_types_supported": ["code", "id_token"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "id_token_signing_alg_values_supported": ["RS256", "HS256"],
    })
}

#[test]
fn a_discovery_document_is_that_of_its_issuer() {
    use DiscoveryRefused as R;
    let parse = |name: &str, value: Value| {
        Discovery::parse(with(document(), name, value).to_string().as_bytes(), ISSUER)
    };
    let good = parse("x", json!(1)).unwrap();
    assert_eq!(good.userinfo_endpoint, None);
    assert!(good.is_answer_of(ISSUER, None) && good.is_answer_of(ISSUER, Some(ISSUER)));
    assert!(!good.is_answer_of(ISSUER, Some("https://evil.example.com")));
    let named = parse("authorization_response_iss_parameter_supported", json!(true)).unwrap();
    assert!(!named.is_answer_of(ISSUER, None) && named.is_answer_of(ISSUER, Some(ISSUER)));
    for (name, value, expected) in [
        ("issuer", json!(format!("{ISSUER}/")), R::Issuer),
        ("issuer", Value::Null, R::Issuer),
        ("token_endpoint", Value::Null, R::Address("token_endpoint")),
        ("token_endpoint", json!("http://login.example.com/token"), R::Address("token_endpoint")),
        ("jwks_uri", json!("https://"), R::Address("jwks_uri")),
        ("jwks_uri", json!("https://a@login.example.com/"), R::Address("jwks_uri")),
        ("jwks_uri", json!("file:///etc/passwd"), R::Address("jwks_uri")),
        ("userinfo_endpoint", json!(7), R::Address("userinfo_endpoint")),
        ("response_types_supported", json!(["id_token"]), R::NoCodeFlow),
        ("code_challenge_methods_supported", json!(["plain"]), R::NoS256),
        ("id_token_signing_alg_values_supported", json!(["HS256", "none"]), R::NoAlgorithm),
    ] {
        assert_eq!(parse(name, value.clone()).unwrap_err(), expected, "{name} {value}");
    }
    let twice = document().to_string().replacen('{', r#"{"issuer":"https://x","#, 1);
    assert_eq!(Discovery::parse(twice.as_bytes(), ISSUER).unwrap_err(), R::Malformed);
    let large = vec![b' '; super::discovery::MAX_BYTES + 1];
    assert_eq!(Discovery::parse(&large, ISSUER).unwrap_err(), R::TooLarge);
    let at = "https://login.example.com/realms/corp/.well-known/openid-configuration";
    assert_eq!(address(ISSUER).as_deref(), Some(at));
    assert_eq!(address(&format!("{ISSUER}/")).as_deref(), Some(at));
    for none in ["http://a.example", "https://", "https://a/?x", "https://a/#x", "a"] {
        assert_eq!(address(none), None, "{none}");
    }
}

#[test]
fn a_login_is_bound_to_its_browser_and_its_time() {
    let key = StateKey::new([7; 32]);
    let login = Login::begin(&[[1; 32], [2; 32], [3; 32]], "uid", Some("/ui/secrets?x=1"), NOW);
    let sealed = login.seal(&key, [9; 32]).unwrap();
    assert_eq!(Login::open(&key, &sealed, NOW + 599), Ok(login.clone()));
    assert_eq!(Login::open(&key, &sealed, NOW + 600), Err(StateRefused::Expired));
    assert!(!sealed.contains(login.nonce()) && !format!("{login:?}").contains(login.nonce()));
    let other = StateKey::new([8; 32]);
    assert_eq!(Login::open(&other, &sealed, NOW), Err(StateRefused::Forged));
    let for_another: Result<Login, _> = key.open("device", &sealed);
    assert_eq!(for_another, Err(StateRefused::Forged));
    for at in 0..sealed.len() {
        let mut changed = sealed.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(changed == sealed || Login::open(&key, &changed, NOW).is_err(), "{at}");
    }
    assert_eq!(Login::open(&key, "", NOW), Err(StateRefused::Forged));
    let address = login.address(
        "https://login.example.com/auth?tenant=1",
        &Client {
            id: CLIENT,
            redirect_uri: "https://p.example.com/auth/oidc/corp/callback",
            scope: "openid email",
        },
    );
    let parameters = address.strip_prefix("https://login.example.com/auth?tenant=1&").unwrap();
    let state = parameters.split('&').find_map(|one| one.strip_prefix("state=")).unwrap();
    assert!(login.is_answered_by(state) && !login.is_answered_by(login.nonce()));
    assert!(state.starts_with(login.cookie_suffix()));
    for expected in [
        "response_type=code",
        "scope=openid%20email",
        "redirect_uri=https%3A%2F%2Fp.example.com%2Fauth%2Foidc%2Fcorp%2Fcallback",
        "code_challenge_method=S256",
    ] {
        assert!(parameters.split('&').any(|one| one == expected), "{address}");
    }
    assert!(!address.contains(login.verifier()));
    // The example of RFC 7636, appendix B.
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
}

#[test]
fn a_login_returns_to_a_page_of_ours_only() {
    for (path, is_ours) in [
        ("/ui/", true),
        ("/ui/secrets/a?tab=yaml&x=%2F", true),
        ("/auth/authorize?client_id=postern-cli", true),
        ("/auth/authorize", true),
        ("/auth/authorized", false),
        ("/ui", false),
        ("/", false),
        ("", false),
        ("https://evil.example.com/ui/", false),
        ("//evil.example.com/ui/", false),
        ("/ui//evil.example.com", false),
        ("/ui/../kubernetes", false),
        ("/ui/%2e%2e/kubernetes", false),
        ("/ui/\\evil.example.com", false),
        ("/ui/\r\nLocation: x", false),
        ("/ui/#x", false),
        ("/ui/é", false),
    ] {
        assert_eq!(is_return_path(path), is_ours, "{path:?}");
        let login = Login::begin(&[[0; 32]; 3], "uid", Some(path), NOW);
        assert_eq!(login.return_path() == path, is_ours || path == "/ui/", "{path:?}");
    }
    assert!(!is_return_path(&format!("/ui/{}", "a".repeat(3000))));
}

fn of(claims: Value) -> serde_json::Map<String, Value> {
    match claims {
        Value::Object(claims) => claims,
        other => panic!("{other} is no object"),
    }
}

#[test]
fn a_login_without_its_groups_is_refused() {
    use LoginRefused as R;
    let many: Vec<String> = (0..501).map(|number| format!("g{number}")).collect();
    for (claims, expected) in [
        (json!({ "groups": ["dev", "shop"] }), Ok(vec!["dev", "shop"])),
        (json!({ "groups": "dev" }), Ok(vec!["dev"])),
        (json!({ "groups": [] }), Ok(vec![])),
        (json!({}), Err(R::NoGroups)),
        (json!({ "groups": null }), Err(R::NoGroups)),
        (json!({ "groups": {} }), Err(R::GroupsForm)),
        (json!({ "groups": ["dev", 1] }), Err(R::GroupsForm)),
        (json!({ "_claim_names": { "groups": "src1" } }), Err(R::GroupsElsewhere)),
        (json!({ "groups": ["dev"], "hasgroups": true }), Err(R::GroupsElsewhere)),
        (json!({ "groups": many[..500] }), Ok(many[..500].iter().map(String::as_str).collect())),
        (json!({ "groups": many }), Err(R::TooManyGroups)),
        (json!({ "groups": ["x".repeat(256)] }), Ok(vec![&*"x".repeat(256).leak()])),
        (json!({ "groups": ["x".repeat(257)] }), Err(R::LongGroup)),
    ] {
        let found = mapping::groups(&of(claims.clone()), "groups");
        let expected = expected.map(|accepted: Vec<&str>| ProviderGroups {
            accepted: accepted.into_iter().map(str::to_owned).collect(),
            rejected: Vec::new(),
        });
        assert_eq!(found, expected, "{claims}");
    }
    // A group that cannot be a name here is left out alone.
    for bad in ["a,b", " dev", "dev ", "", "o\u{308}", "a\u{0}b"] {
        let found = mapping::groups(&of(json!({ "groups": ["dev", bad, "shop"] })), "groups");
        let found = found.unwrap();
        assert_eq!(
            (found.accepted.join(" "), found.rejected),
            ("dev shop".to_owned(), vec![bad.to_owned()])
        );
    }
    // A group of a provider is never a name of the system.
    for group in ["system:masters", "platform:user:admin"] {
        assert!(mapping::group_name("corp", group).starts_with("corp:"));
    }
}

#[test]
fn a_connector_allows_groups_or_verified_domains() {
    let check =
        |allow: &Allow, claims: Value, groups: &[&str]| allow.check(&of(claims), groups).is_ok();
    let groups = Allow::Groups(vec!["dev".to_owned()]);
    assert!(check(&groups, json!({}), &["ops", "dev"]));
    assert!(!check(&groups, json!({}), &["developers", "Dev"]) && !check(&groups, json!({}), &[]));
    let domains = Allow::EmailDomains(vec!["example.com".to_owned()]);
    for (email, verified, is_allowed) in [
        ("ada@example.com", json!(true), true),
        ("ada@EXAMPLE.com", json!("true"), true),
        ("ada@example.com", json!(false), false),
        ("ada@example.com", Value::Null, false),
        ("ada@sub.example.com", json!(true), false),
        ("ada@example.com.evil.org", json!(true), false),
        ("ada@evil.org@example.org", json!(true), false),
        ("@example.com", json!(true), false),
        ("example.com", json!(true), false),
    ] {
        let claims = with(json!({ "email": email }), "email_verified", verified.clone());
        assert_eq!(check(&domains, claims, &[]), is_allowed, "{email} {verified}");
    }
    assert!(check(&Allow::Everyone, json!({}), &[]));
}

#[test]
fn user_info_adds_claims_and_replaces_none() {
    let merged = |id_token: Value, info: Value| {
        Value::Object(mapping::with_user_info(&of(id_token), of(info)))
    };
    for (id_token, info, expected) in [
        (json!({ "sub": "1" }), json!({ "name": "Ada" }), json!({ "sub": "1", "name": "Ada" })),
        (json!({ "name": "Ada" }), json!({ "name": "Eve" }), json!({ "name": "Ada" })),
        (
            json!({}),
            json!({ "email": "a@b.c", "email_verified": true }),
            json!({ "email": "a@b.c", "email_verified": true }),
        ),
        // The endpoint's `email_verified` is only about the address of the endpoint.
        (
            json!({ "email": "a@b.c" }),
            json!({ "email": "x@y.z", "email_verified": true }),
            json!({ "email": "a@b.c" }),
        ),
    ] {
        assert_eq!(merged(id_token, info), expected);
    }
}

#[test]
fn a_new_user_gets_a_name_that_a_user_can_have() {
    for (given, expected) in [
        ("ada", "ada"),
        ("Ada.Lovelace@Example.COM", "ada.lovelace-example.com"),
        ("  ada  ", "ada"),
        ("a..b", "a.b"),
        ("a-.b", "a.b"),
        ("a.-b", "a.b"),
        (".-a", "a"),
        ("system:admin", "system-admin"),
        ("Zoë", "zo"),
        ("名前", "user"),
        ("-", "user"),
        ("a/../b", "a.b"),
    ] {
        let name = mapping::user_name(&of(json!({ "name": given })), "name").unwrap();
        assert_eq!(name, expected, "{given}");
        assert_eq!(postern_meta::names::dns1123_subdomain(&name), Ok(()), "{given}");
    }
    for missing in [json!({}), json!({ "name": " " }), json!({ "name": 1 })] {
        assert_eq!(mapping::user_name(&of(missing), "name"), Err(LoginRefused::NoUsername));
    }
    let suffixed = mapping::with_suffix("ada", ISSUER, "1");
    assert!(suffixed.starts_with("ada-") && suffixed.len() == 10, "{suffixed}");
    let others =
        [("https://b", "1"), (ISSUER, "2"), ("https://login.example.com/realms/corp1", "")];
    for (issuer, subject) in others {
        assert_ne!(mapping::with_suffix("ada", issuer, subject), suffixed);
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_name_of_a_new_user_is_valid_with_and_without_a_suffix(given in "\\PC{0,80}") {
            let claims = of(json!({ "name": given }));
            if let Ok(name) = mapping::user_name(&claims, "name") {
                for name in [mapping::with_suffix(&name, ISSUER, &given), name] {
                    prop_assert!(postern_meta::names::dns1123_subdomain(&name).is_ok(), "{name}");
                    prop_assert!(name.len() <= 63);
                }
            }
        }

        #[test]
        fn decoders_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = KeySet::parse(&bytes);
            let _ = Discovery::parse(&bytes, ISSUER);
            let _ = verify_id_token(&text, &KeySet::default(), PARTY, None, None);
            let _ = Login::open(&StateKey::new([0; 32]), &text, NOW);
        }
    }
}

#[test]
fn keys_are_chosen_by_their_thumbprints() {
    // The example of RFC 7638 section 3.1.
    let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let rsa =
        json!({ "kty": "RSA", "n": modulus, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29" });
    let zeros = "A".repeat(43);
    let ec = json!({ "kty": "EC", "crv": "P-256", "x": zeros, "y": zeros, "kid": "ec" });
    let keys = KeySet::parse(json!({ "keys": [rsa, ec] }).to_string().as_bytes()).unwrap();
    let known = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs".to_owned();
    assert_eq!((keys.len(), keys.only(std::slice::from_ref(&known)).len()), (2, 1));
    assert!(keys.only(&[]).is_empty() && keys.only(&[known.to_uppercase()]).is_empty());
}
