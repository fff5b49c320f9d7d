//! The audit log: its content, the values that it never contains, and that no change is made
//! without it.

use std::path::Path;

use postern_tests::objects::{
    CORE, based, collection, make, secret, secret_path, secrets, version_of,
};
use postern_tests::slow::slow_body;
use postern_tests::{Home, Random, Server, Setup, wait};
use serde_json::{Value, json};

use crate::serving::admin_socket::send_command;

const KEYS: &str = "ownedaccesskeys";

/// Waits for `count` matching records, and returns all matching records.
async fn records(home: &Home, count: usize, matches: impl Fn(&Value) -> bool) -> Vec<Value> {
    wait::until("records in the audit log", async || {
        let found: Vec<Value> = home.records().into_iter().filter(&matches).collect();
        (found.len() >= count).then_some(found)
    })
    .await
}

/// The stages and codes of the request with an id.
async fn stages(home: &Home, count: usize, id: &str) -> Vec<(String, u64)> {
    let found = records(home, count, |record| record["auditID"] == id).await;
    let stage_and_code = |record: &Value| {
        let code = record["responseStatus"]["code"].as_u64().unwrap_or_default();
        (record["stage"].as_str().unwrap().to_owned(), code)
    };
    found.iter().map(stage_and_code).collect()
}

fn stage(name: &str, code: u64) -> (String, u64) {
    (name.to_owned(), code)
}

const ID: &str = "5f0c1f6e-2b0a-4a56-9c39-94e3a1f6a7b1";

#[tokio::test]
async fn a_create_is_recorded_before_it_is_done_and_when_it_is_answered() {
    let server = Server::start().await;
    let admin = server.client();
    let request = admin.post(&secrets("platform")).header("audit-id", ID);
    let request = request.header("user-agent", "test/1").header("x-forwarded-for", "192.0.2.7, x");
    let reply = request.json(&secret("db", "a-value-nobody-sees")).send().await;
    reply.expect(201);
    assert_eq!(reply.header("audit-id"), Some(ID));
    let found = records(server.home(), 2, |record| record["auditID"] == ID).await;
    let [received, complete] = &found[..] else { panic!("{found:?}") };
    assert_eq!(received["stage"], "RequestReceived");
    assert_eq!(received.get("responseStatus"), None);
    let mut complete = complete.clone();
    for name in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = complete[name].take();
        assert_eq!(time.as_str().unwrap().len(), "2006-01-02T15:04:05.000000Z".len());
    }
    let uid = complete["user"]["uid"].take();
    let object_uid = complete["objectRef"]["uid"].take();
    assert!(uid.is_string() && object_uid.is_string() && uid != object_uid);
    assert_eq!(
        complete,
        json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": ID,
            "stage": "ResponseComplete",
            "requestURI": secrets("platform"),
            "verb": "create",
            "user": {
                "username": "admin",
                "uid": null,
                "groups": ["system:masters", "platform:user:admin", "platform:user:*",
                           "platform:authenticated", "system:authenticated"],
                "extra": { "platform.sh/access-key": ["admin"] },
            },
            "sourceIPs": ["192.0.2.7", "127.0.0.1"],
            "userAgent": "test/1",
            "objectRef": {
                "resource": "sharedsecrets",
                "namespace": "platform",
                "name": "db",
                "uid": null,
                "apiGroup": "management.platform.sh",
                "apiVersion": "v1",
            },
            "responseStatus": { "metadata": {}, "code": 201 },
            "requestReceivedTimestamp": null,
            "stageTimestamp": null,
            "annotations": {
                "authorization.k8s.io/decision": "allow",
                "platform.sh/values": "true",
            },
        })
    );
}

