//! Planted values (canaries) appear nowhere under `DIR/db`, in no log at the most verbose level, and in
//! no error response.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use memchr::memmem;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Home, Random, Setup};
use serde_json::{Value, json};

/// A planted value that represents a secret, in every encoding in which it could leak.
struct Canary {
    raw: String,
    forms: Vec<Vec<u8>>,
}

impl Canary {
    fn new(random: &mut Random) -> Self {
        let raw: String =
            (0..48).map(|_| char::from(b'a' + u8::try_from(random.below(26)).unwrap())).collect();
        Self::of(&raw)
    }

    fn of(raw: &str) -> Self {
        let mut forms = vec![raw.as_bytes().to_vec(), raw.bytes().rev().collect()];
        let hex = |upper: bool| -> String {
            raw.bytes()
                .map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") })
                .collect()
        };
        forms.extend([hex(false).into_bytes(), hex(true).into_bytes()]);
        // Base64 differs with each of the three offsets at which the value can start. The first and
        // last characters depend on the neighbours and are left out.
        for shift in 0..3 {
            let shifted = format!("{}{raw}", "x".repeat(shift));
            for text in [STANDARD.encode(&shifted), URL_SAFE.encode(&shifted)] {
                forms.push(text.as_bytes()[4..text.len() - 4].to_vec());
            }
        }
        // In pieces: half of the value is already a leak.
        let pieces = forms.iter().flat_map(|form| {
            let half = form.len() / 2;
            [form[..half].to_vec(), form[half..].to_vec()]
        });
        Self { raw: raw.to_owned(), forms: pieces.collect() }
    }

    fn is_in(&self, bytes: &[u8]) -> bool {
        self.forms.iter().any(|form| memmem::find(bytes, form).is_some())
    }
}

fn read_all(path: &Path) -> Vec<u8> {
    if path.is_file() {
        return std::fs::read(path).unwrap();
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| read_all(&entry)).collect()
}

/// Sends the canary in every way that the server accepts.
async fn plant(client: &Client, canary: &Canary) {
    let value = STANDARD.encode(&canary.raw);
    let mut object = secret("control-name", &canary.raw);
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    object["metadata"]["annotations"] = json!({applied: object.to_string()});
    client.post(&secrets("platform")).json(&object).send().await.expect(201);
    let yaml = format!("metadata: {{name: as-yaml}}\nspec: {{data: {{value: {value}}}}}\n");
    client.post(&secrets("platform")).yaml(&yaml).send().await.expect(201);
    let patch = json!({"spec": {"data": {"merged": value}}});
    client.patch(&secret_path("as-yaml"), "merge-patch", &patch).send().await.expect(200);
    let patch = json!([{"op": "add", "path": "/spec/data/patched", "value": value}]);
    let mut read =
        client.patch(&secret_path("as-yaml"), "json-patch", &patch).send().await.expect(200);
    read["spec"]["data"]["put"] = value.clone().into();
    client.put(&secret_path("as-yaml")).json(&read).send().await.expect(200);
    let events = client.watch(&secrets("platform"), "").await.take(2).await;
    assert!(events.iter().any(|event| canary.is_in(event.object.to_string().as_bytes())));
    client.get(&secrets("platform")).send().await.expect(200);
    client.delete(&secret_path("as-yaml")).send().await.expect(200);
}

