//! The first requests of other tools, which stop when one of them fails: k9s, Headlamp, helm,
//! Terraform, Flux, and External Secrets. The recorder of controller-runtime is among them, and
//! every tool that reads conditions as kstatus does.

use postern_tests::Server;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{CORE, GROUP, based, collection, create, make, name_of, secrets};
use postern_tests::rights::{RBAC, allow, merge, path, rule_on, user, with_key};
use postern_tests::status::failure;
use serde_json::{Value, json};

const EVENTS_V1: &str = "/kubernetes/management/apis/events.k8s.io/v1";
const PROJECT: &str = "p-web";

/// A project with an admin, a user and a viewer, and a user that is no member.
async fn members(server: &Server) -> [Client; 5] {
    let admin = server.client();
    let mut clients = Vec::new();
    for name in ["ada", "uma", "vic", "eve"] {
        clients.push(user(&admin, name).await);
    }
    let member =
        |name: &str, role: &str| json!({ "kind": "User", "name": name, "clusterRole": role });
    let members = json!([
        member("ada", "platform-project-admin"),
        member("uma", "platform-project-user"),
        member("vic", "platform-project-viewer"),
    ]);
    make(
        &admin,
        "projects",
        "web",
        json!({ "members": members, "quotas": { "project": { "configmaps": "3" } } }),
    )
    .await;
    let [ada, uma, vic, eve] = clients.try_into().unwrap_or_else(|_| panic!("four"));
    [admin, ada, uma, vic, eve]
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(name_of).collect()
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).send().await.status
}

#[tokio::test]
async fn members_read_their_namespace_and_find_it_in_the_list() {
    let server = Server::start().await;
    let [admin, ada, uma, vic, eve] = members(&server).await;
    let namespaces = format!("{CORE}/namespaces");
    for member in [&ada, &uma, &vic] {
        assert_eq!(status(member, &format!("{namespaces}/{PROJECT}")).await, 200);
        let list = member.get(&namespaces).send().await.expect(200);
        assert_eq!(names(&list), [PROJECT]);
        assert_eq!(status(member, &format!("{namespaces}/default")).await, 403);
        for (method, expected) in [("DELETE", 403), ("PUT", 403)] {
            let body = json!({ "metadata": { "name": PROJECT } });
            let reply =
                member.request(method, &format!("{namespaces}/{PROJECT}")).json(&body).send().await;
            assert_eq!(reply.status, expected, "{method}: {}", reply.text());
        }
    }
    assert_eq!(status(&eve, &format!("{namespaces}/{PROJECT}")).await, 403);
    assert!(names(&eve.get(&namespaces).send().await.expect(200)).is_empty());
    assert!(names(&admin.get(&namespaces).send().await.expect(200)).len() > 2);
    // A key for the project reads its namespace, and a key for another project does not.
    let scoped =
        |project: &str| json!({ "user": "ada", "scope": { "projects": [{ "project": project }] } });
    let inside = with_key(&admin, "inside", scoped("web")).await;
    let outside = with_key(&admin, "outside", scoped("other")).await;
    assert_eq!(status(&inside, &format!("{namespaces}/{PROJECT}")).await, 200);
    assert_eq!(names(&inside.get(&namespaces).send().await.expect(200)), [PROJECT]);
    assert_eq!(status(&outside, &format!("{namespaces}/{PROJECT}")).await, 403);
    let listed = outside.get(&namespaces).send().await;
    assert!(listed.status == 403 || names(&listed.json()).is_empty(), "{}", listed.text());
    let review =
        json!({ "spec": { "resourceAttributes": { "verb": "list", "resource": "namespaces" } } });
    let reviews = based("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let reviewed = vic.post(&reviews).json(&review).send().await.expect(201);
    assert_eq!(reviewed["status"]["allowed"], true);
    // A watch has the same objects, and a write needs a right for all namespaces.
    let watch = format!("{namespaces}?watch=1&resourceVersion=0&timeoutSeconds=1");
    let text = vic.get(&watch).send().await.expect_text(200);
    assert!(text.contains("p-web") && !text.contains("\"default\""), "{text}");
    let made = json!({ "metadata": { "name": "x" }, "status": { "phase": "Lost", "conditions": [{ "type": "A" }] } });
    vic.post(&namespaces).json(&made).send().await.expect(403);
    let made = admin.post(&namespaces).json(&made).send().await.expect(201);
    assert_eq!(made["status"], json!({ "phase": "Active" }));
}

#[tokio::test]
async fn config_maps_are_for_admins_of_the_project_and_counted() {
    let server = Server::start().await;
    let [_, ada, uma, vic, eve] = members(&server).await;
    let list = format!("{CORE}/namespaces/{PROJECT}/configmaps");
    let one = |name: &str| {
        json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "data": { "a.txt": "x" }, "binaryData": { "b": "/w=\n=" },
        })
    };
    let made = ada.post(&list).json(&one("a")).send().await.expect(201);
    assert_eq!(made["binaryData"]["b"], "/w==");
    for other in [&uma, &vic, &eve] {
        other.post(&list).json(&one("b")).send().await.expect(403);
        other.get(&format!("{list}/a")).send().await.expect(403);
    }
    for (object, field) in [
        (json!({ "data": { "a b": "x" } }), "data[a b]"),
        (json!({ "data": { "k": "x" }, "binaryData": { "k": "eA==" } }), "data[k]"),
    ] {
        let mut object = object;
        object["metadata"] = json!({ "name": "bad" });
        let text = failure(&ada.post(&list).json(&object).send().await);
        assert!(text.starts_with("422 Invalid\n") && text.contains(field), "{text}");
    }
    // helm replaces without a version, and `apply --prune -l` deletes a collection.
    let mut next = one("a");
    next["immutable"] = true.into();
    ada.put(&format!("{list}/a")).json(&next).send().await.expect(200);
    let text =
        failure(&merge(&ada, &format!("{list}/a"), json!({ "data": { "a.txt": "y" } })).await);
    assert!(text.contains("field is immutable when `immutable` is set"), "{text}");
    for name in ["b", "c"] {
        ada.post(&list).json(&one(name)).send().await.expect(201);
    }
    let text = failure(&ada.post(&list).json(&one("d")).send().await);
    assert!(text.starts_with("403 Forbidden\n") && text.contains("exceeded quota"), "{text}");
    ada.delete(&format!("{list}?labelSelector=app%3Dweb")).send().await.expect(200);
    assert!(names(&ada.get(&list).send().await.expect(200)).is_empty());
}

