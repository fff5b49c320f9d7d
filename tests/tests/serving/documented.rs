//! The commands of `docs/how-to/delete-a-corrupt-object.md`, run as they are written there, with the newest
//! kubectl and with the oldest.

use std::path::Path;
use std::process::Stdio;

use postern_tests::kubectl::Kubectl;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Home, Server, Setup, wait};
use tokio::process::Command;

const PAGE: &str = include_str!("../../../docs/how-to/delete-a-corrupt-object.md");

/// The block of commands that has a text in it.
fn block(text: &str) -> &'static str {
    let blocks = PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.into_iter().find(|block| block.contains(text)).expect("the commands are documented")
}

/// Runs commands in the server's home, with this kubectl.
async fn run(server: &Server, kubectl: &Path, commands: &str) -> String {
    let home = server.home();
    let programs = home.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    drop(std::fs::remove_file(programs.join("kubectl")));
    std::os::unix::fs::symlink(kubectl, programs.join("kubectl")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command
        .args(["-e", "-o", "pipefail", "-c", commands])
        .current_dir(home.path())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", home.path())
        .env("KUBECONFIG", home.kubeconfig())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = wait::within("the commands", command.output()).await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{commands}: {text}");
    text
}

/// Changes bytes in the middle of the stored value of a secret with a large value, while no server
/// runs.
fn damage(home: &Home, name: &str) {
    let path = home.data().join("db/postern.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let key = format!("/objects/management.platform.sh/sharedsecrets/platform/{name}");
    let is_key = |(place, at): (usize, &[u8])| (at == key.as_bytes()).then_some(place);
    let places: Vec<usize> = bytes.windows(key.len()).enumerate().filter_map(is_key).collect();
    assert!(!places.is_empty());
    for place in places {
        // The value stands behind its key.
        if let Some(byte) = bytes.get_mut(place + LARGE / 2) {
            *byte ^= 0x55;
        }
    }
    std::fs::write(&path, &bytes).unwrap();
}

/// Bytes of a large value.
const LARGE: usize = 400_000;

#[tokio::test]
async fn a_corrupt_object_is_deleted_with_every_supported_kubectl() {
    let home = Home::new();
    for kubectl in [Kubectl::program(), Kubectl::oldest_program()] {
        let server = Setup::on(&home).start().await;
        let object = secret("s1", &"v".repeat(LARGE));
        server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
        server.stop().await;
        damage(&home, "s1");
        let server = Setup::on(&home).start().await;
        let admin = server.client();
        let damaged = admin.get(&secret_path("s1")).send().await.expect(500);
        assert!(damaged["message"].as_str().unwrap().contains("is corrupt"), "{damaged}");
        admin.delete(&secret_path("s1")).send().await.expect(500);
        let metrics = admin.get("/metrics").send().await.text();
        let gauge =
            r#"postern_corrupt_objects{group="management.platform.sh",resource="sharedsecrets"} 1"#;
        assert!(metrics.lines().any(|line| line == gauge), "{metrics}");
        let commands = block("ignoreStoreReadErrorWithClusterBreakingPotential");
        let commands = commands.replace("/NS/", "/platform/").replace("/NAME?", "/s1?");
        let done = run(&server, &kubectl, &commands).await;
        assert!(done.contains("Success"), "{}: {done}", kubectl.display());
        admin.get(&secret_path("s1")).send().await.expect(404);
        server.stop().await;
    }
}
