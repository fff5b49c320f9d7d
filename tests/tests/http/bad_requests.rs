//! Requests that are wrong, and the exact response to each: media types, parameters, selectors,
//! continue tokens, addresses. None is a 500, and none is served as a valid request.

use postern_tests::Server;
use postern_tests::http::{Client, Request};
use postern_tests::objects::{GROUP, secret, secret_path, secrets};
use postern_tests::status::failure;
use serde_json::json;

use crate::http::selectors::escaped;

/// A request, and the code, reason and message of its answer.
type Row<'a> = (Request<'a>, &'a str);

async fn all_refused(rows: Vec<Row<'_>>) {
    let mut wrong = Vec::new();
    for (number, (request, expected)) in rows.into_iter().enumerate() {
        let reply = request.send().await;
        if reply.status < 400 {
            wrong.push(format!("{number}: {expected}: {}", reply.text()));
            continue;
        }
        let text = failure(&reply);
        let said: Vec<&str> = text.lines().take(2).collect();
        if said.join("\n") != expected {
            wrong.push(format!("{number}: {expected}\n   {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn with_one() -> (Server, Client) {
    let server = Server::start().await;
    let client = server.client();
    client.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    (server, client)
}

#[tokio::test]
async fn media_types_that_are_not_served() {
    let (_server, client) = with_one().await;
    let list = secrets("platform");
    let one = secret_path("s1");
    let get = |accept: &str| client.get(&one).accept(accept);
    let send = |content_type: &str| client.post(&list).body(content_type, "{}");
    let patch = |content_type: &str| client.request("PATCH", &one).body(content_type, "{}");
    let only = "406 NotAcceptable\nonly the following media types are accepted: application/json, application/yaml";
    let unknown = "415 UnsupportedMediaType\nthe body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let no_patch = "415 UnsupportedMediaType\nthe body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";
    all_refused(vec![
        (get("text/html"), only),
        (get("application/cbor"), only),
        (get("application/vnd.kubernetes.protobuf"), only),
        (get("application/json;q=0"), only),
        (get("application/json;as=Table;v=v2;g=meta.k8s.io"), only),
        (get("application/json;as=Nothing;v=v1;g=meta.k8s.io"), only),
        (
            client
                .get(&list)
                .accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
            only,
        ),
        (get("nonsense"), only),
        (send("text/plain"), unknown),
        (send("application/cbor"), unknown),
        (send("application/json, application/yaml"), unknown),
        (send("application/merge-patch+json"), unknown),
        (send("/"), unknown),
        (patch("application/json"), no_patch),
        (patch("application/cbor"), no_patch),
        (patch("application/apply-patch+cbor"), no_patch),
        (patch("text/plain"), no_patch),
    ])
    .await;
}

#[tokio::test]
async fn parameters_of_reads_that_make_no_sense() {
    let (_server, client) = with_one().await;
    let list = |query: &str| client.get(&format!("{}?{query}", secrets("platform")));
    let get = |query: &str| client.get(&format!("{}?{query}", secret_path("s1")));
    let number =
        |name: &str| format!("400 BadRequest\nquery parameter {name} must be a whole number");
    let flag =
        |name: &str| format!("400 BadRequest\nquery parameter {name} must be true, false, 1 or 0");
    let (limit, seconds) = (number("limit"), number("timeoutSeconds"));
    let (watch, bookmarks) = (flag("watch"), flag("allowWatchBookmarks"));
    let version = "400 BadRequest\ninvalid resource version: it must be a number";
    let forbidden = |field: &str, why: &str| {
        format!("422 Invalid\nListOptions.meta.k8s.io \"\" is invalid: {field}: Forbidden: {why}")
    };
    let no_version = forbidden(
        "resourceVersionMatch",
        "resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    let exact_zero = forbidden(
        "resourceVersionMatch",
        "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
    );
    let only_watches = forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
    let without_match = forbidden(
        "resourceVersionMatch",
        "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    let with_continue = forbidden(
        "resourceVersionMatch",
        "resourceVersionMatch is forbidden when continue is provided",
    );
    all_refused(vec![
        (list("limit=x"), &limit),
        (list("limit=-1"), &limit),
        (list("watch=maybe"), &watch),
        (list("watch=1&limit=x"), &limit),
        (list("timeoutSeconds=x"), &seconds),
        (list("watch=1&timeoutSeconds=1.5"), &seconds),
        (list("timeout=soon"), "400 BadRequest\nquery parameter timeout must be a duration, such as 32s"),
        (list("allowWatchBookmarks=2&watch=1"), &bookmarks),
        (list("resourceVersion=x"), version),
        (list("resourceVersion=-1"), version),
        (get("resourceVersion=x"), version),
        (list("watch=1&resourceVersion=x"), version),
        (list("resourceVersionMatch=Exact"), &no_version),
        (list("resourceVersionMatch=NotOlderThan"), &no_version),
        (list("resourceVersionMatch=Exact&resourceVersion=0"), &exact_zero),
        (list("resourceVersionMatch=Newest&resourceVersion=1"), "422 Invalid\nListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\""),
        (list("sendInitialEvents=true"), &only_watches),
        (list("watch=1&sendInitialEvents=true"), &without_match),
        (
            list("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1"),
            &without_match,
        ),
        (
            list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x"),
            &with_continue,
        ),
        (
            list("includeObject=All").accept("application/json;as=Table;v=v1;g=meta.k8s.io"),
            "400 BadRequest\nUnable to convert to Table as requested: unrecognized includeObject value: must be None, Metadata or Object",
        ),
        (
            list("export=true"),
            "400 BadRequest\nthe export parameter, deprecated since v1.14, is no longer supported",
        ),
    ])
    .await;
}

/// The dynamic client of Python, and so kubernetes.core of Ansible, sends selectors and `watch` with each GET.
#[tokio::test]
async fn options_of_other_requests_do_not_decide_a_read() {
    let (_server, client) = with_one().await;
    let (one, list) = (secret_path("s1"), secrets("platform"));
    let of_lists = "labelSelector=&fieldSelector=metadata.name%3Dother&limit=0&limit=x&continue=x\
                    &watch=true&timeoutSeconds=5&allowWatchBookmarks=1&sendInitialEvents=true";
    let of_writes = "dryRun=All&fieldManager=m&force=true&gracePeriodSeconds=5&uid=x";
    for path in [
        format!("{one}?{of_lists}&{of_writes}"),
        format!("{list}?limit=1&{of_writes}"),
        format!("{one}/entries?{of_lists}&{of_writes}"),
        format!("{GROUP}/users/admin/accesskeys?limit=1&{of_writes}"),
    ] {
        let reply = client.get(&path).send().await;
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.warnings(), [""; 0], "{path}");
    }
    let reply = client.get(&format!("{one}?LabelSelector=a&wach=true")).send().await;
    assert_eq!(reply.status, 200);
    let of_case = r#"299 - "unknown query parameter \"LabelSelector\" has no effect: did you mean labelSelector?""#;
    let unknown = r#"299 - "unknown query parameter \"wach\" has no effect: did you mean watch?""#;
    assert_eq!(reply.warnings(), [of_case, unknown]);
    // On a write, an option of another request is a warning, and an option of no request is
    // refused.
    for (query, status) in [
        ("labelSelector=a", 200),
        ("watch=true", 200),
        ("force=true", 200),
        ("LabelSelector=a", 400),
        ("wach=true", 400),
    ] {
        let reply = client.delete(&format!("{one}?dryRun=All&{query}")).send().await;
        assert_eq!(reply.status, status, "{query}");
        assert_eq!(reply.warnings().len(), usize::from(status == 200), "{query}");
    }
    client.get(&one).send().await.expect(200);
}

#[tokio::test]
async fn parameters_of_writes_that_make_no_sense() {
    let (_server, client) = with_one().await;
    let create = |query: &str| {
        client.post(&format!("{}?{query}", secrets("platform"))).json(&secret("s2", "v"))
    };
    let delete = |query: &str| client.delete(&format!("{}?{query}", secret_path("s1")));
    let flag =
        |name: &str| format!("400 BadRequest\nquery parameter {name} must be true, false, 1 or 0");
    let (pretty, orphan) = (flag("pretty"), flag("orphanDependents"));
    let invalid = |kind: &str, what: &str| {
        format!("422 Invalid\n{kind}Options.meta.k8s.io \"\" is invalid: {what}")
    };
    let dry_run = |kind: &str, values: &str| {
        let what =
            format!("dryRun: Unsupported value: []string{{{values}}}: supported values: \"All\"");
        invalid(kind, &what)
    };
    let unprintable =
        invalid("Create", "fieldManager: Invalid value: should only contain printable characters");
    let rows = [
        (create("dryRun=Some"), dry_run("Create", "\"Some\"")),
        (create("dryRun="), dry_run("Create", "\"\"")),
        (create("dryRun=All&dryRun=None"), dry_run("Create", "\"All\", \"None\"")),
        (
            create("fieldValidation=strict"),
            invalid(
                "Create",
                "fieldValidation: Unsupported value: \"strict\": supported values: \"Ignore\", \"Warn\", \"Strict\"",
            ),
        ),
        (create("fieldManager=%E2%80%8B"), unprintable.clone()),
        (create("fieldManager=a%C2%A0b"), unprintable.clone()),
        (create("fieldManager=%07"), unprintable),
        (
            create(&format!("fieldManager={}", "m".repeat(129))),
            invalid("Create", "fieldManager: Too long: may not be more than 128 bytes"),
        ),
        (create("pretty=perhaps"), pretty),
        (
            client.patch(&format!("{}?force=true", secret_path("s1")), "merge-patch", &json!({})),
            invalid("Patch", "force: Forbidden: may not be specified for non-apply patch"),
        ),
        (
            delete("gracePeriodSeconds=x"),
            "400 BadRequest\nquery parameter gracePeriodSeconds must be a whole number".to_owned(),
        ),
        (
            delete("propagationPolicy=Sideways"),
            invalid(
                "Delete",
                "propagationPolicy: Unsupported value: \"Sideways\": supported values: \"Foreground\", \"Background\", \"Orphan\"",
            ),
        ),
        (
            delete("orphanDependents=true&propagationPolicy=Orphan"),
            invalid(
                "Delete",
                "propagationPolicy: Forbidden: orphanDependents and propagationPolicy cannot be both set",
            ),
        ),
        (delete("orphanDependents=perhaps"), orphan),
        (delete("dryRun=all"), dry_run("Delete", "\"all\"")),
    ];
    let (requests, expected): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    all_refused(requests.into_iter().zip(expected.iter().map(String::as_str)).collect()).await;
    client.get(&secret_path("s1")).send().await.expect(200);
    client.get(&secret_path("s2")).send().await.expect(404);
}

#[tokio::test]
async fn selectors_that_cannot_be_read() {
    let (_server, client) = with_one().await;
    let bad = |why: &str| format!("400 BadRequest\nunable to parse requirement: {why}");
    let part = bad("expected a comma, a value or the end of a list of values");
    let (key, number) = (bad("expected a label's key"), bad("> and < require a whole number"));
    let operator = bad("expected =, ==, !=, in, notin, > or < after the key");
    let name = bad(
        "key \"-a\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
    let mut rows = Vec::new();
    for (selector, expected) in [
        ("a in b", &part),
        ("a in (b", &part),
        ("a=b,,c", &key),
        ("=b", &key),
        ("!", &key),
        ("a b", &operator),
        ("a notin b)", &part),
        ("-a=b", &name),
        ("a=b c", &part),
        ("a>x", &number),
        ("a gt 1", &operator),
        ("a lt 1", &operator),
        ("a in ()c", &part),
    ] {
        for watch in ["", "watch=1&"] {
            let path =
                format!("{}?{watch}labelSelector={}", secrets("platform"), escaped(selector));
            rows.push((client.get(&path), expected.as_str()));
        }
    }
    for (selector, expected) in [
        ("spec.data=x", "400 BadRequest\nfield label not supported: spec.data"),
        ("status.phase=x", "400 BadRequest\nfield label not supported: status.phase"),
        (
            "metadata.name",
            "400 BadRequest\ninvalid selector: \"metadata.name\"; can't understand it",
        ),
        ("metadata.name=a\\", "400 BadRequest\ninvalid field selector: it ends in a backslash"),
        (
            "metadata.name>a",
            "400 BadRequest\ninvalid selector: \"metadata.name>a\"; can't understand it",
        ),
    ] {
        for watch in ["", "watch=1&"] {
            let path =
                format!("{}?{watch}fieldSelector={}", secrets("platform"), escaped(selector));
            rows.push((client.get(&path), expected));
        }
    }
    all_refused(rows).await;
}

#[tokio::test]
async fn continue_tokens_of_others() {
    let (_server, client) = with_one().await;
    client.post(&secrets("platform")).json(&secret("s2", "v")).send().await.expect(201);
    let first = client.get(&format!("{}?limit=1", secrets("platform"))).send().await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let list = |query: &str| client.get(&format!("{}?{query}", secrets("platform")));
    let no_base64 = "400 BadRequest\ncontinue key is not valid: it is not base64";
    all_refused(vec![
        (list("limit=1&continue=x"), no_base64),
        (list("limit=1&continue=%2e%2e%2f"), no_base64),
        // {"v":"meta.k8s.io/v1","rv":1,"start":"../../secrets"}
        (list("limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzIn0"),
            "400 BadRequest\ncontinue key is not valid: it does not point to an object of this list"),
        (list(&format!("limit=1&continue={token}x")), "400 BadRequest\ncontinue key is not valid: it is not a token"),
        (list(&format!("limit=1&continue={token}&resourceVersion=1")),
            "400 BadRequest\nspecifying resource version is not allowed when using continue"),
        (list(&format!("limit=1&continue={token}&resourceVersionMatch=Exact")),
            "422 Invalid\nListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided]"),
    ])
    .await;
}

fn in_namespace(mut object: serde_json::Value, namespace: &str) -> serde_json::Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

fn at_version(mut object: serde_json::Value, version: &str) -> serde_json::Value {
    object["metadata"]["resourceVersion"] = version.into();
    object
}

#[tokio::test]
async fn bodies_and_addresses_that_contradict() {
    let (_server, client) = with_one().await;
    let (list, one) = (secrets("platform"), secret_path("s1"));
    let unversioned = "422 Invalid\nSharedSecret.management.platform.sh \"s1\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    let post = |body: &str| client.post(&list).body("application/json", body.to_owned());
    let put = |value: serde_json::Value| client.put(&one).json(&value);
    let deleting =
        |body: &str| client.request("DELETE", &one).body("application/json", body.to_owned());
    let no_object = "400 BadRequest\nSharedSecret in version \"v1\" cannot be handled as a SharedSecret: the body is not an object";
    let found = client.get(&one).send().await.expect(200);
    let uid = found["metadata"]["uid"].as_str().unwrap();
    let other_uid = format!(
        "409 Conflict\nOperation cannot be fulfilled on sharedsecrets.management.platform.sh \"s1\": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
    );
    let unsupported = |verb: &str| {
        format!(
            "405 MethodNotAllowed\n{verb} is not supported on resources of kind \
             \"sharedsecrets.management.platform.sh\""
        )
    };
    let (create, update, options) =
        (unsupported("create"), unsupported("update"), unsupported("options"));
    all_refused(vec![
        (post(""), "400 BadRequest\nEOF while parsing a value at line 1 column 0"),
        (post("{"), "400 BadRequest\nEOF while parsing an object at line 1 column 1"),
        (post("[]"), no_object),
        (post("null"), no_object),
        (post("{\"kind\":\"Team\"}"),
            "400 BadRequest\nthe kind in the data (Team) does not match the expected kind (SharedSecret)"),
        (post("{\"apiVersion\":\"v1\"}"), "400 BadRequest\nthe API version in the data (v1) does not match the expected API version (management.platform.sh/v1)"),
        (post("{\"metadata\":{\"name\":7}}"),
            "400 BadRequest\nSharedSecret in version \"v1\" cannot be handled as a SharedSecret: metadata.name: expected string, got number"),
        (post("{\"metadata\":{\"name\":\"x\",\"namespace\":\"default\"}}"),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (post("{\"metadata\":{}}"),
            "422 Invalid\nSharedSecret.management.platform.sh \"\" is invalid: metadata.name: Required value: name or generateName is required"),
        (post("{\"metadata\":{\"name\":\"a/b\"}}"),
            "422 Invalid\nSharedSecret.management.platform.sh \"a/b\" is invalid: metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        (put(in_namespace(secret("s1", "v"), "default")),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (client.patch(&one, "merge-patch", &json!({"metadata": {"namespace": "default"}})),
            "400 BadRequest\nthe namespace of the provided object does not match the namespace sent on the request"),
        (put(secret("other", "v")), "400 BadRequest\nthe name of the object (other) does not match the name on the URL (s1)"),
        (put(secret("s1", "v")), unversioned),
        (put(at_version(secret("s1", "v"), "0")), unversioned),
        (client.patch(&one, "merge-patch", &json!({"metadata": {"resourceVersion": "0"}})), unversioned),
        (put(at_version(secret("s1", "v"), "x")),
            "400 BadRequest\ninvalid resource version: it must be a number"),
        (deleting("{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}"), "400 BadRequest\nexpected DeleteOptions in the body"),
        (deleting("{\"propagationPolicy\":7}"), "400 BadRequest\nDeleteOptions cannot be read: propagationPolicy must be a string"),
        (deleting("{\"preconditions\":{\"uid\":\"other\"}}"), &other_uid),
        (client.post(&one).json(&secret("s1", "v")), &create),
        (client.put(&list).json(&secret("s1", "v")), &update),
        (client.request("OPTIONS", &list), &options),
        (client.get(&format!("{one}/status")), "404 NotFound\nthe server could not find the requested resource: this path below management.platform.sh/v1 is not served here: namespaces/NAMESPACE/sharedsecrets/NAME has entries, entry, readers"),
        (client.get(&format!("{GROUP}/nothings")), "404 NotFound\nthe server could not find the requested resource: this path below management.platform.sh/v1 is not served here"),
    ])
    .await;
}
