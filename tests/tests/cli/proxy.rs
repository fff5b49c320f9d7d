//! Requests through an HTTP proxy, which `HTTPS_PROXY` or a kubeconfig names.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::cli::CliUser;
use postern_tests::{Home, Server, Setup};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The name of the server, which only the proxy resolves.
const NAME: &str = "postern.test";

/// A proxy that knows one name.
struct ConnectProxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl ConnectProxy {
    /// A proxy that opens tunnels to `target`, for clients with these credentials.
    async fn start(target: String, credentials: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut tunnels = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tunnels.spawn(tunnel(client, target.clone(), credentials, Arc::clone(&seen)));
            }
        });
        Self { port, heads, _tasks: tasks }
    }

    fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}127.0.0.1:{}", self.port)
    }
}

async fn tunnel(
    mut client: TcpStream,
    target: String,
    credentials: &str,
    seen: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let wanted = format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(credentials));
    let is_allowed = credentials.is_empty() || head.contains(&wanted);
    seen.lock().unwrap().push(head);
    if !is_allowed {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 2\r\n\r\nno";
        client.write_all(answer).await.unwrap();
        return;
    }
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    drop(copy_bidirectional(&mut client, &mut server).await);
}

/// A server with a name, and a user that reaches it by that name alone.
async fn named() -> (Server, CliUser, String) {
    let home = Home::new();
    let server =
        Setup::on(&home).argument("--host").argument(format!("127.0.0.1,{NAME}")).start().await;
    let kubeconfig = server.kubeconfig();
    let own = kubeconfig.authority_of_server().to_owned();
    let (_, port) = own.rsplit_once(':').unwrap();
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", &kubeconfig.token);
    let ca = user.file("ca.pem", &kubeconfig.authority);
    let url = format!("https://{NAME}:{port}");
    let user = user.with("POSTERN_CA_FILE", &ca).with("POSTERN_SERVER", &url);
    (server, user, format!("127.0.0.1:{port}"))
}

#[tokio::test]
async fn the_environment_names_the_proxy_and_its_credentials() {
    let (_server, user, target) = named().await;
    let said = user.fails(1, &["whoami"]).await;
    assert!(said.contains("cannot be resolved"), "{said}");
    let proxy = ConnectProxy::start(target.clone(), "ada:p@ss").await;
    let port = target.rsplit_once(':').unwrap().1;
    for (name, credentials) in [("HTTPS_PROXY", "ada:p%40ss@"), ("https_proxy", "ada:p%40ss@")] {
        let proxied = user.clone().with(name, &proxy.url(credentials));
        assert_eq!(
            proxied.ok(&["whoami", "-o", "name"]).await,
            "user.management.platform.sh/admin\n"
        );
        let head = proxy.heads.lock().unwrap().pop().unwrap();
        assert!(
            head.starts_with(&format!("CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n")),
            "{head}"
        );
        assert!(!head.contains("pst_"), "the proxy does not get the access key: {head}");
    }
    let said =
        user.clone().with("HTTPS_PROXY", &proxy.url("ada:hush@")).fails(1, &["whoami"]).await;
    assert!(
        said.contains("407 Proxy Authentication Required") && said.contains("NO_PROXY"),
        "{said}"
    );
    assert!(!said.contains("hush"), "{said}");
    let count = proxy.heads.lock().unwrap().len();
    let direct = user.clone().with("HTTPS_PROXY", &proxy.url("")).with("NO_PROXY", ".other,test");
    assert!(direct.fails(1, &["whoami"]).await.contains("cannot be resolved"));
    assert_eq!(proxy.heads.lock().unwrap().len(), count, "it was not asked");
    let said = user.clone().with("HTTPS_PROXY", "socks5://u:hush@h").fails(2, &["whoami"]).await;
    assert!(said.contains("HTTPS_PROXY: only http://") && !said.contains("hush"), "{said}");
    let said = user.clone().with("HTTPS_PROXY", "http://127.0.0.1:1").fails(1, &["whoami"]).await;
    assert!(said.contains("the proxy 127.0.0.1:1 does not connect to"), "{said}");
    assert!(
        said.contains("no connection to 127.0.0.1:1") && said.contains("HTTPS_PROXY"),
        "{said}"
    );
}

