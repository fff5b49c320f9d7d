//! Roles and bindings that the server makes stay unchanged, and keep the users that they were made
//! for.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{collection, make, name_of, secret, secret_path, secrets};
use postern_tests::rights::{
    allow, binding, merge, path, rbac, rule, rule_on, set, user, with_key,
};
use serde_json::{Value, json};

use crate::regressions::scene::{
    Findings, comes_true, core_secrets, remove, users, wait_for_collector,
};

/// Everything about a made object that a hand edit can change, without the server's own fields.
fn shape(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({ "rules": object["rules"], "roleRef": object["roleRef"], "subjects": object["subjects"],
        "labels": metadata["labels"], "ownerReferences": metadata["ownerReferences"],
        "annotations": metadata["annotations"] })
}

/// The made roles or bindings in a namespace that have this text in their names.
async fn made(admin: &Client, namespace: &str, what: &str, text: &str) -> Vec<String> {
    let list = admin.get(&rbac(Some(namespace), what)).send().await.expect(200);
    let names = list["items"].as_array().unwrap().iter().map(|item| name_of(item).to_owned());
    names.filter(|name| name.contains(text)).collect()
}

async fn is_put_back(admin: &Client, path: &str, before: &Value) -> bool {
    comes_true(async || {
        let reply = admin.get(path).send().await;
        reply.status == 200 && shape(&reply.json()) == shape(before)
    })
    .await
}

