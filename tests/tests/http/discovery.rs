//! Discovery, version and `OpenAPI`: the first reads of a client.

use std::collections::BTreeSet;

use postern_tests::Server;
use postern_tests::http::Client;
use postern_tests::objects::{based, secret, secret_path, secrets};
use serde_json::{Value, json};

async fn read(client: &Client, path: &str) -> Value {
    client.get(&based(path)).send().await.expect(200)
}

fn names(list: &Value) -> BTreeSet<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn groups_are_listed() {
    let server = Server::start().await;
    let client = server.client();
    let legacy = read(&client, "/api").await;
    assert_eq!(legacy["kind"], "APIVersions");
    assert_eq!(legacy["versions"], json!(["v1"]));
    let groups = read(&client, "/apis").await;
    assert_eq!(groups["kind"], "APIGroupList");
    assert_eq!(groups["apiVersion"], "v1");
    assert!(names(&groups["groups"]).contains("management.platform.sh"));
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        let alone = read(&client, &format!("/apis/{name}")).await;
        assert_eq!(alone["kind"], "APIGroup");
        assert_eq!(alone["preferredVersion"], group["preferredVersion"], "{name}");
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            let resources = read(&client, &format!("/apis/{version}")).await;
            assert_eq!(resources["kind"], "APIResourceList");
            assert_eq!(resources["groupVersion"], version);
        }
    }
}

#[tokio::test]
async fn resources_are_listed_with_what_clients_need() {
    let server = Server::start().await;
    let client = server.client();
    let ours = read(&client, "/apis/management.platform.sh/v1").await;
    let resources = ours["resources"].as_array().unwrap();
    let shared = resources.iter().find(|resource| resource["name"] == "sharedsecrets").unwrap();
    assert_eq!(shared["kind"], "SharedSecret");
    assert_eq!(shared["singularName"], "sharedsecret");
    assert_eq!(shared["namespaced"], true);
    assert_eq!(shared["shortNames"], json!(["ss"]));
    // `kubectl get platform` lists each resource of the category.
    for resource in resources {
        let lists = resource["verbs"].as_array().unwrap().contains(&json!("list"));
        let is_whole = !resource["name"].as_str().unwrap().contains('/');
        let category = (lists && is_whole).then(|| json!(["platform"]));
        assert_eq!(resource.get("categories"), category.as_ref(), "{resource}");
    }
    let verbs: BTreeSet<_> =
        shared["verbs"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let all = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    assert_eq!(verbs, BTreeSet::from(all));
    let core = read(&client, "/api/v1").await;
    assert_eq!(core["groupVersion"], "v1");
    let resources = core["resources"].as_array().unwrap();
    let spaces = resources.iter().find(|resource| resource["name"] == "namespaces").unwrap();
    assert_eq!(spaces["namespaced"], false);
    assert_eq!(spaces["shortNames"], json!(["ns"]));
}

#[tokio::test]
async fn what_is_listed_is_served() {
    let server = Server::start().await;
    let client = server.client();
    for root in ["/api/v1", "/apis/management.platform.sh/v1"] {
        let list = read(&client, root).await;
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let verbs = resource["verbs"].as_array().unwrap();
            if name.contains('/') || !verbs.contains(&json!("list")) {
                continue;
            }
            let list = read(&client, &format!("{root}/{name}")).await;
            let kind = format!("{}List", resource["kind"].as_str().unwrap());
            assert_eq!(list["kind"], kind, "{name}");
        }
    }
}

#[tokio::test]
async fn the_version_is_one_that_clients_can_read() {
    let server = Server::start().await;
    let client = server.client();
    for path in ["/version".to_owned(), based("/version")] {
        let version = client.get(&path).without("authorization").send().await.expect(200);
        for field in ["major", "minor"] {
            version[field].as_str().unwrap().parse::<u32>().expect("an integer");
        }
        assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."), "{version}");
        for field in ["gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"]
        {
            assert!(version[field].is_string(), "{field}");
        }
    }
}

#[tokio::test]
async fn openapi_lists_its_documents_with_their_hashes() {
    let server = Server::start().await;
    let client = server.client();
    let reply = client.get(&based("/openapi/v3")).send().await;
    let index = reply.expect(200);
    assert!(reply.header("etag").is_some());
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("apis/management.platform.sh/v1") && paths.contains_key("api/v1"));
    for (path, entry) in paths {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        let plain = format!("/openapi/v3/{path}");
        let hash = url.strip_prefix(&format!("{plain}?hash=")).expect("without the base path");
        let reply = client.get(&based(url)).send().await;
        assert_eq!(reply.expect(200)["openapi"].as_str().unwrap().split('.').next(), Some("3"));
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert!(reply.header("cache-control").is_some_and(|control| control.contains("immutable")));
        let stale = client.get(&based(&format!("{plain}?hash=OLD"))).send().await;
        assert_eq!(stale.status, 301);
        let location = based(&format!("{plain}?hash={hash}"));
        assert_eq!(stale.header("location"), Some(location.as_str()), "with the base path");
        let etag = reply.header("etag").expect("an etag").to_owned();
        let again = client.get(&based(&plain)).header("if-none-match", &etag).send().await;
        assert_eq!(again.status, 304);
        assert!(again.body.is_empty());
    }
}

