//! Requests in Kubernetes' protobuf, as typed clients send them. The bytes are written by hand.

use postern_tests::Server;
use postern_tests::objects::{CORE, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A field of bytes, of fewer than 128.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    field.extend(bytes);
    field
}

fn body(version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let r#type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &r#type), field(2, object), field(3, b""), field(4, b"")].concat()
}

/// The body of a namespace with more fields in its metadata.
fn namespace(name: &str, more: &[u8]) -> Vec<u8> {
    let metadata = [field(1, name.as_bytes()), field(8, b""), more.to_vec()].concat();
    let object = [field(1, &metadata), field(2, b""), field(3, &field(1, b""))].concat();
    body("v1", "Namespace", &object)
}

#[tokio::test]
async fn a_namespace_is_made_and_deleted_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let all = format!("{CORE}/namespaces");
    let label = [field(1, b"app"), field(2, b"shop")].concat();
    let sent = namespace("team-a", &field(11, &label));
    let path = format!("{all}?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
    assert_eq!(made["metadata"]["labels"]["app"], "shop");
    let one = format!("{all}/team-a");
    let other = body("v1", "DeleteOptions", &field(2, &field(1, b"another")));
    let text = failure(&client.delete(&one).body(PROTOBUF, other).send().await);
    assert!(text.starts_with("409 Conflict\n"), "{text}");
    let dry = body("v1", "DeleteOptions", &field(5, b"All"));
    client.delete(&one).body(PROTOBUF, dry).send().await.expect(200);
    client.get(&one).send().await.expect(200);
}

/// Each with fields of every form that typed clients send: texts, maps, bytes, numbers, times, messages in messages.
#[tokio::test]
async fn secrets_leases_and_events_are_made_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let named = |name: &[u8]| field(1, &field(1, name));
    let here = "namespaces/default";

    let data = field(2, &[field(1, b"release"), field(2, b"\x00\xff")].concat());
    let sent =
        body("v1", "Secret", &[named(b"s1"), data, field(3, b"helm.sh/release.v1")].concat());
    let path = format!("{CORE}/{here}/secrets?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
    assert_eq!(made["data"], serde_json::json!({ "release": "AP8=" }));
    assert_eq!(made["type"], "helm.sh/release.v1");

    // 1,700,000,000 seconds and 5,000 nanoseconds.
    let time = field(4, &[0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06, 0x10, 0x88, 0x27]);
    let spec = [field(1, b"me"), vec![0x10, 15], time, vec![0x28, 3]].concat();
    let sent = [named(b"l1"), field(2, &spec)].concat();
    let sent = body("coordination.k8s.io/v1", "Lease", &sent);
    let leases = "/kubernetes/management/apis/coordination.k8s.io/v1";
    let path = format!("{leases}/{here}/leases?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
    let wanted = serde_json::json!({ "holderIdentity": "me", "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.000005Z", "leaseTransitions": 3 });
    assert_eq!(made["spec"], wanted);

    let about = [field(1, b"Secret"), field(2, b"default"), field(3, b"s1")].concat();
    let more = [field(3, b"Tested"), field(4, b"It was."), field(5, &field(1, b"me"))].concat();
    let seen = [field(7, &[0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06]), vec![0x40, 2]].concat();
    let event = [named(b"e1"), field(2, &about), more, seen, field(9, b"Normal")].concat();
    let path = format!("{CORE}/{here}/events?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, body("v1", "Event", &event)).send().await;
    let made = made.expect(201);
    assert_eq!(made["involvedObject"]["name"], "s1");
    assert_eq!((made["reason"].as_str(), made["count"].as_i64()), (Some("Tested"), Some(2)));
    assert_eq!(made["source"]["component"], "me");
    assert_eq!(made["lastTimestamp"], "2023-11-14T22:13:20Z");
}

/// The requests of controller-runtime's recorder and helm's driver, with the empty messages of Go's
/// structs.
#[tokio::test]
async fn events_of_the_other_group_and_config_maps_are_made_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let named = |name: &[u8]| field(1, &field(1, name));
    let time = field(2, &[0x08, 0x80, 0xe2, 0xcf, 0xaa, 0x06, 0x10, 0x88, 0x27]);
    let about = [field(1, b"Secret"), field(2, b"default"), field(3, b"s1")].concat();
    let who =
        [field(4, b"ctrl"), field(5, b"ctrl-1"), field(6, b"Sync"), field(7, b"Synced")].concat();
    let rest = [
        field(8, &about),
        field(10, b"well"),
        field(11, b"Normal"),
        field(12, b""),
        field(13, b""),
    ];
    let event = [named(b"e1"), time, who, rest.concat(), field(14, b""), vec![0x78, 0]].concat();
    let group = "/kubernetes/management/apis/events.k8s.io/v1/namespaces/default/events";
    let sent = body("events.k8s.io/v1", "Event", &event);
    let path = format!("{group}?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
    assert_eq!((&made["note"], &made["regarding"]["name"]), (&"well".into(), &"s1".into()));
    assert_eq!(made["eventTime"], "2023-11-14T22:13:20.000005Z");
    let stored =
        client.get(&format!("{CORE}/namespaces/default/events/e1")).send().await.expect(200);
    assert_eq!(
        (&stored["message"], &stored["reportingComponent"]),
        (&"well".into(), &"ctrl".into())
    );

    let data = field(2, &[field(1, b"a.txt"), field(2, b"x")].concat());
    let binary = field(3, &[field(1, b"b"), field(2, b"\x00\xff")].concat());
    let sent = body("v1", "ConfigMap", &[named(b"c1"), data, binary, vec![0x20, 1]].concat());
    let path = format!("{CORE}/namespaces/default/configmaps?fieldValidation=Strict");
    let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
    assert_eq!((&made["data"]["a.txt"], &made["binaryData"]["b"]), (&"x".into(), &"AP8=".into()));
    assert_eq!(made["immutable"], true);
}

#[tokio::test]
async fn a_lease_is_replaced_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let all = "/kubernetes/management/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |version: &[u8], holder: &[u8]| {
        let metadata = [field(1, b"l1"), field(6, version)].concat();
        let spec = [field(1, holder), vec![0x10, 15]].concat();
        let object = [field(1, &metadata), field(2, &spec)].concat();
        body("coordination.k8s.io/v1", "Lease", &object)
    };
    let made = client.post(all).body(PROTOBUF, lease(b"", b"me")).send().await.expect(201);
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let one = format!("{all}/l1?fieldValidation=Strict");
    let sent = lease(version.as_bytes(), b"other");
    let replaced = client.put(&one).body(PROTOBUF, sent.clone()).send().await.expect(200);
    assert_eq!(replaced["spec"]["holderIdentity"], "other");
    assert_eq!(replaced["metadata"]["uid"], made["metadata"]["uid"]);
    client.put(&one).body(PROTOBUF, sent).send().await.expect(409);
}

