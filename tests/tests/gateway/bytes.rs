//! Requests byte by byte: path tricks and smuggled headers are refused, or do not reach the cluster, by way of the
//! gateway and at an agent.

use postern_tests::http::Client;
use postern_tests::objects::collection;
use postern_tests::rights::{allow, rule_on};
use postern_tests::{Home, wait};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::gateway::recording::Recording;
use crate::gateway::scene::{AT_AGENT, ByAgent, Central, MEMBER, SECRETS};

/// Sends bytes, and returns the status of the first response.
async fn send(client: &Client, bytes: &[u8]) -> u16 {
    let mut stream = client.raw().await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut received = Vec::new();
    wait::within("a response", async {
        while !received.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = stream.read_buf(&mut received).await.unwrap_or(0);
            if read == 0 {
                break;
            }
        }
    })
    .await;
    let text = String::from_utf8_lossy(&received);
    text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
}

fn head(client: &Client, target: &str, headers: &str) -> Vec<u8> {
    let (address, token) = (client.address(), client.token());
    format!(
        "GET {target} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
    )
    .into_bytes()
}

/// A way to the cluster: through the gateway, or past it to the agent.
struct Way {
    recording: Recording,
    client: Client,
    /// The cluster's path.
    at: &'static str,
    _ends_with_it: (Option<Central>, Option<ByAgent>),
}

async fn ways(home: &Home) -> [Way; 2] {
    let (recording, behind) = (Recording::start().await, Recording::start().await);
    let central = Central::new(&recording.kubeconfig()).await;
    let by_agent = ByAgent::new(home, &behind.kubeconfig()).await;
    behind.take();
    let client = central.ada.clone();
    let gateway = Way { recording, client, at: MEMBER, _ends_with_it: (Some(central), None) };
    let client = by_agent.direct.clone();
    let ends_with_it = (None, Some(by_agent));
    [gateway, Way { recording: behind, client, at: AT_AGENT, _ends_with_it: ends_with_it }]
}

#[tokio::test]
async fn paths_that_can_be_read_in_two_ways_reach_nothing() {
    let home = Home::new();
    for way in ways(&home).await {
        no_such_path_reaches(&way).await;
        // The server writes a new path for the forwarded request.
        let Way { recording, client, at, .. } = &way;
        let encoded = format!("{at}/api/v1/n%61mespaces/%61/pods/?limit=5&&x=a+b");
        assert_eq!(send(client, &head(client, &encoded, "")).await, 200);
        let arrived = recording.take();
        assert_eq!(arrived[0].line, "GET /api/v1/namespaces/a/pods?limit=5&x=a%20b");
    }
}

async fn no_such_path_reaches(Way { recording, client, at, .. }: &Way) {
    for rest in [
        "//api/v1/namespaces/a/pods",
        "/api/v1//namespaces/a/pods",
        "/api/v1/namespaces/a/../b/pods",
        "/api/v1/namespaces/a/%2e%2e/b/pods",
        "/api/v1/namespaces/a/%2E./b/pods",
        "/api/v1/namespaces/a%2f..%2fb/pods",
        "/api/v1/namespaces/a%252fb/pods",
        "/api/v1/namespaces/a%5c..%5cb/pods",
        "/api/v1/namespaces/a;x=1/pods",
        "/api/v1/namespaces/a/pods%3bx",
        "/api/v1/namespaces/a/pods/x%0d%0aHost:y",
        "/api/v1/namespaces/a/pods/x%00",
        "/api/v1/namespaces/a/pods/%c0%ae%c0%ae",
        "/api/v1/namespaces/a/pods?watch=1;x",
        "/api/v1/namespaces/a/pods?watch=1&watch=0",
        "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy",
        "/api/v1/namespaces/A/pods",
        "/api/v1/proxy/namespaces/a/pods/x",
        "/../../management/api/v1/namespaces",
        "/%2e%2e/other/version",
    ] {
        let code = send(client, &head(client, &format!("{at}{rest}"), "")).await;
        assert_eq!(code, 400, "{at}{rest}");
    }
    let of_cluster = at.strip_prefix("/kubernetes/cluster").unwrap();
    let mut targets = vec![
        format!("https://other.example{at}/version"),
        "*".to_owned(),
        format!("/{at}/version"),
        format!("{at}%2fversion"),
        format!("/kubernetes/%63luster{of_cluster}/version"),
        format!("/kubernetes/./cluster{of_cluster}/version"),
    ];
    if *at == MEMBER {
        targets.push("/kubernetes/cluster/%6dember/version".to_owned());
    }
    for target in targets {
        let code = send(client, &head(client, &target, "")).await;
        assert!((400..500).contains(&code), "{target}: {code}");
    }
    assert!(recording.take().is_empty());
}