#[tokio::test]
async fn logins_use_the_proxy_of_the_environment() {
    let (_server, user, target) = named().await;
    let proxy = ConnectProxy::start(target.clone(), "").await;
    let user = user.with("HTTPS_PROXY", &proxy.url("")).with("POSTERN_ID_TOKEN", "a.b.c");
    let port = target.rsplit_once(':').unwrap().1;
    let url = format!("https://{NAME}:{port}");
    let said = user.fails(1, &["login", &url, "--workload-identity", "deploy"]).await;
    assert!(said.contains("invalid_grant"), "the server was reached: {said}");
}

#[tokio::test]
async fn health_is_read_through_the_proxy_of_the_environment() {
    let (server, user, target) = named().await;
    let port = target.rsplit_once(':').unwrap().1;
    let ca = user.file("authority.pem", &server.kubeconfig().authority);
    let words = ["health", "--url", &format!("https://{NAME}:{port}"), "--ca-file", &ca];
    let proxy = ConnectProxy::start(target.clone(), "").await;
    let proxied = user.clone().with("HTTPS_PROXY", &proxy.url(""));
    assert_eq!(proxied.ok(&words).await, "ok\n");
    assert_eq!(proxy.heads.lock().unwrap().len(), 1);
    let said = proxied.with("NO_PROXY", NAME).fails(1, &words).await;
    assert!(said.contains("cannot be resolved"), "{said}");
    let untrusted = ["health", "--url", &format!("https://{target}")];
    let said = user.fails(1, &untrusted).await;
    assert!(said.contains("is not trusted: pass its certificate with --ca-file"), "{said}");
    let said = user.fails(1, &["health", "--url", "https://127.0.0.1:1"]).await;
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    let said = user.with("HTTPS_PROXY", "socks5://u:hush@h").fails(1, &words).await;
    assert!(said.contains("HTTPS_PROXY: only http://") && !said.contains("hush"), "{said}");
}

#[tokio::test]
async fn a_server_on_this_machine_is_reached_without_the_proxy() {
    let server = Server::start().await;
    let admin = crate::cli::admin(&server).with("HTTPS_PROXY", "http://127.0.0.1:1");
    assert!(admin.ok(&["whoami"]).await.contains("admin"));
}

#[tokio::test]
async fn a_kubeconfig_names_the_proxy() {
    let (server, user, target) = named().await;
    let proxy = ConnectProxy::start(target, "").await;
    let kubeconfig = server.kubeconfig();
    let (_, port) = kubeconfig.authority_of_server().rsplit_once(':').unwrap();
    let cluster = json!({
        "server": format!("https://{NAME}:{port}/kubernetes/management"),
        "certificate-authority-data": STANDARD.encode(&kubeconfig.authority),
        "proxy-url": proxy.url(""),
    });
    let file = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x", "namespace": "platform" } }],
        "clusters": [{ "name": "x", "cluster": cluster }],
        "users": [{ "name": "x", "user": { "token": kubeconfig.token } }],
    });
    let path = user.file("proxied.kubeconfig", file.to_string());
    // The kubeconfig wins over the environment, as in kubectl.
    let user = CliUser::new()
        .with("KUBECONFIG", &path)
        .with("HTTPS_PROXY", "http://127.0.0.1:1")
        .with("NO_PROXY", "*");
    user.ok(&["create", "team", "red"]).await;
    let mut watch =
        crate::cli::running::Running::start(&user, &["get", "teams", "-w", "-o", "name"]);
    assert_eq!(watch.line().await, "team.management.platform.sh/red");
    user.ok(&["create", "team", "blue"]).await;
    assert_eq!(watch.line().await, "team.management.platform.sh/blue");
    assert!(proxy.heads.lock().unwrap().len() >= 3);
}
