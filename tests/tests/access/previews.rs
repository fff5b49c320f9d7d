//! Previews predict the results of requests, and the results that a key would get before the key
//! exists.

use postern_tests::http::Client;
use postern_tests::objects::{GROUP, collection, create, make, secret, secret_path, secrets};
use postern_tests::rights::{allow, rule, rule_on, user, with_key};
use postern_tests::{Form, Random, Server};
use serde_json::{Value, json};

const PREVIEWS: &str = "accesspreviews";

async fn preview(client: &Client, spec: Value) -> Value {
    let asked = client.post(&collection(PREVIEWS)).json(&json!({ "spec": spec }));
    asked.send().await.expect(201)["status"].clone()
}

/// A request, as a preview asks about it and as it is sent.
struct Asked {
    question: Value,
    method: &'static str,
    path: String,
    body: Option<Value>,
}

fn asked(verb: &str, (resource, namespace, name): (&str, &str, &str), path: String) -> Asked {
    let question = json!({ "verb": verb, "group": "management.platform.sh", "resource": resource,
        "namespace": namespace, "name": name });
    let (method, body) = match verb {
        "create" => ("POST", Some(secret("fresh", "x"))),
        "patch" => ("PATCH", Some(json!({ "metadata": { "labels": { "a": "b" } } }))),
        "delete" => ("DELETE", None),
        _ => ("GET", None),
    };
    let changes = body.is_some() || verb == "delete";
    let path = if changes { format!("{path}?dryRun=All") } else { path };
    Asked { question, method, path, body }
}

/// A create of an object without a namespace.
fn asked_to_create(resource: &str, spec: &Value) -> Asked {
    let asked = asked("create", (resource, "", ""), collection(resource));
    Asked { body: Some(json!({ "metadata": { "name": "fresh" }, "spec": spec })), ..asked }
}

fn workload() -> Value {
    let repository = json!({ "claim": "repository_id", "values": ["4711"] });
    let branch = json!({ "claim": "ref", "values": ["refs/heads/main"] });
    json!({ "issuer": "github", "match": [repository, branch], "scope": {} })
}

/// The requests about access keys, and about objects that give some.
fn requests_for_keys() -> Vec<Asked> {
    let key = format!("{GROUP}/ownedaccesskeys/other");
    let change = |verb| asked(verb, ("ownedaccesskeys", "", "other"), key.clone());
    vec![
        asked_to_create("ownedaccesskeys", &json!({ "scope": {} })),
        asked_to_create("workloadidentities", &workload()),
        asked_to_create("trustedissuers", &json!({ "type": "GitHubActions" })),
        change("get"),
        change("patch"),
        change("delete"),
    ]
}

/// The requests that are previewed and sent. They change nothing.
fn requests() -> Vec<Asked> {
    let mut all = requests_for_keys();
    for namespace in ["platform", "default"] {
        for name in ["s0", "s1"] {
            for verb in ["get", "patch", "delete"] {
                let path = format!("{}/{name}", secrets(namespace));
                all.push(asked(verb, ("sharedsecrets", namespace, name), path));
            }
            let mut entries = asked("get", ("sharedsecrets", namespace, name), String::new());
            entries.question["subresource"] = "entries".into();
            entries.path = format!("{}/{name}/entries", secrets(namespace));
            all.push(entries);
        }
        for verb in ["list", "create"] {
            all.push(asked(verb, ("sharedsecrets", namespace, ""), secrets(namespace)));
        }
    }
    for name in ["red", "blue"] {
        all.push(asked("get", ("projects", "", name), format!("{GROUP}/projects/{name}")));
        let namespace = format!("p-{name}");
        let path = format!("{GROUP}/namespaces/{namespace}/projectsecrets");
        all.push(asked("list", ("projectsecrets", &namespace, ""), path.clone()));
        all.push(asked("get", ("projectsecrets", &namespace, "s"), format!("{path}/s")));
    }
    for name in ["ada", "bob"] {
        all.push(asked("get", ("users", "", name), format!("{GROUP}/users/{name}")));
    }
    all
}

/// Whether the request is let through.
async fn gets(key: &Client, asked: &Asked) -> bool {
    let request = match (&asked.body, asked.method) {
        (Some(body), "PATCH") => key.patch(&asked.path, "merge-patch", body),
        (Some(body), method) => key.request(method, &asked.path).json(body),
        (None, method) => key.request(method, &asked.path),
    };
    let reply = request.send().await;
    let text = reply.text();
    assert!(
        [200, 201, 403, 404].contains(&reply.status),
        "{} {}: {text}",
        asked.method,
        asked.path
    );
    reply.status < 300
}