#[tokio::test]
async fn framing_tricks_reach_nothing() {
    let home = Home::new();
    for way in ways(&home).await {
        no_trick_of_framing_reaches(&way).await;
    }
}

async fn no_trick_of_framing_reaches(Way { recording, client, at, .. }: &Way) {
    let target = format!("{at}{SECRETS}");
    let without_host = head(client, &target, "");
    let without_host = String::from_utf8(without_host).unwrap().replace("Host:", "X-Host:");
    assert_eq!(send(client, without_host.as_bytes()).await, 400, "no Host at {at}");
    for headers in [
        "Host: other.example\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: a\r\n Impersonate-User: b\r\n",
        "Authorization: Bearer x\r\n",
        "Impersonate-User: bob\r\nImpersonate-User: eve\r\n",
        "Impersonate-Group: system:masters\r\n",
        "Connection: authorization\r\nImpersonate-Group: x\r\n",
    ] {
        let code = send(client, &head(client, &target, headers)).await;
        assert!((400..500).contains(&code) || code == 0, "{at}: {headers:?}: {code}");
    }
    assert!(recording.take().is_empty());
    // Two lengths: only the effective one is forwarded, and the following bytes are not read as a
    // request.
    for (first, second) in [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ] {
        let both = format!("{first}\r\n{second}\r\n");
        let mut bytes = head(client, &target, &both);
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes.extend(head(client, &format!("{at}/api/v1/smuggled"), ""));
        assert!([200, 400].contains(&send(client, &bytes).await));
        for arrived in recording.take() {
            assert!(!arrived.line.contains("smuggled"), "{arrived:?}");
            assert_eq!(arrived.values("content-length"), [""; 0]);
            assert!(arrived.body.is_empty());
        }
    }
}

/// CVE-2021-31999, CVE-2021-32813, CVE-2026-4525: a client that names headers in `Connection` removes
/// none of the gateway's headers. No header about an identity reaches a cluster from outside.
#[tokio::test]
async fn cve_2021_31999_headers_about_identity_are_the_gateways_alone() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let target = format!("{MEMBER}{SECRETS}");
    for named in ["Impersonate-User", "Authorization", "impersonate-group, x", "Host", "Audit-ID"] {
        let headers = format!("Connection: {named}\r\n");
        let code = send(&central.ada, &head(&central.ada, &target, &headers)).await;
        for arrived in recording.take() {
            assert_eq!(arrived.values("impersonate-user"), ["ada"], "{named}");
            assert_eq!(arrived.values("authorization"), ["Bearer credential-of-the-cluster"]);
        }
        assert!(code == 400 || code == 200, "{named}: {code}");
    }
    let headers = "X-Remote-User: admin\r\nX_Remote_Group: system:masters\r\nX-Forwarded-For: 1.2.3.4\r\n\
         Forwarded: for=1.2.3.4\r\nX-Real-Ip: 1.2.3.4\r\nCookie: a=b\r\nProxy-Authorization: x\r\n\
         Impersonate_User: admin\r\nX-Mine: kept\r\n";
    assert_eq!(send(&central.ada, &head(&central.ada, &target, headers)).await, 200);
    let arrived = recording.take();
    assert_eq!(arrived.len(), 1);
    let names: Vec<&str> = arrived[0].headers.keys().map(http::HeaderName::as_str).collect();
    assert!(names.contains(&"x-mine"), "{names:?}");
    for name in names {
        let plain = name.replace('_', "-");
        let is_foreign = ["x-remote-", "x-forwarded", "forwarded", "x-real-ip", "cookie", "proxy-"];
        assert!(!is_foreign.iter().any(|prefix| plain.starts_with(prefix)), "{name}");
        assert!(!name.contains('_'), "{name}");
    }
    assert_eq!(arrived[0].values("impersonate-user"), ["ada"]);
    assert!(!arrived[0].values("impersonate-group").contains(&"system:masters".to_owned()));
    assert_eq!(arrived[0].values("authorization"), ["Bearer credential-of-the-cluster"]);
    let text = format!("{arrived:?}");
    assert!(!text.contains(central.ada.token()), "the caller's key stays here");
}

