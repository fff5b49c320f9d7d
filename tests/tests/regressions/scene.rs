//! The parts that several tests here share: scoped keys, projects, a wait for the collector, and findings.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::{Client, Request, Response};
use postern_tests::objects::{CORE, GROUP, collection, secret, secret_path, secrets};
use postern_tests::rights::{disallow, path, set};
use postern_tests::wait;
use serde_json::{Value, json};

/// The resource of access keys.
pub(crate) const KEYS: &str = "ownedaccesskeys";

/// How long a change may take to be effective before it counts as missing. A change that is effective is noticed at
/// once, so this is only the time that a failing test takes.
const EFFECTIVE: Duration = Duration::from_secs(10);

/// The variants of an attack that succeeded. A test fails with all of them, and not with the first.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<String>);

impl Findings {
    /// Nothing has been found yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a finding if this is not as it must be.
    pub(crate) fn check(&mut self, holds: bool, finding: impl Into<String>) {
        if !holds {
            self.0.push(finding.into());
        }
    }

    /// Adds a finding if the response has none of these codes.
    pub(crate) fn check_code(&mut self, reply: &Response, wanted: &[u16], what: &str) {
        let text: String = reply.text().chars().take(300).collect();
        self.check(wanted.contains(&reply.status), format!("{what}: {} {text}", reply.status));
    }

    /// Fails with everything that was found.
    pub(crate) fn assert_none(self) {
        assert!(self.0.is_empty(), "{} found:\n{}", self.0.len(), self.0.join("\n"));
    }
}

/// Whether the condition comes to hold soon.
pub(crate) async fn comes_true(check: impl AsyncFnMut() -> bool) -> bool {
    comes_true_within(EFFECTIVE, check).await
}

/// Whether the condition comes to hold in this time.
pub(crate) async fn comes_true_within(
    limit: Duration,
    mut check: impl AsyncFnMut() -> bool,
) -> bool {
    let started = Instant::now();
    while !check().await {
        if started.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// The code of a request for the collection of shared secrets.
pub(crate) async fn code_of(client: &Client) -> u16 {
    client.get(&secrets("platform")).send().await.status
}

/// Whether the client's key or the key's owner comes to be refused.
pub(crate) async fn is_refused_soon(client: &Client) -> bool {
    comes_true(async || code_of(client).await == 401).await
}

/// A reference to an owner that does not exist any more.
pub(crate) fn dead_owner() -> Value {
    json!({ "apiVersion": "management.platform.sh/v1", "kind": "Team", "name": "gone",
        "uid": "00000000-0000-4000-8000-000000000000" })
}

/// Waits until the collector has dealt with everything that happened before.
pub(crate) async fn wait_for_collector(admin: &Client) {
    for name in ["probe-of-the-collector", "second-probe-of-the-collector"] {
        let mut object = secret(name, "x");
        object["metadata"]["ownerReferences"] = json!([dead_owner()]);
        admin.post(&secrets("platform")).json(&object).send().await.expect(201);
        wait::until("the collector", async || {
            let reply = admin.get(&secret_path(name)).send().await;
            (reply.status == 404).then_some(())
        })
        .await;
    }
}

/// The path of an access key.
pub(crate) fn key_path(name: &str) -> String {
    path(KEYS, name)
}

/// A request with the identity of an impersonated user and explicit groups.
pub(crate) fn acting<'a>(request: Request<'a>, user: &str, groups: &[&str]) -> Request<'a> {
    let request = request.header("impersonate-user", user);
    groups.iter().fold(request, |request, group| request.header("impersonate-group", group))
}

/// The collection of a namespaced kind of our own group.
pub(crate) fn in_namespace(namespace: &str, resource: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/{resource}")
}

/// The collection of core Secrets in a namespace.
pub(crate) fn core_secrets(namespace: &str) -> String {
    format!("{CORE}/namespaces/{namespace}/secrets")
}

/// The path of a namespace.
pub(crate) fn namespace(name: &str) -> String {
    format!("{CORE}/namespaces/{name}")
}

/// A core Secret with one value.
pub(crate) fn core_secret(value: &str) -> Value {
    json!({ "data": { "value": STANDARD.encode(value) } })
}

/// A rule about kinds of the core group.
pub(crate) fn core_rule(resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [""], "resources": resources, "verbs": verbs })
}

/// A rule that allows to impersonate these users or groups.
pub(crate) fn may_impersonate(resource: &str, names: &[&str]) -> Value {
    json!({ "apiGroups": [""], "resources": [resource], "resourceNames": names,
        "verbs": ["impersonate"] })
}

/// Deletes an object without a namespace, and waits until it is gone.
pub(crate) async fn remove(admin: &Client, path: &str) {
    admin.delete(path).send().await.expect(200);
    until_gone(admin, path).await;
}

/// Waits until an object is gone.
pub(crate) async fn until_gone(admin: &Client, path: &str) {
    wait::until(&format!("{path} is gone"), async || {
        (admin.get(path).send().await.status == 404).then_some(())
    })
    .await;
}

/// A request for the client's own identity.
pub(crate) fn who(client: &Client) -> Request<'_> {
    client.post(&collection("selves")).json(&json!({}))
}

/// The collection of users.
pub(crate) fn users() -> String {
    collection("users")
}

/// How an impersonator ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    KeyDeleted,
    KeyDisabled,
    KeyNarrowed,
    KeyExpired,
    UserDisabled,
    UserDeleted,
    RightTaken,
}

/// All of them.
pub(crate) const ENDS: [End; 7] = [
    End::KeyDeleted,
    End::KeyDisabled,
    End::KeyNarrowed,
    End::KeyExpired,
    End::UserDisabled,
    End::UserDeleted,
    End::RightTaken,
];

impl End {
    /// Lets the user `user` with the key `key`, and with a right that the binding `user` gives, end so.
    pub(crate) async fn come(self, admin: &Client, user: &str, key: &str) {
        match self {
            Self::KeyDeleted => remove(admin, &key_path(key)).await,
            Self::KeyDisabled => {
                drop(set(admin, &key_path(key), json!({ "disabled": true })).await);
            }
            Self::KeyNarrowed => {
                let scope = json!({ "scope": { "rules": [{ "verbs": ["get", "list"] }] } });
                set(admin, &key_path(key), scope).await;
            }
            Self::KeyExpired => drop(set(admin, &key_path(key), json!({ "ttl": 1 })).await),
            Self::UserDisabled => {
                set(admin, &path("users", user), json!({ "disabled": true })).await;
            }
            Self::UserDeleted => remove(admin, &path("users", user)).await,
            Self::RightTaken => disallow(admin, user, None).await,
        }
    }
}