/// Edits a made object by hand, each time in another way, and checks that each edit is put back.
async fn edit(found: &mut Findings, admin: &Client, at: &str) {
    let before = admin.get(at).send().await.expect(200);
    let metadata = |fields: Value| json!({ "metadata": fields });
    let mut edits = vec![
        ("labels", metadata(json!({ "labels": null }))),
        ("ownerReferences", metadata(json!({ "ownerReferences": null }))),
        (
            "labels and ownerReferences",
            metadata(json!({ "labels": null, "ownerReferences": null })),
        ),
        (
            "all of the metadata",
            metadata(json!({ "labels": null, "ownerReferences": null, "annotations": null })),
        ),
        ("another managed-by", metadata(json!({ "labels": { "platform.sh/managed-by": "me" } }))),
    ];
    let content = if before["rules"].is_array() {
        json!({ "rules": [rule(&["sharedsecrets"], &["*"])] })
    } else {
        json!({ "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "evil" }] })
    };
    for index in 0..edits.len() {
        let mut with_content = content.clone();
        with_content["metadata"] = edits[index].1["metadata"].clone();
        edits.push(("content and metadata", with_content));
    }
    for (what, change) in edits {
        let reply = merge(admin, at, change.clone()).await;
        if reply.status == 200 {
            let what = format!("{at}: an edit of {what} stays: {change}");
            if !is_put_back(admin, at, &before).await {
                // Later edits would fail for the same reason.
                return found.check(false, what);
            }
        }
    }
}

#[tokio::test]
async fn a_hand_edit_of_a_made_role_is_put_back_without_its_labels_and_references() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    let mut object = secret("s", "x");
    object["spec"]["access"] = json!([{ "verbs": ["get"], "users": ["bob"] }]);
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
    let members =
        json!([{ "kind": "User", "name": "bob", "clusterRole": "platform-project-viewer" }]);
    make(&admin, "projects", "web", json!({ "members": members })).await;
    let mut found = Findings::new();
    for (namespace, what, text) in [
        ("platform", "role", ":s:"),
        ("platform", "rolebinding", ":s:"),
        ("p-web", "rolebinding", "platform:members"),
    ] {
        let names = made(&admin, namespace, what, text).await;
        assert_eq!(names.len(), 1, "{namespace} {what} {names:?}");
        let at = format!("{}/{}", rbac(Some(namespace), what), names[0]);
        edit(&mut found, &admin, &at).await;
        let before = admin.get(&at).send().await.expect(200);
        admin.delete(&at).send().await;
        found.check(is_put_back(&admin, &at, &before).await, format!("{at}: deleted by hand"));
    }
    found.assert_none();
}

/// The ways to edit a binding before its user is replaced by a namesake.
const EDITS: [&str; 6] =
    ["none", "annotations", "all metadata", "deleted", "deleted with role", "entry"];

/// Edits a binding in one of the ways of [`EDITS`].
async fn edit_binding(admin: &Client, at: &str, way: &str) {
    match way {
        "annotations" => {
            drop(merge(admin, at, json!({ "metadata": { "annotations": null } })).await);
        }
        "all metadata" => {
            let change = json!({ "annotations": null, "labels": null, "ownerReferences": null });
            drop(merge(admin, at, json!({ "metadata": change })).await);
        }
        "deleted" | "deleted with role" => drop(admin.delete(at).send().await),
        _ => {}
    }
}

#[tokio::test]
async fn a_namesake_of_a_user_gets_nothing_by_a_hand_edit_or_a_change_of_the_entry() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for (number, way) in EDITS.into_iter().enumerate() {
        let (name, of) = (format!("bob{number}"), format!("s{number}"));
        user(&admin, &name).await;
        let mut object = secret(&of, "x");
        object["spec"]["access"] = json!([{ "verbs": ["get"], "users": [name] }]);
        admin.post(&secrets("platform")).json(&object).send().await.expect(201);
        remove(&admin, &path("users", &name)).await;
        make(&admin, "users", &name, json!({})).await;
        let namesake =
            with_key(&admin, &format!("namesake{number}"), json!({ "user": name })).await;
        let text = format!(":{of}:");
        let binding = made(&admin, "platform", "rolebinding", &text).await;
        for name in &binding {
            let at = format!("{}/{name}", rbac(Some("platform"), "rolebinding"));
            edit_binding(&admin, &at, way).await;
        }
        if way == "deleted with role" {
            for name in made(&admin, "platform", "role", &text).await {
                admin.delete(&format!("{}/{name}", rbac(Some("platform"), "role"))).send().await;
            }
        }
        if way == "entry" {
            let access = json!({ "access": [{ "verbs": ["get", "update"], "users": [name] }] });
            merge(&admin, &secret_path(&of), json!({ "spec": access })).await;
        }
        wait_for_collector(&admin).await;
        let change = json!({ "displayName": "another change" });
        set(&admin, &secret_path(&of), change).await;
        wait_for_collector(&admin).await;
        let status = namesake.get(&secret_path(&of)).send().await.status;
        found.check(status != 200, format!("{way}: the namesake reads the secret"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_namesake_of_a_member_gets_nothing_by_a_hand_edit() {
    let server = Server::start().await;
    let admin = server.client();
    let mut found = Findings::new();
    for (number, way) in EDITS.into_iter().enumerate() {
        let (name, of) = (format!("bob{number}"), format!("web{number}"));
        user(&admin, &name).await;
        user(&admin, &format!("other{number}")).await;
        let member =
            |name: &str, role: &str| json!({ "kind": "User", "name": name, "clusterRole": role });
        let members = json!([member(&name, "platform-project-admin")]);
        make(&admin, "projects", &of, json!({ "members": members })).await;
        remove(&admin, &path("users", &name)).await;
        make(&admin, "users", &name, json!({})).await;
        let namesake =
            with_key(&admin, &format!("namesake{number}"), json!({ "user": name })).await;
        let namespace = format!("p-{of}");
        for binding in made(&admin, &namespace, "rolebinding", "members").await {
            let at = format!("{}/{binding}", rbac(Some(&namespace), "rolebinding"));
            edit_binding(&admin, &at, way).await;
        }
        wait_for_collector(&admin).await;
        if way == "entry" {
            // Another member comes, and the entry of the first stays.
            let other = member(&format!("other{number}"), "platform-project-admin");
            let members = json!({ "members": [member(&name, "platform-project-admin"), other] });
            merge(&admin, &path("projects", &of), json!({ "spec": members })).await;
        }
        set(&admin, &path("projects", &of), json!({ "displayName": "another change" })).await;
        wait_for_collector(&admin).await;
        let status = namesake.get(&core_secrets(&namespace)).send().await.status;
        found.check(status != 200, format!("{way}: the namesake lists the project's Secrets"));
        let status = namesake.get(&path("projects", &of)).send().await.status;
        found.check(status != 200, format!("{way}: the namesake reads the project"));
    }
    found.assert_none();
}

#[tokio::test]
async fn who_may_update_a_project_does_not_become_its_admin() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    make(&admin, "teams", "red", json!({ "users": ["eve"] })).await;
    let members =
        json!([{ "kind": "Team", "name": "red", "clusterRole": "platform-project-viewer" }]);
    make(&admin, "projects", "web", json!({ "members": members })).await;
    let rules = json!([
        rule_on("projects", &["web"], &["get", "update", "patch"]),
        rule(&["projects"], &["create"]),
        rule(&["users", "teams"], &["bind"])
    ]);
    allow(&admin, "updates", None, rules, "platform:user:eve").await;
    let mut found = Findings::new();
    let at = path("projects", "web");
    for (kind, name, role) in [
        ("User", "eve", "platform-project-admin"),
        ("User", "eve", "platform-project-user"),
        ("User", "eve", ""),
        ("Team", "red", "platform-project-admin"),
        ("User", "admin", "platform-project-admin"),
    ] {
        let member = json!({ "kind": kind, "name": name, "clusterRole": role });
        let change = json!({ "members": [member] });
        let reply = merge(&eve, &at, json!({ "spec": change })).await;
        found.check_code(&reply, &[403], &format!("PATCH of members to {member}"));
        let mut object = admin.get(&at).send().await.expect(200);
        object["spec"]["members"] = change["members"].clone();
        let reply = eve.put(&format!("{at}?dryRun=All")).json(&object).send().await;
        found.check_code(&reply, &[403], &format!("PUT of members to {member}"));
    }
    let reply = merge(&eve, &at, json!({ "spec": { "displayName": "x" } })).await;
    found.check_code(&reply, &[200], "a change that adds no member");
    // A caller that holds the permissions of the role can give it.
    let spec = json!({ "members": [] });
    let reply = merge(&eve, &at, json!({ "spec": spec })).await;
    found.check_code(&reply, &[200], "members are removed");
    found.assert_none();
}

#[tokio::test]
async fn a_user_whose_name_is_an_identity_already_takes_impersonate() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    let rules = json!([
        rule(&["users", "teams"], &["create", "get", "update", "patch", "delete"]),
        rule(&["ownedaccesskeys"], &["create", "get"])
    ]);
    allow(&admin, "makes-users", None, rules, "platform:user:eve").await;
    let subject = |name: &str| json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }]);
    for (namespace, name) in [(None, "carol"), (Some("platform"), "dora")] {
        let bound = json!({ "metadata": { "name": name }, "subjects": subject(name),
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-user" } });
        admin.post(&rbac(namespace, "rolebinding")).json(&bound).send().await.expect(201);
    }
    make(&admin, "ownedaccesskeys", "of-robot", json!({ "subject": "robot" })).await;
    // A user and a team are also the groups that have their names.
    let reads = json!([rule(&["sharedsecrets"], &["get"])]);
    allow(&admin, "of-grace", None, reads.clone(), "platform:user:grace").await;
    allow(&admin, "of-red", Some("platform"), reads, "platform:team:red").await;
    // A user with a subject that hides the name: the name is an identity when the subject is
    // cleared.
    make(&admin, "users", "frank", json!({ "subject": "frank-subject" })).await;
    let bound = json!({ "metadata": { "name": "frank" }, "subjects": subject("frank"),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "platform-user" } });
    admin.post(&rbac(None, "rolebinding")).json(&bound).send().await.expect(201);
    let mut found = Findings::new();
    for name in ["carol", "dora", "robot", "grace"] {
        let object = json!({ "metadata": { "name": name }, "spec": {} });
        let reply = eve.post(&users()).json(&object).send().await;
        found.check_code(&reply, &[403], &format!("POST of the user {name}"));
        let dry = eve.post(&format!("{}?dryRun=All", users())).json(&object).send().await;
        found.check_code(&dry, &[403], &format!("dry run of the user {name}"));
        let apply = json!({ "apiVersion": "management.platform.sh/v1", "kind": "User", "metadata": { "name": name } });
        let request = eve.request("PATCH", &format!("{}?fieldManager=x", path("users", name)));
        let reply = request.body("application/apply-patch+yaml", apply.to_string()).send().await;
        found.check_code(&reply, &[403, 404], &format!("apply of the user {name}"));
        // Where the name is hidden at first, and comes out by a later change.
        let hidden = json!({ "metadata": { "name": name }, "spec": { "subject": "other" } });
        found.check_code(&eve.post(&users()).json(&hidden).send().await, &[403, 409], name);
    }
    let red = json!({ "metadata": { "name": "red" }, "spec": {} });
    let reply = eve.post(&collection("teams")).json(&red).send().await;
    found.check_code(&reply, &[403], "POST of the team red");
    let cleared =
        merge(&eve, &path("users", "frank"), json!({ "spec": { "subject": null } })).await;
    found.check_code(&cleared, &[403], "the subject of the user is cleared");
    let object = json!({ "metadata": { "name": "frank-new" }, "spec": {} });
    let reply = eve.post(&users()).json(&object).send().await;
    found.check_code(&reply, &[201], "a user whose name is no identity");
    let allowed = json!({ "metadata": { "name": "carol" }, "spec": {} });
    let reply = admin.post(&users()).json(&allowed).send().await;
    found.check_code(&reply, &[201], "the administrator makes carol");
    found.assert_none();
}