#[tokio::test]
async fn each_kind_of_request_has_its_stages() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    admin.post(&secrets("platform")).json(&secret("db", "v")).send().await.expect(201);
    let id = |number: usize| format!("5f0c1f6e-2b0a-4a56-9c39-{number:012}");
    let merge = json!({ "metadata": { "labels": { "a": "b" } } });
    let one = secret_path("db");
    let (received, complete) = ("RequestReceived", "ResponseComplete");
    for (number, (request, wanted)) in [
        (admin.get(&one), vec![stage(complete, 200)]),
        (admin.get(&secrets("platform")), vec![stage(complete, 200)]),
        (admin.get(&secret_path("none")), vec![stage(complete, 404)]),
        (admin.patch(&one, "merge-patch", &merge), vec![stage(received, 0), stage(complete, 200)]),
        (admin.put(&one).json(&secret("db", "w")), vec![stage(received, 0), stage(complete, 422)]),
        (admin.delete(&one), vec![stage(received, 0), stage(complete, 200)]),
        (admin.get("/nothing/here"), vec![stage(complete, 404)]),
    ]
    .into_iter()
    .enumerate()
    {
        request.header("audit-id", &id(number)).send().await;
        assert_eq!(stages(home, wanted.len(), &id(number)).await, wanted, "request {number}");
    }
    let path = format!("{}?watch=true", secrets("platform"));
    let watch = admin.get(&path).header("audit-id", ID).stream().await;
    let started = vec![stage("ResponseStarted", 200)];
    assert_eq!(stages(home, 1, ID).await, started);
    drop(watch);
    let ended = [started, vec![stage(complete, 200)]].concat();
    assert_eq!(stages(home, 2, ID).await, ended, "a watch ends when its client leaves");
    // Clients read discovery all the time. It is not recorded.
    admin.get(&based("/apis")).header("audit-id", &id(99)).send().await.expect(200);
    let all = records(home, 1, |_| true).await;
    assert!(!all.iter().any(|record| record["auditID"] == id(99).as_str()));
}

#[tokio::test]
async fn failed_authentications_are_recorded_on_every_path() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    let key = make(&admin, KEYS, "off", json!({ "disabled": true })).await;
    let value = key["spec"]["key"].as_str().unwrap();
    let unknown = "pst_unknown-0123456789-0123456789-0123456789";
    admin.get(&based("/apis")).without("authorization").send().await;
    admin.with_token(unknown).get(&secret_path("db")).send().await;
    admin.with_token(value).get(&secret_path("db")).send().await;
    let found = records(home, 3, |record| record["responseStatus"]["code"] == 401).await;
    for (record, message) in
        found.iter().zip(["Unauthorized", "access key not found", "access key disabled"])
    {
        assert_eq!(record["user"], json!({}), "the caller is unknown: {record}");
        assert_eq!(record["responseStatus"]["message"], message);
        assert_eq!(record["sourceIPs"], json!(["127.0.0.1"]));
    }
    assert_eq!(found[0]["requestURI"], based("/apis"));
    assert_eq!(found[1].get("annotations"), None);
    assert_eq!(found[2]["annotations"], json!({ "platform.sh/access-key": "off" }));
    assert_eq!(found[2]["objectRef"]["name"], "db");
    let text = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(!text.contains(unknown) && !text.contains(value), "a credential is recorded");
}

#[tokio::test]
async fn impersonation_and_its_refusals_are_recorded() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    make(&admin, "users", "bob", json!({})).await;
    let key = make(&admin, KEYS, "bob-key", json!({ "user": "bob" })).await;
    let bob = admin.with_token(key["spec"]["key"].as_str().unwrap());
    let path = format!("{CORE}/namespaces/platform/secrets/db");
    admin.get(&path).header("impersonate-user", "bob").send().await.expect(403);
    bob.get(&path).header("impersonate-user", "admin").send().await.expect(403);
    let found = records(home, 2, |record| record["responseStatus"]["code"] == 403).await;
    let names = |record: &Value| {
        let name = |who: &str| record[who]["username"].as_str().unwrap_or("-").to_owned();
        (name("user"), name("impersonatedUser"))
    };
    assert_eq!(names(&found[0]), ("admin".to_owned(), "bob".to_owned()));
    assert_eq!(
        names(&found[1]),
        ("bob".to_owned(), "-".to_owned()),
        "the refused caller was not impersonating"
    );
    // The impersonated user is recorded before the request is executed.
    let made = admin.post(&secrets("platform")).header("impersonate-user", "carol");
    let made = made.header("impersonate-group", "system:masters");
    made.json(&secret("db", "v")).send().await.expect(201);
    let of_carol = |record: &Value| record["impersonatedUser"]["username"] == "carol";
    assert_eq!(records(home, 1, of_carol).await[0]["stage"], "RequestReceived");
    for (record, why) in found.iter().zip(["cannot get resource", "cannot impersonate resource"]) {
        let notes = &record["annotations"];
        assert_eq!(notes["authorization.k8s.io/decision"], "forbid");
        assert!(notes["authorization.k8s.io/reason"].as_str().unwrap().contains(why), "{notes}");
    }
}

