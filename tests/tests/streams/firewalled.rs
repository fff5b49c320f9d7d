//! A cluster behind a firewall: its API and its agent are in a network that reaches one port of the outside, and into
//! which nothing leads.

use postern_tests::cli::CliUser;
use postern_tests::http::Client;
use postern_tests::rights::{set, user};
use postern_tests::{AgentSetup, Firewall, Home, Kubeconfig, Pod, binary, python, wait};
use serde_json::json;

use super::kubectl::{Program, Session, newest, oldest};
use super::scene::Scene;

async fn does_everything_behind_a_firewall(program: Program) {
    let home = Home::new();
    let central = Scene::central(&home).await;
    let (_, port) = central.kubeconfig().authority_of_server().rsplit_once(':').unwrap();
    let port = port.parse().unwrap();
    let firewall = Firewall::new(&home, port).await;
    let pod = Pod::start_by(&home, &firewall.inside(&python::program())).await;

    let kubeconfig = central.home().kubeconfig();
    let admin = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
    let key = admin.ok(&["create", "cluster", "walled"]).await;
    let setup =
        AgentSetup::new(&home, central.kubeconfig(), "walled", key.trim(), &pod.kubeconfig());
    let agent = setup.program(firewall.inside(binary::path())).tunnel().await;
    assert_eq!(firewall.interfaces(), ["lo"]);
    let mut expected = vec![port, pod.port()];
    expected.sort_unstable();
    assert_eq!(
        firewall.listening(),
        expected,
        "the relay and the API of the cluster, and no other"
    );

    let ada = user(&central.client(), "ada").await;
    let groups = json!({ "groups": ["ops", "others"] });
    set(&central.client(), &postern_tests::rights::path("users", "ada"), groups).await;
    admin.ok(&["share", "cluster", "walled", "--user", "ada"]).await;
    let way = Kubeconfig {
        server: format!("https://{}/kubernetes/cluster/walled", ada.address()),
        token: ada.token().to_owned(),
        namespace: "default".to_owned(),
        ..central.kubeconfig().clone()
    };
    let client = Client::new(&way);
    wait::until("ada to reach the cluster", async || {
        let reply = client.get("/kubernetes/cluster/walled/version").try_send().await.ok()?;
        (reply.status == 200).then_some(())
    })
    .await;
    let session = Session::new(&home, &pod, &program, &("a tunnel".to_owned(), way));
    let found = session.command(&["get", "pod", "p", "-o", "name"]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "pod/p\n");
    session.does_everything(&home).await;
    agent.stop().await;
}

#[tokio::test]
async fn kubectl_of_today_works_behind_a_firewall() {
    Box::pin(does_everything_behind_a_firewall(newest())).await;
}

#[tokio::test]
async fn kubectl_of_debian_works_behind_a_firewall() {
    Box::pin(does_everything_behind_a_firewall(oldest())).await;
}
