//! Requests that come through the tunnels of an agent: the agent listens nowhere, and only dials the central server.

use std::path::Path;
use std::time::Duration;

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::links::{From, Link, Links};
use postern_tests::rights::{merge, path};
use postern_tests::{Agent, AgentSetup, Form, Home, Kubeconfig, Server, TlsServer, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent::scene::{Central, SECRETS, agent_setup, make_space, member};

/// The cluster at the gateway.
const MEMBER: &str = "/kubernetes/cluster/member";

/// The longest that a request may hang, with some seconds for a busy machine.
const LONGEST_HANG: Duration = Duration::from_secs(55);

async fn tunnelled(central: &Central, member: &Server, home: &Home) -> Agent {
    agent_setup(central, &member.home().kubeconfig(), home).tunnel().await
}

/// Waits until a request through the gateway is answered by the cluster.
async fn until_reached(client: &Client) {
    wait::until("a request to get through", async || {
        let reply = client.get(&format!("{MEMBER}{SECRETS}")).try_send().await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
}

/// Waits until the condition Connected of the Cluster has this reason, and returns it.
async fn connected_by(admin: &Client, reason: &str) -> Value {
    wait::until("the condition Connected", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let conditions = cluster["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|one| one["type"] == "Connected")?;
        (found["reason"] == reason).then(|| found.clone())
    })
    .await
}

/// The state of a socket that listens, in the tables of the kernel.
const LISTENING: &str = "0A";

/// Whether a process listens anywhere.
fn listens(process: u32) -> bool {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.to_str()?.to_owned()))
        .collect();
    ["tcp", "tcp6"].into_iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap();
        table.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[3] == LISTENING && sockets.contains(&format!("socket:[{}]", fields[9]))
        })
    })
}

#[tokio::test]
async fn a_cluster_is_reached_although_its_agent_listens_nowhere() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    make_space(&admin).await;
    let without = admin.get(&format!("{MEMBER}/version")).send().await.expect_text(503);
    assert!(without.contains("has opened no tunnel"), "{without}");
    assert!(connected_by(&admin, "NoRoute").await["message"].as_str().unwrap().contains("tunnel"));

    let agent = tunnelled(&central, &member, &home).await;
    until_reached(&central.ada).await;
    assert!(!listens(agent.id()), "{}", agent.logged());
    assert!(listens(central.server.as_ref().unwrap().id()), "the test can see listeners");
    let secrets = format!("{MEMBER}{SECRETS}");
    let mut events = central.ada.get(&format!("{secrets}?watch=1")).stream().await;
    let object = json!({ "metadata": { "name": "s" }, "spec": {} });
    central.ada.post(&secrets).json(&object).send().await.expect(201);
    let added = wait::within("the event", events.next()).await.unwrap().unwrap();
    assert!(added.contains("\"ADDED\""), "{added}");
    let space = format!("/kubernetes/project/p/space/s{SECRETS}");
    let listed = central.ada.get(&space).send().await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    // The agent decides: eve may not use the cluster, and the gateway says so first.
    central.eve.get(&secrets).send().await.expect(403);

    let by_tunnel = connected_by(&admin, "Tunnel").await;
    assert_eq!(by_tunnel["status"], "True");
    assert!(by_tunnel["lastTransitionTime"].is_string());
    let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
    let agents = cluster["status"]["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 1, "{cluster}");
    let name = agents[0]["name"].as_str().unwrap();
    assert!(by_tunnel["message"].as_str().unwrap().contains(name), "{by_tunnel}");
    let user = CliUser::new().with("KUBECONFIG", central.home.kubeconfig().to_str().unwrap());
    let wide = user.ok(&["get", "clusters", "-o", "wide"]).await;
    let row = wide.lines().find(|line| line.starts_with("member")).unwrap();
    assert!(wide.contains("CONNECTION") && row.contains("Tunnel"), "{wide}");
    agent.stop().await;
    wait::until("the agent to leave the status", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        assert_eq!(cluster["metadata"]["name"], "member");
        cluster["status"]["agents"].is_null().then_some(())
    })
    .await;
    assert_eq!(connected_by(&admin, "NoRoute").await["status"], "False");
}

#[tokio::test]
async fn further_agents_of_a_cluster_add_tunnels_and_one_is_enough() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let kubeconfig = member.home().kubeconfig();
    let start = async |name: &str| {
        let setup = agent_setup(&central, &kubeconfig, &home).in_state_dir(name);
        setup.argument(format!("--name={name}")).tunnel().await
    };
    let (one, two) = (start("one").await, start("two").await);
    let admin = central.admin();
    wait::until("both agents in the status", async || {
        let cluster = admin.get(&path("clusters", "member")).send().await.expect(200);
        let agents = cluster["status"]["agents"].as_array()?;
        let names: Vec<_> = agents.iter().map(|agent| agent["name"].as_str().unwrap()).collect();
        (names == ["one", "two"]).then_some(())
    })
    .await;
    until_reached(&central.ada).await;
    one.kill();
    for _ in 0..20 {
        central.ada.get(&format!("{MEMBER}{SECRETS}")).send().await.expect(200);
    }
    two.stop().await;
}

