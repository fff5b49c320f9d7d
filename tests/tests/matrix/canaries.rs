//! Secret values are in no answer to those who may not get them, in no error, and in neither log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::http::{Client, Response};
use postern_tests::objects::{BASE, based};
use serde_json::json;

use crate::fixture::{Fixture, Target};
use crate::hidden::may_get;
use crate::matrix::Answered;
use crate::world::World;

/// Returns the answers with a secret value of an object that the caller may not get.
pub(crate) fn leaking(world: &World, table: &[Answered]) -> Vec<String> {
    let mut leaking = Vec::new();
    for target in world.fixture.targets() {
        let canary = world.fixture.canary(target);
        for (at, identity) in world.identities.iter().enumerate() {
            if may_get(table, target, at) {
                continue;
            }
            let with = table.iter().filter(|one| one.answers[at].body.contains(&canary));
            leaking.extend(with.filter(|one| !is_of_new(one)).map(|one| {
                let ask = &one.row.ask;
                format!("{} sees {}: {} {}", identity.code, target.word(), ask.method, ask.path)
            }));
        }
    }
    leaking
}

/// Is it about an object that the caller has just made?
fn is_of_new(answered: &Answered) -> bool {
    answered.row.operation.method == "POST"
}

/// What nobody may read, in plain text and in base64.
const PLAIN: &str = "the-canary-that-nobody-may-ever-read";

fn is_there(text: &str) -> bool {
    let half = &PLAIN[..PLAIN.len() / 2];
    text.contains(half) || text.contains(&STANDARD.encode(PLAIN)[..PLAIN.len() / 2])
}

/// Returns bodies with the value, each of which has something wrong.
fn malformed() -> Vec<(&'static str, String)> {
    let encoded = STANDARD.encode(PLAIN);
    vec![
        ("application/json", format!(r#"{{"spec":{{"data":{{"value":"{encoded}""#)),
        ("application/json", format!(r#"{{"spec":{{"data":{{"value":"{PLAIN}!"}}}}}}"#)),
        ("application/json", format!(r#"{{"spec":{{"data":["{encoded}"]}}}}"#)),
        ("application/json", format!(r#"{{"spec":{{"data":"{encoded}"}}}}"#)),
        (
            "application/json",
            format!(r#"{{"spec":{{"data":{{"a":"{encoded}","a":"{encoded}"}}}}}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"data":{{"value":["{encoded}"]}},"stringData":"{PLAIN}"}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"spec":{{"key":["{PLAIN}"],"user":{{"x":"{PLAIN}"}}}}}}"#),
        ),
        (
            "application/json",
            format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"key":"{PLAIN}","ttl":-1}}}}"#),
        ),
        ("application/yaml", format!("spec:\n  data:\n    value: [{encoded}\n")),
        ("application/yaml", format!("spec: {{data: {{value: *{PLAIN}}}}}\n")),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/spec/data/x/y","value":"{encoded}"}}]"#),
        ),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"test","path":"/spec/data/value","value":"{encoded}"}}]"#),
        ),
        (
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/spec/data","value":"{encoded}"}}]"#),
        ),
        ("application/merge-patch+json", format!(r#"{{"spec":{{"data":["{encoded}"]}}}}"#)),
        ("application/merge-patch+json", format!(r#"{{"spec":{{"data":{{"value":"{encoded}""#)),
        ("text/plain", encoded),
    ]
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: &str) -> Response {
    client.request(method, path).body(kind, body.to_owned()).send().await
}

#[tokio::test]
async fn malformed_bodies_leave_no_secret_values_anywhere() {
    let world = World::of(Fixture::of("sharedsecrets")).await;
    let admin = world.admin();
    let kinds = ["sharedsecrets", "projectsecrets", "secrets", "ownedaccesskeys"];
    for plural in kinds {
        let fixture = Fixture::of(plural);
        if plural != "sharedsecrets" {
            crate::world::make_target(&admin, &fixture, Target::Theirs).await;
        }
        let object = based(&fixture.path(Target::Theirs));
        let collection = based(&fixture.collection(fixture.namespace(Target::Theirs)));
        for (kind, body) in malformed() {
            let requests: &[(&str, &str)] = if kind.contains("patch") {
                &[("PATCH", &object)]
            } else {
                &[("POST", &collection), ("PUT", &object)]
            };
            for code in ["admin", "owner", "other", "member", "maker", "read"] {
                let who = world.identities.iter().find(|one| one.code == code).expect("a column");
                for (method, path) in requests {
                    for query in ["", "?dryRun=All", "?fieldValidation=Strict"] {
                        let path = format!("{path}{query}");
                        let reply = send(&who.client, method, &path, kind, &body).await;
                        let what = format!("{code} {method} {path} {body}: {}", reply.text());
                        assert!(!is_there(&reply.text()), "{what}");
                    }
                }
            }
        }
    }
    let marker = format!("{BASE}/the-last-request");
    admin.get(&marker).send().await;
    let audit = postern_tests::wait::until("the audit log", async || {
        let text = std::fs::read_to_string(world.server.home().audit_log()).unwrap_or_default();
        text.contains(&marker).then_some(text)
    })
    .await;
    assert!(!is_there(&audit), "the audit log has a secret value");
    assert!(!is_there(&world.server.home().logged()), "the server's log has a secret value");
    assert!(!is_there(&json!(world.server.home().records()).to_string()));
}