/// CVE-2020-8559, CVE-2022-3172: a redirect is neither followed nor passed on to elsewhere; and a cluster that
/// refuses the gateway's credential does not make the caller's one look bad.
#[tokio::test]
async fn cve_2020_8559_redirects_and_refusals_of_a_cluster_are_its_own() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let get = async |path: &str| central.ada.get(&format!("{MEMBER}{path}")).send().await;
    let redirected = get("/redirect").await;
    assert!(redirected.header("location").is_none());
    redirected.expect(502);
    get("/refuse").await.expect(502);
    let answer = get("/version").await;
    assert!(answer.header("set-cookie").is_none());
    answer.expect(200);
}

/// A 401 of a workload behind `proxy` is for its client. One of the cluster is not, and neither is one of an agent that
/// refuses the gateway's token.
#[tokio::test]
async fn a_401_of_a_workload_passes_by_each_way_and_no_other() {
    const WORKLOAD: &str = "/api/v1/namespaces/a/services/x/proxy/refuse";
    const MARK: &str = "postern-answer-of-workload";
    let (recording, home) = (Recording::start().await, Home::new());
    let central = Central::new(&recording.kubeconfig()).await;
    let by_agent = ByAgent::new(&home, &recording.kubeconfig()).await;
    for (client, at) in
        [(&central.ada, MEMBER), (&by_agent.ada, MEMBER), (&by_agent.direct, AT_AGENT)]
    {
        let passed = client.get(&format!("{at}{WORKLOAD}")).send().await;
        assert_eq!((passed.status, passed.json()["kind"].as_str()), (401, Some("Recorded")));
        assert_eq!(passed.header(MARK).is_some(), at == AT_AGENT, "the gateway takes it away");
        client.get(&format!("{at}/refuse")).send().await.expect(502);
    }
    // The server answers like an agent that knows no token.
    let annotation = |suffix: &str| format!("platform.sh/direct-cluster-endpoint{suffix}");
    let annotations =
        json!({ annotation(""): recording.address(), annotation("-insecure"): "true" });
    let cluster = json!({ "metadata": { "name": "refusing", "annotations": annotations } });
    central.admin.post(&collection("clusters")).json(&cluster).send().await.expect(201);
    let rules = json!([rule_on("clusters", &["refusing"], &["use"])]);
    allow(&central.admin, "use-refusing", None, rules, "platform:user:ada").await;
    recording.take();
    let refused = central.ada.get(&format!("/kubernetes/cluster/refusing{WORKLOAD}")).send().await;
    assert_eq!(recording.take().len(), 1);
    refused.expect(502);
}

#[tokio::test]
async fn bodies_stream_to_a_cluster_whole() {
    let recording = Recording::start().await;
    let central = Central::new(&recording.kubeconfig()).await;
    let long = vec![b'x'; 5 * 1024 * 1024];
    let target = format!("{MEMBER}/api/v1/namespaces/a/pods/x/proxy/upload");
    let sent = central.ada.post(&target).body("application/octet-stream", long.clone());
    sent.send().await.expect(200);
    let arrived = recording.take();
    assert_eq!(arrived[0].body.len(), long.len());
}
