//! Every kubectl does the same things, with its own validation on.

use postern_tests::Server;
use postern_tests::rights::{allow, rule, user};
use serde_json::json;

use super::kubectls;
use super::program::Program;

/// Where our own group is served, below the server's base path.
const GROUP: &str = "/apis/management.platform.sh/v1";

/// Runs `edit` with an editor that runs a sed script on the file.
async fn edit(program: &Program, object: &str, script: &str) {
    let editor = program.kubectl.file("editor", &format!("#!/bin/sh\nsed -i '{script}' \"$1\"\n"));
    let mut command = program.command(&["edit", object]);
    command.env("KUBE_EDITOR", format!("sh {editor}"));
    let output = program.kubectl.run_command(command).await;
    assert!(output.ok && output.out.contains("edited"), "{}{}", output.out, output.err);
}

/// The differences between the two kinds in the scenario.
struct Scenario {
    kind: &'static str,
    name: &'static str,
    object: &'static str,
    collection: &'static str,
    /// The field that is explained, and its type.
    explained: (&'static str, &'static str),
    /// The output of `apply` when it applies the same object again. The server removes the secret
    /// part from the annotation of a key, so it writes the rest again.
    applied_again: &'static str,
}

const KEY: Scenario = Scenario {
    kind: "ownedaccesskey",
    name: "k1",
    object: "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\nmetadata:\n  name: k1\n\
             spec:\n  displayName: first\n  user: admin\n  ttl: 86400\n  \
             identity:\n    email: ada@example.com\n",
    collection: "ownedaccesskeys",
    explained: ("ownedaccesskeys.spec.ttl", "integer"),
    applied_again: "",
};

const SECRET: Scenario = Scenario {
    kind: "sharedsecret",
    name: "s1",
    object: "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  name: s1\n  \
             namespace: platform\nspec:\n  displayName: first\n  data:\n    token: c2VjcmV0\n",
    collection: "namespaces/platform/sharedsecrets",
    explained: ("sharedsecrets.spec.displayName", "string"),
    applied_again: "unchanged",
};

/// Runs the whole scenario with kubectl.
async fn run_scenario(program: &Program, scenario: &Scenario) {
    let Scenario { kind, name, object, .. } = *scenario;
    let one = format!("{kind} {name}");
    let file = program.kubectl.file("object.yaml", object);
    program.expect(&format!("create -f {file}"), &["created"]).await;
    read(program, scenario).await;
    program.expect(&format!("annotate {one} example.com/note=yes"), &["annotated"]).await;
    program.expect(&format!("label {one} team=red"), &["labeled"]).await;
    let patch = "[{\"op\":\"add\",\"path\":\"/metadata/annotations/seen\",\"value\":\"yes\"}]";
    program.expect(&format!("patch {one} --type json -p {patch}"), &["patched"]).await;
    let patch = "{\"spec\":{\"displayName\":\"second\"}}";
    program.expect(&format!("patch {one} --type merge -p {patch}"), &["patched"]).await;
    let mut read = program.json(&format!("get {one}")).await;
    assert_eq!(read["metadata"]["annotations"]["seen"], "yes");
    assert_eq!(read["metadata"]["labels"]["team"], "red");
    read["spec"]["displayName"] = "third".into();
    let whole = serde_saphyr::to_string(&read).unwrap();
    let whole = program.kubectl.file("whole.yaml", &whole);
    program.expect(&format!("replace -f {whole}"), &["replaced"]).await;
    edit(program, &format!("{kind}/{name}"), "s/displayName: third/displayName: fourth/").await;
    let read = program.json(&format!("get {one}")).await;
    assert_eq!(read["spec"]["displayName"], "fourth");
    apply(program, scenario).await;
    program.expect(&format!("delete {one}"), &["deleted"]).await;
    let gone = program.run(&format!("get {one}")).await;
    assert!(!gone.ok && gone.err.contains("NotFound"), "{}", gone.err);
}

