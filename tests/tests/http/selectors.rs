//! Selectors, and the events of an object that starts or stops to match.

use postern_tests::Server;
use postern_tests::objects::{CORE, GROUP, name_of, secret, secret_path, secrets, version_of};
use postern_tests::status::failure;
use postern_tests::watching::Event;
use serde_json::json;

async fn filled() -> Server {
    let server = Server::start().await;
    for (name, labels) in [
        ("a", json!({"app": "shop", "tier": "1"})),
        ("b", json!({"app": "billing", "tier": "2"})),
        ("c", json!({"app": "shop", "example.com/team": "red"})),
        ("d", json!({})),
    ] {
        let mut object = secret(name, "v");
        object["metadata"]["labels"] = labels;
        server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    server
}

/// Text as it is written in a query.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |escaped, byte| escaped + &format!("%{byte:02X}"))
}

#[tokio::test]
async fn label_selectors_support_the_whole_grammar() {
    let server = filled().await;
    let client = server.client();
    for (selector, expected) in [
        ("", "a b c d"),
        ("app=shop", "a c"),
        ("app==shop", "a c"),
        ("app!=shop", "b d"),
        ("app in (shop, billing)", "a b c"),
        ("app in (billing)", "b"),
        ("app notin (shop)", "b d"),
        ("app", "a b c"),
        ("!app", "d"),
        ("app=shop,tier", "a"),
        ("app=shop,!tier", "c"),
        (" app = shop , tier = 1 ", "a"),
        ("tier>1", "b"),
        ("tier<2", "a"),
        ("example.com/team=red", "c"),
        ("app=", ""),
        ("app=nothing", ""),
    ] {
        let path = format!("{}?labelSelector={}", secrets("platform"), escaped(selector));
        let list = client.get(&path).send().await.expect(200);
        let names: Vec<_> = list["items"].as_array().unwrap().iter().map(name_of).collect();
        assert_eq!(names.join(" "), expected, "{selector:?}");
    }
    for selector in [
        "app in",
        "app in (",
        "=",
        "a b",
        "app=shop,,tier",
        "(app)",
        "app===x",
        "-app",
        "app=ä",
        "!",
        "tier>x",
        "a/b/c",
    ] {
        let path = format!("{}?labelSelector={}", secrets("platform"), escaped(selector));
        let text = failure(&client.get(&path).send().await);
        assert!(text.starts_with("400 BadRequest\n"), "{selector:?}: {text}");
    }
}

#[tokio::test]
async fn field_selectors_support_name_and_namespace() {
    let server = filled().await;
    let client = server.client();
    client.post(&secrets("default")).json(&secret("a", "v")).send().await.expect(201);
    for (selector, expected) in [
        ("metadata.name=a", "default/a platform/a"),
        ("metadata.name==a,metadata.namespace=platform", "platform/a"),
        ("metadata.namespace!=platform", "default/a"),
        ("metadata.name!=a", "platform/b platform/c platform/d"),
        ("metadata.name=nothing", ""),
    ] {
        let path = format!("{GROUP}/sharedsecrets?fieldSelector={}", escaped(selector));
        let list = client.get(&path).send().await.expect(200);
        let names: Vec<_> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| {
                format!("{}/{}", item["metadata"]["namespace"].as_str().unwrap(), name_of(item))
            })
            .collect();
        assert_eq!(names.join(" "), expected, "{selector:?}");
    }
    // An unknown selector must never mean "everything".
    for selector in [
        "spec.data.value=dg==",
        "metadata.uid=x",
        "name=a",
        "metadata.name",
        "metadata.name=a,nothing=b",
        "metadata.name in (a)",
    ] {
        let path = format!("{}?fieldSelector={}", secrets("platform"), escaped(selector));
        let text = failure(&client.get(&path).send().await);
        assert!(text.starts_with("400 BadRequest\n"), "{selector:?}: {text}");
        let deleted = client.delete(&path).send().await;
        assert!(failure(&deleted).starts_with("400 BadRequest\n"), "{selector:?} deletes");
    }
    let left = client.get(&secrets("platform")).send().await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 4);
}

