//! Every kubectl of an ordinary user: lists have the objects that the user may get, while the
//! administrator changes the rights.

use postern_tests::Server;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::rights::{allow, rule, set, user};
use serde_json::json;

use super::kubectls;
use super::program::Program;

/// The names that a plain `get` lists.
async fn names(program: &Program) -> Vec<String> {
    let out = program.expect("get ss -o name", &[]).await;
    let name = |line: &str| line.rsplit('/').next().unwrap().to_owned();
    out.lines().map(name).collect()
}

#[tokio::test]
async fn every_kubectl_of_a_user_sees_and_changes_what_they_may() {
    for path in kubectls() {
        let server = Server::start().await;
        let admin = server.client();
        let ada = user(&admin, "ada").await;
        let makers = json!([rule(&["sharedsecrets"], &["create"])]);
        allow(&admin, "makers", Some("platform"), makers, "platform:user:ada").await;
        admin.post(&secrets("platform")).json(&secret("theirs", "x")).send().await.expect(201);
        let program = Program::new(path, &server).of(&ada);

        // The user may do everything with their own object.
        let text = "apiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata:\n  \
                    name: mine\nspec:\n  displayName: first\n  data: {a: djE=}\n";
        let mine = program.kubectl.file("mine", text);
        let next = program.kubectl.file("next", &text.replace("first", "second"));
        program.expect(&format!("apply -f {mine}"), &["created"]).await;
        program.refuse(&format!("diff -f {next}"), &["+  displayName: second"]).await;
        program.expect(&format!("apply -f {next}"), &["configured"]).await;
        let ssa = format!("apply --server-side --force-conflicts --field-manager=me -f {mine}");
        program.expect(&ssa, &["applied"]).await;
        let patch = r#"{"spec":{"data":{"b":"djE="}}}"#;
        for way in ["merge", "strategic"] {
            program.expect(&format!("patch ss mine --type={way} -p {patch}"), &["patched"]).await;
        }
        program.expect("label ss mine team=red", &["labeled"]).await;
        assert_eq!(names(&program).await, ["mine"]);
        program.refuse("get ss theirs", &["NotFound"]).await;
        program.refuse("label ss theirs team=red", &["NotFound"]).await;

        // The user sees a shared object, and can do only the verbs of the share.
        let watching = program.start("get ss -w -o name");
        let share = async |access| {
            set(&admin, &secret_path("theirs"), json!({ "access": access })).await;
        };
        share(json!([{ "verbs": ["get", "list", "watch"], "users": ["ada"] }])).await;
        assert_eq!(names(&program).await, ["mine", "theirs"]);
        program.expect("get ss theirs -o yaml", &["name: theirs"]).await;
        program.refuse("label ss theirs team=red", &["Forbidden"]).await;
        program.refuse("delete ss theirs", &["Forbidden"]).await;
        share(json!([{ "verbs": ["get", "patch"], "users": ["ada"] }])).await;
        program.expect("label ss theirs team=red", &["labeled"]).await;

        // The share is taken back: the object is missing from lists, and the watch that had it
        // ends.
        share(json!([])).await;
        assert_eq!(names(&program).await, ["mine"]);
        program.refuse("get ss theirs", &["NotFound"]).await;
        watching.end().await;
        program.wait_for_deletion(&server, "sharedsecrets/mine").await;
        assert!(names(&program).await.is_empty());
    }
}