/// Sends the canary in ways that fail, and returns the error responses.
async fn refused(client: &Client, canary: &Canary) -> Vec<Response> {
    let (raw, value) = (&canary.raw, STANDARD.encode(&canary.raw));
    let collection = secrets("platform");
    let one = secret_path("control-name");
    let with = |field: &str, value: Value| {
        let mut object = secret("refused", raw);
        *object.pointer_mut(field).unwrap() = value;
        object
    };
    let strict = format!("{collection}?fieldValidation=Strict");
    let deep = format!("{{\"spec\": {}\"{value}\"{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let json = |text: String| client.post(&collection).body("application/json", text);
    let yaml = |text: String| client.post(&collection).body("application/yaml", text);
    let merge = |patch: &Value| client.patch(&one, "merge-patch", patch);
    let patch = |patch: &Value| client.patch(&one, "json-patch", patch);
    let requests = vec![
        client.post(&collection).json(&with("/spec/data/value", json!(raw.clone() + "!"))),
        client.post(&collection).json(&with("/spec/data/value", json!([value]))),
        client.post(&collection).json(&with("/spec/data", json!({"a b": value}))),
        client.post(&collection).json(&with("/spec/data", json!(value))),
        client.post(&collection).json(&with("/spec", json!(value))),
        client.post(&collection).json(&with("/metadata/name", json!("Upper"))),
        client.post(&strict).json(&with("/spec", json!({"unknown": value, "data": {"v": value}}))),
        client.post(&collection).json(&secret("control-name", raw)),
        client.put(&one).json(&secret("control-name", raw)),
        json(format!("{{\"spec\": {{\"data\": {{\"v\": \"{value}")),
        json(format!("{{\"spec\": {{\"data\": {{\"v\": \"{value}\\q\"}}}}}}")),
        json(deep),
        json(format!("\"{value}\"")),
        yaml(format!("spec: {{data: {{v: {value}")),
        yaml(format!("spec:\n  data:\n    v: {value}\n   w: x\n")),
        yaml(format!("spec: !!binary {value}\n")),
        yaml(format!("spec: *{}\n", &raw[..20])),
        merge(&json!({"spec": {"data": {"v": raw.clone() + "!"}}})),
        merge(&json!({"spec": {"data": [value]}})),
        merge(&json!({"spec": {"data": {"a b": value}}})),
        patch(&json!([{"op": "test", "path": "/spec/data/value", "value": value.clone() + "x"}])),
        patch(&json!([{"op": "replace", "path": "/spec/data/none", "value": value}])),
        patch(&json!([{"op": "shout", "path": "/spec/data/none", "value": value}])),
        patch(&json!([{"op": "add", "path": "/spec/data/v", "value": [value]}])),
        client.post(&collection).body("text/plain", value.clone()),
    ];
    let mut replies = Vec::new();
    for request in requests {
        let reply = request.send().await;
        assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
        replies.push(reply);
    }
    replies
}

#[tokio::test]
async fn planted_values_are_found_nowhere() {
    let home = Home::new();
    let server = Setup::on(&home).environment("POSTERN_LOG", "trace").start().await;
    let canary = Canary::new(&mut Random::new(42));
    let key = Canary::of(&server.kubeconfig().token);
    assert!(
        key.is_in(&std::fs::read(home.kubeconfig()).unwrap()),
        "the search finds what is there"
    );

    for client in [server.client(), Client::http2(server.kubeconfig())] {
        plant(&client, &canary).await;
        for reply in refused(&client, &canary).await {
            let response = format!("{:?} {}", reply.headers, reply.text());
            assert!(!canary.is_in(response.as_bytes()), "an error repeats the value: {response}");
        }
        client.delete(&secret_path("control-name")).send().await.expect(200);
    }
    let unknown = Canary::new(&mut Random::new(43));
    for client in [server.client(), Client::http2(server.kubeconfig())] {
        let unauthenticated = client.with_token(&format!("pst_{}", unknown.raw));
        let reply = unauthenticated.get(&secrets("platform")).send().await;
        assert_eq!(reply.status, 401);
        assert!(!unknown.is_in(&reply.body), "a refusal repeats the credential");
    }

    let while_running = read_all(&home.data().join("db"));
    server.stop().await;
    let at_rest = read_all(&home.data().join("db"));
    let audited = std::fs::read_to_string(home.audit_log()).unwrap();
    assert!(audited.contains("control-name"), "the audit log has names");
    let log = home.logged() + &home.printed() + &audited;
    assert!(log.contains("TRACE") && log.len() > 10_000, "the log is as verbose as it can be");
    assert!(at_rest.len() > 10_000, "there is a database");
    let name = b"control-name";
    assert!(memmem::find(&at_rest, name).is_some(), "names are not sealed");
    for (what, canary) in [("the value", &canary), ("the key", &key), ("a wrong key", &unknown)] {
        assert!(!canary.is_in(&while_running), "{what} is in the database");
        assert!(!canary.is_in(&at_rest), "{what} is in the database at rest");
        let line = log.lines().find(|line| canary.is_in(line.as_bytes()));
        assert!(line.is_none(), "{what} is in the log: {line:?}");
    }
}