/// kubectl describe and kubectl events ask so, for objects with a namespace and without.
#[tokio::test]
async fn events_are_selected_by_what_they_are_about() {
    let server = Server::start().await;
    let client = server.client();
    for (namespace, name, kind, object) in [
        ("platform", "one", "SharedSecret", "s1"),
        ("platform", "two", "SharedSecret", "s2"),
        ("default", "three", "Project", "s1"),
    ] {
        let about = if namespace == "default" { "" } else { namespace };
        let event = json!({
            "metadata": { "name": name }, "type": "Warning", "reason": "Tested",
            "source": { "component": if name == "one" { "tests" } else { "" } },
            "reportingComponent": if name == "three" { "others" } else { "" },
            "involvedObject": { "kind": kind, "name": object, "namespace": about, "uid": format!("u-{name}") },
        });
        let path = format!("{CORE}/namespaces/{namespace}/events");
        client.post(&path).json(&event).send().await.expect(201);
    }
    for (selector, expected) in [
        ("involvedObject.name=s1", "three one"),
        ("involvedObject.name=s1,involvedObject.namespace=platform", "one"),
        ("involvedObject.name=s1,involvedObject.namespace=,involvedObject.kind=Project", "three"),
        ("involvedObject.uid!=u-one,type=Warning,reason=Tested", "three two"),
        ("involvedObject.uid=u-one,metadata.name=two", ""),
        ("type=Normal", ""),
        ("source=tests", "one"),
        // The reporting component is the source of an event that names none.
        ("source=others", "three"),
        ("source=,reason=Tested", "two"),
        ("source!=tests,reason=Tested", "three two"),
    ] {
        let query = format!("fieldSelector={}", escaped(selector));
        let list = client.get(&format!("{CORE}/events?{query}")).send().await.expect(200);
        let names: Vec<_> = list["items"].as_array().unwrap().iter().map(name_of).collect();
        assert_eq!(names.join(" "), expected, "{selector:?}");
        let mut watch = client.watch(&format!("{CORE}/events"), &format!("&{query}")).await;
        let events = watch.take(names.len()).await;
        let watched: Vec<_> = events.iter().map(|event| name_of(&event.object)).collect();
        assert_eq!(watched, names, "{selector:?}: as in a list");
    }
    for (path, selector) in [
        (format!("{CORE}/events"), "message=x"),
        (format!("{CORE}/events"), "involvedObject=x"),
        (format!("{CORE}/events"), "source.component=tests"),
        (format!("{CORE}/namespaces"), "spec.finalizers=kubernetes"),
        (secrets("platform"), "type=Opaque"),
    ] {
        let reply = client.get(&format!("{path}?fieldSelector={}", escaped(selector))).send().await;
        assert!(failure(&reply).starts_with("400 BadRequest\n"), "{selector}: {}", reply.text());
    }
}

#[tokio::test]
async fn namespaces_are_selected_by_their_phase() {
    let server = Server::start().await;
    let client = server.client();
    let all = format!("{CORE}/namespaces");
    for (selector, expected) in [
        ("status.phase=Active", "default platform"),
        ("status.phase!=Active", ""),
        ("status.phase=Terminating", ""),
        ("status.phase=Active,metadata.name=platform", "platform"),
    ] {
        let path = format!("{all}?fieldSelector={}", escaped(selector));
        let list = client.get(&path).send().await.expect(200);
        let names: Vec<_> = list["items"].as_array().unwrap().iter().map(name_of).collect();
        assert_eq!(names.join(" "), expected, "{selector}");
    }
}

#[tokio::test]
async fn a_watch_reports_objects_that_start_and_stop_to_match() {
    let server = filled().await;
    let client = server.client();
    let version = version_of(&client.get(&secrets("platform")).send().await.expect(200));
    let query = format!("&resourceVersion={version}&labelSelector={}", escaped("app=shop"));
    let mut watch = client.watch(&secrets("platform"), &query).await;
    let label = async |name: &str, app: serde_json::Value| {
        let patch = json!({"metadata": {"labels": {"app": app}}});
        client.patch(&secret_path(name), "merge-patch", &patch).send().await.expect(200)
    };
    label("d", "shop".into()).await;
    label("b", "other".into()).await;
    let left = label("a", "billing".into()).await;
    label("a", "shop".into()).await;
    let patch = json!({"spec": {"displayName": "D"}});
    client.patch(&secret_path("a"), "merge-patch", &patch).send().await.expect(200);
    client.delete(&secret_path("a")).send().await.expect(200);
    client.delete(&secret_path("b")).send().await.expect(200);
    label("c", serde_json::Value::Null).await;
    let events = watch.take(6).await;
    let summaries: Vec<_> = events.iter().map(Event::summary).collect();
    assert_eq!(
        summaries,
        ["ADDED d", "DELETED a", "ADDED a", "MODIFIED a", "DELETED a", "DELETED c"]
    );
    assert_eq!(events[1].object["metadata"]["labels"]["app"], "shop", "the state that matched");
    assert_eq!(events[1].version(), version_of(&left), "at the version that ended it");
}