#[tokio::test]
async fn both_groups_have_the_same_events() {
    let server = Server::start().await;
    let [admin, ada, _, vic, _] = members(&server).await;
    let (core, v1) = (
        format!("{CORE}/namespaces/{PROJECT}/events"),
        format!("{EVENTS_V1}/namespaces/{PROJECT}/events"),
    );
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e1" },
        "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "ctrl", "reportingInstance": "ctrl-1",
        "action": "Syncing", "reason": "Synced", "type": "Normal", "note": "all is well",
        "regarding": { "apiVersion": "management.platform.sh/v1", "kind": "ProjectSecret", "name": "db", "namespace": PROJECT },
        "deprecatedSource": { "component": "ctrl" }, "deprecatedCount": 2,
    });
    let made =
        ada.post(&format!("{v1}?fieldValidation=Strict")).json(&event).send().await.expect(201);
    for (field, value) in event.as_object().unwrap() {
        assert!(field == "metadata" || made[field] == *value, "{field}: {made}");
    }
    assert!(made.get("message").is_none() && made.get("involvedObject").is_none(), "{made}");
    let stored = ada.get(&format!("{core}/e1")).send().await.expect(200);
    assert_eq!((&stored["apiVersion"], &stored["message"]), (&json!("v1"), &json!("all is well")));
    assert_eq!(stored["involvedObject"]["name"], "db");
    assert_eq!((&stored["reportingComponent"], &stored["count"]), (&json!("ctrl"), &json!(2)));
    // The recorder patches a series, and reads, lists and watches have the version of the request.
    let series = json!({ "series": { "count": 3, "lastObservedTime": "2026-01-02T03:05:00.000000Z" }, "note": "again" });
    let patched =
        ada.patch(&format!("{v1}/e1"), "strategic-merge-patch", &series).send().await.expect(200);
    assert_eq!((&patched["note"], &patched["series"]["count"]), (&json!("again"), &json!(3)));
    assert_eq!(patched["regarding"]["name"], "db");
    let list = vic.get(&format!("{v1}?fieldSelector=regarding.name%3Ddb")).send().await.expect(200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("EventList"), &json!("events.k8s.io/v1"))
    );
    assert_eq!((names(&list), &list["items"][0]["note"]), (vec!["e1"], &json!("again")));
    let watch = format!("{v1}?watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=true");
    let text = vic.get(&watch).send().await.expect_text(200);
    assert!(text.contains("\"note\":\"again\"") && !text.contains("\"involvedObject\":"), "{text}");
    assert!(!text.contains("\"message\":"), "{text}");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = vic.get(&v1).accept(table).send().await.expect(200);
    assert_eq!(rows["rows"][0]["cells"][3], "Synced", "{rows}");
    let yaml =
        vic.get(&format!("{v1}/e1")).accept("application/yaml").send().await.expect_text(200);
    assert!(
        yaml.contains("apiVersion: events.k8s.io/v1") && yaml.contains("note: again"),
        "{yaml}"
    );
    vic.post(&v1).json(&event).send().await.expect(403);
    // A role counts by the group of the request.
    let only = user(&admin, "only").await;
    let rules = json!([{ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "get"] }]);
    allow(&admin, "only-events", Some(PROJECT), rules, "platform:user:only").await;
    let mut second = event.clone();
    second["metadata"]["name"] = "e2".into();
    only.post(&v1).json(&second).send().await.expect(201);
    assert_eq!(
        [status(&only, &format!("{v1}/e2")).await, status(&only, &format!("{core}/e2")).await],
        [200, 403]
    );
    ada.delete(&format!("{v1}/e1")).send().await.expect(200);
    assert_eq!(status(&ada, &format!("{core}/e1")).await, 404);
}