/// A user with some rights in some namespaces.
async fn world(admin: &Client) -> Client {
    let ada = user(admin, "ada").await;
    make(admin, "users", "bob", json!({})).await;
    make(admin, "trustedissuers", "github", json!({ "type": "GitHubActions" })).await;
    with_key(admin, "other", json!({ "user": "ada" })).await;
    for namespace in ["platform", "default"] {
        for name in ["s0", "s1"] {
            admin.post(&secrets(namespace)).json(&secret(name, "x")).send().await.expect(201);
        }
    }
    for name in ["red", "blue"] {
        let members = json!([{ "kind": "User", "name": "ada",
            "clusterRole": "platform-project-admin" }]);
        let spec = if name == "red" { json!({ "members": members }) } else { json!({}) };
        make(admin, "projects", name, spec).await;
        let collection = format!("{GROUP}/namespaces/p-{name}/projectsecrets");
        create(admin, &collection, "s", json!({ "spec": {} })).await;
    }
    let platform = json!([
        rule(&["sharedsecrets"], &["get", "list", "create"]),
        rule_on("sharedsecrets", &["s0"], &["patch", "delete"])
    ]);
    allow(admin, "platform", Some("platform"), platform, "platform:user:ada").await;
    let one = json!([rule_on("sharedsecrets", &["s1"], &["get", "patch"])]);
    allow(admin, "one", Some("default"), one, "platform:user:ada").await;
    ada
}

fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[usize::try_from(random.below(of.len() as u64)).unwrap()]
}

fn random_rule(random: &mut Random) -> Value {
    let mut rule = json!({});
    if random.below(3) > 0 {
        let verbs = ["get", "list", "patch", "create", "delete", "*", "createkey"];
        rule["verbs"] = json!([one(random, &verbs), one(random, &verbs)]);
    }
    if random.below(4) > 0 {
        let of = ["sharedsecrets", "sharedsecrets/*", "projects", "projectsecrets", "users", "*"];
        let of_keys = ["ownedaccesskeys", "workloadidentities", "users"];
        let resources = match random.below(3) {
            0 => json!([one(random, &of_keys), one(random, &of_keys)]),
            _ => json!([one(random, &of)]),
        };
        let mut element = json!({ "group": "management.platform.sh", "resources": resources });
        if random.below(3) == 0 {
            element["resourceNames"] = json!([one(random, &["s0", "s1", "red", "ada"])]);
        }
        rule["resources"] = json!([element]);
    }
    if random.below(3) == 0 {
        rule["namespaces"] = json!([one(random, &["platform", "default", "p-red", "p-blue"])]);
    }
    if random.below(5) == 0 {
        rule["requestTargets"] = json!([one(random, &["Management", "Cluster"])]);
    }
    rule
}

fn random_scope(random: &mut Random) -> Value {
    let mut scope = json!({});
    if random.below(4) == 0 {
        scope["allowPlatformCli"] = true.into();
    }
    if random.below(3) == 0 {
        scope["projects"] = json!([{ "project": one(random, &["red", "blue", "*"]) }]);
    }
    let rules: Vec<Value> = (0..random.below(3)).map(|_| random_rule(random)).collect();
    if !rules.is_empty() {
        scope["rules"] = rules.into();
    }
    scope
}

#[tokio::test]
async fn a_preview_says_what_the_requests_of_the_key_get() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = world(&admin).await;
    let requests = requests();
    let questions: Vec<&Value> = requests.iter().map(|asked| &asked.question).collect();
    let mut random = Random::new(5);
    let (mut allowed, mut refused) = (0, 0);
    for number in 0..Form::of_this_run().pick(40, 500) {
        let scope = (number > 0).then(|| random_scope(&mut random));
        let mut spec = json!({ "requests": questions });
        let mut key_spec = json!({ "user": "ada" });
        if let Some(scope) = &scope {
            spec["scope"] = scope.clone();
            key_spec["scope"] = scope.clone();
        }
        let told = preview(&ada, spec).await;
        let name = format!("preview-{number}");
        let key = with_key(&admin, &name, key_spec).await;
        for (asked, result) in requests.iter().zip(told["results"].as_array().unwrap()) {
            let gets = gets(&key, asked).await;
            assert_eq!(result["allowed"], gets, "{scope:?}: {}: {result}", asked.question);
            // Nothing that could be added to it lets a key change the keys that it has not created.
            let is_limit = |reason: &str| reason.starts_with("the access key of the request");
            let is_explained = !result["missingRule"].is_null()
                || !result["missingScope"].is_null()
                || result["reason"].as_str().is_some_and(is_limit);
            assert_eq!(is_explained, !gets, "{scope:?}: {}: {result}", asked.question);
            *(if gets { &mut allowed } else { &mut refused }) += 1;
        }
        let path = collection(&format!("ownedaccesskeys/{name}"));
        admin.delete(&path).send().await.expect(200);
    }
    assert!(allowed > 100 && refused > 100, "{allowed} let through, {refused} not");
}