#[tokio::test]
async fn spec_connection_chooses_the_route() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let admin = central.admin();
    let cluster = path("clusters", "member");
    let setup = agent_setup(&central, &member.home().kubeconfig(), &home);
    let agent = setup.argument("--advertise=127.0.0.1").start().await;
    agent.connected().await;
    let connection = async |value: &str| {
        merge(&admin, &cluster, json!({ "spec": { "connection": value } })).await
    };
    connection("Endpoint").await.expect(200);
    let by_endpoint = connected_by(&admin, "Endpoint").await;
    assert!(by_endpoint["message"].as_str().unwrap().contains(agent.address()), "{by_endpoint}");
    // The gateway of this server does not dial loopback addresses.
    let refused = central.ada.get(&format!("{MEMBER}{SECRETS}")).send().await;
    assert!(refused.expect_text(503).contains("could not be reached"));
    wait::until("the agent to say that no tunnel is wanted", async || {
        let cluster = admin.get(&cluster).send().await.expect(200);
        let conditions = cluster["status"]["conditions"].as_array()?;
        conditions.iter().find(|one| one["type"] == "Tunnel" && one["reason"] == "NotWanted")?;
        Some(())
    })
    .await;
    for value in ["Tunnel", "Auto"] {
        connection(value).await.expect(200);
        until_reached(&central.ada).await;
        connected_by(&admin, "Tunnel").await;
    }
    let invalid = connection("Carrier pigeon").await.expect_text(422);
    assert!(invalid.contains("spec.connection") && invalid.contains("Tunnel"), "{invalid}");
    let missing = connection("Kubeconfig").await.expect_text(422);
    assert!(missing.contains("spec.config"), "{missing}");
    agent.stop().await;
}

#[tokio::test]
async fn after_each_restart_of_an_end_requests_work_again() {
    let (mut central, member, home) = (Central::new().await, member().await, Home::new());
    let rounds = Form::of_this_run().pick(3, 50);
    let agent = tunnelled(&central, &member, &home).await;
    until_reached(&central.ada).await;
    for _ in 0..rounds {
        central.stop().await;
        central.start().await;
        central.reconnect();
        let client = central.ada_now();
        let start = Instant::now();
        until_reached(&client).await;
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
    agent.stop().await;
    let client = central.ada_now();
    for _ in 0..rounds {
        let agent = tunnelled(&central, &member, &home).await;
        until_reached(&client).await;
        agent.kill();
    }
}

/// The client of ada of a central server that may have another port now.
impl Central {
    fn ada_now(&self) -> Client {
        self.admin().with_token(self.ada.token())
    }
}

/// A cluster that puts the end of the request's path into each response. Requests follow each other
/// on a connection.
async fn echo() -> TlsServer {
    TlsServer::start(|mut stream| async move {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let length = head.to_ascii_lowercase().split_once("content-length: ").map(|(_, rest)| {
                rest.split_once('\r').unwrap().0.parse::<usize>().unwrap()
            });
            let mut body = vec![0; length.unwrap_or_default()];
            if stream.read_exact(&mut body).await.is_err() {
                return;
            }
            let mut text = path.rsplit('/').next().unwrap_or_default().to_owned();
            if path.ends_with("/selfsubjectaccessreviews") {
                r#"{"status":{"allowed":true}}"#.clone_into(&mut text);
            }
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            );
            if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    })
    .await
}

fn kubeconfig_of(server: &TlsServer, home: &Home) -> std::path::PathBuf {
    let kubeconfig = Kubeconfig {
        server: format!("https://{}", server.address()),
        authority: server.authority().as_bytes().to_vec(),
        token: "credential-of-the-cluster".to_owned(),
        namespace: "default".to_owned(),
    };
    kubeconfig.write(&home.path().join("echo.kubeconfig"))
}

