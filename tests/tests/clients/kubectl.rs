//! The oldest and the newest kubectl do the same things, with their own validation on.

use std::path::PathBuf;

use postern_tests::kubectl::{CommandOutput, Kubectl};
use postern_tests::objects::BASE;
use postern_tests::{Server, wait};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Where our own group is served, below the server's base path.
const GROUP: &str = "/apis/management.platform.sh/v1";

/// One kubectl, with one server's kubeconfig.
struct Program {
    path: PathBuf,
    /// What `--raw` wants before a path: the oldest kubectl does not add the server's base path.
    raw_base: &'static str,
    kubectl: Kubectl,
}

impl Program {
    fn new(path: PathBuf, server: &Server) -> Self {
        let raw_base = if path == Kubectl::program() { "" } else { BASE };
        Self { path, raw_base, kubectl: server.kubectl() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let set_up = self.kubectl.command(arguments);
        let mut command = Command::new(&self.path);
        command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
        for (name, value) in set_up.as_std().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    async fn run(&self, line: &str) -> CommandOutput {
        let arguments: Vec<&str> = line.split(' ').collect();
        self.kubectl.run_command(self.command(&arguments)).await
    }

    /// Runs, and has to say all of these.
    async fn says(&self, line: &str, wanted: &[&str]) -> String {
        let output = self.run(line).await;
        let text = format!("{}{}", output.out, output.err);
        assert!(output.ok, "{line}: {text}");
        for wanted in wanted {
            assert!(text.contains(wanted), "{line} does not say {wanted:?}: {text}");
        }
        output.out
    }

    async fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{line} -o json"), &[]).await).unwrap()
    }

    /// `edit` with an editor that runs a sed script over what it is given.
    async fn edit(&self, object: &str, script: &str) {
        let editor = self.kubectl.file("editor", &format!("#!/bin/sh\nsed -i '{script}' \"$1\"\n"));
        let mut command = self.command(&["edit", object]);
        command.env("KUBE_EDITOR", format!("sh {editor}"));
        let output = self.kubectl.run_command(command).await;
        assert!(output.ok && output.out.contains("edited"), "{}{}", output.out, output.err);
    }
}

/// The newest one, and the oldest where there is one.
fn programs() -> Vec<PathBuf> {
    let old = std::env::var_os("POSTERN_TEST_KUBECTL_OLD").map(PathBuf::from);
    if old.is_none() {
        eprintln!("NOT RUN with the oldest kubectl: POSTERN_TEST_KUBECTL_OLD names none");
    }
    [Some(Kubectl::program()), old].into_iter().flatten().collect()
}

/// What differs between the two kinds in the same story.
struct Story {
    kind: &'static str,
    name: &'static str,
    object: &'static str,
    collection: &'static str,
    /// The field that is explained, and its type.
    explained: (&'static str, &'static str),
    /// What `apply` says to what it has applied already. Of a key's annotation the server cuts what
    /// is secret, and writes the rest anew.
    applied_again: &'static str,
}

const KEY: Story = Story {
    kind: "ownedaccesskey",
    name: "k1",
    object: "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\nmetadata:\n  name: k1\n\
             spec:\n  displayName: first\n  user: admin\n  ttl: 86400\n  \
             identity:\n    email: ada@example.com\n",
    collection: "ownedaccesskeys",
    explained: ("ownedaccesskeys.spec.ttl", "integer"),
    applied_again: "",
};

const SECRET: Story = Story {
    kind: "sharedsecret",
    name: "s1",
    object: "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: s1\n  \
             namespace: platform\nspec:\n  displayName: first\n  data:\n    token: c2VjcmV0\n",
    collection: "namespaces/platform/sharedsecrets",
    explained: ("sharedsecrets.spec.displayName", "string"),
    applied_again: "unchanged",
};

/// Everything that part 4 of the specification has, as kubectl does it.
async fn tell(program: &Program, story: &Story) {
    let Story { kind, name, object, .. } = *story;
    let one = format!("{kind} {name}");
    let file = program.kubectl.file("object.yaml", object);
    program.says(&format!("create -f {file}"), &["created"]).await;
    read(program, story).await;
    program.says(&format!("annotate {one} example.com/note=yes"), &["annotated"]).await;
    program.says(&format!("label {one} team=red"), &["labeled"]).await;
    let patch = "[{\"op\":\"add\",\"path\":\"/metadata/annotations/seen\",\"value\":\"yes\"}]";
    program.says(&format!("patch {one} --type json -p {patch}"), &["patched"]).await;
    let patch = "{\"spec\":{\"displayName\":\"second\"}}";
    program.says(&format!("patch {one} --type merge -p {patch}"), &["patched"]).await;
    let mut read = program.json(&format!("get {one}")).await;
    assert_eq!(read["metadata"]["annotations"]["seen"], "yes");
    assert_eq!(read["metadata"]["labels"]["team"], "red");
    read["spec"]["displayName"] = "third".into();
    let whole = serde_saphyr::to_string(&read).unwrap();
    let whole = program.kubectl.file("whole.yaml", &whole);
    program.says(&format!("replace -f {whole}"), &["replaced"]).await;
    program.edit(&format!("{kind}/{name}"), "s/displayName: third/displayName: fourth/").await;
    let read = program.json(&format!("get {one}")).await;
    assert_eq!(read["spec"]["displayName"], "fourth");
    apply(program, story).await;
    program.says(&format!("delete {one}"), &["deleted"]).await;
    let gone = program.run(&format!("get {one}")).await;
    assert!(!gone.ok && gone.err.contains("NotFound"), "{}", gone.err);
}

/// `get` in every form, `explain`, `api-resources`, and the plain request.
async fn read(program: &Program, story: &Story) {
    let Story { kind, name, collection, explained, .. } = *story;
    program.says(&format!("get {kind}s"), &["NAME", name]).await;
    program.says(&format!("get {kind} {name} -o wide"), &["first"]).await;
    program.says(&format!("get {kind} {name} -o yaml"), &["displayName: first"]).await;
    program.says(&format!("get {kind} -o name"), &[name]).await;
    program.says(&format!("describe {kind} {name}"), &[name]).await;
    let (field, r#type) = explained;
    program.says(&format!("explain {field}"), &[r#type]).await;
    program.says("api-resources --api-group=management.platform.sh", &[kind]).await;
    program.says(&format!("get --raw {}{GROUP}/{collection}", program.raw_base), &[name]).await;
}

/// `apply` on the client's side: first over what was created otherwise, then over its own.
async fn apply(program: &Program, story: &Story) {
    for (before, after) in [("first", "fifth"), ("first", "sixth")] {
        let changed = story.object.replace(before, after);
        let file = program.kubectl.file("applied.yaml", &changed);
        program.says(&format!("apply -f {file}"), &["configured"]).await;
        let again = program.says(&format!("apply -f {file}"), &[]).await;
        assert!(again.contains(story.applied_again), "{again}");
        let read = program.json(&format!("get {} {}", story.kind, story.name)).await;
        assert_eq!(read["spec"]["displayName"], after);
    }
    let wrong = story.object.replace("displayName", "displayNome");
    let file = program.kubectl.file("wrong.yaml", &wrong);
    let output = program.run(&format!("apply -f {file}")).await;
    assert!(!output.ok && output.err.contains("displayNome"), "validation is on: {}", output.err);
}

#[tokio::test]
async fn every_kubectl_does_everything_with_access_keys() {
    for path in programs() {
        let server = Server::start().await;
        tell(&Program::new(path, &server), &KEY).await;
    }
}

#[tokio::test]
async fn every_kubectl_does_everything_with_shared_secrets() {
    for path in programs() {
        let server = Server::start().await;
        tell(&Program::new(path, &server), &SECRET).await;
    }
}

#[tokio::test]
async fn every_kubectl_shows_a_created_key_once() {
    for path in programs() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = program.kubectl.file("object.yaml", KEY.object);
        let made = program.json(&format!("create -f {file}")).await;
        let value = made["spec"]["key"].as_str().unwrap().to_owned();
        let read = program.json("get ownedaccesskey k1").await;
        assert!(read["spec"].get("key").is_none());
        let base = program.raw_base;
        let who = format!("--token={value} get --raw {base}{GROUP}/selves/me");
        program.says(&who, &["\"accessKey\":\"k1\""]).await;
    }
}

#[tokio::test]
async fn every_kubectl_watches_and_waits() {
    for path in programs() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = program.kubectl.file("object.yaml", KEY.object);
        let mut command = program.command(&["get", "ownedaccesskeys", "-w"]);
        let mut watching = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        let mut shows = async |name: &str| {
            let found = async {
                while let Some(line) = lines.next_line().await.unwrap() {
                    if line.starts_with(name) {
                        return;
                    }
                }
                panic!("the watch ended before it showed {name}");
            };
            wait::within(name, found).await;
        };
        shows("admin").await;
        program.says(&format!("create -f {file}"), &["created"]).await;
        shows("k1").await;
        let waiting = program.run("wait --for=delete ownedaccesskey/k1 --timeout=50s");
        let deleting = program.says("delete ownedaccesskey k1 --wait=false", &["deleted"]);
        let (waited, _) = tokio::join!(waiting, deleting);
        // Whoever begins to wait when it has gone already is told so, in one way or the other.
        let told =
            ["NotFound", "no matching resources"].iter().any(|text| waited.err.contains(text));
        let gone = waited.ok || told;
        assert!(gone, "{}{}", waited.out, waited.err);
        watching.kill().await.unwrap();
    }
}
