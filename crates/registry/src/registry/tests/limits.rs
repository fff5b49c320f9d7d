//! The limits on the objects of one owner. They hold when several servers create objects at once,
//! and for every object that the server itself creates for the owner.

use postern_auth::digest::Digest;
use postern_kinds::console_session::ConsoleSession;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::trusted_issuer::TrustedIssuer;
use postern_kinds::user::User;
use postern_kinds::workload_identity::WorkloadIdentity;
use serde_json::{Map, Value, json};

use super::fleet::{Fleet, on_every_fleet};
use super::logins::browser;
use super::*;
use crate::actions::exchanges::{NoKey, accepting, exchange};
use crate::actions::sessions;

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
    permit.with_credential(server.credential(digest)).of_own()
}

/// Begins a session with a key. Whether that succeeded; the server must be current.
async fn begin(server: &Fixture, digest: Digest) -> bool {
    let permit = permit_of(server, digest, at(&ConsoleSession, "").permit(Verb::Create));
    match sessions::begin(&server.registry, &permit, browser()).await {
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
async fn all_sessions_of_an_owner_together_are_limited_on_all_servers() {
    on_every_fleet(async |fleet| {
        fleet.one().make(at(&User, "ada"), json!({})).await;
        let mut keys = Vec::new();
        for name in ["one", "two", "three"] {
            keys.push(fleet.one().key_of(name, "ada", json!({})).await);
        }
        fleet.current().await;
        let each = MAX_KEYS_PER_OWNER.div_ceil(2);
        assert!(each <= MAX_SESSIONS, "so only the limit of the owner stops a session");
        let attempts = each * keys.len();
        let begun = successes(&fleet, attempts, |server, n| begin(server, keys[n % keys.len()]));
        assert_eq!(begun.await, MAX_KEYS_PER_OWNER);
        // Sessions that have ended leave room.
        fleet.one().pass_seconds(24 * 3600);
        assert!(begin(fleet.other(), keys[0]).await);
    })
    .await;
}

#[tokio::test]
async fn an_owner_has_as_many_keys_as_allowed_on_all_servers_together() {
    on_every_fleet(async |fleet| {
        fleet.one().make(at(&User, "ada"), json!({})).await;
        let digest = fleet.one().key_of("first", "ada", json!({})).await;
        fleet.current().await;
        let create = async |server: &Fixture, n: usize| {
            let permit = at(&OwnedAccessKey, "").permit(Verb::Create);
            let (permit, name) = (permit_of(server, digest, permit), format!("k{n}"));
            let key = at(&OwnedAccessKey, &name).object(&json!({ "spec": { "user": "ada" } }));
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
        fleet.one().make(at(&User, "ada"), json!({})).await;
        let issuer = json!({ "type": "Generic", "issuer": "https://ci.example.com" });
        fleet.one().make(at(&TrustedIssuer, "ci"), json!({ "spec": issuer })).await;
        for (name, max_live) in [("few", 5), ("many", 1000)] {
            let spec = json!({
                "issuer": "ci", "owner": { "user": "ada" }, "scope": {}, "maxLive": max_live,
                "match": [{ "claim": "sub", "values": ["job"] }],
            });
            fleet.one().make(at(&WorkloadIdentity, name), json!({ "spec": spec })).await;
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