/// The answer of a preview to one question, as a client with its key sees it.
async fn told_about(client: &Client, asked: &Asked) -> Value {
    preview(client, json!({ "requests": [asked.question] })).await["results"][0].clone()
}

#[tokio::test]
async fn a_create_needs_the_permissions_that_its_kind_always_requires() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = world(&admin).await;
    let [_, workload, issuer, ..] = &requests_for_keys()[..] else { panic!("six requests") };
    let told = told_about(&ada, issuer).await;
    assert_eq!(told["missingRule"]["rule"]["resources"], json!(["trustedissuers"]));
    let rules = json!([rule(&["trustedissuers", "workloadidentities"], &["create"])]);
    allow(&admin, "create", None, rules, "platform:user:ada").await;
    let told = told_about(&ada, issuer).await;
    assert_eq!((&told["allowed"], gets(&ada, issuer).await), (&json!(false), false), "{told}");
    for (resource, more) in [("users", false), ("groups", true)] {
        let missing = told_about(&ada, issuer).await["missingRule"]["rule"].clone();
        assert_eq!(missing["resources"], json!([resource]));
        allow(&admin, resource, None, json!([missing]), "platform:user:ada").await;
        let told = told_about(&ada, issuer).await;
        assert_eq!((&told["allowed"], gets(&ada, issuer).await), (&json!(more), more), "{told}");
    }
    // The role for the kind does not replace the permission on the owner.
    let kind = json!({ "group": "management.platform.sh", "resources": ["workloadidentities"] });
    let mut rules = vec![json!({ "resources": [kind] })];
    for (number, works) in [false, true].into_iter().enumerate() {
        let spec = json!({ "user": "ada", "scope": { "rules": rules } });
        let key = with_key(&admin, &format!("maker-{number}"), spec).await;
        let told = told_about(&key, workload).await;
        assert_eq!((&told["allowed"], gets(&key, workload).await), (&json!(works), works));
        rules.extend(told["missingScope"]["rules"].as_array().into_iter().flatten().cloned());
    }
}

#[tokio::test]
async fn a_limited_key_may_do_to_keys_what_previews_say() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = world(&admin).await;
    let scope = json!({ "rules": [{}] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": scope })).await;
    let made = with_key(&scoped, "made", json!({ "scope": scope })).await;
    with_key(&made, "below", json!({ "scope": {} })).await;
    make(&scoped, "workloadidentities", "own", workload()).await;
    make(&ada, "workloadidentities", "foreign", workload()).await;
    for (kind, name, by_scoped, by_made) in [
        ("ownedaccesskeys", "other", false, false),
        ("ownedaccesskeys", "scoped", false, false),
        ("ownedaccesskeys", "made", true, false),
        ("ownedaccesskeys", "below", true, true),
        ("workloadidentities", "own", true, false),
        ("workloadidentities", "foreign", false, false),
    ] {
        let change = asked("patch", (kind, "", name), format!("{GROUP}/{kind}/{name}"));
        for (key, expected) in [(&ada, true), (&scoped, by_scoped), (&made, by_made)] {
            let told = told_about(key, &change).await;
            let both = (&told["allowed"], gets(key, &change).await);
            assert_eq!(both, (&json!(expected), expected), "{name}: {told}");
            assert_ne!(told["reason"], "", "{name}: {told}");
        }
    }
    // A scoped key creates keys only for its own owner, also while it impersonates another user.
    let boss = with_key(&admin, "boss", json!({ "user": "admin", "scope": scope })).await;
    let create = &requests_for_keys()[0];
    for (key, allowed) in [(&boss, false), (&admin, true)] {
        let asked = key.post(&collection(PREVIEWS)).header("impersonate-user", "ada");
        let body = json!({ "spec": { "requests": [create.question] } });
        let told = asked.json(&body).send().await.expect(201);
        let sent = key.post(&create.path).header("impersonate-user", "ada");
        let sent = sent.json(create.body.as_ref().unwrap()).send().await;
        let code = if allowed { 201 } else { 403 };
        assert_eq!(told["status"]["results"][0]["allowed"], allowed, "{told}");
        assert_eq!(sent.status, code, "{}", sent.text());
    }
}

#[tokio::test]
async fn what_is_missing_makes_the_request_work() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = world(&admin).await;
    let question = json!({ "verb": "get", "group": "management.platform.sh",
        "resource": "sharedsecrets", "namespace": "default", "name": "s0" });
    let spec = json!({ "requests": [question], "scope": { "allowPlatformCli": true } });
    let told = preview(&ada, spec).await["results"][0].clone();
    assert_eq!(told["missingRule"]["namespace"], "default");
    let rules = json!([told["missingRule"]["rule"]]);
    allow(&admin, "missing", Some("default"), rules, "platform:user:ada").await;
    let key = json!({ "user": "ada", "scope": told["missingScope"] });
    let key = with_key(&admin, "missing", key).await;
    key.get(&format!("{}/s0", secrets("default"))).send().await.expect(200);
    assert_eq!(key.get(&secret_path("s0")).send().await.status, 404);
}

