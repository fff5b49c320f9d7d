//! schemathesis sends valid and invalid requests to every operation, derived from the `OpenAPI`
//! documents of version 3. No response is a failure of the server, has a code that the document
//! does not list, or a body that breaks its schema.

use std::process::Stdio;

use postern_tests::http::Client;
use postern_tests::objects::{collection, make, secret, secrets};
use postern_tests::{Home, Server, downloads};
use serde_json::{Value, json};
use tokio::process::Command;

/// How long one document is tested.
const MAX_SECONDS: u32 = 30;

/// Parameters of watches, which never end.
const OF_WATCHES: [&str; 4] =
    ["watch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds"];

/// Collections that the caller needs to have any right: they are not deleted whole.
const NEEDED: [&str; 6] =
    ["ownedaccesskeys", "users", "namespaces", "clusterroles", "clusterrolebindings", "secrets"];

/// Changes a document so that its operations meet objects, come to an end, and leave the caller their rights.
fn prepare(document: &mut Value) {
    for (path, item) in document["paths"].as_object_mut().unwrap() {
        let item = item.as_object_mut().unwrap();
        let last = path.rsplit('/').next().unwrap_or_default();
        if NEEDED.contains(&last) {
            item.remove("delete");
        }
        for (method, part) in item {
            let parameters =
                if method == "parameters" { Some(part) } else { part.get_mut("parameters") };
            let Some(parameters) = parameters.and_then(Value::as_array_mut) else { continue };
            let name = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
            parameters.retain(|one| !OF_WATCHES.contains(&name(one).as_str()));
            for one in parameters {
                match name(one).as_str() {
                    "namespace" => one["schema"]["enum"] = json!(["platform", "none"]),
                    "name" => one["schema"]["enum"] = json!(["s1", "none"]),
                    _ => {}
                }
            }
        }
    }
}

/// Makes an object `s1` of several kinds.
async fn make_objects(client: &Client) {
    for resource in ["users", "teams", "projects", "clusters"] {
        make(client, resource, "s1", json!({})).await;
    }
    make(client, "ownedaccesskeys", "s1", json!({ "user": "s1" })).await;
    client.post(&secrets("platform")).json(&secret("s1", "x")).send().await.expect(201);
}

/// Tests one document. The result is the number of requests, or the findings.
async fn test(server: &Server, home: &Home, document: &Value) -> Result<u64, String> {
    let kubeconfig = server.kubeconfig();
    let (file, authority) = (home.path().join("openapi.json"), home.path().join("ca.pem"));
    std::fs::write(&file, document.to_string()).unwrap();
    std::fs::write(&authority, &kubeconfig.authority).unwrap();
    let checks = "not_a_server_error,status_code_conformance,content_type_conformance,\
                  response_schema_conformance";
    let seconds = MAX_SECONDS.to_string();
    // Its own script names the directory that it was installed in, which may have been moved.
    let mut command = Command::new(downloads::path("schemathesis/bin/python3"));
    command.args(["-m", "schemathesis.cli"]);
    command.arg("run").arg(&file).args(["--url", &kubeconfig.server]);
    command.args(["--header", &format!("Authorization: Bearer {}", kubeconfig.token)]);
    command.arg("--tls-verify").arg(&authority).args(["--checks", checks]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "20"]);
    command.args(["--max-time", &seconds, "--request-timeout", "30", "--seed", "1"]);
    command.args(["--continue-on-failure", "--no-color"]);
    command.current_dir(home.path()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    }
    // `1234 generated, 1234 passed`
    let count = text.lines().find_map(|line| line.trim().split_once(" generated, "));
    count.and_then(|(count, _)| count.parse().ok()).ok_or(text)
}

#[tokio::test]
async fn heavy_every_answer_is_as_the_documents_say() {
    let home = Home::new();
    let server = Server::start().await;
    let client = server.client();
    make_objects(&client).await;
    let index = client.get("/openapi/v3").send().await.expect(200);
    let mut found = Vec::new();
    for path in index["paths"].as_object().unwrap().keys() {
        let mut document = client.get(&format!("/openapi/v3/{path}")).send().await.expect(200);
        prepare(&mut document);
        match test(&server, &home, &document).await {
            Ok(count) => {
                println!("{path}: {count} requests");
                assert!(count >= 10, "{path} was hardly tested");
            }
            Err(text) => found.push(format!("{path}:\n{text}")),
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    client.get(&collection("users")).send().await.expect(200);
}