/// Runs `get` in every output format, `explain`, `api-resources`, and the plain request.
async fn read(program: &Program, scenario: &Scenario) {
    let Scenario { kind, name, collection, explained, .. } = *scenario;
    program.expect(&format!("get {kind}s"), &["NAME", name]).await;
    program.expect(&format!("get {kind} {name} -o wide"), &["first"]).await;
    program.expect(&format!("get {kind} {name} -o yaml"), &["displayName: first"]).await;
    program.expect(&format!("get {kind} -o name"), &[name]).await;
    program.expect(&format!("describe {kind} {name}"), &[name]).await;
    let (field, r#type) = explained;
    program.expect(&format!("explain {field}"), &[r#type]).await;
    program.expect("api-resources --api-group=management.platform.sh", &[kind]).await;
    program.expect(&format!("get --raw {}{GROUP}/{collection}", program.raw_base), &[name]).await;
}

/// Runs client-side `apply`: first on an object that was created in another way, then on its own.
async fn apply(program: &Program, scenario: &Scenario) {
    for (before, after) in [("first", "fifth"), ("first", "sixth")] {
        let changed = scenario.object.replace(before, after);
        let file = program.kubectl.file("applied.yaml", &changed);
        program.expect(&format!("apply -f {file}"), &["configured"]).await;
        let again = program.expect(&format!("apply -f {file}"), &[]).await;
        assert!(again.contains(scenario.applied_again), "{again}");
        let read = program.json(&format!("get {} {}", scenario.kind, scenario.name)).await;
        assert_eq!(read["spec"]["displayName"], after);
    }
    let wrong = scenario.object.replace("displayName", "displayNome");
    let file = program.kubectl.file("wrong.yaml", &wrong);
    let output = program.run(&format!("apply -f {file}")).await;
    assert!(!output.ok && output.err.contains("displayNome"), "validation is on: {}", output.err);
}

#[tokio::test]
async fn every_kubectl_does_everything_with_access_keys() {
    for path in kubectls() {
        let server = Server::start().await;
        run_scenario(&Program::new(path, &server), &KEY).await;
    }
}

#[tokio::test]
async fn every_kubectl_does_everything_with_shared_secrets() {
    for path in kubectls() {
        let server = Server::start().await;
        run_scenario(&Program::new(path, &server), &SECRET).await;
    }
}

#[tokio::test]
async fn every_kubectl_prints_a_created_key_once() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = program.kubectl.file("object.yaml", KEY.object);
        let made = program.json(&format!("create -f {file}")).await;
        let value = made["spec"]["key"].as_str().unwrap().to_owned();
        let read = program.json("get ownedaccesskey k1").await;
        assert!(read["spec"].get("key").is_none());
        let base = program.raw_base;
        let who = format!("--token={value} get --raw {base}{GROUP}/selves/me");
        program.expect(&who, &["\"accessKey\":\"k1\""]).await;
    }
}

#[tokio::test]
async fn every_kubectl_watches_and_waits() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = program.kubectl.file("object.yaml", KEY.object);
        let mut watching = program.start("get ownedaccesskeys -w");
        watching.wait_for("admin").await;
        program.expect(&format!("create -f {file}"), &["created"]).await;
        watching.wait_for("k1").await;
        program.wait_for_deletion(&server, "ownedaccesskeys/k1").await;
        program.refuse("get ownedaccesskey k1", &["NotFound"]).await;
    }
}

#[tokio::test]
async fn every_kubectl_asks_who_it_is_and_what_it_may() {
    for path in kubectls() {
        let server = Server::start().await;
        let admin = server.client();
        let ada = user(&admin, "ada").await;
        let makers = json!([rule(&["sharedsecrets"], &["create", "deletecollection"])]);
        allow(&admin, "makers", Some("platform"), makers, "platform:user:ada").await;
        let program = Program::new(path, &server);
        let of_ada = program.of(&ada);
        let minor = program.json("version --client").await["clientVersion"]["minor"].clone();
        // From then on, kubectl has the command.
        if minor.as_str().unwrap().trim_end_matches('+').parse::<u32>().unwrap() >= 28 {
            program.expect("auth whoami", &["admin", "system:masters"]).await;
            of_ada.expect("auth whoami", &["ada", "platform:user:ada"]).await;
        }
        program.expect("auth can-i --list", &["*.*", "[*]"]).await;
        let rules =
            ["sharedsecrets.management.platform.sh", "[create deletecollection list watch]"];
        of_ada.expect("auth can-i --list -n platform", &rules).await;
        let elsewhere = of_ada.expect("auth can-i --list -n default", &["selves"]).await;
        assert!(!elsewhere.contains("deletecollection"), "{elsewhere}");
        of_ada.expect("auth can-i create sharedsecrets -n platform", &["yes"]).await;
        of_ada.refuse("auth can-i create sharedsecrets -n elsewhere", &["no"]).await;
        of_ada.refuse("auth can-i delete namespaces", &["no"]).await;
    }
}

/// kubectl 1.20 reads categories from the documents of each group, newer ones from the aggregated one.
#[tokio::test]
async fn every_kubectl_knows_the_category_and_the_fields() {
    for path in kubectls() {
        let server = Server::start().await;
        let program = Program::new(path, &server);
        let file = program.kubectl.file("object.yaml", SECRET.object);
        program.expect(&format!("create -f {file}"), &["created"]).await;
        program.expect("get platform -A", &["sharedsecret", "user", "admin"]).await;
        let wanted = ["Names of the users", "A caller that adds one", "Subresources that"];
        program.expect("explain sharedsecret.spec.access", &wanted).await;
        let fields = ["verbs", "subresources", "users", "teams"];
        program.expect("explain sharedsecret.spec.access --recursive", &fields).await;
    }
}
