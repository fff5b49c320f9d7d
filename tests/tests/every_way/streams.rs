//! exec, attach, cp and port-forward.

use postern_tests::kubectl::Kubectl;
use postern_tests::{Home, Nginx, Pod, wait};

use crate::kubectl::{Program, SPDY, Session, newest, oldest};
use crate::scene::Scene;

#[tokio::test]
async fn each_kubectl_executes_attaches_copies_and_forwards_ports_by_each_way() {
    let home = Home::new();
    let pod = Pod::start(&home).await;
    let scene = Scene::new(home, &pod.kubeconfig()).await;
    let mut ways = scene.ways();
    let mut proxies = Vec::new();
    for (name, behind) in scene.ways() {
        let nginx = Nginx::start(&scene.home, &name.replace(' ', "-"), &behind).await;
        ways.push((format!("nginx and {name}"), nginx.kubeconfig(&behind)));
        proxies.push(nginx);
    }
    let between = Program { name: "1.28", path: Kubectl::program_1_28(), protocols: SPDY };
    for program in [oldest(), between, newest()] {
        for way in &ways {
            Session::new(&scene.home, &pod, &program, way).does_everything(&scene.home).await;
        }
    }
    // Every stream is in the audit log, on every way. The reports of agents are in a separate file.
    let all = pod.upgrades().len();
    let home = scene.central.home();
    wait::until("the records of all streams", async || {
        let is_stream = |record: &&serde_json::Value| {
            let subresource = record["objectRef"]["subresource"].as_str().unwrap_or_default();
            ["exec", "attach", "portforward"].contains(&subresource)
                && record["user"]["username"] == "ada"
                && record["stage"] == "ResponseStarted"
        };
        let records = [home.records(), home.reported_records()].concat();
        (records.iter().filter(is_stream).count() >= all).then_some(())
    })
    .await;
}
