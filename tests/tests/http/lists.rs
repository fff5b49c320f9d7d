//! Lists: their order, their pages, and their resourceVersion.

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{CORE, GROUP, name_of, secret, secret_path, secrets, version_of};
use postern_tests::status::failure;
use serde_json::{Value, json};

async fn fill(client: &Client, count: usize) {
    for number in 0..count {
        let object = secret(&format!("s{number:02}"), "v");
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("a list has items").iter().map(name_of).collect()
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let server = Server::start().await;
    let list = server.client().get(&secrets("platform")).send().await.expect(200);
    assert_eq!(list["kind"], "SharedSecretList");
    assert_eq!(list["apiVersion"], "management.platform.sh/v1");
    assert_eq!(list["items"], json!([]));
    assert!(version_of(&list) > 0);
    let nowhere = server.client().get(&secrets("nowhere")).send().await.expect(200);
    assert_eq!(nowhere["items"], json!([]), "a namespace that does not exist has nothing in it");
}

#[tokio::test]
async fn a_list_is_complete_and_in_order() {
    let server = Server::start().await;
    let client = server.client();
    for (namespace, name) in [("platform", "b"), ("default", "z"), ("platform", "a")] {
        client.post(&secrets(namespace)).json(&secret(name, "v")).send().await.expect(201);
    }
    let one = client.get(&secrets("platform")).send().await.expect(200);
    assert_eq!(names(&one), ["a", "b"]);
    for item in one["items"].as_array().unwrap() {
        assert_eq!(item["kind"], "SharedSecret");
        assert_eq!(item["apiVersion"], "management.platform.sh/v1");
        assert!(version_of(item) <= version_of(&one));
        assert!(item["metadata"]["creationTimestamp"].is_string());
        let read = client.get(&secret_path(name_of(item))).send().await.expect(200);
        assert_eq!(&read, item, "an item of a list equals the response to a get");
    }
    let all = client.get(&format!("{GROUP}/sharedsecrets")).send().await.expect(200);
    assert_eq!(names(&all), ["z", "a", "b"], "by namespace, then by name");
    let spaces = client.get(&format!("{CORE}/namespaces")).send().await.expect(200);
    assert_eq!(spaces["kind"], "NamespaceList");
    assert_eq!(names(&spaces), ["default", "platform"]);
}

#[tokio::test]
async fn pages_are_consistent_while_objects_change() {
    let server = Server::start().await;
    let client = server.client();
    fill(&client, 7).await;
    let collection = secrets("platform");
    let first = client.get(&format!("{collection}?limit=3")).send().await.expect(200);
    assert_eq!(names(&first), ["s00", "s01", "s02"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    client.delete(&secret_path("s04")).send().await.expect(200);
    client.post(&collection).json(&secret("s03x", "v")).send().await.expect(201);
    let path = format!("{collection}?limit=3&continue={token}");
    let second = client.get(&path).send().await.expect(200);
    assert_eq!(names(&second), ["s03", "s04", "s05"], "as it was at the first page");
    assert_eq!(version_of(&second), version_of(&first), "all pages have the first one's version");
    assert_eq!(second["metadata"]["remainingItemCount"], 1);
    let token = second["metadata"]["continue"].as_str().unwrap().to_owned();
    let path = format!("{collection}?limit=3&continue={token}");
    let third = client.get(&path).send().await.expect(200);
    assert_eq!(names(&third), ["s06"]);
    assert!(third["metadata"].get("continue").is_none());
    assert!(third["metadata"].get("remainingItemCount").is_none());
    let again = client.get(&path).send().await.expect(200);
    assert_eq!(again, third, "a page can be asked for twice");
    let now = client.get(&collection).send().await.expect(200);
    assert_eq!(names(&now), ["s00", "s01", "s02", "s03", "s03x", "s05", "s06"]);
}

#[tokio::test]
async fn a_full_last_page_has_no_continue_token() {
    let server = Server::start().await;
    let client = server.client();
    fill(&client, 4).await;
    for limit in [4, 5, 500] {
        let path = format!("{}?limit={limit}", secrets("platform"));
        let list = client.get(&path).send().await.expect(200);
        assert_eq!(names(&list).len(), 4);
        assert!(list["metadata"].get("continue").is_none(), "limit {limit}");
    }
}

#[tokio::test]
async fn pages_with_a_selector_are_full_and_count_nothing() {
    let server = Server::start().await;
    let client = server.client();
    for number in 0..6 {
        let mut object = secret(&format!("s{number}"), "v");
        object["metadata"]["labels"] = json!({"odd": (number % 2).to_string()});
        client.post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    let select = format!("{}?labelSelector=odd%3D1&limit=2", secrets("platform"));
    let first = client.get(&select).send().await.expect(200);
    assert_eq!(names(&first), ["s1", "s3"]);
    assert!(first["metadata"].get("remainingItemCount").is_none());
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = client.get(&format!("{select}&continue={token}")).send().await.expect(200);
    assert_eq!(names(&second), ["s5"]);
    assert!(second["metadata"].get("continue").is_none());
}

#[tokio::test]
async fn pages_go_across_namespaces() {
    let server = Server::start().await;
    let client = server.client();
    for (namespace, name) in
        [("platform", "b"), ("default", "z"), ("platform", "a"), ("default", "y")]
    {
        client.post(&secrets(namespace)).json(&secret(name, "v")).send().await.expect(201);
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let path = format!("{GROUP}/sharedsecrets?limit=1&continue={token}");
        let page = client.get(&path).send().await.expect(200);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        match page["metadata"]["continue"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(seen, ["y", "z", "a", "b"]);
}

#[tokio::test]
async fn a_token_is_checked() {
    let server = Server::start().await;
    let client = server.client();
    fill(&client, 3).await;
    let collection = secrets("platform");
    let first = client.get(&format!("{collection}?limit=1")).send().await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let path = format!("{collection}?continue={token}&resourceVersion={}", version_of(&first));
    let text = failure(&client.get(&path).send().await);
    let expected = "400 BadRequest\nspecifying resource version is not allowed when using continue";
    assert!(text.starts_with(expected), "{text}");
    client
        .get(&format!("{collection}?continue={token}&resourceVersion=0"))
        .send()
        .await
        .expect(200);
    let path = format!("{collection}?continue={token}&resourceVersionMatch=Exact");
    assert!(failure(&client.get(&path).send().await).starts_with("422 Invalid\n"));
    let mut broken =
        vec!["x".to_owned(), "e30".into(), "bnVsbA".into(), "%00".into(), "a".repeat(4_000)];
    for index in (0..token.len()).step_by(7) {
        let mut bytes = token.clone().into_bytes();
        bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
        broken.push(String::from_utf8(bytes).unwrap());
    }
    for token in broken {
        let reply = client.get(&format!("{collection}?limit=1&continue={token}")).send().await;
        // A changed token may still be valid. It must never cause a server error.
        assert!([200, 400, 410, 504].contains(&reply.status), "{token}: {}", reply.text());
        if reply.status == 200 {
            for name in names(&reply.json()) {
                assert!(name.starts_with('s'), "a token led somewhere else: {name}");
            }
        }
    }
    let elsewhere =
        client.get(&format!("{}?limit=1&continue={token}", secrets("default"))).send().await;
    assert!([200, 400].contains(&elsewhere.status), "{}", elsewhere.text());
    if elsewhere.status == 200 {
        assert_eq!(names(&elsewhere.json()), [""; 0], "a token does not lead out of its namespace");
    }
}