#[tokio::test]
async fn roles_and_bindings_are_made_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let version = "rbac.authorization.k8s.io/v1";
    let (group, base) = (version.split('/').next().unwrap(), "/kubernetes/management/apis");
    let named = field(1, &field(1, b"r"));
    let core = [field(1, b"get"), field(2, b""), field(3, b"secrets"), field(4, b"s1")].concat();
    let paths = [field(1, b"get"), field(5, b"/metrics")].concat();
    let subject = [field(1, b"User"), field(2, group.as_bytes()), field(3, b"admin")].concat();
    let refers = |kind: &[u8]| {
        let role = [field(1, group.as_bytes()), field(2, kind), field(3, b"r")].concat();
        [named.clone(), field(2, &subject), field(3, &role)].concat()
    };
    let get = json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s1"] });
    let metrics = json!({ "verbs": ["get"], "nonResourceURLs": ["/metrics"] });
    let role = [named.clone(), field(2, &core)].concat();
    for (kind, place, object, rules) in [
        ("Role", "namespaces/default/roles", role.clone(), json!([get])),
        ("ClusterRole", "clusterroles", [role, field(2, &paths)].concat(), json!([get, metrics])),
        ("RoleBinding", "namespaces/default/rolebindings", refers(b"Role"), json!(null)),
        ("ClusterRoleBinding", "clusterrolebindings", refers(b"ClusterRole"), json!(null)),
    ] {
        let path = format!("{base}/{version}/{place}?fieldValidation=Strict");
        let sent = body(version, kind, &object);
        let made = client.post(&path).body(PROTOBUF, sent).send().await.expect(201);
        assert_eq!(made["kind"], kind);
        if rules.is_null() {
            let refers = kind.strip_suffix("Binding").unwrap();
            let wanted = json!({ "apiGroup": group, "kind": refers, "name": "r" });
            assert_eq!(made["roleRef"], wanted);
            let wanted = json!([{ "apiGroup": group, "kind": "User", "name": "admin" }]);
            assert_eq!(made["subjects"], wanted);
        } else {
            assert_eq!(made["rules"], rules);
        }
    }
}