#[tokio::test]
async fn every_caller_lists_the_empty_definitions() {
    let server = Server::start().await;
    let [_, _, _, _, eve] = members(&server).await;
    let list = based("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    assert!(names(&eve.get(&list).send().await.expect(200)).is_empty());
    assert_eq!(status(&eve, &format!("{list}/things.example.com")).await, 404);
    eve.post(&list).json(&json!({})).send().await.expect(405);
}

#[tokio::test]
async fn a_deleted_binding_grants_nothing_whatever_the_grace_period() {
    let server = Server::start().await;
    let [admin, _, _, _, eve] = members(&server).await;
    create(&admin, &secrets("platform"), "s1", json!({})).await;
    let secret = format!("{}/s1", secrets("platform"));
    let rules = json!([rule_on("sharedsecrets", &["s1"], &["get"])]);
    allow(&admin, "see", Some("platform"), rules, "platform:user:eve").await;
    assert_eq!(status(&eve, &secret).await, 200);
    let binding = format!("{RBAC}/namespaces/platform/rolebindings/see");
    admin.delete(&format!("{binding}?gracePeriodSeconds=600")).send().await.expect(200);
    assert_eq!([status(&admin, &binding).await, status(&eve, &secret).await], [404, 404]);
    let core = format!("{CORE}/namespaces/platform/secrets");
    create(&admin, &core, "c1", json!({})).await;
    admin
        .delete(&format!("{core}/c1"))
        .json(&json!({ "gracePeriodSeconds": 600 }))
        .send()
        .await
        .expect(200);
    assert_eq!(status(&admin, &format!("{core}/c1")).await, 404);
    // For kinds of our own group, the grace period counts.
    let deleted =
        admin.delete(&format!("{secret}?gracePeriodSeconds=600")).send().await.expect(200);
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 600);
}

async fn rules_of(client: &Client, namespace: &str) -> (Vec<Value>, bool) {
    let reviews = based("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews");
    let review = json!({ "spec": { "namespace": namespace } });
    let reviewed = client.post(&reviews).json(&review).send().await.expect(201);
    let rules = reviewed["status"]["resourceRules"].as_array().unwrap().clone();
    (rules, reviewed["status"]["incomplete"] == true)
}

/// External Secrets looks for `get` on secrets in the rules, and its store is not ready without.
#[tokio::test]
async fn the_rules_of_a_scoped_key_are_what_the_scope_leaves() {
    let server = Server::start().await;
    let [admin, ..] = members(&server).await;
    let rules = json!([{
        "verbs": ["get"], "namespaces": ["platform"],
        "resources": [{ "group": "", "resources": ["secrets"], "resourceNames": ["db", "cache"] }],
    }]);
    let spec = json!({ "user": "admin", "scope": { "rules": rules } });
    let narrow = with_key(&admin, "narrow", spec).await;
    let (rules, is_incomplete) = rules_of(&narrow, "platform").await;
    let of_secrets: Vec<&Value> =
        rules.iter().filter(|rule| rule["resources"] == json!(["secrets"])).collect();
    let [rule] = of_secrets[..] else { panic!("{rules:?}") };
    assert_eq!((&rule["verbs"], &rule["apiGroups"]), (&json!(["get"]), &json!([""])));
    assert_eq!(rule["resourceNames"], json!(["db", "cache"]));
    assert!(!is_incomplete, "{rules:?}");
    let (elsewhere, _) = rules_of(&narrow, "default").await;
    assert!(!elsewhere.iter().any(|rule| rule["resources"] == json!(["secrets"])), "{elsewhere:?}");
    let spec = json!({ "user": "ada", "scope": { "projects": [{ "project": "web" }] } });
    let project = with_key(&admin, "project", spec).await;
    let (rules, _) = rules_of(&project, PROJECT).await;
    let all =
        rules.iter().find(|rule| rule["resources"] == json!(["*"])).expect("all of the project");
    assert_eq!(all["apiGroups"], json!(["management.platform.sh"]));
}

