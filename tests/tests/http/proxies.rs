//! Proxies in front of the server: only trusted ones say the address of a client, by a header or by the PROXY protocol.

use std::net::{IpAddr, SocketAddr};
use std::time::UNIX_EPOCH;

use postern_tests::http::Client;
use postern_tests::objects::collection;
use postern_tests::{Home, Kubeconfig, Server, Setup, wait};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

const SESSION: &str = "/auth/session";

/// The networks of the proxies, and one of them. The harness itself is at another address.
const TRUSTED: &str = "--trusted-proxies=127.7.0.0/16";
const PROXY: [u8; 4] = [127, 7, 0, 1];

/// The address in the session of a login.
async fn address_of_session(admin: &Client, login: &postern_tests::http::Response) -> String {
    let name = login.expect(201)["status"]["accessKey"].as_str().unwrap().to_owned();
    let key = admin.get(&format!("{}/{name}", collection("ownedaccesskeys"))).send().await;
    key.expect(200)["status"]["session"]["address"].as_str().unwrap().to_owned()
}

/// The address at the end of the record of a request with this user agent.
async fn recorded_address(server: &Server, agent: &str) -> String {
    wait::until("the record", async || {
        let records = server.home().records();
        let record = records.iter().find(|one| one["userAgent"] == agent)?;
        Some(record["sourceIPs"].as_array()?.last()?.as_str()?.to_owned())
    })
    .await
}

#[tokio::test]
async fn only_trusted_proxies_say_the_address_of_a_client() {
    let setup = Setup::on(&Home::new()).argument(TRUSTED).argument("--max-login-failures=3");
    let server = setup.argument("--client-address-header=X-Forwarded-For").start().await;
    let admin = server.client();
    let proxy = admin.from_address(PROXY.into());
    for (client, header, agent, address) in [
        (&proxy, "203.0.113.9, 192.0.2.1, 127.7.3.4", "one/1", "192.0.2.1"),
        (&proxy, "192.0.2.1, nonsense", "two/1", "127.7.0.1"),
        (&admin, "192.0.2.1", "three/1", "127.0.0.1"),
    ] {
        let login = client.post(SESSION).header("x-forwarded-for", header);
        let login = login.header("user-agent", agent).send().await;
        assert_eq!(address_of_session(&admin, &login).await, address, "{agent}");
        assert_eq!(recorded_address(&server, agent).await, address, "{agent}");
    }
    // The limit applies to the client behind the proxy, and neither to the proxy nor to another
    // client. The client cannot avoid it by its own header.
    let wrong = proxy.with_token("pst_wrong");
    let fail = async |client: &Client, header: &str| {
        client.post(SESSION).header("x-forwarded-for", header).send().await.status
    };
    // The count begins anew with each minute.
    let minute = || UNIX_EPOCH.elapsed().unwrap().as_secs() / 60;
    loop {
        let began = minute();
        wait::until("the limit of one client", async || {
            (fail(&wrong, "198.51.100.1, 192.0.2.1").await == 429).then_some(())
        })
        .await;
        let status = fail(&wrong, "198.51.100.2, 192.0.2.1").await;
        if minute() == began {
            assert_eq!(status, 429);
            break;
        }
    }
    assert_eq!(fail(&wrong, "192.0.2.1, 192.0.2.2").await, 401);
    assert_eq!(fail(&wrong.from_address([127, 0, 0, 1].into()), "192.0.2.1").await, 401);
}

/// A proxy that begins each connection with a header of the PROXY protocol, version 2.
async fn forward(listener: TcpListener, server: SocketAddr, client: [u8; 4]) {
    let mut connections = JoinSet::new();
    loop {
        let (mut accepted, _) = listener.accept().await.unwrap();
        connections.spawn(async move {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(IpAddr::from(PROXY), 0)).unwrap();
            let mut upstream = socket.connect(server).await.unwrap();
            let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
            header.extend(client);
            header.extend([127, 0, 0, 1, 0x12, 0x34, 0x20, 0xfb]);
            upstream.write_all(&header).await.unwrap();
            // When one side ends, the opposite side ends too.
            let _ = copy_bidirectional(&mut accepted, &mut upstream).await;
        });
    }
}

#[tokio::test]
async fn with_the_proxy_protocol_a_connection_is_that_of_the_client() {
    let setup = Setup::on(&Home::new()).argument(TRUSTED).argument("--proxy-protocol");
    let server = setup.start().await;
    let admin = server.client();
    let known = server.kubeconfig();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().to_string();
    let address: SocketAddr =
        known.authority_of_server().replace("localhost", "127.0.0.1").parse().unwrap();
    let mut proxies = JoinSet::new();
    proxies.spawn(forward(listener, address, [198, 51, 100, 7]));
    let behind = known.server.replacen(known.authority_of_server(), &own, 1);
    let behind = Client::new(&Kubeconfig { server: behind, ..known.clone() });
    let login = behind.post(SESSION).header("user-agent", "behind/1").send().await;
    assert_eq!(address_of_session(&admin, &login).await, "198.51.100.7");
    assert_eq!(recorded_address(&server, "behind/1").await, "198.51.100.7");
    // A trusted proxy must send the header. Other clients do not need it.
    let direct = admin.from_address(PROXY.into());
    assert!(direct.get("/livez").try_send().await.is_err());
    admin.get("/livez").send().await.expect_text(200);
    let mut stranger = admin.tcp().await.unwrap();
    stranger
        .write_all(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc6\x33\x64\x07\x7f\0\0\x01\0\x01\0\x02")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = wait::within("the end", stranger.read_to_end(&mut answer)).await;
    assert!(answer.len() < 100, "no answer but an alert of TLS");
}

#[tokio::test]
async fn settings_that_trust_nobody_are_refused() {
    for (argument, said) in [
        ("--client-address-header=X-Real-IP", "need --trusted-proxies"),
        ("--proxy-protocol", "need --trusted-proxies"),
        ("--trusted-proxies=10.0.0.1/8", "is no network"),
        ("--max-login-failures=0", "0 is not in 1..=1000000"),
    ] {
        let ended = Setup::on(&Home::new()).argument(argument).run_to_end().await;
        assert!(!ended.status.success());
        assert!(ended.stderr.contains(said), "{argument}: {}", ended.stderr);
    }
}
