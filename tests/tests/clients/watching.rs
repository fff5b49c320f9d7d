//! Every kubectl's watches across a restart of the server, and across a compaction.

use postern_tests::{Home, Server, Setup, wait};
use serde_json::Value;

use super::kubectls;
use super::program::{Program, Running};

/// A shared secret.
fn manifest(program: &Program, name: &str) -> String {
    let text = format!(
        "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: {name}\n\
         spec:\n  data: {{a: djE=}}\n"
    );
    program.kubectl.file(name, &text)
}

/// The collection of shared secrets, for `--raw`.
fn all(program: &Program) -> String {
    format!("{}/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets", program.raw_base)
}

/// The version of a list.
async fn listed(program: &Program) -> String {
    let list = program.expect(&format!("get --raw {}", all(program)), &[]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn watch_from(program: &Program, version: &str) -> Running {
    program.start(&format!("get --raw {}?watch=true&resourceVersion={version}", all(program)))
}

/// The next event as `TYPE name`, and its version.
async fn event(watch: &mut Running) -> (String, String) {
    let line = watch.next().await.unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    let metadata = &event["object"]["metadata"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let what = format!("{} {}", text(&event["type"]), text(&metadata["name"]));
    (what, text(&metadata["resourceVersion"]))
}

#[tokio::test]
async fn every_kubectl_goes_on_where_it_was_after_a_restart() {
    for path in kubectls() {
        let home = Home::new();
        let server = Setup::on(&home).start().await;
        let program = Program::new(path, &server);
        let mut raw = watch_from(&program, &listed(&program).await);
        let mut table = program.start("get ss -w -o name");
        program.expect(&format!("create -f {}", manifest(&program, "s1")), &["created"]).await;
        let (what, version) = event(&mut raw).await;
        assert_eq!(what, "ADDED s1");
        table.wait_for("sharedsecret.management.platform.sh/s1").await;
        server.stop().await;
        assert!(raw.end().await, "it ends cleanly");
        table.end().await;

        let _server = Setup::on(&home).start().await;
        program.expect("label ss s1 team=red", &["labeled"]).await;
        program.expect(&format!("create -f {}", manifest(&program, "s2")), &["created"]).await;
        program.expect("delete ss s1", &["deleted"]).await;
        let mut raw = watch_from(&program, &version);
        for wanted in ["MODIFIED s1", "ADDED s2", "DELETED s1"] {
            assert_eq!(event(&mut raw).await.0, wanted);
        }
        program.start("get ss -w -o name").wait_for("sharedsecret.management.platform.sh/s2").await;
    }
}

#[tokio::test]
async fn every_kubectl_is_told_of_a_compaction_and_lists_anew() {
    for path in kubectls() {
        let home = Home::new();
        let server: Server = Setup::on(&home).argument("--history").argument("1s").start().await;
        let program = Program::new(path, &server);
        let old = listed(&program).await;
        let watch = format!(
            "get --raw {}?watch=true&resourceVersion={old}&timeoutSeconds=1",
            all(&program)
        );
        let s1 = manifest(&program, "s1");
        wait::until("the history to be compacted", async || {
            program.expect(&format!("create -f {s1}"), &["created"]).await;
            program.expect("delete ss s1", &["deleted"]).await;
            let events = program.expect(&watch, &[]).await;
            let first: Value = serde_json::from_str(events.lines().next()?).unwrap();
            (first["type"] == "ERROR").then(|| assert_eq!(first["object"]["code"], 410, "{first}"))
        })
        .await;
        let mut table = program.start("get ss -w -o name");
        program.expect(&format!("create -f {s1}"), &["created"]).await;
        table.wait_for("sharedsecret.management.platform.sh/s1").await;
        let version = listed(&program).await;
        program.expect("label ss s1 team=red", &["labeled"]).await;
        assert_eq!(event(&mut watch_from(&program, &version)).await.0, "MODIFIED s1");
    }
}