#[tokio::test]
async fn the_foreign_command_line_reads_templates() {
    let server = Server::start().await;
    let [admin, ..] = members(&server).await;
    let spec = json!({ "user": "ada", "scope": { "allowPlatformCli": true } });
    let cli = with_key(&admin, "cli", spec).await;
    for subresource in ["members", "clusters", "templates"] {
        assert_eq!(
            status(&cli, &format!("{}/{subresource}", path("projects", "web"))).await,
            200,
            "{subresource}"
        );
    }
}

fn ready(object: &Value) -> &Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == "Ready").expect("the condition Ready")
}

/// kstatus takes an object without conditions as finished.
#[tokio::test]
async fn an_object_that_is_not_ready_says_so_in_a_condition() {
    let server = Server::start().await;
    let [admin, ..] = members(&server).await;
    make(&admin, "clusters", "east", json!({})).await;
    for kind in ["spaceinstances", "virtualclusterinstances"] {
        let list = format!("{GROUP}/namespaces/{PROJECT}/{kind}");
        let at = |cluster: &str| {
            let mut at = json!({ "cluster": cluster, "namespace": "n" });
            if kind == "virtualclusterinstances" {
                at["virtualCluster"] = "v".into();
            }
            json!({ "spec": { "clusterRef": at } })
        };
        let made = create(&admin, &list, "one", at("west")).await;
        assert_eq!(
            (&made["status"]["phase"], &ready(&made)["status"]),
            (&json!("Pending"), &json!("False"))
        );
        assert_eq!(ready(&made)["reason"], made["status"]["reason"]);
        assert_eq!(ready(&made)["observedGeneration"], made["metadata"]["generation"]);
        let changed = merge(&admin, &format!("{list}/one"), at("east")).await.expect(200);
        assert_eq!(changed["metadata"]["generation"], 2);
        assert_eq!(
            (&ready(&changed)["observedGeneration"], &ready(&changed)["status"]),
            (&json!(2), &json!("False"))
        );
        assert_eq!(ready(&changed)["lastTransitionTime"], ready(&made)["lastTransitionTime"]);
        // A report of a state that is not ready is used. A report of a ready state is not used
        // without a route.
        let report = |status: &str| json!({ "status": { "conditions": [{ "type": "Ready", "status": status, "reason": "Reported", "message": "" }] } });
        let status = format!("{list}/one/status");
        for (reported, phase, reason) in
            [("False", "Failed", "Reported"), ("True", "Pending", "NoAgent")]
        {
            let reply = merge(&admin, &status, report(reported)).await.expect(200);
            assert_eq!(
                (&reply["status"]["phase"], &ready(&reply)["reason"]),
                (&json!(phase), &json!(reason))
            );
            assert_eq!(ready(&reply)["status"], "False");
        }
    }
    let cluster = admin.get(&path("clusters", "east")).send().await.expect(200);
    assert_eq!(
        (&cluster["status"]["phase"], &ready(&cluster)["reason"]),
        (&json!("Pending"), &json!("NoAgent"))
    );
    let annotated = json!({ "metadata": { "annotations": { "platform.sh/direct-cluster-endpoint": "east.example.com" } } });
    let _ = merge(&admin, &path("clusters", "east"), annotated).await;
}

fn hint(reply: &Response) -> String {
    failure(reply)
}

