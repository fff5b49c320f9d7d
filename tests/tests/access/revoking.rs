//! Revocation: the next request is refused, open watches end, and no other client notices.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{make, secret_path};
use postern_tests::rights::{
    allow, disallow, merge, path, rbac, role, rule_on, set, user, with_key,
};
use postern_tests::watching::Watch;
use serde_json::{Value, json};

use crate::access::scene::{
    code, end_of, make_project, make_secret, make_shared, share, to_team, to_user, visible, watch,
};

const KEYS: &str = "ownedaccesskeys";

/// A server with the user ada and the secret `s1`, and a witness that reads another secret.
struct Revocation {
    admin: Client,
    ada: Client,
    witness: Watch,
    _server: Server,
}

impl Revocation {
    async fn new() -> Self {
        let server = Server::start().await;
        let admin = server.client();
        let ada = user(&admin, "ada").await;
        let eve = user(&admin, "eve").await;
        make_shared(&admin, "of-eve", json!([to_user("eve", &["get"])])).await;
        make_secret(&admin, "s1").await;
        let mut witness = watch(&eve).await;
        assert_eq!(witness.next().await.unwrap().summary(), "ADDED of-eve");
        Self { admin, ada, witness, _server: server }
    }

    /// Checks that a caller loses its access to `s1` when the change has succeeded. Neither the
    /// next request nor an open watch shows it then.
    async fn loses(&self, what: &str, caller: &Client, change: impl Future<Output = ()>) -> u16 {
        assert_eq!(code(caller, "s1").await, 200, "{what}: before");
        let mut open = watch(caller).await;
        assert_eq!(open.next().await.unwrap().summary(), "ADDED s1", "{what}");
        change.await;
        let now = code(caller, "s1").await;
        let end = end_of(&mut open).await;
        assert_eq!(end, if now == 401 { 401 } else { 410 }, "{what}: the watch");
        now
    }

    /// Checks that the witness has seen nothing of all this, and still watches.
    async fn leaves_the_witness_alone(mut self) {
        set(&self.admin, &secret_path("of-eve"), json!({ "displayName": "later" })).await;
        assert_eq!(self.witness.next().await.unwrap().summary(), "MODIFIED of-eve");
    }

    async fn set(&self, resource: &str, name: &str, spec: Value) {
        set(&self.admin, &path(resource, name), spec).await;
    }

    async fn delete(&self, path: String) {
        self.admin.delete(&path).send().await.expect(200);
    }
}

#[tokio::test]
async fn a_key_that_ends_ends_everything() {
    let scene = Revocation::new().await;
    share(&scene.admin, "s1", json!([to_user("ada", &["get"])])).await;
    for (name, spec) in [
        ("disabled", Some(json!({ "disabled": true }))),
        ("expired", Some(json!({ "ttl": 1 }))),
        ("replaced", Some(json!({ "key": "0123456789-0123456789-0123456789-xyz" }))),
        ("deleted", None),
    ] {
        let key = json!({ "user": "ada", "ttl": 3600 });
        let caller = with_key(&scene.admin, name, key).await;
        let change = async {
            match spec {
                Some(spec) => scene.set(KEYS, name, spec).await,
                None => scene.delete(path(KEYS, name)).await,
            }
            if name == "expired" {
                postern_tests::wait::until("the key to expire", async || {
                    (code(&caller, "s1").await == 401).then_some(())
                })
                .await;
            }
        };
        assert_eq!(scene.loses(name, &caller, change).await, 401, "{name}");
    }
    assert_eq!(code(&scene.ada, "s1").await, 200, "their other key still works");
    let change = scene.set("users", "ada", json!({ "disabled": true }));
    assert_eq!(scene.loses("user disabled", &scene.ada, change).await, 401);
    scene.set("users", "ada", json!({ "disabled": false })).await;
    let change = scene.delete(path("users", "ada"));
    assert_eq!(scene.loses("user deleted", &scene.ada, change).await, 401);
    scene.leaves_the_witness_alone().await;
}

#[tokio::test]
async fn a_share_that_is_taken_back_ends_what_it_gave() {
    let scene = Revocation::new().await;
    let (admin, ada) = (&scene.admin, &scene.ada);
    let share_with = async |access: Value| share(admin, "s1", access).await;
    for access in [json!([to_user("ada", &["get"])]), json!([to_user("ada", &["*"])])] {
        share_with(access).await;
        let change = share_with(json!([]));
        assert_eq!(scene.loses("unshared", ada, change).await, 404);
        assert!(visible(ada).await.is_empty());
    }
    share_with(json!([to_user("ada", &["get"])])).await;
    let change = share_with(json!([to_user("ada", &["update"])]));
    assert_eq!(scene.loses("another verb", ada, change).await, 404);

    make(admin, "teams", "red", json!({ "users": ["ada"] })).await;
    share_with(json!([to_team("red", &["get"])])).await;
    let change = scene.set("teams", "red", json!({ "users": [] }));
    assert_eq!(scene.loses("team left", ada, change).await, 404);
    scene.set("teams", "red", json!({ "users": ["ada"] })).await;
    let change = scene.delete(path("teams", "red"));
    assert_eq!(scene.loses("team removed", ada, change).await, 404);

    share_with(json!([to_user("ada", &["get"])])).await;
    let change = scene.delete(secret_path("s1"));
    let mut open = watch(ada).await;
    assert_eq!(open.next().await.unwrap().summary(), "ADDED s1");
    change.await;
    assert_eq!(open.next().await.unwrap().summary(), "DELETED s1", "a deletion is an event");
    scene.leaves_the_witness_alone().await;
}

