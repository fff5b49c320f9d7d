//! Tunnels through the programs between agents and the central server: an HTTP proxy, and proxies
//! that end TLS and close silent connections after 60 seconds.

use std::path::PathBuf;
use std::time::Duration;

use postern_tests::cli::CliUser;
use postern_tests::firewall::ADDRESS;
use postern_tests::http::Client;
use postern_tests::rights::{path, set, user};
use postern_tests::tinyproxy::{PORT, TinyProxy};
use postern_tests::{
    Agent, AgentSetup, Firewall, Form, HaProxy, Home, Kubeconfig, Nginx, Pod, Server, binary,
    python, wait,
};
use serde_json::json;

use crate::kubectl::{Session, newest};
use crate::scene::Scene;

/// The access key of the agent of a new cluster.
async fn create_cluster(central: &Server) -> String {
    let kubeconfig = central.home().kubeconfig();
    let admin = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
    admin.ok(&["create", "cluster", "far"]).await.trim().to_owned()
}

/// kubectl does everything with the pod, and a silent tunnel stays open.
async fn use_tunnel(home: &Home, central: &Server, pod: &Pod, agent: &Agent) {
    let kubeconfig = central.home().kubeconfig();
    let admin = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
    let ada = user(&central.client(), "ada").await;
    let groups = json!({ "groups": ["ops", "others"] });
    set(&central.client(), &path("users", "ada"), groups).await;
    admin.ok(&["share", "cluster", "far", "--user", "ada"]).await;
    let way = Kubeconfig {
        server: format!("https://{}/kubernetes/cluster/far", ada.address()),
        token: ada.token().to_owned(),
        namespace: "default".to_owned(),
        ..central.kubeconfig().clone()
    };
    let client = Client::new(&way);
    wait::until("ada to reach the cluster", async || {
        let reply = client.get("/kubernetes/cluster/far/version").try_send().await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
    if Form::of_this_run() == Form::Full {
        // Longer than the proxy keeps a silent connection.
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(agent.logged().matches("a tunnel has ended").count(), 0, "{}", agent.logged());
    }
    let way = ("a tunnel".to_owned(), way);
    Session::new(home, pod, &newest(), &way).does_everything(home).await;
}

/// The agent sees the proxy as the central server.
async fn through(central: &Server, home: &Home, proxy: &Kubeconfig) {
    start_and_use(central, home, proxy, |setup| setup).await;
}

/// The agent is started as this function says.
async fn between(central: &Server, home: &Home, with: impl FnOnce(AgentSetup) -> AgentSetup) {
    start_and_use(central, home, central.kubeconfig(), with).await;
}

async fn start_and_use(
    central: &Server,
    home: &Home,
    seen: &Kubeconfig,
    with: impl FnOnce(AgentSetup) -> AgentSetup,
) {
    let pod = Pod::start(home).await;
    let key = create_cluster(central).await;
    let setup = AgentSetup::new(home, seen, "far", &key, &pod.kubeconfig());
    let agent = with(setup).tunnel().await;
    use_tunnel(home, central, &pod, &agent).await;
    agent.stop().await;
}

/// The build of the commit before this one.
pub(crate) fn previous() -> PathBuf {
    let path = std::env::var_os("POSTERN_TEST_PREVIOUS_BIN");
    PathBuf::from(path.expect("`cargo xtask test --all` builds the commit before"))
}

#[tokio::test]
async fn an_agent_works_with_a_newer_server() {
    let home = Home::new();
    let central = Scene::central(&home).await;
    Box::pin(between(&central, &home, |setup| setup.program(previous()))).await;
}

#[tokio::test]
async fn an_agent_works_with_an_older_server() {
    let home = Home::new();
    let setup = Scene::setup(&home, &[]).program(previous());
    let central = setup.start().await;
    Box::pin(between(&central, &home, |setup| setup)).await;
}

#[tokio::test]
async fn tunnels_pass_nginx() {
    let home = Home::new();
    let central = Scene::central(&home).await;
    let nginx = Nginx::start(&home, "tunnel", central.kubeconfig()).await;
    Box::pin(through(&central, &home, &nginx.kubeconfig(central.kubeconfig()))).await;
}

#[tokio::test]
async fn tunnels_pass_haproxy() {
    let home = Home::new();
    let central = Scene::central(&home).await;
    let haproxy = HaProxy::start(&home, central.kubeconfig()).await;
    Box::pin(through(&central, &home, &haproxy.kubeconfig(central.kubeconfig()))).await;
}

#[tokio::test]
async fn tunnels_pass_an_http_proxy() {
    let home = Home::new();
    let central = Scene::central_at(&home, &["127.0.0.1", ADDRESS]).await;
    let own = central.kubeconfig().authority_of_server();
    let (_, port) = own.rsplit_once(':').unwrap();
    let firewall = Firewall::new(&home, port.parse().unwrap()).await;
    let proxy = TinyProxy::start(&home, &firewall).await;
    let pod = Pod::start_by(&home, &firewall.inside(&python::program())).await;
    let key = create_cluster(&central).await;
    let seen = Kubeconfig {
        server: central.kubeconfig().server.replacen(own, &format!("{ADDRESS}:{port}"), 1),
        ..central.kubeconfig().clone()
    };
    let setup = AgentSetup::new(&home, &seen, "far", &key, &pod.kubeconfig());
    let setup = setup.program(firewall.inside(binary::path()));
    let agent = setup.with("HTTPS_PROXY", &format!("http://127.0.0.1:{PORT}")).tunnel().await;
    use_tunnel(&home, &central, &pod, &agent).await;
    let asked = proxy.logged().matches(&format!("CONNECT {ADDRESS}:{port}")).count();
    assert!(asked > 2, "{}", proxy.logged());
    agent.stop().await;
}