#[tokio::test]
async fn other_paths_lead_to_the_right_ones() {
    let server = Server::start().await;
    let [admin, _, _, _, eve] = members(&server).await;
    for path in [
        "/apis/management.platform.sh/v1/projects",
        "/kubenretes/management/apis/management.platform.sh/v1/projects",
        "/kubernetes/managment/apis/management.platform.sh/v1/projects/web",
        "/kubernetes/management/apis/managment.platform.sh/v1/projects",
    ] {
        for client in [&admin, &eve] {
            let text = hint(&client.get(path).send().await);
            let nearest = "the nearest is /kubernetes/management/apis/management.platform.sh/v1";
            assert!(text.starts_with("404 NotFound\n") && text.contains(nearest), "{path}: {text}");
        }
    }
    let text = hint(&admin.get("/something/else").send().await);
    assert!(text.contains("the API is below /kubernetes/management"), "{text}");
    admin.get("/kubenretes/management/api").without("authorization").send().await.expect(401);
    for (path, console) in [
        ("/login?cli=true", "/ui/"),
        ("/login", "/ui/"),
        ("/profile/access-keys", "/ui/keys"),
        ("/profile/access-keys?name=x", "/ui/keys"),
    ] {
        let reply = admin.get(path).without("authorization").send().await;
        assert_eq!((reply.status, reply.header("location")), (302, Some(console)), "{path}");
    }
    let reply = admin.get("/auth/methods?x=1").without("authorization").send().await;
    assert_eq!(reply.warnings(), [r#"299 - "unknown query parameter \"x\" has no effect""#]);
    reply.expect(200);
    let token = json!({ "spec": {} });
    let made = admin
        .post(&collection("directclusterendpointtokens"))
        .json(&token)
        .send()
        .await
        .expect(201);
    let bearer = admin.with_token(made["status"]["token"].as_str().unwrap());
    let text = hint(&bearer.get(&collection("projects")).send().await);
    assert!(
        text.starts_with("401 Unauthorized\n") && text.contains("direct cluster endpoint token"),
        "{text}"
    );
}

#[tokio::test]
async fn proxies_pass_on_watches_and_the_metrics_are_short() {
    let server = Server::start().await;
    let client = server.client();
    let watch = format!("{}?watch=1&resourceVersion=0&timeoutSeconds=1", secrets("platform"));
    let reply = client.get(&watch).send().await;
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    let reply = client.get(&secrets("platform")).send().await;
    assert_eq!(reply.header("x-accel-buffering"), None);
    let plain = client.get("/metrics").send().await;
    assert_eq!(plain.header("content-encoding"), None);
    let text = plain.expect_text(200);
    let buckets = |line: &&str| {
        line.starts_with("apiserver_request_duration_seconds_bucket")
            && line.contains("verb=\"WATCH\"")
    };
    assert_eq!(text.lines().filter(buckets).count(), 9, "{text}");
    let packed = client.get("/metrics").header("accept-encoding", "gzip").send().await;
    assert_eq!((packed.status, packed.header("content-encoding")), (200, Some("gzip")));
    assert_eq!(packed.header("vary"), Some("Accept-Encoding"));
}

/// kubernetes.core sends the options of its list with the DELETE of one object.
#[tokio::test]
async fn ansible_deletes_an_object_with_the_options_of_a_list() {
    let server = Server::start().await;
    let admin = server.client();
    create(&admin, &secrets("platform"), "s", json!({ "spec": {} })).await;
    let at = format!("{}/s", secrets("platform"));
    let query = "labelSelector=&fieldSelector=&_=1";
    admin.delete(&format!("{at}?{query}")).send().await.expect(400);
    let query = "labelSelector=&fieldSelector=&limit=500";
    let reply = admin.delete(&format!("{at}?{query}")).send().await;
    assert_eq!(reply.status, 200);
    let options = ["labelSelector", "fieldSelector", "limit"];
    let expected = options
        .map(|one| format!("299 - \"query parameter {one} has no effect in DeleteOptions\""));
    assert_eq!(reply.warnings(), expected);
    create(&admin, &secrets("platform"), "s", json!({ "spec": {} })).await;
    let body = json!({ "spec": { "displayName": "x" } });
    let reply = merge(&admin, &format!("{at}?labelSelector=a%3Db"), body.clone()).await;
    assert_eq!((reply.status, reply.warnings().len()), (200, 1));
    // A precondition that is not checked would be lost.
    for precondition in ["uid=u", "resourceVersion=7", "preconditions.uid=u"] {
        merge(&admin, &format!("{at}?{precondition}"), body.clone()).await.expect(400);
    }
    let watch = format!("{}?watch=1&labelSelector=a%3Db", secrets("platform"));
    assert_eq!(admin.delete(&watch).send().await.status, 400, "a collection is not watched away");
}
