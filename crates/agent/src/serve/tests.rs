//! Requests to an agent, with a JWT each, and the responses to them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use postern_auth::endpoint_token::{Claims, PlatformClaims, SKEW_SECONDS};
use postern_auth::gateway_path::OF_WORKLOAD;
use postern_kinds::agent_config::{Revocation, Spec};
use postern_kinds::audit_event_list::AuditEvent;

use crate::testing::{NOW, Scene, claims, read, spec_with};

const POD: &str = "/kubernetes/cluster/api/v1/namespaces/own/pods/x";
const WATCH: &str = "/kubernetes/cluster/api/v1/pods?watch=1";

#[tokio::test]
async fn a_request_under_way_gets_the_answer_of_a_new_one_when_its_right_ends() {
    let mut scene = Scene::new().await;
    let state = scene.agent.state.clone();
    let revocations = vec![Revocation { uid: "uid-k".to_owned(), revocation_revision: 11 }];
    let revoked = Spec { revocations, ..spec_with(&scene.key) };
    let unused = Spec { uses: Vec::new(), ..spec_with(&scene.key) };
    for (said, code, word) in [(revoked, 401, "Unauthorized"), (unused, 403, "cannot use")] {
        for path in [POD.to_owned(), WATCH.to_owned()] {
            state.apply_config(spec_with(&scene.key), NOW);
            scene.holds.send_replace(true);
            let mut client = scene.client().await;
            let request = scene.request("GET", &path);
            let end = async {
                scene.arrived.recv().await.unwrap();
                state.apply_config(said.clone(), NOW);
            };
            let (answer, ()) = tokio::join!(client.send_request(request), end);
            let (found, retry_after, body) = read(answer.unwrap()).await;
            assert_eq!((found, retry_after), (code, None), "{path}: {body}");
            assert!(body.contains(word), "{body}");
        }
    }
    scene.holds.send_replace(false);
    state.apply_config(spec_with(&scene.key), NOW);
    let mut client = scene.client().await;
    let answer = client.send_request(scene.request("GET", POD)).await.unwrap();
    assert_eq!(read(answer).await, (200, None, "{}".to_owned()));
}

#[tokio::test]
async fn a_401_is_marked_when_it_is_a_workloads_and_only_then() {
    const BY_PROXY: &str = "/kubernetes/cluster/api/v1/namespaces/own/services/x/proxy/login";
    let scene = Scene::new().await;
    let mut client = scene.client().await;
    let mut bad = claims();
    bad.aud = vec!["platform.sh/cluster:other".to_owned()];
    for (code, path, says, want, is_marked) in [
        (StatusCode::UNAUTHORIZED, BY_PROXY, claims(), 401, true),
        (StatusCode::UNAUTHORIZED, POD, claims(), 502, false),
        (StatusCode::OK, BY_PROXY, claims(), 200, false),
        // A 401 of the agent itself, regardless of the upstream.
        (StatusCode::UNAUTHORIZED, BY_PROXY, bad, 401, false),
    ] {
        *scene.answer.lock() = (code, "{}".to_owned());
        let request = scene.request_of(&says, "GET", path);
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.headers().contains_key(OF_WORKLOAD), is_marked, "{code} {path}");
        assert_eq!(read(answer).await.0, want, "{code} {path}");
    }
}