#[tokio::test]
async fn a_refusal_names_only_what_was_requested() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    make(&admin, "users", "bob", json!({})).await;
    let key = make(&admin, KEYS, "bob-key", json!({ "user": "bob" })).await;
    let bob = admin.with_token(key["spec"]["key"].as_str().unwrap());
    let path = secrets("platform");
    bob.get(&path).header("impersonate-user", "db").send().await.expect(403);
    admin.post(&secrets("nowhere")).json(&secret("db", "v")).send().await.expect(404);
    // A body for the wrong namespace, or a key in a name, is not recorded.
    let generated = key["spec"]["key"].as_str().unwrap();
    let mistaken = json!({ "metadata": { "name": generated } });
    assert_eq!(admin.post(&collection(KEYS)).json(&mistaken).send().await.status, 422);
    let failed = |record: &Value| record["responseStatus"]["status"] == "Failure";
    let found = records(home, 3, failed).await;
    let names: Vec<&Value> = found.iter().map(|record| &record["objectRef"]["name"]).collect();
    assert_eq!(names, [&Value::Null, &Value::Null, &json!("(left-out)")]);
    let path = secret_path("last");
    let group = format!("a:{generated}");
    let uid = format!("x{generated}");
    let request = admin.get(&path).header("impersonate-user", "b").header("impersonate-uid", &uid);
    let name = format!("impersonate-extra-{generated}");
    let request = request.header("impersonate-group", &group).header(name.as_str(), "x");
    request.send().await.expect(403);
    records(home, 1, |record| record["objectRef"]["name"] == "last").await;
    let text = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(!text.contains("pst_"), "a credential is recorded");
    assert!(!std::fs::read_to_string(home.audit_log()).unwrap().contains(generated));
}

#[tokio::test]
async fn a_created_object_is_named_with_every_response_format() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    let nameless = json!({ "metadata": { "generateName": "made-" } });
    for accept in ["application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"] {
        let path = secrets("platform");
        let request = admin.post(&path).accept(accept).json(&nameless);
        assert_eq!(request.send().await.status, 201);
    }
    let path = secrets("platform");
    admin.post(&path).json(&secret("taken", "v")).send().await.expect(201);
    admin.post(&path).json(&secret("taken", "v")).send().await.expect(409);
    let done = |record: &Value| record["stage"] == "ResponseComplete";
    let found = records(home, 4, |record| done(record) && record["verb"] == "create").await;
    let names: Vec<_> =
        found.iter().map(|record| record["objectRef"]["name"].as_str().unwrap()).collect();
    assert!(names[0].starts_with("made-") && names[1].starts_with("made-"), "{names:?}");
    assert_eq!(names[2..], ["taken", "taken"]);
    assert_eq!(found[3]["responseStatus"]["reason"], "AlreadyExists");
}