/// As `kubectl auth whoami` and `can-i` send them since 1.32.
#[tokio::test]
async fn reviews_are_answered_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let post = async |version: &str, kind: &str, plural: &str, object: &[u8]| {
        let path = format!("/kubernetes/management/apis/{version}/{plural}");
        let accept = format!("{PROTOBUF},application/json");
        let request =
            client.post(&path).accept(&accept).body(PROTOBUF, body(version, kind, object));
        request.send().await.expect(201)
    };
    for version in ["authentication.k8s.io/v1", "authentication.k8s.io/v1beta1"] {
        let who = post(version, "SelfSubjectReview", "selfsubjectreviews", &field(1, b"")).await;
        assert_eq!(who["apiVersion"], version);
        assert_eq!(who["status"]["userInfo"]["username"], "admin");
    }
    let access = "authorization.k8s.io/v1";
    let resource = [field(1, b"default"), field(2, b"get"), field(5, b"secrets")].concat();
    let asked = field(1, &resource);
    let own = field(2, &asked);
    let (kind, plural) = ("SelfSubjectAccessReview", "selfsubjectaccessreviews");
    let may = post(access, kind, plural, &own).await;
    assert_eq!(may["spec"]["resourceAttributes"]["resource"], "secrets");
    assert_eq!(may["status"]["allowed"], true);
    let other = field(2, &[asked, field(3, b"nobody")].concat());
    let may = post(access, "SubjectAccessReview", "subjectaccessreviews", &other).await;
    assert_eq!(may["spec"]["user"], "nobody");
    assert_eq!(may["status"]["allowed"], false);
    let (kind, plural) = ("SelfSubjectRulesReview", "selfsubjectrulesreviews");
    let rules = post(access, kind, plural, &field(2, &field(1, b"default"))).await;
    assert_eq!(rules["status"]["resourceRules"][0]["verbs"], json!(["*"]));
}

#[tokio::test]
async fn unknown_numbers_are_unknown_fields() {
    let server = Server::start().await;
    let client = server.client();
    let all = format!("{CORE}/namespaces?dryRun=All&fieldValidation=");
    let sent = namespace("team-a", &field(9 + 6, b"x"));
    let reply = client.post(&format!("{all}Strict")).body(PROTOBUF, sent).send().await;
    assert!(failure(&reply).contains("unknown field \"metadata.clusterName\""), "{}", reply.text());
    let sent = || namespace("team-a", &[0x80, 0x02, 7]);
    let reply = client.post(&format!("{all}Strict")).body(PROTOBUF, sent()).send().await;
    assert!(failure(&reply).contains("unknown field \"metadata.#32\""), "{}", reply.text());
    let reply = client.post(&format!("{all}Warn")).body(PROTOBUF, sent()).send().await;
    let warning = reply.header("warning").map(str::to_owned);
    assert_eq!(reply.expect(201)["metadata"]["name"], "team-a");
    assert_eq!(warning.as_deref(), Some("299 - \"unknown field \\\"metadata.#32\\\"\""));
    // No option is ignored.
    let options = body("v1", "DeleteOptions", &[0x80, 0x02, 1]);
    let path = format!("{CORE}/namespaces/team-a");
    let text = failure(&client.delete(&path).body(PROTOBUF, options).send().await);
    assert!(text.starts_with("400 BadRequest\n") && text.contains("#32"), "{text}");
}

#[tokio::test]
async fn kinds_of_our_own_group_are_not_read_in_protobuf() {
    let server = Server::start().await;
    let client = server.client();
    let own = body("management.platform.sh/v1", "SharedSecret", b"");
    for sent in [own, namespace("team-a", b""), b"hunter2".to_vec()] {
        let created = client.post(&secrets("platform")).body(PROTOBUF, sent.clone()).send().await;
        let replaced = client.put(&secret_path("s1")).body(PROTOBUF, sent).send().await;
        for reply in [created, replaced] {
            let text = failure(&reply);
            assert!(text.starts_with("415 UnsupportedMediaType\n"), "{text}");
            assert!(text.contains("application/json, application/yaml"), "{text}");
            assert!(!text.contains("protobuf") && !text.contains("hunter2"), "{text}");
        }
    }
    // The options of a deletion are of no group.
    let options = body("management.platform.sh/v1", "DeleteOptions", b"");
    let reply = client.delete(&secret_path("s1")).body(PROTOBUF, options).send().await;
    assert!(failure(&reply).starts_with("404 NotFound\n"), "{}", reply.text());
}