#[tokio::test]
async fn a_caller_with_too_many_requests_under_way_gets_429_and_others_are_served() {
    let mut scene = Scene::new().await;
    scene.holds.send_replace(true);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(scene.client().await);
    }
    let (requests, watch) =
        ([scene.request("GET", POD), scene.request("GET", POD)], scene.request("GET", WATCH));
    let [one, two, three] = &mut clients[..] else { unreachable!() };
    let [first, second] = requests;
    let held = async { tokio::join!(one.send_request(first), two.send_request(second)) };
    let meanwhile = async {
        scene.arrived.recv().await.unwrap();
        scene.arrived.recv().await.unwrap();
        let third = three.send_request(scene.request("GET", POD)).await.unwrap();
        let (code, retry_after, body) = read(third).await;
        assert_eq!((code, retry_after.as_deref()), (429, Some("1")), "{body}");
        // A watch is counted apart, and so is another caller.
        let others = async {
            scene.arrived.recv().await.unwrap();
            scene.holds.send_replace(false);
        };
        let (answer, ()) = tokio::join!(three.send_request(watch), others);
        assert_eq!(read(answer.unwrap()).await.0, 200);
    };
    let ((first, second), ()) = tokio::join!(held, meanwhile);
    assert_eq!((read(first.unwrap()).await.0, read(second.unwrap()).await.0), (200, 200));
    let in_flight = scene.agent.flow.in_flight();
    assert_eq!((in_flight.requests, in_flight.long_requests), (0, 0));
}

#[tokio::test]
async fn each_request_is_recorded_and_a_change_before_it_is_made() {
    let mut scene = Scene::new().await;
    let mut client = scene.client().await;
    scene.holds.send_replace(true);
    let change = client.send_request(scene.request("DELETE", POD));
    let before = async {
        scene.arrived.recv().await.unwrap();
        let records = scene.records().await;
        scene.holds.send_replace(false);
        records
    };
    let (answer, before) = tokio::join!(change, before);
    read(answer.unwrap()).await;
    let [received] = &before[..] else { panic!("{before:?}") };
    assert_eq!((received.stage.as_str(), received.verb.as_str()), ("RequestReceived", "delete"));
    assert_eq!(received.user.username, "ada");
    assert_eq!(received.user.extra["platform.sh/access-key"], ["k"]);
    assert_eq!(received.object_ref.as_ref().unwrap().name, "x");
    let mut eve = claims();
    "eve".clone_into(&mut eve.sub);
    let mut of_nobody = scene.request("GET", POD);
    of_nobody.headers_mut().remove("authorization");
    for request in [
        scene.request("GET", POD),
        scene.request_of(&eve, "GET", POD),
        of_nobody,
        scene.request("GET", WATCH),
    ] {
        read(client.send_request(request).await.unwrap()).await;
    }
    drop(client);
    let records = scene.records().await;
    let of = |record: &AuditEvent| {
        let code = record.response_status.as_ref().map(|status| status.code);
        (record.stage.clone(), record.verb.clone(), record.user.username.clone(), code)
    };
    let end = |verb: &str, user: &str, code| {
        ("ResponseComplete".to_owned(), verb.to_owned(), user.to_owned(), Some(code))
    };
    let found: Vec<_> = records.iter().map(of).collect();
    let started = ("ResponseStarted".to_owned(), "watch".to_owned(), "ada".to_owned(), Some(200));
    let want = [
        end("delete", "ada", 200),
        end("get", "ada", 200),
        end("get", "eve", 403),
        end("get", "", 401),
        started,
        end("watch", "ada", 200),
    ];
    assert_eq!(found, want);
    assert_eq!(records[0].audit_id, received.audit_id);
    assert_eq!(records[1].annotations["authorization.k8s.io/decision"], "allow");
    assert_eq!(records[2].annotations["authorization.k8s.io/decision"], "forbid");
}

#[tokio::test]
async fn the_id_of_the_client_is_that_of_the_records_when_it_is_a_uuid() {
    const UUID: &str = "5f3c2c1e-8c61-4b6e-9d2f-0a4b8f2f7c11";
    let scene = Scene::new().await;
    let mut client = scene.client().await;
    let mut ids = Vec::new();
    for (path, sent, is_its) in [
        (POD, UUID, true),
        (POD, "5F3C2C1E8C614B6E9D2F0A4B8F2F7C11", true),
        (POD, "not-a-uuid", false),
        // The agent's own answer, too.
        ("/nothing", UUID, true),
    ] {
        let mut request = scene.request("GET", path);
        request.headers_mut().insert("audit-id", sent.parse().unwrap());
        let answer = client.send_request(request).await.unwrap();
        let id = answer.headers()["audit-id"].to_str().unwrap().to_owned();
        assert_eq!(id == UUID, is_its, "{path} {sent}");
        ids.push((id, (!is_its).then(|| sent.to_owned())));
        read(answer).await;
    }
    drop(client);
    let of = |record: AuditEvent| {
        (record.audit_id, record.annotations.get("platform.sh/client-audit-id").cloned())
    };
    let mut found: Vec<_> = scene.records().await.into_iter().map(of).collect();
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
}