#[tokio::test]
async fn an_aborted_request_is_recorded() {
    let home = Home::new();
    let server = with_policy(&home, &json!([{ "level": "Metadata" }])).start().await;
    let admin = server.client();
    let (_finish, body) = slow_body(&secret("half", "v"));
    // One client disconnects before its body is complete.
    let writer = admin.clone();
    let sending = tokio::spawn(async move {
        let path = secrets("platform");
        let request = writer.post(&path).header("audit-id", ID);
        request.streamed("application/json", body).try_send().await
    });
    stages(&home, 1, ID).await;
    sending.abort();
    let complete = stage("ResponseComplete", 400);
    assert_eq!(stages(&home, 2, ID).await, [stage("RequestReceived", 0), complete]);
    // The other disconnects while it waits for a future version, which takes a few seconds.
    let newest = version_of(&admin.get(&secrets("default")).send().await.expect(200));
    let future = format!("{}?resourceVersion={}", secrets("default"), newest + 999);
    wait::until("a record of a request without a response", async || {
        let (admin, future) = (admin.clone(), future.clone());
        let seen = home.records().len();
        let sending = tokio::spawn(async move { admin.get(&future).try_send().await });
        records(&home, seen + 1, |_| true).await;
        sending.abort();
        let found = records(&home, seen + 2, |_| true).await;
        (found[seen + 1]["responseStatus"]["code"] == 499).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_key_in_place_of_a_name_is_not_recorded() {
    let server = Server::start().await;
    let (home, admin) = (server.home(), server.client());
    // The key looks like a name, which is possible for a key that the caller chooses.
    let given = "canary-0123456789-0123456789-0123456789";
    make(&admin, KEYS, "given", json!({ "key": given })).await;
    let path = format!("{}/{given}", collection(KEYS));
    for client in [admin.clone(), admin.with_token("pst_unknown")] {
        let reply = client.get(&path).header("audit-id", ID).send().await;
        assert!([400, 401].contains(&reply.status) && !reply.text().contains("canary"));
    }
    assert_eq!(
        stages(home, 2, ID).await,
        [stage("ResponseComplete", 400), stage("ResponseComplete", 401)]
    );
    let asked = json!({ "spec": { "accessKey": given } });
    let reply = admin.post(&collection("selves")).json(&asked).send().await;
    assert!(reply.status == 422 && !reply.text().contains("canary"), "{}", reply.text());
    admin.get(&secret_path("last")).send().await.expect(404);
    records(home, 1, |record| record["objectRef"]["name"] == "last").await;
    assert!(!std::fs::read_to_string(home.audit_log()).unwrap().contains("canary"));
}

fn with_policy(home: &Home, rules: &Value) -> Setup {
    let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules });
    let path = home.path().join("policy.yaml");
    std::fs::write(&path, policy.to_string()).unwrap();
    Setup::on(home).argument("--audit-policy-file").argument(path)
}

#[tokio::test]
async fn bodies_are_recorded_by_policy_but_never_those_with_secrets() {
    let home = Home::new();
    let rules = json!([{ "level": "RequestResponse", "omitManagedFields": true,
                         "omitStages": ["RequestReceived"] }]);
    let server = with_policy(&home, &rules).start().await;
    let admin = server.client();
    make(&admin, "users", "bob", json!({ "displayName": "Bob" })).await;
    let path = format!("{}/bob", collection("users"));
    let renamed = json!([{ "op": "replace", "path": "/spec/displayName", "value": "Robert" }]);
    admin.patch(&path, "json-patch", &renamed).send().await.expect(200);
    admin.get(&collection("users")).send().await.expect(200);
    admin.get(&path).accept("application/yaml").send().await.expect_text(200);
    let done = |record: &Value| {
        record["objectRef"]["resource"] == "users" && record["stage"] == "ResponseComplete"
    };
    let found = records(&home, 4, done).await;
    let [create, change, list, yaml] = &found[..] else { panic!("{found:?}") };
    assert_eq!(create["requestObject"]["spec"], json!({ "displayName": "Bob" }));
    assert_eq!(create["responseObject"]["metadata"]["name"], "bob");
    assert_eq!(create["responseObject"]["metadata"].get("managedFields"), None);
    assert_eq!(change["requestObject"], renamed);
    assert_eq!(change["responseObject"]["spec"]["displayName"], "Robert");
    let items = list["responseObject"]["items"].as_array().unwrap();
    assert!(items.len() == 2 && items[0]["metadata"].get("managedFields").is_none());
    assert_eq!(yaml["responseObject"]["spec"]["displayName"], "Robert");
    // Requests about secrets are recorded without bodies under every policy.
    let given = "canary-0123456789-0123456789-0123456789";
    make(&admin, KEYS, "given", json!({ "key": given })).await;
    admin.post(&secrets("platform")).json(&secret("db", given)).send().await.expect(201);
    admin.get(&secret_path("db")).send().await.expect(200);
    admin.get(&format!("{}/admin/accesskeys", collection("users"))).send().await.expect(200);
    let asked = json!({ "spec": { "accessKey": given } });
    admin.post(&collection("selves")).json(&asked).send().await;
    let confidential = |record: &Value| {
        let reference = &record["objectRef"];
        reference["subresource"] == "accesskeys" || reference["resource"] != "users"
    };
    for record in records(&home, 5, confidential).await {
        assert_eq!(record["level"], "Metadata", "{record}");
        assert_eq!((record.get("requestObject"), record.get("responseObject")), (None, None));
    }
    assert!(!std::fs::read_to_string(home.audit_log()).unwrap().contains("canary"));
}

#[tokio::test]
async fn a_change_is_recorded_before_it_is_done_whatever_the_policy_omits() {
    let home = Home::new();
    let ours = "management.platform.sh";
    let rules = json!([
        { "level": "None", "resources": [{ "group": ours, "resources": ["users"] }] },
        { "level": "Metadata", "omitStages": ["RequestReceived"] },
    ]);
    let server = with_policy(&home, &rules).start().await;
    let admin = server.client();
    let created = admin.post(&collection("users")).header("audit-id", ID);
    created.json(&json!({ "metadata": { "name": "bob" } })).send().await.expect(201);
    // The record is in the file as soon as the response arrives, and not only soon afterwards.
    let now: Vec<Value> = home.records().into_iter().filter(|one| one["auditID"] == ID).collect();
    assert_eq!(now.len(), 1, "{now:?}");
    assert_eq!(
        (&now[0]["stage"], &now[0]["level"]),
        (&json!("RequestReceived"), &json!("Metadata"))
    );
    let other = "5f0c1f6e-2b0a-4a56-9c39-000000000001";
    let path = secrets("platform");
    let created = admin.post(&path).header("audit-id", other).json(&secret("db", "v"));
    created.send().await.expect(201);
    let both = [stage("RequestReceived", 0), stage("ResponseComplete", 201)];
    assert_eq!(stages(&home, 2, other).await, both);
    // Reads are up to the policy.
    admin.get(&collection("users")).send().await.expect(200);
    admin.get(&secret_path("db")).send().await.expect(200);
    records(&home, 1, |record| record["verb"] == "get").await;
    assert!(!home.records().iter().any(|record| record["verb"] == "list"));
}

#[tokio::test]
async fn an_answer_with_secrets_waits_for_its_record_on_demand() {
    let home = Home::new();
    let setup = || Setup::on(&home).argument("--audit-before-answer");
    let server = setup().start().await;
    let admin = server.client();
    admin.post(&secrets("platform")).json(&secret("db", "v")).send().await.expect(201);
    for number in 0..30 {
        let id = format!("5f0c1f6e-2b0a-4a56-9c39-{number:012}");
        let path = if number % 2 == 0 { secret_path("db") } else { secrets("platform") };
        admin.get(&path).header("audit-id", &id).send().await.expect(200);
        assert!(home.records().iter().any(|record| record["auditID"] == id.as_str()), "{number}");
    }
    let path = format!("{}?watch=true", secrets("platform"));
    let mut watch = admin.get(&path).header("audit-id", ID).stream().await;
    watch.next().await.unwrap();
    assert!(home.records().iter().any(|record| record["auditID"] == ID));
    server.stop().await;
    if !Path::new("/dev/full").exists() {
        return;
    }
    // The first record is the first to fail: no answer has gone out before that.
    let server = setup().argument("--audit-log-path").argument("/dev/full").start().await;
    let reply = server.client().get(&secret_path("db")).send().await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    server.kill();
}

/// Everything that an unauthenticated client can make long is cut.
#[tokio::test]
async fn the_record_of_an_unauthenticated_client_is_short() {
    let server = Server::start().await;
    let stranger = server.client().with_token("pst_unknown");
    let (long, addresses) = ("x'".repeat(900), "2001:db8::1, ".repeat(300));
    let path = format!("{}/{long}?labelSelector={long}", secrets("platform"));
    let request = stranger.request(&"PROPFIND".repeat(100), &path).header("audit-id", ID);
    let request = request.header("user-agent", &long).header("x-forwarded-for", &addresses);
    assert_eq!(request.send().await.status, 401);
    records(server.home(), 1, |record| record["auditID"] == ID).await;
    let text = std::fs::read_to_string(server.home().audit_log()).unwrap();
    let line = text.lines().find(|line| line.contains(ID)).unwrap();
    assert!(line.len() < 1024, "{} bytes: {line}", line.len());
}

#[tokio::test]
async fn a_bad_policy_or_path_prevents_the_start() {
    let home = Home::new();
    let ended = with_policy(&home, &json!([{ "level": "All" }])).run_to_end().await;
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("policy.yaml") && ended.stderr.contains("All"), "{ended:?}");
    let missing = Setup::on(&home).argument("--audit-policy-file").argument("nowhere.yaml");
    assert!(missing.run_to_end().await.stderr.contains("nowhere.yaml"));
    let directory = Setup::on(&home).argument("--audit-log-path").argument(home.path());
    let ended = directory.run_to_end().await;
    assert!(ended.stderr.contains("cannot open the audit log"), "{ended:?}");
    let size = Setup::on(&home).argument("--audit-log-maxsize").argument("0");
    assert!(size.run_to_end().await.stderr.contains("--audit-log-maxsize"));
}

