//! How kube-apiserver reads requests, and which requests are rejected because parsers differ.

use http::Request;
use proptest::prelude::*;

use super::*;

fn parse_with(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<KubeRequest, ApiError> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    KubeRequest::parse(&parts, parts.uri.path())
}

/// `VERB GROUP/VERSION RESOURCE[/SUB] NAMESPACE NAME`, or `VERB PATH`, or the code.
fn words(method: &str, path: &str) -> String {
    let request = match parse_with(method, path, &[]) {
        Ok(request) => request,
        Err(error) => return error.code().to_string(),
    };
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    match request.attributes() {
        Attributes::Resource { verb, group, resource, subresource, namespace, name } => {
            let sub = if subresource.is_empty() { "" } else { "/" };
            let (namespace, name) = (or_none(namespace), or_none(name));
            let version = request.version();
            format!("{verb} {group}/{version} {resource}{sub}{subresource} {namespace} {name}")
        }
        Attributes::Description { verb, path } => format!("{verb} description {path}"),
        Attributes::Path { verb, path } => format!("{verb} path {path}"),
    }
}

#[test]
fn paths_and_methods_are_read_as_kube_apiserver_does() {
    for (method, path, want) in [
        ("GET", "/api/v1/pods", "list /v1 pods - -"),
        ("GET", "/api/v1/namespaces/a/pods", "list /v1 pods a -"),
        ("GET", "/api/v1/namespaces/a/pods/", "list /v1 pods a -"),
        ("HEAD", "/api/v1/namespaces/a/pods", "list /v1 pods a -"),
        ("GET", "/api/v1/namespaces/a/pods/x", "get /v1 pods a x"),
        ("HEAD", "/api/v1/namespaces/a/pods/x", "get /v1 pods a x"),
        ("GET", "/api/v1/namespaces/a/pods/x/log", "get /v1 pods/log a x"),
        ("POST", "/api/v1/namespaces/a/pods", "create /v1 pods a -"),
        ("POST", "/api/v1/namespaces/a/pods/x/exec", "create /v1 pods/exec a x"),
        ("GET", "/api/v1/namespaces/a/pods/x/exec", "get /v1 pods/exec a x"),
        ("PUT", "/api/v1/namespaces/a/pods/x/status", "update /v1 pods/status a x"),
        ("PATCH", "/api/v1/namespaces/a/pods/x", "patch /v1 pods a x"),
        ("DELETE", "/api/v1/namespaces/a/pods/x", "delete /v1 pods a x"),
        ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection /v1 pods a -"),
        ("PUT", "/api/v1/namespaces/a/pods", "update /v1 pods a -"),
        ("GET", "/api/v1/namespaces", "list /v1 namespaces - -"),
        ("GET", "/api/v1/namespaces/a", "get /v1 namespaces - a"),
        ("PUT", "/api/v1/namespaces/a/finalize", "update /v1 namespaces/finalize - a"),
        ("GET", "/api/v1/namespaces/a/status", "get /v1 namespaces/status - a"),
        ("GET", "/api/v1/nodes/n/proxy/metrics/cadvisor", "get /v1 nodes/proxy - n"),
        (
            "POST",
            "/api/v1/namespaces/a/services/https:s:8443/proxy/x",
            "create /v1 services/proxy a https:s:8443",
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "get apps/v1 deployments/scale a d",
        ),
        ("GET", "/apis/apps/v1/deployments", "list apps/v1 deployments - -"),
        (
            "GET",
            "/apis/custom.metrics.k8s.io/v1beta1/namespaces/a/pods/*/http_requests",
            "get custom.metrics.k8s.io/v1beta1 pods/http_requests a *",
        ),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            "get rbac.authorization.k8s.io/v1 clusterroles - system:node",
        ),
        ("GET", "/api/v1/watch/pods", "watch /v1 pods - -"),
        ("GET", "/api/v1/watch/namespaces/a/pods/x", "watch /v1 pods a x"),
        ("GET", "/api/v1/watch/namespaces/a", "watch /v1 namespaces - a"),
        ("GET", "/", "get path /"),
        ("GET", "/api", "get description /api"),
        ("GET", "/api/", "get description /api/"),
        ("GET", "/api/v1", "get description /api/v1"),
        ("GET", "/apis/apps/v1", "get description /apis/apps/v1"),
        ("POST", "/apis", "post description /apis"),
        ("GET", "/openapi/v3/apis/apps/v1", "get description /openapi/v3/apis/apps/v1"),
        ("GET", "/version", "get description /version"),
        ("GET", "/healthz/etcd", "get path /healthz/etcd"),
        ("GET", "/logs/", "get path /logs/"),
        ("GET", "/.well-known/openid-configuration", "get path /.well-known/openid-configuration"),
        ("GET", "/apix/v1/pods", "get path /apix/v1/pods"),
    ] {
        assert_eq!(words(method, path), want, "{method} {path}");
    }
}