#[tokio::test]
async fn the_command_of_exec_is_recorded_unless_that_is_turned_off() {
    for is_on in [true, false] {
        let mut scene = Scene::new().await;
        let agent = Arc::get_mut(&mut scene.agent).unwrap();
        Arc::get_mut(&mut agent.audit).unwrap().set_has_commands(is_on);
        let mut client = scene.client().await;
        let (long, mut eve) = ("a".repeat(3000), claims());
        "eve".clone_into(&mut eve.sub);
        let secret = format!("{POD}/exec?command=pst_secret&command=x");
        let queries = [
            scene.request("GET", &format!("{POD}/exec?command=sh&stdin=true&command=-c&z=hidden")),
            scene.request("POST", &format!("{POD}/attach?command={long}")),
            scene.request_of(&eve, "POST", &format!("{POD}/exec?command=refused")),
            scene.request("POST", &secret),
            scene.request("GET", &format!("{POD}/log?command=none")),
        ];
        for request in queries {
            read(client.send_request(request).await.unwrap()).await;
        }
        drop(client);
        let records = scene.records().await;
        let of = |record: &AuditEvent| {
            ["platform.sh/exec-command", "platform.sh/exec-command-cut"]
                .map(|name| record.annotations.get(name).cloned().unwrap_or_default())
        };
        let ends = records.iter().filter(|record| record.stage == "ResponseComplete");
        let mut found: Vec<_> = ends.map(of).collect();
        found.sort();
        let cut = format!(r#"["{}"]"#, "a".repeat(2048));
        let mut want = [
            ["", ""],
            [r#"["(left-out)","x"]"#, ""],
            [&cut, "true"],
            [r#"["refused"]"#, ""],
            [r#"["sh","-c"]"#, ""],
        ];
        if !is_on {
            want = [["", ""]; 5];
        }
        assert_eq!(found, want);
        assert!(records.iter().all(|record| !format!("{record:?}").contains("hidden")));
    }
}

#[tokio::test]
async fn when_the_queue_is_full_changes_are_refused_and_reads_go_on_and_are_counted() {
    let mut scene = Scene::with_queue(1500).await;
    let mut client = scene.client().await;
    let mut codes = Vec::new();
    for _ in 0..4 {
        let answer = client.send_request(scene.request("DELETE", POD)).await.unwrap();
        codes.push(read(answer).await);
    }
    assert_eq!(codes[0].0, 200);
    let (code, retry_after, body) = &codes[3];
    assert_eq!((*code, retry_after.as_deref()), (503, Some("10")), "{body}");
    assert!(body.contains("audit records is full"), "{body}");
    let answer = client.send_request(scene.request("GET", POD)).await.unwrap();
    assert_eq!(read(answer).await.0, 200, "who reads is served");
    let review = "/kubernetes/cluster/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = client.send_request(scene.request("POST", review)).await.unwrap();
    assert_eq!(read(answer).await.0, 200, "who asks what they may do is served");
    assert!(scene.agent.audit.lost() > 0);
    while scene.arrived.try_recv().is_ok() {}
    // There is room again, and the next record says how many are missing.
    scene.records().await;
    let answer = client.send_request(scene.request("DELETE", POD)).await.unwrap();
    assert_eq!(read(answer).await.0, 200);
    let records = scene.records().await;
    assert!(records[0].annotations.contains_key("platform.sh/records-left-out"), "{records:?}");
}

#[tokio::test]
async fn failed_authentications_do_not_fill_the_queue() {
    let scene = Scene::new().await;
    let mut client = scene.client().await;
    for _ in 0..50 {
        let mut request = scene.request("DELETE", POD);
        request.headers_mut().insert("authorization", "Bearer x".parse().unwrap());
        assert_eq!(read(client.send_request(request).await.unwrap()).await.0, 401);
    }
    assert_eq!(scene.records().await.len(), 10);
    assert_eq!(scene.agent.audit.lost(), 40);
}

/// These requests need no token. The central server rejects a list with a record that has an
/// invalid verb or no path.
#[tokio::test]
async fn the_central_server_accepts_the_record_of_any_unauthenticated_request() {
    let scene = Scene::new().await;
    let long = "G".repeat(200);
    for (method, target) in [
        ("GET", "/pst_x"),
        ("OPTIONS", "*"),
        ("CONNECT", "agent.test:443"),
        ("GET!", POD),
        (long.as_str(), POD),
    ] {
        let mut request = scene.request(method, target);
        request.headers_mut().remove("authorization");
        let mut client = scene.client().await;
        let answer = client.send_request(request).await.unwrap();
        assert!(read(answer).await.0 >= 400);
    }
    let records = scene.records().await;
    let of = |record: &AuditEvent| (record.verb.clone(), record.request_uri.clone());
    let found: Vec<_> = records.iter().map(of).collect();
    let want = [
        ("get", "/(left-out)"),
        ("options", "/*"),
        ("connect", "/"),
        ("other", POD),
        ("other", POD),
    ];
    assert_eq!(found, want.map(|(verb, uri)| (verb.to_owned(), uri.to_owned())));
}

/// The cluster may have made it: only the answer says that it was refused.
#[tokio::test]
async fn a_change_that_was_sent_on_stays_allowed_in_its_record() {
    let mut scene = Scene::new().await;
    let state = scene.agent.state.clone();
    scene.holds.send_replace(true);
    let mut client = scene.client().await;
    let change = client.send_request(scene.request("DELETE", POD));
    let unused = Spec { uses: Vec::new(), ..spec_with(&scene.key) };
    let end = async {
        scene.arrived.recv().await.unwrap();
        state.apply_config(unused, NOW);
    };
    let (answer, ()) = tokio::join!(change, end);
    assert_eq!(read(answer.unwrap()).await.0, 403);
    drop(client);
    let records = scene.records().await;
    let last = &records.last().unwrap().annotations;
    assert_eq!(last["authorization.k8s.io/decision"], "allow");
    assert!(last["platform.sh/ended-by"].contains("cannot use"), "{last:?}");
}

/// Sends a watch with a token that ends in a second, lets two seconds pass, and returns whether it is still open.
async fn outlives_its_token(scene: &mut Scene, says: &Claims) -> bool {
    scene.holds.send_replace(true);
    let mut client = scene.client().await;
    let request = scene.request_of(says, "GET", WATCH);
    let meanwhile = async {
        scene.arrived.recv().await.unwrap();
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        // A new configuration makes each request look again.
        let groups = vec![says.jti.clone()];
        scene
            .agent
            .state
            .apply_config(Spec { forward_groups: groups, ..spec_with(&scene.key) }, NOW);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        scene.holds.send_replace(false);
    };
    let (answer, ()) = tokio::join!(client.send_request(request), meanwhile);
    read(answer.unwrap()).await.0 == 200
}

/// Without contact to the central server, a token expires by time alone, also a cached one, and also after a restart.
#[tokio::test]
async fn a_token_expires_while_the_central_server_is_silent() {
    let scene = Scene::new().await;
    let says = Claims { exp: NOW + 100, ..claims() };
    let ends = 100 + SKEW_SECONDS;
    let mut client = scene.client().await;
    for (after, code) in [(0, 200), (ends - 1, 200), (ends, 401), (ends + 1, 401)] {
        scene.set_seconds(NOW + after);
        let request = scene.request_of(&says, "GET", POD);
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(read(answer).await.0, code, "after {after} s");
    }
    // A restart keeps the configuration and the time of the last contact.
    let again = Scene::new().await;
    again.agent.state.apply_config(spec_with(&scene.key), NOW);
    again.set_seconds(NOW + ends);
    let mut client = again.client().await;
    let answer = client.send_request(scene.request_of(&says, "GET", POD)).await.unwrap();
    assert_eq!(read(answer).await.0, 401);
    let later = Claims { exp: NOW + 1000, ..claims() };
    let answer = client.send_request(scene.request_of(&later, "GET", POD)).await.unwrap();
    assert_eq!(read(answer).await.0, 200, "it is the token's end, and not that of the silence");
}

#[tokio::test]
async fn what_the_gateway_has_opened_goes_on_after_its_token_and_nothing_else_with_the_same_token()
{
    let mut scene = Scene::new().await;
    let mut says = Claims { exp: NOW + 1, jti: "one".to_owned(), ..claims() };
    assert!(!outlives_its_token(&mut scene, &says).await, "a watch ends with its token");
    says.platform.gateway_session = true;
    assert!(outlives_its_token(&mut scene, &says).await);
    // A second request with a stolen token gets nothing beyond any other request.
    assert!(!outlives_its_token(&mut scene, &says).await);
    "two".clone_into(&mut says.jti);
    assert!(outlives_its_token(&mut scene, &says).await, "each has its own");

    // A revocation ends it, as it ends every request.
    scene.holds.send_replace(true);
    "three".clone_into(&mut says.jti);
    let mut client = scene.client().await;
    let request = scene.request_of(&says, "GET", WATCH);
    let revocations = vec![Revocation { uid: "uid-k".to_owned(), revocation_revision: 11 }];
    let revoked = Spec { revocations, ..spec_with(&scene.key) };
    let state = scene.agent.state.clone();
    let end = async {
        scene.arrived.recv().await.unwrap();
        state.apply_config(revoked, NOW);
    };
    let (answer, ()) = tokio::join!(client.send_request(request), end);
    assert_eq!(read(answer.unwrap()).await.0, 401);
}

#[tokio::test]
async fn a_token_of_the_central_server_reads_the_documents_of_the_issuer_and_nothing_else() {
    let mut scene = Scene::new().await;
    let mut client = scene.client().await;
    let of_server = |audience: &str| Claims {
        aud: vec![audience.to_owned()],
        sub: "system:postern".to_owned(),
        platform: PlatformClaims::default(),
        ..claims()
    };
    let (own, other) = ("platform.sh/cluster-issuer:u", "platform.sh/cluster-issuer:x");
    let expired = Claims { exp: NOW - 2 * SKEW_SECONDS, ..of_server(own) };
    for path in ["/.well-known/openid-configuration", "/openid/v1/jwks"] {
        let at = format!("/kubernetes/cluster{path}");
        let request = scene.request_of(&of_server(own), "GET", &at);
        assert_eq!(read(client.send_request(request).await.unwrap()).await.0, 200, "{path}");
        assert_eq!(scene.arrived.recv().await.unwrap(), path);
        for says in [of_server(other), expired.clone()] {
            let request = scene.request_of(&says, "GET", &at);
            assert_eq!(read(client.send_request(request).await.unwrap()).await.0, 401, "{path}");
        }
    }
    for (method, path) in [
        ("POST", "/kubernetes/cluster/openid/v1/jwks"),
        ("GET", "/kubernetes/cluster/openid/v1/jwks/"),
        ("GET", "/kubernetes/cluster/openid/v1/../v1/jwks"),
        ("GET", "/kubernetes/cluster/openid/v1/jwks/../../api"),
        ("GET", "/kubernetes/cluster//openid/v1/jwks"),
        ("GET", "/kubernetes/cluster/openid"),
        ("GET", "/kubernetes/cluster/api"),
        ("GET", "/kubernetes/project/p/space/s/openid/v1/jwks"),
        ("GET", POD),
    ] {
        let request = scene.request_of(&of_server(own), method, path);
        let (code, ..) = read(client.send_request(request).await.unwrap()).await;
        assert!([400, 401, 404].contains(&code), "{method} {path}: {code}");
    }
    assert!(scene.arrived.try_recv().is_err(), "nothing else arrived at the cluster");
}