#[tokio::test]
async fn a_role_that_is_taken_back_ends_what_it_gave() {
    let scene = Revocation::new().await;
    let (admin, ada) = (&scene.admin, &scene.ada);
    let reads = || json!([rule_on("sharedsecrets", &["s1"], &["get"])]);
    for (name, namespace) in [("in-platform", Some("platform")), ("everywhere", None)] {
        allow(admin, name, namespace, reads(), "platform:user:ada").await;
        let change = disallow(admin, name, namespace);
        assert_eq!(scene.loses(name, ada, change).await, 404);

        let again = format!("{name}-again");
        allow(admin, &again, namespace, reads(), "platform:user:ada").await;
        let of_role = format!("{}/{again}", rbac(namespace, "role"));
        let change = async {
            let other = json!([rule_on("sharedsecrets", &["s2"], &["get"])]);
            let patch = json!({ "rules": role(&again, &other)["rules"] });
            merge(admin, &of_role, patch).await.expect(200);
        };
        assert_eq!(scene.loses("a rule changed", ada, change).await, 404);
        merge(admin, &of_role, json!({ "rules": reads() })).await.expect(200);
        let change = scene.delete(of_role.clone());
        assert_eq!(scene.loses("the role deleted", ada, change).await, 404);
        disallow(admin, &again, namespace).await;
    }
    scene.leaves_the_witness_alone().await;
}

#[tokio::test]
async fn groups_that_are_taken_back_end_what_they_gave() {
    let scene = Revocation::new().await;
    let (admin, ada) = (&scene.admin, &scene.ada);
    let reads = json!([rule_on("sharedsecrets", &["s1"], &["get"])]);
    allow(admin, "readers", Some("platform"), reads, "readers").await;
    scene.set("users", "ada", json!({ "groups": ["readers"] })).await;
    let change = scene.set("users", "ada", json!({ "groups": [] }));
    assert_eq!(scene.loses("a user's group", ada, change).await, 404);
    make(admin, "teams", "red", json!({ "users": ["ada"], "groups": ["readers"] })).await;
    let change = scene.set("teams", "red", json!({ "groups": ["others"] }));
    assert_eq!(scene.loses("a team's group", ada, change).await, 404);
    let spec = json!({ "user": "ada", "groups": ["readers"] });
    let caller = with_key(admin, "grouped", spec).await;
    let change = scene.set(KEYS, "grouped", json!({ "groups": [] }));
    assert_eq!(scene.loses("a key's group", &caller, change).await, 404);
    scene.leaves_the_witness_alone().await;
}

#[tokio::test]
async fn a_scope_that_gets_narrower_ends_what_it_allowed() {
    let scene = Revocation::new().await;
    let admin = &scene.admin;
    share(admin, "s1", json!([to_user("ada", &["get"])])).await;
    let named = |name: &str| {
        let resources = json!([{ "group": "management.platform.sh",
            "resources": ["sharedsecrets"], "resourceNames": [name] }]);
        json!({ "scope": { "rules": [{ "resources": resources }] } })
    };
    for (what, narrower, codes) in [
        ("nothing", json!({ "scope": { "rules": [] } }), [403, 403]),
        ("another name", named("s2"), [404, 200]),
        ("another verb", json!({ "scope": { "rules": [{ "verbs": ["create"] }] } }), [404, 403]),
        (
            "a project",
            json!({ "scope": { "rules": [], "projects": [{ "project": "p" }] } }),
            [404, 200],
        ),
    ] {
        let name = what.replace(' ', "-");
        let mut spec = named("s1");
        spec["user"] = json!("ada");
        let caller = with_key(admin, &name, spec).await;
        let change = scene.set(KEYS, &name, narrower);
        let now = scene.loses(what, &caller, change).await;
        assert!(now == codes[0] || now == 403, "{what}: {now}");
        let list = caller.get(&postern_tests::objects::secrets("platform")).send().await;
        assert_eq!(list.status, codes[1], "{what}: {}", list.text());
    }
    scene.leaves_the_witness_alone().await;
}

#[tokio::test]
async fn a_member_who_leaves_a_project_loses_what_is_in_it() {
    let scene = Revocation::new().await;
    let (admin, ada) = (&scene.admin, &scene.ada);
    let members =
        json!([{ "kind": "User", "name": "ada", "clusterRole": "platform-project-admin" }]);
    let secrets = make_project(admin, "shop", members).await;
    let object = postern_tests::objects::secret("inside", "x");
    admin.post(&secrets).json(&object).send().await.expect(201);
    let one = format!("{secrets}/inside");
    ada.get(&one).send().await.expect(200);
    let mut open = ada.watch(&secrets, "").await;
    assert_eq!(open.next().await.unwrap().summary(), "ADDED inside");
    scene.set("projects", "shop", json!({ "members": [] })).await;
    assert_eq!(ada.get(&one).send().await.status, 404);
    assert_eq!(end_of(&mut open).await, 410);
    scene.leaves_the_witness_alone().await;
}