#[test]
fn a_query_makes_a_watch_and_names_one_object() {
    let pods = |query: &str| words("GET", &format!("/api/v1/namespaces/a/pods{query}"));
    for (query, want) in [
        ("?watch=1", "watch /v1 pods a -"),
        ("?watch", "watch /v1 pods a -"),
        ("?w%61tch=true", "watch /v1 pods a -"),
        ("?watch=false", "list /v1 pods a -"),
        ("?watch=1&watch=1", "watch /v1 pods a -"),
        ("?fieldSelector=metadata.name%3Dx", "list /v1 pods a x"),
        ("?watch=1&fieldSelector=spec.nodeName!%3Dn,metadata.name%3Dx", "watch /v1 pods a x"),
        ("?fieldSelector=metadata.name!%3Dx", "list /v1 pods a -"),
        ("?fieldSelector=metadata.name%3D..", "list /v1 pods a -"),
        ("?fieldSelector=metadata.name%3Dx%2Fy", "list /v1 pods a -"),
        ("?fieldSelector=", "list /v1 pods a -"),
        ("/x?watch=1", "get /v1 pods a x"),
        ("/x?fieldSelector=metadata.name%3Dy", "get /v1 pods a x"),
        ("?watch=maybe", "400"),
        ("?watch=1&watch=0", "400"),
        ("?fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy", "400"),
        ("?fieldSelector=x", "400"),
        ("?watch=1;x=2", "400"),
        ("?x=%zz", "400"),
        ("?x=%ff", "400"),
        ("?%", "400"),
    ] {
        assert_eq!(pods(query), want, "{query}");
    }
    // Kubernetes authorizes it without a name, regardless of the selector.
    let all = words("DELETE", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx");
    assert_eq!(all, "deletecollection /v1 pods a -");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    for path in [
        "//api/v1/pods",
        "/api//v1/pods",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces/a/pods//",
        "/api/v1/namespaces/a/../b/pods",
        "/api/v1/namespaces/a/./pods",
        "/api/v1/namespaces/a/%2e%2e/b/pods",
        "/api/v1/namespaces/a/%2E/pods",
        "/api/v1/namespaces/a%2fpods",
        "/api/v1/namespaces/a%2Fpods/x",
        "/api/v1/namespaces/a%252fpods",
        "/api/v1/namespaces/a%5cpods",
        "/api/v1/namespaces/a/pods;x=1",
        "/api/v1/namespaces/a/pods%3bx",
        "/api/v1/namespaces/a;x/pods",
        "/api/v1/namespaces/a/pods/x%00",
        "/api/v1/namespaces/a/pods/x%0d%0aX",
        "/api/v1/namespaces/a/pods/x%3fwatch=1",
        "/api/v1/namespaces/a/pods/x%23",
        "/api/v1/namespaces/a/pods/%c0%ae%c0%ae",
        "/api/v1/namespaces/a/pods/%",
        "/api/v1/namespaces/a/pods/%2",
        "/api/v1/namespaces/a/pods/%zz",
        "/api/v1/namespaces/A/pods",
        "/api/v1/namespaces/a.b/pods",
        "/api/v1/namespaces/a%20/pods",
        "/api/v1/namespaces/%61%20/pods",
        "/api/V1/pods",
        "/apis/Apps/v1/pods",
        "/apis/apps%2fv1/v1/pods",
        "/apis/apps/v1/po%20ds",
        "/api/v1/watch",
        "/api/v1/proxy/namespaces/a/pods/x",
        "/api/v1/namespaces/a/nodes/x",
        "/api/v1/namespaces/a/services/s/proxy/../../x",
        "/api/v1/namespaces/a/services/s/proxy/%2e%2e/x",
        "/api/v1/namespaces/a/services/s/proxy//x",
        "*",
    ] {
        assert_eq!(words("GET", path), "400", "{path}");
    }
    assert_eq!(words("POST", "/api/v1/watch/pods"), "400");
    for method in ["OPTIONS", "TRACE", "CONNECT", "PROPFIND"] {
        let (parts, ()) = Request::builder().method(method).body(()).unwrap().into_parts();
        let refused = KubeRequest::parse(&parts, "/api/v1/pods").unwrap_err();
        assert_eq!(refused.code(), 405, "{method}");
    }
    assert_eq!(words("GET", &format!("/{}", "x".repeat(MAX_PATH_BYTES))), "400");
}

#[test]
fn an_absolute_target_is_refused_over_http_1_alone() {
    let parse = |version, uri: &str| {
        let (parts, ()) =
            Request::builder().uri(uri).version(version).body(()).unwrap().into_parts();
        KubeRequest::parse(&parts, parts.uri.path()).is_ok()
    };
    assert!(!parse(Version::HTTP_11, "http://other/api/v1/pods"));
    assert!(parse(Version::HTTP_11, "/api/v1/pods"));
    // Over HTTP/2, every request has an authority.
    assert!(parse(Version::HTTP_2, "https://server/api/v1/pods"));
}

#[test]
fn what_is_sent_on_is_written_anew() {
    for (path, want) in [
        ("/api/v1/namespaces/a/pods/", "/api/v1/namespaces/a/pods"),
        ("/api/v1/n%61mespaces/%61/pods", "/api/v1/namespaces/a/pods"),
        ("/api/v1/nodes/n/proxy/a%20b/c%7E/", "/api/v1/nodes/n/proxy/a%20b/c~/"),
        ("/api/v1/nodes/n/proxy/", "/api/v1/nodes/n/proxy/"),
        ("/apis/g/v1/things/%C3%A9", "/apis/g/v1/things/%C3%A9"),
        ("/openapi/v3/", "/openapi/v3/"),
        ("/", "/"),
        ("/version?", "/version"),
        ("/api/v1/pods?watch=1&&limit=5", "/api/v1/pods?watch=1&limit=5"),
        ("/api/v1/pods?watch", "/api/v1/pods?watch"),
        ("/api/v1/pods?a+b=c%2Bd%26e&x=/y", "/api/v1/pods?a%20b=c%2Bd%26e&x=/y"),
        (
            "/api/v1/namespaces/a/pods/x/exec?command=sh&command=-c&command=echo%0A1",
            "/api/v1/namespaces/a/pods/x/exec?command=sh&command=-c&command=echo%0A1",
        ),
    ] {
        assert_eq!(parse_with("GET", path, &[]).unwrap().path_and_query(), want, "{path}");
    }
}

#[test]
fn who_asks_for_their_own_access_changes_nothing() {
    let changes = |method: &str, path: &str, headers: &[(&str, &str)]| {
        parse_with(method, path, headers).unwrap().changes()
    };
    for path in [
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    ] {
        assert!(!changes("POST", path, &[]), "{path}");
        assert!(changes("POST", path, &[("upgrade", "websocket")]), "{path}");
        assert!(changes("DELETE", path, &[]), "{path}");
    }
    for path in [
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io.example/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/a/pods",
    ] {
        assert!(changes("POST", path, &[]), "{path}");
    }
}

#[test]
fn upgrades_and_long_requests() {
    let of = |path: &str, headers: &[(&str, &str)]| parse_with("GET", path, headers).unwrap();
    let pod = "/api/v1/namespaces/a/pods/x";
    for (path, headers, is_upgrade, is_long) in [
        (pod, &[][..], false, false),
        ("/api/v1/pods?watch=1", &[], false, true),
        ("/api/v1/namespaces/a/pods/x/log", &[], false, false),
        ("/api/v1/namespaces/a/pods/x/log?follow=true", &[], false, true),
        ("/api/v1/namespaces/a/pods/x/exec", &[], false, true),
        ("/api/v1/namespaces/a/pods/x/proxy", &[], false, true),
        (pod, &[("upgrade", "websocket")], true, true),
        (pod, &[("connection", "keep-alive, Upgrade")], true, true),
        (pod, &[("connection", "keep-alive")], false, false),
    ] {
        let request = of(path, headers);
        assert_eq!((request.is_upgrade(), request.is_long()), (is_upgrade, is_long), "{path}");
    }
    let verbs = |request: KubeRequest| request.required_verbs().collect::<Vec<_>>();
    assert_eq!(verbs(of(pod, &[("upgrade", "SPDY/3.1")])), ["get", "create"]);
    assert_eq!(verbs(of("/api/v1/pods?watch=1", &[("upgrade", "websocket")])), ["watch"]);
}

#[test]
fn the_value_of_an_access_key_is_refused_and_not_repeated() {
    let mut next = 0_u8;
    let key = access_key::generate(&mut || {
        next = next.wrapping_add(41);
        next
    });
    let path = format!("/api/v1/namespaces/a/secrets/{}", key.expose());
    let refused = parse_with("GET", &path, &[]).unwrap_err();
    assert!(refused.code() == 400 && !refused.status().message.contains("pst_"));
}

proptest! {
    /// The forwarded request is read as the same, and is written the same again.
    #[test]
    fn what_is_sent_on_is_read_as_the_same(
        method in prop::sample::select(&["GET", "POST", "DELETE", "PUT"][..]),
        steps in prop::collection::vec("(api|apis|v1|namespaces|watch|a|[a-z%;.0-9~é +]{1,4}|%2e|%41)", 0..7),
        query in "(|\\?[a-zA-Z0-9=&%+;]{0,12}|\\?watch=1|\\?fieldSelector=metadata.name%3Da)",
    ) {
        let path = format!("/{}{query}", steps.join("/"));
        let Ok(uri) = path.parse::<http::Uri>() else { return Ok(()) };
        let Ok(first) = parse_with(method, &uri.to_string(), &[]) else { return Ok(()) };
        let sent = first.path_and_query().to_owned();
        let second = parse_with(method, &sent, &[]).unwrap();
        prop_assert_eq!(&first, &second);
        prop_assert!(!sent.contains("//") && !sent.contains("/../") && !sent.contains(';'));
        prop_assert!(sent.is_ascii() && !sent.to_ascii_lowercase().contains("%2f"));
    }

    /// No bytes make it panic.
    #[test]
    fn no_path_makes_it_panic(path in "[ -~]{0,60}") {
        let (parts, ()) = Request::builder().body(()).unwrap().into_parts();
        let _ = KubeRequest::parse(&parts, &path);
    }
}