/// Sends requests one after the other, each with its own word. The result is the number of
/// responses. A response with another word fails the test.
async fn ask(client: Client, worker: u32, count: u32) -> u32 {
    let (mut answered, mut open) = (0, None);
    for number in 0..count {
        let word = format!("w{worker}x{number}");
        let path = format!("{MEMBER}/api/v1/namespaces/default/pods/p/proxy/{word}");
        let start = Instant::now();
        let exchange = async {
            let mut connection = match open.take() {
                Some(connection) => connection,
                None => client.connect().await.ok()?,
            };
            let reply = client.get(&path).try_send_on(&mut connection).await.ok()?;
            Some((reply, connection))
        };
        let exchanged = tokio::time::timeout(LONGEST_HANG, exchange).await;
        let Some((reply, connection)) = exchanged.expect(&word) else { continue };
        assert!(start.elapsed() < LONGEST_HANG, "{word}: {:?}", start.elapsed());
        if reply.status == 200 {
            assert_eq!(reply.text(), word, "the answer of another request");
            answered += 1;
        }
        open = Some(connection);
    }
    answered
}

#[tokio::test]
async fn no_request_gets_the_answer_of_another_one_while_links_are_cut_and_stall() {
    let (central, home) = (Central::new().await, Home::new());
    let cluster = echo().await;
    let links = Links::default();
    let port: u16 = central
        .server
        .as_ref()
        .unwrap()
        .kubeconfig()
        .authority_of_server()
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap();
    let proxied = links.proxy(From::Party("agent".to_owned()), "server", port).await;
    let known = Kubeconfig::read(&central.home.kubeconfig()).unwrap();
    let through = Kubeconfig { server: format!("https://127.0.0.1:{proxied}"), ..known };
    let upstream = kubeconfig_of(&cluster, &home);
    let setup = AgentSetup::new(&home, &through, "member", &central.agent_key, &upstream);
    let agent = setup.tunnel().await;
    // A million requests take eight minutes with a release build.
    let most = Form::of_figures().pick(6_250, 62_500);
    let (workers, count) = (16, Form::of_this_run().pick(60, most));
    let open = Duration::from_millis(Form::of_this_run().pick(300, 2000));
    wait::until("ada to be known", async || {
        (ask(central.ada.clone(), 99, 1).await == 1).then_some(())
    })
    .await;
    let mut asked = JoinSet::new();
    for worker in 0..workers {
        asked.spawn(ask(central.ada.clone(), worker, count));
    }
    let faults = async {
        loop {
            for link in [Link::Cut, Link::Open, Link::Stalled, Link::Open] {
                links.set("agent", "server", link);
                let time = if link == Link::Open { open } else { Duration::from_millis(300) };
                tokio::time::sleep(time).await;
            }
        }
    };
    let all = async {
        let mut answered = 0;
        while let Some(done) = asked.join_next().await {
            answered += done.expect("no answer of another request");
        }
        answered
    };
    let answered = tokio::select! {
        answered = all => answered,
        () = faults => unreachable!("faults have no end"),
    };
    eprintln!("{answered} of {} requests had their own answer", workers * count);
    assert!(answered > 0, "some are answered");
    links.open_all();
    wait::until("a request to get through", async || {
        (ask(central.ada.clone(), 100, 1).await == 1).then_some(())
    })
    .await;
    agent.stop().await;
}

/// A process that is stopped keeps its connections, and answers nothing.
#[tokio::test]
async fn a_stopped_agent_is_noticed_within_45_seconds() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = tunnelled(&central, &member, &home).await;
    until_reached(&central.ada).await;
    let id = rustix::process::Pid::from_raw(i32::try_from(agent.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::STOP).unwrap();
    let start = Instant::now();
    let reply = central.ada.get(&format!("{MEMBER}{SECRETS}?watch=1")).try_stream().await;
    let took = start.elapsed();
    rustix::process::kill_process(id, rustix::process::Signal::CONT).unwrap();
    assert!(reply.is_err() && took < LONGEST_HANG, "{took:?}");
    until_reached(&central.ada).await;
    agent.stop().await;
}

/// Many streams at once, each in its own tunnel: the agent opens as many as are needed.
#[tokio::test]
async fn the_number_of_tunnels_follows_the_number_of_streams() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = tunnelled(&central, &member, &home).await;
    until_reached(&central.ada).await;
    let secrets = format!("{MEMBER}{SECRETS}");
    let mut streams = Vec::new();
    for _ in 0..60 {
        streams.push(central.ada.get(&format!("{secrets}?watch=1")).stream().await);
    }
    let object = json!({ "metadata": { "name": "s" }, "spec": {} });
    central.ada.post(&secrets).json(&object).send().await.expect(201);
    for stream in &mut streams {
        let event = wait::within("the event", stream.next()).await.unwrap().unwrap();
        assert!(event.contains("\"ADDED\""), "{event}");
    }
    drop(streams);
    agent.stop().await;
}

#[test]
fn a_listener_of_this_test_is_seen() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(listens(std::process::id()), "{listener:?}");
    assert!(Path::new("/proc/self/net/tcp").exists());
}