#[tokio::test]
async fn a_scope_is_described_and_compared_with_the_callers_own() {
    let server = Server::start().await;
    let admin = server.client();
    let ada = world(&admin).await;
    for (name, endpoint) in [("east", true), ("west", false)] {
        let spec = json!({ "metadata": {}, "spec": {} });
        create(&admin, &collection("clusters"), name, spec).await;
        if endpoint {
            let use_it = json!([rule_on("clusters", &[name], &["get", "use"])]);
            allow(&admin, name, None, use_it, "platform:user:ada").await;
        }
    }
    let cluster =
        |name: &str| json!({ "rules": [{ "requestTargets": ["Cluster"], "cluster": name }] });
    let reached = preview(&ada, json!({ "scope": cluster("east") })).await["scope"].clone();
    assert_eq!((&reached["contained"], &reached["everyCluster"]), (&json!(true), &json!(false)));
    assert_eq!(reached["clusters"], json!(["east"]));
    assert_eq!(reached["kinds"], json!([]), "a rule for clusters reaches nothing here");
    let unknown = preview(&ada, json!({ "scope": cluster("west") })).await;
    assert_eq!(unknown["scope"]["clusters"], json!([]), "ada may not know this cluster");
    let element = json!({ "group": "management.platform.sh", "resources": ["sharedsecrets"] });
    let read = json!({ "rules": [{ "verbs": ["get"], "resources": [element] }] });
    let reached = preview(&ada, json!({ "scope": read })).await["scope"].clone();
    assert_eq!(
        reached["kinds"],
        json!([{ "group": "management.platform.sh", "resource": "sharedsecrets", "some": ["get"] }])
    );
    assert_eq!(reached["everyCluster"], true, "a rule without a target is for every cluster");
    let as_admin = preview(&admin, json!({ "scope": read })).await["scope"].clone();
    assert_eq!(as_admin["kinds"][0]["all"], json!(["get"]));
    // Not contained means: the key cannot be created.
    let keys =
        json!({ "group": "management.platform.sh", "resources": ["ownedaccesskeys", "users"] });
    let scope = json!({ "rules": [{ "resources": [keys, element] }] });
    let scoped = with_key(&admin, "scoped", json!({ "user": "ada", "scope": scope })).await;
    for (scope, contained) in [(read, true), (json!({}), true), (json!({ "rules": [{}] }), false)] {
        let told = preview(&scoped, json!({ "scope": scope })).await["scope"].clone();
        assert_eq!(told["contained"], contained, "{scope}: {told}");
        assert_eq!(told["notContained"].is_string(), !contained, "{scope}: {told}");
        let made = scoped
            .post(&collection("ownedaccesskeys"))
            .json(&json!({ "spec": { "scope": scope } }));
        assert_eq!(made.send().await.status == 201, contained, "{scope}");
    }
}

