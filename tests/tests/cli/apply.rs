//! `postern apply` and `edit`: changing objects from files and in an editor.

use postern_tests::Server;
use postern_tests::cli::CliUser;
use postern_tests::objects::{collection, secret_path, value_of};
use serde_json::{Value, json};

use crate::cli::admin;

fn user(name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: management.platform.sh/v1\nkind: User\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

fn secret(name: &str, data: &str) -> String {
    format!(
        "---\napiVersion: management.platform.sh/v1\nkind: SharedSecret\nmetadata: {{name: {name}}}\nspec: {{data: {data}}}\n"
    )
}

async fn stored_user(server: &Server, name: &str) -> Value {
    server.client().get(&collection(&format!("users/{name}"))).send().await.expect(200)
}

#[tokio::test]
async fn apply_creates_and_changes_what_the_files_have() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text =
        [user("ada", "{displayName: Ada, email: a@b}"), secret("db", "{value: aHVzaA==}")].concat();
    let output = admin.run_with(&["apply", "-f", "-"], text.as_bytes()).await;
    assert_eq!((output.code, output.text()), (0, ""), "{}", output.err);
    assert_eq!(output.err, "user ada applied\nsecret db applied in the namespace platform\n");
    let stored = stored_user(&server, "ada").await;
    let manager = &stored["metadata"]["managedFields"][0];
    assert_eq!((&manager["manager"], &manager["operation"]), (&json!("postern"), &json!("Apply")));
    // A field that is not in the file any more goes.
    let file = admin.file("ada.yaml", user("ada", "{displayName: Countess}"));
    let yaml = admin.ok(&["apply", "-f", &file, "-o", "yaml"]).await;
    assert!(yaml.contains("displayName: Countess") && !yaml.contains("email"), "{yaml}");
    let stored = server.client().get(&secret_path("db")).send().await.expect(200);
    assert_eq!(value_of(&stored), "hush");
}

#[tokio::test]
async fn directories_are_applied_in_the_order_of_their_files() {
    let server = Server::start().await;
    let admin = admin(&server);
    let _ = admin.file("all/2.yaml", user("bob", "{}"));
    let _ = admin.file("all/1.yaml", user("ada", "{}"));
    let _ = admin.file("all/notes.txt", "no object");
    let deep = admin.file(
        "all/deep/3.json",
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } })
            .to_string(),
    );
    let directory = admin.path().join("all");
    let directory = directory.to_str().unwrap();
    assert_eq!(
        admin.run(&["apply", "-f", directory]).await.err,
        "user ada applied\nuser bob applied\n"
    );
    let output = admin.run(&["apply", "-f", directory, "-R", "--dry-run=server"]).await;
    assert!(output.err.ends_with("namespace shop applied (server dry run)\n"), "{}", output.err);
    admin.fails(1, &["get", "namespace", "shop"]).await;
    let output = admin.run(&["apply", "-f", &deep, "-f", directory]).await;
    assert_eq!(output.err, "namespace shop applied\nuser ada applied\nuser bob applied\n");
    // `create` takes directories, too.
    assert_eq!(
        admin.fails(1, &["create", "-f", directory]).await.matches("already exists").count(),
        2
    );
}

#[tokio::test]
async fn fields_of_other_managers_are_taken_only_by_force() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada"]).await;
    let file = admin.file("ada.yaml", user("ada", "{displayName: Other}") + &user("bob", "{}"));
    let said = admin.fails(1, &["apply", "-f", &file]).await;
    let own = "`postern create`";
    for wanted in ["document 1: ", "conflict", "spec.displayName", "--force-conflicts", own] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(stored_user(&server, "ada").await["spec"]["displayName"], "Ada");
    admin.ok(&["apply", "-f", &file, "--force-conflicts"]).await;
    assert_eq!(stored_user(&server, "ada").await["spec"]["displayName"], "Other");
    // Fields of an object that had none when it was created.
    admin.ok(&["create", "user", "cy"]).await;
    let editor = admin.clone().with("EDITOR", "sed -i 's/^spec:.*/spec: {displayName: Cy}/'");
    editor.ok(&["edit", "user", "cy"]).await;
    let file = admin.file("cy.yaml", user("cy", "{displayName: Other}"));
    let said = admin.fails(1, &["apply", "-f", &file]).await;
    assert!(said.contains("before-first-apply") && said.contains("`postern create`"), "{said}");
}