/// Every write to `/dev/full` fails.
#[tokio::test]
async fn requests_that_cannot_be_recorded_are_refused() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let home = Home::new();
    let setup = Setup::on(&home).argument("--audit-log-path").argument("/dev/full");
    let server = setup.start().await;
    let admin = server.client();
    let reply = admin.post(&secrets("platform")).json(&secret("db", "v")).send().await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    assert!(reply.text().contains("audit log"), "{}", reply.text());
    assert_eq!(admin.get(&secrets("platform")).send().await.status, 503, "reads are refused, too");
    assert_eq!(admin.get(&based("/apis")).send().await.status, 200, "this is not recorded");
    let metrics = admin.get("/metrics").send().await.expect_text(200);
    assert!(metrics.contains("apiserver_audit_requests_rejected_total 1"), "{metrics}");
    assert!(admin.get("/readyz").send().await.expect_text(500).contains("[-]audit failed"));
    admin.get("/livez").send().await.expect_text(200);
    server.kill();
    let server = Setup::on(&home).start().await;
    assert_eq!(server.client().get(&secret_path("db")).send().await.status, 404);
    assert!(home.logged().contains("cannot write the audit log"));
}

#[tokio::test]
async fn the_log_can_go_to_the_standard_output() {
    let home = Home::new();
    let server = Setup::on(&home).argument("--audit-log-path").argument("-").start().await;
    server.client().get(&secret_path("none")).send().await;
    let printed = wait::until("a record", async || {
        Some(home.printed()).filter(|printed| printed.contains("\"code\":404"))
    })
    .await;
    let record: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(record["objectRef"]["name"], "none");
    assert!(!home.audit_log().exists());
}

