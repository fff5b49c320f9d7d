//! kubectl at a pod, with the programs that every test run has.

use std::process::Stdio;

use postern_tests::rights::{merge, path};
use postern_tests::{Home, Pod, python, wait};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::kubectl::{Program, Session, newest, oldest};
use super::scene::Scene;

async fn does_everything_by_each_way(program: Program) {
    let home = Home::new();
    let pod = Pod::start(&home).await;
    let scene = Scene::new(home, &pod.kubeconfig()).await;
    for way in scene.ways() {
        Session::new(&scene.home, &pod, &program, &way).does_everything(&scene.home).await;
    }
}

#[tokio::test]
async fn kubectl_of_today_executes_attaches_copies_and_forwards_ports() {
    Box::pin(does_everything_by_each_way(newest())).await;
}

#[tokio::test]
async fn kubectl_of_debian_executes_attaches_copies_and_forwards_ports() {
    Box::pin(does_everything_by_each_way(oldest())).await;
}

/// The official Python client sends text where kubectl sends bytes.
#[tokio::test]
async fn the_python_client_executes() {
    let home = Home::new();
    let pod = Pod::start(&home).await;
    let scene = Scene::new(home, &pod.kubeconfig()).await;
    for (what, way) in scene.ways() {
        let authority = scene.home.path().join("ca.pem");
        std::fs::write(&authority, &way.authority).unwrap();
        let mut command = Command::new(python::program());
        command.arg(python::script("executing.py")).arg(&way.server).arg(&authority);
        let running = command.arg(&way.token).kill_on_drop(true).output();
        let output = wait::within(&what, running).await.unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(out, "it read hello\nits errors\n4\n", "{what}: {err}");
        let upgrades = pod.upgrades();
        let protocol = upgrades.last().map(String::as_str);
        assert_eq!(protocol, Some("exec websocket v5.channel.k8s.io ada"), "{what}");
    }
}

/// The terminal of a user with a disabled key ends, on every way.
#[tokio::test]
async fn a_stream_ends_with_the_right_to_it() {
    let home = Home::new();
    let pod = Pod::start(&home).await;
    let scene = Scene::new(home, &pod.kubeconfig()).await;
    let mut open = Vec::new();
    for way in scene.ways() {
        for program in [oldest(), newest()] {
            let session = Session::new(&scene.home, &pod, &program, &way);
            let script = "echo open; exec sleep 600";
            let mut command = session.command(&["exec", "-i", "p", "--", "sh", "-c", script]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let line = wait::within(&session.what, lines.next_line()).await.unwrap();
            assert_eq!(line.as_deref(), Some("open"), "{}", session.what);
            open.push((session.what, child, lines));
        }
    }
    let disabled = json!({ "spec": { "disabled": true } });
    merge(&scene.central.client(), &path("ownedaccesskeys", "ada-key"), disabled).await.expect(200);
    for (what, mut child, _) in open {
        wait::within(&what, child.wait()).await.unwrap();
    }
}