#[tokio::test]
async fn an_error_does_not_stop_the_other_objects() {
    let server = Server::start().await;
    let admin = admin(&server);
    let text = [
        user("ada", "{displayNam: x}"),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\n".to_owned(),
        "---\napiVersion: management.platform.sh/v1\nkind: User\nmetadata: {}\n".to_owned(),
        user("bob", "{}"),
    ];
    let output =
        admin.run_with(&["apply", "-f", "-", "-o", "name"], text.concat().as_bytes()).await;
    assert_eq!((output.code, output.text()), (1, "user.management.platform.sh/bob\n"));
    for wanted in ["displayNam", "Pod in v1 cannot be applied", "metadata.name is not set"] {
        assert!(output.err.contains(wanted), "{wanted}: {}", output.err);
    }
    let key = "apiVersion: management.platform.sh/v1\nkind: OwnedAccessKey\nmetadata: {name: ci}\n";
    let output = admin.run_with(&["apply", "-f", "-"], key.as_bytes()).await;
    assert_eq!(output.code, 2);
    assert!(output.err.contains("only copy of the credential"), "{}", output.err);
    let unauthenticated = CliUser::new().with("POSTERN_ACCESS_KEY", "pst_wrong");
    let file = unauthenticated.file("users.yaml", user("a", "{}") + &user("b", "{}"));
    let said = unauthenticated
        .fails(1, &["apply", "-f", &file, "--server", "https://127.0.0.1:1", "-n", "x"])
        .await;
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("not tried: ") && said.contains("document 2"), "{said}");
}

/// A user with a shell script as the editor. The script gets the file as `$1`.
fn with_editor(user: &CliUser, script: &str) -> CliUser {
    let path = user.file("editor.sh", script);
    user.clone().with("EDITOR", &format!("sh {path}")).with("TMPDIR", user.path().to_str().unwrap())
}

/// The files that `edit` has left.
fn left(user: &CliUser) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(user.path()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_str().unwrap().contains("postern-edit-")).collect()
}

#[tokio::test]
async fn an_object_is_changed_in_the_editor() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada", "--email", "a@b"]).await;
    let user = with_editor(
        &admin,
        "stat -c %a \"$1\" >mode; sed -i 's/displayName: Ada/displayName: Countess/' \"$1\"",
    );
    let output = user.run(&["edit", "user", "ada"]).await;
    assert_eq!((output.code, output.err.as_str()), (0, "user ada edited\n"));
    let stored = stored_user(&server, "ada").await;
    assert_eq!(stored["spec"], json!({ "displayName": "Countess", "email": "a@b" }));
    assert_eq!(std::fs::read_to_string(user.path().join("mode")).unwrap(), "600\n");
    assert_eq!(left(&user), [""; 0].map(std::path::PathBuf::from));
    // Both of these change nothing.
    for script in ["true", ": >\"$1\""] {
        let output = with_editor(&admin, script).run(&["edit", "user/ada"]).await;
        assert_eq!((output.code, output.err.as_str()), (0, "nothing was changed\n"));
    }
    let user = with_editor(&admin, "exit 3").with("KUBE_EDITOR", "sed -i /email/d");
    user.ok(&["edit", "user", "ada"]).await;
    assert_eq!(
        stored_user(&server, "ada").await["spec"].get("email"),
        None,
        "KUBE_EDITOR is first"
    );
    assert_eq!(left(&user).len(), 0);
}