#[tokio::test]
async fn commands_of_the_administrator_are_recorded() {
    let server = Server::start().await;
    let home = server.home();
    send_command(home, "{\"command\":\"reset-key\"}\n").await;
    let found = records(home, 2, |record| record["verb"] == "reset-key").await;
    assert_eq!(found[0]["stage"], "RequestReceived");
    assert_eq!(found[1]["stage"], "ResponseComplete");
    assert_eq!(found[1]["user"]["username"], "system:admin-socket");
    let uid = &found[1]["user"]["extra"]["platform.sh/unix-uid"][0];
    assert!(uid.as_str().unwrap().parse::<u32>().is_ok());
    assert_eq!(found[1]["responseStatus"]["code"], 200);
}

/// A pipe without a reader accepts data until its buffer is full, and then nothing.
#[tokio::test]
async fn heavy_a_stalled_log_stops_requests_but_not_health_checks_or_shutdown() {
    let home = Home::new();
    let pipe = home.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let mut server = Setup::on(&home).argument("--audit-log-path").argument(&pipe).start().await;
    let admin = server.client();
    let mut connection = admin.connect().await.unwrap();
    wait::until("requests to be refused", async || {
        let sent = admin.get(&secrets("platform")).try_send_on(&mut connection).await;
        (sent.unwrap().status == 503).then_some(())
    })
    .await;
    let path = secrets("platform");
    let reply = admin.post(&path).json(&secret("db", "v")).send().await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(admin.get("/readyz").send().await.expect_text(500).contains("[-]audit failed"));
    admin.get("/livez").send().await.expect_text(200);
    server.terminate();
    assert!(server.ended().await.success());
    drop(reader);
}

/// Crashes: each create that was acknowledged, and each that may have happened, has a record that it
/// was requested.
#[tokio::test]
async fn every_write_was_recorded_before() {
    let home = Home::new();
    let mut random = Random::new(11);
    for round in 0..10 {
        let server = Setup::on(&home).start().await;
        let admin = server.client();
        let killed_after = random.below(12);
        let mut writers = tokio::task::JoinSet::new();
        let (count, mut counted) = tokio::sync::mpsc::unbounded_channel();
        for writer in 0..4 {
            let (admin, count) = (admin.clone(), count.clone());
            writers.spawn(async move {
                for number in 0.. {
                    let object = secret(&format!("r{round}-w{writer}-n{number}"), "v");
                    let path = secrets("platform");
                    let sent = admin.post(&path).json(&object).try_send().await;
                    if !sent.is_ok_and(|reply| reply.status == 201) || count.send(()).is_err() {
                        return;
                    }
                }
            });
        }
        for _ in 0..=killed_after {
            wait::within("a create", counted.recv()).await.unwrap();
        }
        server.kill();
        while writers.join_next().await.is_some() {}
    }
    let server = Setup::on(&home).start().await;
    let list = server.client().get(&secrets("platform")).send().await.expect(200);
    let items = list["items"].as_array().unwrap();
    assert!(items.len() > 10);
    let records = home.records();
    let requested = records.iter().filter(|record| {
        record["stage"] == "RequestReceived" && record["objectRef"]["resource"] == "sharedsecrets"
    });
    let requested = requested.count();
    assert!(requested >= items.len(), "{requested} were requested, and there are {}", items.len());
}