#[tokio::test]
async fn previews_are_open_bounded_and_about_the_caller() {
    let server = Server::start().await;
    let admin = server.client();
    make(&admin, "users", "ada", json!({})).await;
    // A key without any right can ask for its rights.
    let nothing = with_key(&admin, "nothing", json!({ "user": "ada", "scope": {} })).await;
    let question = json!({ "verb": "get", "resource": "secrets", "namespace": "platform" });
    let told = preview(
        &nothing,
        json!({ "requests": [question, { "verb": "get", "path": "/apis" },
        { "verb": "create", "group": "management.platform.sh", "resource": PREVIEWS }] }),
    )
    .await;
    let allowed: Vec<_> =
        told["results"].as_array().unwrap().iter().map(|one| &one["allowed"]).collect();
    assert_eq!(allowed, [false, true, true], "{told}");
    let many = |count| json!({ "spec": { "requests": vec![question.clone(); count] } });
    nothing.post(&collection(PREVIEWS)).json(&many(200)).send().await.expect(201);
    let invalid = [
        many(201),
        json!({ "spec": { "requests": [{ "verb": "get" }] } }),
        json!({ "spec": { "scope": { "rule": [] } } }),
        json!({ "spec": { "scope": null } }),
        json!({ "spec": { "scope": { "projects": [{ "project": "" }] } } }),
        json!({ "metadata": { "name": "x" }, "spec": {} }),
    ];
    for spec in invalid {
        let reply = nothing.post(&collection(PREVIEWS)).json(&spec).send().await;
        assert_eq!(reply.status, 422, "{spec}: {}", reply.text());
    }
    let acting = admin.post(&collection(PREVIEWS)).header("impersonate-user", "ada");
    let reply = acting.json(&json!({ "spec": { "scope": {} } })).send().await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    let acting = admin.post(&collection(PREVIEWS)).header("impersonate-user", "ada");
    let told = acting.json(&json!({ "spec": { "requests": [question] } })).send().await.expect(201);
    assert_eq!(told["status"]["results"][0]["allowed"], false, "it is about ada, not the admin");
    // Agents cannot act as an identity with more than a name and groups, so there is no token for it.
    let tokens = collection("directclusterendpointtokens");
    let question = json!({ "verb": "create", "group": "management.platform.sh",
        "resource": "directclusterendpointtokens" });
    for (extra, allowed) in [(None, true), (Some("impersonate-extra-team"), false)] {
        let as_ada = |path: &str, body: &Value| {
            let request = admin.post(path).header("impersonate-user", "ada").json(body);
            extra.iter().fold(request, |request, name| request.header(*name, "red"))
        };
        let body = json!({ "spec": { "requests": [question] } });
        let told = as_ada(&collection(PREVIEWS), &body).send().await.expect(201);
        let sent = as_ada(&tokens, &json!({ "spec": {} })).send().await;
        let told = &told["status"]["results"][0];
        assert_eq!((&told["allowed"], sent.status == 201), (&json!(allowed), allowed), "{told}");
        assert_eq!(told["reason"].as_str().unwrap().contains("omit it"), !allowed, "{told}");
    }
    for path in [collection(PREVIEWS), format!("{}/x", collection(PREVIEWS))] {
        assert!([404, 405].contains(&admin.get(&path).send().await.status), "nothing is stored");
    }
}

/// Neither a session nor a caller that impersonates another user can begin a session.
#[tokio::test]
async fn a_preview_says_whether_a_session_can_begin() {
    let server = Server::start().await;
    let admin = server.client();
    let reply = admin.post("/auth/session").send().await;
    let cookie = reply.header("set-cookie").unwrap().split_once(';').unwrap().0.to_owned();
    let question = |resource: &str| json!({ "verb": "create", "group": "management.platform.sh", "resource": resource });
    let spec = json!({ "requests": [question("consolesessions"), question("consolelogincodes")] });
    let of_new_key = json!({ "requests": spec["requests"], "scope": {} });
    let ask = |spec: &Value| admin.post(&collection(PREVIEWS)).json(&json!({ "spec": spec }));
    let in_session = |spec: &Value| {
        let request = ask(spec).without("authorization").header("cookie", &cookie);
        request.header("x-postern-console", "1")
    };
    for (asked, allowed, why) in [
        (ask(&spec), true, ""),
        (in_session(&spec), false, "log in with an access key"),
        (ask(&spec).header("impersonate-user", "ada"), false, "impersonation"),
        (in_session(&of_new_key), true, ""),
    ] {
        let told = asked.send().await.expect(201);
        for one in told["status"]["results"].as_array().unwrap() {
            assert_eq!(one["allowed"], allowed, "{one}");
            assert!(one["reason"].as_str().unwrap().contains(why), "{one}");
        }
    }
}
