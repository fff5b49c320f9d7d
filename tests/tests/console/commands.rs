//! The commands that the console shows: each does on one server what its request does on another one.

use postern_tests::cli::{CliUser, CommandOutput};
use postern_tests::http::{Client, Response};
use postern_tests::{Server, binary};
use serde_json::{Value, json};

/// The table that the unit tests of the console compare with what its pages send.
const TABLE: &str = include_str!("../../../console/test/commands.json");

const APIS: &str = "/kubernetes/management/apis";

/// The fields that differ from server to server.
const OWN_FIELDS: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "status"];

#[tokio::test]
async fn each_command_does_what_its_request_does() {
    let (by_request, by_command) = (Server::start().await, Server::start().await);
    let mut command_count = 0;
    let rows: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        for request in list(row, "before") {
            for server in [&by_request, &by_command] {
                let reply = send(&server.client(), request).await;
                let is_delete = request["method"] == "DELETE" && reply.status == 404;
                assert!(reply.status < 300 || is_delete, "{name}: {}", reply.text());
            }
        }
        let mut answer = Value::Null;
        for request in list(row, "requests") {
            let request = with_object(&by_request.client(), row, request).await;
            let reply = send(&by_request.client(), &request).await;
            assert!(reply.status < 300, "{name}: {}", reply.text());
            answer = reply.json();
        }
        // A question is asked where the request was.
        let is_write = !row["objects"].is_null() || !row["count"].is_null();
        let server = if is_write { &by_command } else { &by_request };
        for command in list(row, "commands") {
            command_count += 1;
            let output = run(server, command.as_str().unwrap(), !row["json"].is_null()).await;
            check_output(row, &answer, &output);
        }
        for path in list(row, "objects") {
            let [one, other] = read_both(&by_request, &by_command, path.as_str().unwrap()).await;
            assert_eq!(normalized(&one), normalized(&other), "{name}: {path}");
        }
        if let Some(path) = row["count"].as_str() {
            let both = read_both(&by_request, &by_command, path).await;
            let [one, other] = both.map(|each| each["items"].as_array().unwrap().len());
            assert!(one > 0 && one == other, "{name}: {one} and {other}");
        }
    }
    assert!(command_count >= rows.len(), "each row has a command");
}

fn list<'a>(row: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    row[field].as_array().into_iter().flatten()
}

/// The whole path: `rbac:` and `authorization:` stand for two other groups.
fn path(text: &str) -> String {
    let (group, rest) = match text.split_once(':') {
        Some(("rbac", rest)) => ("rbac.authorization.k8s.io", rest),
        Some(("authorization", rest)) => ("authorization.k8s.io", rest),
        _ => ("management.platform.sh", text),
    };
    format!("{APIS}/{group}/v1/{rest}")
}

async fn send(client: &Client, request: &Value) -> Response {
    let target = path(request["path"].as_str().unwrap());
    let sent = client.request(request["method"].as_str().unwrap(), &target);
    let sent = match &request["body"] {
        Value::Null => sent,
        body => {
            let content_type = request["contentType"].as_str().unwrap_or("application/json");
            sent.body(content_type, body.to_string())
        }
    };
    sent.send().await
}

/// The request with the uid and the version of the object that the row is about.
async fn with_object(client: &Client, row: &Value, request: &Value) -> Value {
    let Some(of) = row["of"].as_str() else { return request.clone() };
    let object = client.get(&path(of)).send().await.expect(200);
    let mut text = request.to_string();
    for (placeholder, field) in [("\"UID\"", "uid"), ("\"VERSION\"", "resourceVersion")] {
        text = text.replace(placeholder, &object["metadata"][field].to_string());
    }
    serde_json::from_str(&text).unwrap()
}

/// Runs a command in a shell, as a person does who copies it.
async fn run(server: &Server, command: &str, is_json: bool) -> CommandOutput {
    let shell = CliUser::new()
        .with("KUBECONFIG", server.home().kubeconfig().to_str().unwrap())
        .with("POSTERN", binary::path().to_str().unwrap())
        .program("/bin/sh".into());
    let format = if is_json { " -o json" } else { "" };
    let script = format!("postern() {{ \"$POSTERN\" \"$@\"; }}\n{command}{format}");
    shell.run(&["-c", &script]).await
}

/// Compares what a command printed with the answer to the request.
fn check_output(row: &Value, answer: &Value, output: &CommandOutput) {
    let said = format!("{}: {}", row["name"], output.all_output());
    if let Some(pointer) = row["allowed"].as_str() {
        let is_allowed = answer.pointer(pointer).and_then(Value::as_bool) == Some(true);
        assert_eq!(output.code, i32::from(!is_allowed), "{said}");
        assert!(output.text().starts_with(if is_allowed { "yes" } else { "no" }), "{said}");
        return;
    }
    assert_eq!(output.code, 0, "{said}");
    for pointer in list(row, "json") {
        let printed: Value = serde_json::from_str(output.text()).unwrap();
        let pointer = pointer.as_str().unwrap();
        let wanted = answer.pointer(pointer).expect("the answer has what is compared");
        assert_eq!(printed.pointer(pointer).map(normalized), Some(normalized(wanted)), "{said}");
    }
    for pointer in list(row, "prints") {
        let wanted = answer.pointer(pointer.as_str().unwrap()).expect("the answer has it");
        let wanted = wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned);
        assert!(output.text().contains(&wanted), "{said}");
    }
}

/// An object as both servers have it; null for one that does not exist.
async fn read_both(one: &Server, other: &Server, target: &str) -> [Value; 2] {
    let target = path(target);
    let mut both = [Value::Null, Value::Null];
    for (server, object) in [one, other].into_iter().zip(&mut both) {
        let reply = server.client().get(&target).send().await;
        if reply.status != 404 {
            *object = reply.expect(200);
        }
    }
    both
}

/// A value without the fields that each server writes itself. An empty field is as an absent one.
fn normalized(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str()));
            let kept = kept.map(|(name, value)| (name.clone(), normalized(value)));
            kept.filter(|(_, value)| !is_empty(value)).collect()
        }
        Value::Array(items) => items.iter().map(normalized).collect(),
        value => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    [json!(null), json!(""), json!([]), json!({}), json!(false)].contains(value)
}