#[tokio::test]
async fn what_was_edited_is_never_lost() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "user", "ada", "--display-name", "Ada"]).await;
    for (script, wanted) in [
        ("grep -q 'my work' \"$1\" || echo 'a: [ # my work' >>\"$1\"", "YAML"),
        (
            "grep -q displayNam: \"$1\" || sed -i 's/^spec:/spec:\\n  displayNam: my work/' \"$1\"",
            "displayNam",
        ),
        ("sed -i 's/name: ada/name: my work/' \"$1\"", "metadata.name cannot be changed"),
        ("echo '# my work' >>\"$1\"; exit 1", "the editor sh"),
    ] {
        let user = with_editor(&admin, script);
        let said = user.fails(1, &["edit", "user", "ada"]).await;
        assert!(said.contains(wanted), "{wanted}: {said}");
        let kept = left(&user);
        assert_eq!(kept.len(), 1, "{said}");
        assert!(said.contains(kept[0].to_str().unwrap()), "{said}");
        assert!(std::fs::read_to_string(&kept[0]).unwrap().contains("my work"), "{said}");
        std::fs::remove_file(&kept[0]).unwrap();
    }
    assert_eq!(stored_user(&server, "ada").await["spec"]["displayName"], "Ada");
    // The second time, the editor shows the reason and the rejected text, and corrects it.
    let script = "if grep -q 'It was not accepted' \"$1\"; then sed -i 's/displayNam:/displayName:/' \"$1\"; \
                  else sed -i 's/displayName: Ada/displayNam: Countess/' \"$1\"; fi";
    let user = with_editor(&admin, script);
    user.ok(&["edit", "user", "ada"]).await;
    assert_eq!(stored_user(&server, "ada").await["spec"]["displayName"], "Countess");
}

#[tokio::test]
async fn an_edit_does_not_overwrite_another_writers_change() {
    let server = Server::start().await;
    let admin = admin(&server);
    admin.ok(&["create", "team", "red", "--display-name", "Red"]).await;
    let binary = admin.command(&[]).as_std().get_program().to_owned();
    let other = format!(
        "printf 'apiVersion: management.platform.sh/v1\\nkind: Team\\nmetadata: {{name: red}}\\nspec: {{users: [admin]}}\\n' | \
         {} apply -f -; sed -i 's/: Red/: Blue/' \"$1\"",
        binary.to_str().unwrap()
    );
    let user = with_editor(&admin, &other);
    let said = user.fails(1, &["edit", "team", "red"]).await;
    assert!(said.contains("another writer") && said.contains("is kept in"), "{said}");
    let kept = std::fs::read_to_string(&left(&user)[0]).unwrap();
    assert!(kept.contains("displayName: Blue"), "{kept}");
    let stored = server.client().get(&collection("teams/red")).send().await.expect(200);
    assert_eq!(
        (&stored["spec"]["displayName"], &stored["spec"]["users"]),
        (&json!("Red"), &json!(["admin"]))
    );
}

#[tokio::test]
async fn a_user_that_may_only_create_applies_new_objects() {
    let server = Server::start().await;
    let admin = admin(&server);
    for user in ["ada", "bob"] {
        admin.ok(&["create", "user", user]).await;
    }
    let key = admin.ok(&["create", "accesskey", "ada", "--user", "ada"]).await;
    let ada = admin.clone().with("POSTERN_ACCESS_KEY", &key);
    let file = ada.file("db.yaml", secret("applied", "{value: aHVzaA==}"));
    let apply = ["apply", "-n", "default", "-f", &file];
    let tried = ada.run(&[&apply[..], &["--dry-run=server"]].concat()).await;
    assert_eq!(tried.code, 0, "{}", tried.err);
    ada.fails(1, &["get", "secret", "applied", "-n", "default"]).await;
    ada.ok(&apply).await;
    let _ = ada.file("db.yaml", secret("applied", "{value: bmV3}"));
    ada.ok(&[&apply[..], &["--force-conflicts"]].concat()).await;
    let read = ["get", "secret", "applied.value", "-n", "default", "-o", "value"];
    assert_eq!(ada.ok(&read).await, "new");
    let said = admin.fails(1, &[&apply[..], &["--as", "bob"]].concat()).await;
    assert!(said.contains("already exists"), "{said}");
}
