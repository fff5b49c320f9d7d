//! The limits on what one owner has hold when several servers create objects at once, and for all that the server itself
//! creates for the owner.

use postern_auth::digest::Digest;
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::trusted_issuer::TrustedIssuer;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use serde_json::{Map, Value, json};

use super::fleet::{Fleet, make, of, on_every_fleet};
use super::*;
use crate::actions::exchanges::{NoKey, accepting, exchange};
use crate::actions::sessions::{self, Login};
use crate::credential::Credential;

/// The creates that are tried at once.
const ATTEMPTS: usize = 70;

const MAX_SESSIONS: usize = 50;

/// The number of successes of many requests, which go to the servers in turn, a few at once on each.
async fn successes<'a, F: Future<Output = bool>>(
    fleet: &'a Fleet,
    count: usize,
    request: impl Fn(&'a Fixture, usize) -> F,
) -> usize {
    let servers = fleet.servers();
    let mut done = 0;
    let numbers: Vec<usize> = (0..count).collect();
    for group in numbers.chunks(2 * servers.len()) {
        let requests = group.iter().map(|n| request(&servers[n % servers.len()], *n));
        done += futures_util::future::join_all(requests).await.into_iter().filter(|ok| *ok).count();
    }
    done
}

fn permit_of(server: &Fixture, digest: Digest, permit: Permit) -> Permit {
    let key = server.identify(&digest, server.clock.now().unix_seconds()).unwrap();
    permit.with_credential(Credential::of_key(key.identity.clone(), digest)).of_own()
}

/// Begins a session with a key. Whether that succeeded; the server must be current.
async fn begin(server: &Fixture, digest: Digest) -> bool {
    let permit = permit_of(server, digest, of(&ConsoleSession, Verb::Create, ""));
    let login = Login { address: "127.0.0.1".to_owned(), user_agent: String::new() };
    match sessions::begin(&server.registry, &permit, login).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.code(), 403, "{error}");
            false
        }
    }
}

#[tokio::test]
async fn a_key_begins_as_many_sessions_as_allowed_on_all_servers_together() {
    on_every_fleet(async |fleet| {
        let one = fleet.one().key("one", json!({})).await;
        let other = fleet.one().key("other", json!({})).await;
        let scoped = fleet.one().key("scoped", json!({ "scope": {} })).await;
        fleet.current().await;
        assert_eq!(successes(&fleet, ATTEMPTS, |server, _| begin(server, one)).await, MAX_SESSIONS);
        fleet.current().await;
        // The owner can log in with another key, so a key without rights does not lock them out.
        assert!(begin(fleet.other(), other).await);
        assert!(!begin(fleet.other(), scoped).await);
    })
    .await;
}

#[tokio::test]
async fn an_owner_has_as_many_keys_as_allowed_on_all_servers_together() {
    on_every_fleet(async |fleet| {
        make(fleet.one(), of(&User, Verb::Create, "ada"), named("ada", &json!({}))).await;
        let digest = fleet.one().key_of("first", "ada", json!({})).await;
        fleet.current().await;
        let create = async |server: &Fixture, n: usize| {
            let permit = permit_of(server, digest, of(&OwnedAccessKey, Verb::Create, ""));
            let key =
                object_of(&OwnedAccessKey, &named(&format!("k{n}"), &json!({ "user": "ada" })));
            let made =
                operations::create(&server.registry, &permit, key, &Writing::by_server()).await;
            made.is_ok()
        };
        let created = successes(&fleet, ATTEMPTS, create).await;
        assert_eq!(created, MAX_KEYS_PER_OWNER - 1, "with the first one");
        // Sessions are no keys of the owner.
        fleet.current().await;
        assert!(begin(fleet.other(), digest).await);
    })
    .await;
}

#[tokio::test]
async fn exchanged_keys_count_for_the_workload_identity_and_for_its_owner() {
    on_every_fleet(async |fleet| {
        make(fleet.one(), of(&User, Verb::Create, "ada"), named("ada", &json!({}))).await;
        let issuer = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
        make(fleet.one(), of(&TrustedIssuer, Verb::Create, "ci"), named("ci", &issuer)).await;
        for (name, max_live) in [("few", 5), ("many", 1000)] {
            let spec = json!({
                "issuer": "ci", "owner": { "user": "ada" }, "scope": {}, "maxLive": max_live,
                "match": [{ "claim": "sub", "values": ["job"] }],
            });
            make(fleet.one(), of(&WorkloadIdentity, Verb::Create, name), named(name, &spec)).await;
        }
        fleet.current().await;
        let claims: Map<String, Value> = json!({ "sub": "job" }).as_object().unwrap().clone();
        let exchanged = async |server: &Fixture, name: &str| {
            let by = accepting(&server.registry, name).await.unwrap();
            match exchange(&server.registry, &by, &claims).await {
                Ok(_) => true,
                Err(NoKey::TooMany(_)) => false,
                Err(other) => panic!("{other:?}"),
            }
        };
        assert_eq!(successes(&fleet, 20, |server, _| exchanged(server, "few")).await, 5);
        let rest = successes(&fleet, ATTEMPTS, |server, _| exchanged(server, "many")).await;
        assert_eq!(rest, MAX_KEYS_PER_OWNER - 5);
        // Keys that have expired leave room.
        fleet.one().pass_seconds(3601);
        assert!(exchanged(fleet.other(), "few").await);
    })
    .await;
}

fn named(name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn object_of(kind: &'static dyn postern_kinds::AnyKind, body: &Value) -> Object {
    let info = kind.info();
    let mut whole = json!({ "apiVersion": info.version.to_string(), "kind": info.kind });
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    Object::from_value(whole).unwrap()
}