#[tokio::test]
async fn openapi_describes_what_is_served_and_nothing_else() {
    let server = Server::start().await;
    let client = server.client();
    let document = read(&client, "/openapi/v3/apis/management.platform.sh/v1").await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let ours = schemas
        .values()
        .find(|schema| schema["x-kubernetes-group-version-kind"][0]["kind"] == "SharedSecret");
    let ours = ours.expect("a schema with the group, version and kind");
    assert_eq!(ours["x-kubernetes-group-version-kind"][0]["group"], "management.platform.sh");
    assert!(ours["properties"]["spec"].is_object());
    assert!(schemas.contains_key("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"));
    let paths = document["paths"].as_object().unwrap();
    let (_, one) = paths.iter().find(|(path, _)| path.ends_with("/sharedsecrets/{name}")).unwrap();
    let types: BTreeSet<_> =
        one["patch"]["requestBody"]["content"].as_object().unwrap().keys().collect();
    for served in ["application/json-patch+json", "application/merge-patch+json"] {
        assert!(types.contains(&served.to_owned()), "{types:?}");
    }
    for kind in types {
        let reply = client
            .request(
                "PATCH",
                &based("/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets/none"),
            )
            .body(kind, "{}")
            .send()
            .await;
        assert_ne!(reply.status, 415, "{kind} is listed and not served");
    }
    let parameters = one["patch"]["parameters"].to_string() + &one["parameters"].to_string();
    assert!(parameters.contains("\"fieldValidation\""), "the document declares field validation");
    for reference in references(&document) {
        let path = reference.strip_prefix('#').expect("a reference in the document");
        assert!(document.pointer(path).is_some(), "{path} is referred to and not there");
    }
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value.as_str()) {
                ("$ref", Some(target)) => vec![target],
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn every_field_of_ours_is_described() {
    let server = Server::start().await;
    let path = "/openapi/v3/apis/management.platform.sh/v1";
    let document = read(&server.client(), path).await;
    let mut count = 0;
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(schema["description"].is_string(), "{name}");
        let Some(fields) = schema["properties"].as_object() else { continue };
        for (field, schema) in fields {
            let description = schema["description"].as_str().unwrap_or_default();
            assert!(description.ends_with(['.', '?']), "{name}.{field}: {description:?}");
            count += 1;
        }
    }
    assert!(count > 200, "{count} fields");
}

#[tokio::test]
async fn openapi_lists_the_failures_of_every_operation() {
    let server = Server::start().await;
    let client = server.client();
    let index = client.get("/openapi/v3").send().await.expect(200);
    for path in index["paths"].as_object().unwrap().keys() {
        let document = client.get(&format!("/openapi/v3/{path}")).send().await.expect(200);
        let items = document["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        for operation in operations.filter(|one| one.get("responses").is_some()) {
            let pages = operation["parameters"].to_string().contains("\"continue\"");
            assert_eq!(operation["responses"].get("410").is_some(), pages, "{operation}");
            for code in
                ["400", "401", "403", "404", "406", "409", "422", "429", "500", "503", "504"]
            {
                let reference = operation["responses"][code]["$ref"].as_str();
                let target = reference.and_then(|reference| document.pointer(&reference[1..]));
                let target = target.unwrap_or_else(|| panic!("{code}: {operation}"));
                let schema = &target["content"]["application/json"]["schema"]["$ref"];
                assert!(schema.as_str().unwrap().ends_with(".Status"), "{target}");
            }
        }
    }
}

/// The response to a deletion is a Status or an object: its schema describes both.
#[tokio::test]
async fn openapi_describes_what_deletions_take_and_answer() {
    let server = Server::start().await;
    let client = server.client();
    let document = read(&client, "/openapi/v3/apis/management.platform.sh/v1").await;
    let paths = document["paths"].as_object().unwrap();
    let mut answers = Vec::new();
    for (path, item) in paths.iter().filter(|(_, item)| item.get("delete").is_some()) {
        let operation = &item["delete"];
        assert_eq!(operation["requestBody"]["required"], false, "{path}");
        let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        assert!(body.as_str().unwrap().ends_with(".meta.v1.DeleteOptions"), "{path}: {body}");
        let parameters = names(&operation["parameters"]);
        assert!(parameters.contains("propagationPolicy"), "{path}: {parameters:?}");
        let answer = &operation["responses"]["200"]["content"]["application/yaml"]["schema"];
        let is_one = path.ends_with("{name}");
        for of_list in ["labelSelector", "fieldSelector", "limit", "continue"] {
            assert_eq!(parameters.contains(of_list), !is_one, "{path}: {of_list}");
        }
        if is_one {
            answers.push(answer);
        } else {
            let list = answer["$ref"].as_str().unwrap();
            assert!(list.ends_with("List"), "{path}: {list}");
        }
    }
    let mut lingering = secret("s1", "v");
    lingering["metadata"]["finalizers"] = json!(["example.com/a"]);
    client.post(&secrets("platform")).json(&lingering).send().await.expect(201);
    client.post(&secrets("platform")).json(&secret("s2", "v")).send().await.expect(201);
    for (name, kind) in [("s1", "SharedSecret"), ("s2", "Status")] {
        let got = client.delete(&secret_path(name)).send().await.expect(200);
        assert_eq!(got["kind"], kind);
        for schema in &answers {
            assert_eq!(schema["type"], "object");
            for name in schema["required"].as_array().unwrap() {
                assert!(got.get(name.as_str().unwrap()).is_some(), "{kind}: {name}");
            }
            for (name, field) in schema["properties"].as_object().unwrap() {
                let type_of = if got[name].is_object() { "object" } else { "string" };
                assert_eq!(field["type"], type_of, "{kind}: {name}");
            }
        }
    }
}