#[tokio::test]
async fn a_user_whose_name_owns_an_object_takes_impersonate() {
    let server = Server::start().await;
    let admin = server.client();
    let eve = user(&admin, "eve").await;
    let rules = json!([rule(&["users", "teams"], &["create", "get"])]);
    allow(&admin, "makes-users", None, rules, "platform:user:eve").await;
    user(&admin, "carol").await;
    make(&admin, "teams", "red", json!({})).await;
    let mut object = secret("owned", "x");
    object["spec"]["owner"] = json!({ "user": "carol" });
    admin.post(&secrets("platform")).json(&object).send().await.expect(201);
    remove(&admin, &path("users", "carol")).await;
    make(&admin, "projects", "of-red", json!({ "owner": { "team": "red" } })).await;
    remove(&admin, &path("teams", "red")).await;
    let mut found = Findings::new();
    for (resource, name) in [("users", "carol"), ("teams", "red")] {
        let object = json!({ "metadata": { "name": name }, "spec": {} });
        let reply = eve.post(&collection(resource)).json(&object).send().await;
        found.check_code(&reply, &[403], &format!("POST of {name}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_put_that_does_not_name_the_owner_keeps_it() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = user(&admin, "ada").await;
    let rules = json!([rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "makes", Some("platform"), rules, "platform:user:ada").await;
    ada.post(&secrets("platform")).json(&secret("s", "x")).send().await.expect(201);
    let mut object = secret("s", "y");
    let mut found = Findings::new();
    for without in ["no owner", "owner: null", "owner: {}", "no spec"] {
        let now = admin.get(&secret_path("s")).send().await.expect(200);
        object["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
        match without {
            "owner: null" => object["spec"]["owner"] = Value::Null,
            "owner: {}" => object["spec"]["owner"] = json!({}),
            "no spec" => drop(object.as_object_mut().unwrap().remove("spec")),
            _ => {}
        }
        let put = ada.put(&secret_path("s")).json(&object).send().await;
        found.check_code(&put, &[200, 403, 422], &format!("PUT, {without}"));
        let after = ada.get(&secret_path("s")).send().await;
        found.check_code(&after, &[200], &format!("GET after a PUT, {without}"));
    }
    found.assert_none();
}

#[tokio::test]
async fn a_binding_by_hand_to_a_made_role_gives_nothing_of_a_later_object_of_the_name() {
    let server = Server::start().await;
    let admin = server.client();
    user(&admin, "bob").await;
    let eve = user(&admin, "eve").await;
    let bindings = json!({ "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"],
        "verbs": ["create"] });
    let rules = json!([bindings, rule(&["sharedsecrets"], &["create"])]);
    allow(&admin, "binds", Some("platform"), rules, "platform:user:eve").await;
    let reads = json!([rule_on("sharedsecrets", &["widened"], &["get"])]);
    allow(&admin, "reads", Some("platform"), reads, "platform:user:eve").await;
    let with = |name: &str, verbs: &[&str], user: &str| {
        let mut object = secret(name, "canary");
        object["spec"]["access"] = json!([{ "verbs": verbs, "users": [user] }]);
        object
    };
    let at = secrets("platform");
    eve.post(&at).json(&with("again", &["get"], "eve")).send().await.expect(201);
    admin.post(&at).json(&with("widened", &["get"], "bob")).send().await.expect(201);
    for name in ["again", "widened"] {
        for role in made(&admin, "platform", "role", &format!(":{name}:")).await {
            let of_eve = format!("of-eve-{name}");
            let bound = binding(&of_eve, Some("platform"), &role, "platform:user:eve");
            // The caller holds everything that the role gives now.
            eve.post(&rbac(Some("platform"), "rolebinding")).json(&bound).send().await;
        }
    }
    eve.delete(&secret_path("again")).send().await.expect(200);
    admin.post(&at).json(&with("again", &["get"], "bob")).send().await.expect(201);
    let wider = json!({ "access": [{ "verbs": ["get", "delete"], "users": ["bob"] }] });
    set(&admin, &secret_path("widened"), wider).await;
    let mut found = Findings::new();
    let reply = eve.get(&secret_path("again")).send().await;
    found.check_code(&reply, &[403, 404], "GET of another secret of the name");
    let reply = eve.delete(&format!("{}?dryRun=All", secret_path("widened"))).send().await;
    found.check_code(&reply, &[403], "DELETE of a secret that bob may delete");
    found.assert_none();
}