#[tokio::test]
async fn malformed_bodies_are_400_without_content() {
    let server = Server::start().await;
    let client = server.client();
    let path = format!("{CORE}/namespaces");
    let cut = namespace("hunter2", b"");
    for sent in [
        b"{\"kind\": \"hunter2\"}".to_vec(),
        cut[..cut.len() - 6].to_vec(),
        namespace("hunter2", &field(1, b"hunter3")),
        namespace("hunter2", &[0x0b]),
        body("v1", "hunter2", b""),
    ] {
        let text = failure(&client.post(&path).body(PROTOBUF, sent).send().await);
        assert!(text.starts_with("400 BadRequest\n"), "{text}");
        assert!(!text.contains("hunter"), "{text}");
    }
    let other = body("v1", "Secret", &field(1, &field(1, b"a")));
    let text = failure(&client.post(&path).body(PROTOBUF, other).send().await);
    assert!(text.starts_with("400 BadRequest\n") && text.contains("does not match"), "{text}");
}

/// Every kind that is read in protobuf, and the options of deletions, with where they are posted.
#[tokio::test]
async fn lengths_that_lie_are_400_for_every_kind() {
    let server = Server::start().await;
    let client = server.client();
    let apis = "/kubernetes/management/apis";
    let (core, access) = ("v1", "authorization.k8s.io/v1");
    let (who, leases) = ("authentication.k8s.io/v1", "coordination.k8s.io/v1");
    let events = "events.k8s.io/v1";
    let (who_beta, rbac) = ("authentication.k8s.io/v1beta1", "rbac.authorization.k8s.io/v1");
    let here = "namespaces/default";
    for (version, kind, path) in [
        (rbac, "Role", format!("{apis}/{rbac}/{here}/roles")),
        (rbac, "RoleBinding", format!("{apis}/{rbac}/{here}/rolebindings")),
        (rbac, "ClusterRole", format!("{apis}/{rbac}/clusterroles")),
        (rbac, "ClusterRoleBinding", format!("{apis}/{rbac}/clusterrolebindings")),
        (who_beta, "SelfSubjectReview", format!("{apis}/{who_beta}/selfsubjectreviews")),
        (core, "Namespace", format!("{CORE}/namespaces")),
        (core, "Secret", format!("{CORE}/{here}/secrets")),
        (core, "ConfigMap", format!("{CORE}/{here}/configmaps")),
        (core, "Event", format!("{CORE}/{here}/events")),
        (events, "Event", format!("{apis}/{events}/{here}/events")),
        (leases, "Lease", format!("{apis}/{leases}/{here}/leases")),
        (access, "SelfSubjectAccessReview", format!("{apis}/{access}/selfsubjectaccessreviews")),
        (access, "SubjectAccessReview", format!("{apis}/{access}/subjectaccessreviews")),
        (access, "SelfSubjectRulesReview", format!("{apis}/{access}/selfsubjectrulesreviews")),
        (
            access,
            "LocalSubjectAccessReview",
            format!("{apis}/{access}/{here}/localsubjectaccessreviews"),
        ),
        (who, "SelfSubjectReview", format!("{apis}/{who}/selfsubjectreviews")),
        (who, "TokenReview", format!("{apis}/{who}/tokenreviews")),
        (core, "DeleteOptions", format!("{CORE}/{here}/secrets/none")),
    ] {
        // A message with a length that is greater than the remaining bytes, by one and by far; at
        // its end, and inside.
        let lying = [
            &b"\x0a\x09hunter-2"[..],
            b"\x0a\xff\xff\xff\xff\x0f",
            b"\x0a\x80",
            b"\x0a\x03\x0a\x07x",
        ];
        let whole = body(version, kind, b"");
        let cut = whole[..whole.len() - 5].to_vec();
        let sent = lying.iter().map(|object| body(version, kind, object)).chain([cut]);
        for sent in sent {
            let method = if kind == "DeleteOptions" { "DELETE" } else { "POST" };
            let reply = client.request(method, &path).body(PROTOBUF, sent.clone()).send().await;
            let text = failure(&reply);
            assert!(text.starts_with("400 BadRequest\n"), "{kind} {sent:?}: {text}");
            assert!(!text.contains("hunter"), "{text}");
        }
    }
}
