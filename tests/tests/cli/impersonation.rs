//! Impersonation by flags and by the kubeconfig.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_tests::Server;
use postern_tests::cli::CliUser;
use serde_json::{Value, json};

use crate::cli::{admin, authority, url};

const BOB: &str = "user.management.platform.sh/bob\n";
const ADMIN: &str = "user.management.platform.sh/admin\n";

/// Creates the users bob and ada without rights, and returns the administrator.
async fn admin_and_users(server: &Server) -> CliUser {
    let admin = admin(server);
    admin.ok(&["create", "user", "bob", "--groups", "ops"]).await;
    admin.ok(&["create", "user", "ada"]).await;
    admin
}

/// A kubeconfig with the administrator's key, and more fields of its user.
fn kubeconfig(server: &Server, name: &str, more: &Value) -> Value {
    let login = server.kubeconfig();
    let mut user = json!({ "token": login.token });
    user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let authority = STANDARD.encode(&login.authority);
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{ "name": name, "cluster": {
            "server": login.server, "certificate-authority-data": authority } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "users": [{ "name": name, "user": user }],
    })
}

/// A user with such a kubeconfig.
fn user_with(server: &Server, more: &Value) -> CliUser {
    let user = CliUser::new();
    let _ = user.file(".kube/config", kubeconfig(server, "work", more).to_string());
    user
}

async fn status(user: &CliUser, flags: &[&str]) -> Value {
    let printed = user.ok(&[&["whoami", "-o", "json"], flags].concat()).await;
    let mut object: Value = serde_json::from_str(&printed).unwrap();
    object["status"].take()
}

/// The same status as kubectl prints it.
async fn status_by_kubectl(server: &Server, user: &CliUser, flags: &[&str]) -> Value {
    let question = json!({ "apiVersion": "management.platform.sh/v1", "kind": "Self",
        "metadata": { "name": "me" } });
    let question = user.file("self.json", question.to_string());
    // Validation would request the OpenAPI document, which only administrators may read.
    let create = ["create", "--validate=false", "-o", "json", "-f", &question];
    let mut kubectl = server.kubectl().command(&[&create, flags].concat());
    kubectl.env("KUBECONFIG", user.kubeconfig());
    let said = server.kubectl().run_command(kubectl).await;
    assert!(said.ok, "{said:?}");
    let mut object: Value = serde_json::from_str(&said.out).unwrap();
    object["status"].take()
}

#[tokio::test]
async fn with_as_a_request_has_the_rights_of_that_user_alone() {
    let server = Server::start().await;
    let admin = admin_and_users(&server).await;
    assert_eq!(admin.ok(&["whoami", "-o", "name", "--as", "bob"]).await, BOB);
    let printed = admin.ok(&["whoami", "--as=bob"]).await;
    assert!(printed.contains("Acting as:") && printed.contains("platform:user:bob"), "{printed}");
    assert!(!admin.ok(&["whoami"]).await.contains("Acting as:"));
    // Not two groups: names of identities have no commas.
    let said = admin.fails(2, &["whoami", "--as", "carol", "--as-group", "a,b"]).await;
    assert!(said.contains("--as-group") && said.contains("comma"), "{said}");
    let flags = ["--as", "carol", "--as-group", "a b", "--as-group=system:masters"];
    let by_us = status(&admin, &[&flags[..], &["--as-uid", "u-7"]].concat()).await;
    assert_eq!((&by_us["subject"], &by_us["uid"]), (&json!("carol"), &json!("u-7")));
    let everyone = ["platform:authenticated", "system:authenticated"];
    assert_eq!(by_us["groups"], json!([&["a b", "system:masters"][..], &everyone].concat()));

    // The flags work with every command, and the impersonated user owns the objects that the
    // command creates.
    admin.ok(&[&["set", "secret", "db.password", "x"], &flags[..]].concat()).await;
    for arguments in [
        &["set", "secret", "db.password", "y"][..],
        &["list", "clusterroles"],
        &["create", "user", "eve"],
    ] {
        let said = admin.fails(1, &[arguments, &["--as", "bob"]].concat()).await;
        assert!(said.contains("forbidden") && said.contains("made as bob"), "{said}");
        assert!(said.contains("omit --as"), "{said}");
    }
    for arguments in [&["get", "secret", "db"][..], &["delete", "secret", "db"]] {
        let said = admin.fails(1, &[arguments, &["--as", "bob"]].concat()).await;
        assert!(said.contains("not found"), "{said}");
    }
    // The impersonated user gets 404 for the keys of others.
    for verb in ["disable", "rotate"] {
        let said = admin.fails(1, &[verb, "accesskey", "admin", "--as", "bob"]).await;
        assert!(said.contains("not found"), "{said}");
    }
    // A list has the objects that its caller may get.
    assert_eq!(admin.ok(&["list", "users", "-o", "name", "--as", "bob"]).await, BOB);
    admin.ok(&["create", "accesskey", "bobs", "-o", "name", "--as", "bob"]).await;
    assert!(admin.ok(&["list", "accesskeys"]).await.contains("user/bob"));
    let own = admin.ok(&["list", "accesskeys", "-o", "name", "--as", "bob"]).await;
    assert_eq!(own, "ownedaccesskey.management.platform.sh/bobs\n");
}

#[tokio::test]
async fn a_kubeconfig_says_as_whom_to_act_and_flags_win_as_with_kubectl() {
    let server = Server::start().await;
    admin_and_users(&server).await;
    let user = user_with(&server, &json!({ "as": "bob" }));
    assert_eq!(user.ok(&["whoami", "-o", "name"]).await, BOB);
    let ada = user.ok(&["whoami", "-o", "name", "--as", "ada"]).await;
    assert_eq!(ada, "user.management.platform.sh/ada\n");
    let said = user.fails(1, &["list", "clusterroles"]).await;
    assert!(said.contains("remove `as` from the user in the kubeconfig"), "{said}");
    // Also with a key from elsewhere.
    let keyed = user.clone().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    assert_eq!(keyed.ok(&["whoami", "-o", "name"]).await, BOB);

    let all = json!({ "as": "carol", "as-groups": ["a", "b"], "as-uid": "u-7",
        "as-user-extra": { "example.com/Why": ["x"] } });
    let groups_alone = json!({ "as-groups": ["a"], "as-uid": "" });
    for (fields, flags) in [
        (json!({ "as": "bob" }), &[][..]),
        (json!({ "as": null, "as-groups": [] }), &[]),
        (all.clone(), &[]),
        (all.clone(), &["--as", "bob"]),
        (all.clone(), &["--as-group", "c", "--as-group", "d e"]),
        (all, &["--as-uid", "u-8"]),
        (groups_alone, &["--as", "bob"]),
        (json!({}), &["--as", "bob", "--as-uid", "u-9"]),
    ] {
        let user = user_with(&server, &fields);
        let by_us = status(&user, flags).await;
        assert!(by_us["subject"].is_string(), "{by_us}");
        let by_kubectl = status_by_kubectl(&server, &user, flags).await;
        assert_eq!(by_us, by_kubectl, "{fields} {flags:?}");
    }
}

#[tokio::test]
async fn extra_fields_are_sent_too() {
    let server = Server::start().await;
    // Their values are printed nowhere; but an invalid one is refused, so it was received.
    let odd = json!({ "as": "bob", "as-user-extra": { "example.com/Why": ["a\u{202e}b"] } });
    let said = user_with(&server, &odd).fails(1, &["whoami"]).await;
    assert!(said.contains("Impersonate-extra-example.com%2fwhy"), "{said}");
}

#[tokio::test]
async fn what_makes_no_sense_is_an_error_and_not_ignored() {
    let server = Server::start().await;
    let admin = admin_and_users(&server).await;
    let key = &server.kubeconfig().token;
    for (arguments, wanted) in [
        (&["--as-group", "ops"][..], "--as-group requires --as"),
        (&["--as-uid", "u-7"], "--as-uid requires --as"),
        (&["--as", ""], "'--as <USER>'"),
        (&["--as", "bob", "--as-group", ""], "'--as-group <GROUP>'"),
        (&["--as", "a\nb"], "control"),
        (&["--as"], "--as <USER>"),
    ] {
        let said = admin.fails(2, &[&["whoami"], arguments].concat()).await;
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    // As in kubectl, the last flag is used.
    assert!(
        admin.ok(&["whoami", "--as", "bob", "--as", "ada"]).await.contains("Acting as:    ada")
    );
    let said = admin.fails(2, &["whoami", "--as-group", "ops"]).await;
    assert!(said.contains("hint: name the user, too: --as USER"), "{said}");
    let direct = ["whoami", "--server", &url(&server), "--access-key", "x", "--as-uid", "u"];
    assert!(CliUser::new().fails(2, &direct).await.contains("--as-uid requires --as"));
    let said = admin.fails(1, &["whoami", "--as", key]).await;
    assert!(said.contains("not an access key") && !said.contains(key), "{said}");
    for (fields, wanted) in [
        (json!({ "as": 7 }), "as must be a string"),
        (json!({ "as": "bob", "as-groups": "ops" }), "as-groups must be a list of strings"),
        (json!({ "as": "bob", "as-uid": 7 }), "as-uid must be a string"),
        (json!({ "as": "bob", "as-user-extra": { "a": "b" } }), "as-user-extra must be a mapping"),
        (json!({ "as-groups": ["ops"] }), "has as-groups, but no user to act as"),
        (json!({ "as": "a\nb" }), "not allowed in a header"),
    ] {
        let said = user_with(&server, &fields).fails(1, &["whoami"]).await;
        assert!(said.contains(wanted), "{fields}: {said}");
        assert!(said.contains("\"work\"") || wanted.contains("header"), "{fields}: {said}");
    }
    let user = user_with(&server, &json!({ "as-groups": ["ops"] }));
    assert!(user.fails(2, &["whoami", "--as-group", "a"]).await.contains("--as-group"));
}

#[tokio::test]
async fn without_the_right_to_impersonate_there_is_a_hint() {
    let server = Server::start().await;
    let admin = admin_and_users(&server).await;
    let key = admin.ok(&["create", "accesskey", "bobs", "--user", "bob"]).await;
    let bob = admin.with("POSTERN_ACCESS_KEY", key.trim_end());
    assert_eq!(bob.ok(&["whoami", "-o", "name"]).await, BOB);
    let said = bob.fails(1, &["whoami", "--as", "admin"]).await;
    let wanted = "User \"bob\" cannot impersonate resource \"users\"";
    assert!(said.contains("forbidden") && said.contains(wanted), "{said}");
    assert!(said.contains("hint: impersonation requires the verb impersonate"), "{said}");
    assert!(said.contains("omit --as") && !said.contains("postern whoami"), "{said}");
}

#[tokio::test]
async fn a_login_removes_impersonation() {
    let server = Server::start().await;
    admin_and_users(&server).await;
    let address = server.kubeconfig().authority_of_server().replace(':', "_");
    let name = format!("postern_{address}_admin");
    let fields = json!({ "as": "bob", "as-groups": ["ops"], "as-uid": "u-7",
        "as-user-extra": { "why": ["x"] } });
    let user = CliUser::new().with("POSTERN_ACCESS_KEY", &server.kubeconfig().token);
    let _ = user.file(".kube/config", kubeconfig(&server, &name, &fields).to_string());
    assert_eq!(user.ok(&["whoami", "-o", "name"]).await, "subject/bob\n");
    let output = user.run(&["login", &url(&server)]).await;
    assert!(output.code == 0 && output.err.contains("as the user admin"), "{output:?}");
    assert_eq!(user.ok(&["whoami", "-o", "name"]).await, ADMIN);
    let written = std::fs::read_to_string(user.kubeconfig()).unwrap();
    assert!(!written.contains("as:") && !written.contains("as-"), "{written}");
    let ca = authority(&user, &server);
    let said = user.fails(2, &["login", &url(&server), "--ca-file", &ca, "--as", "bob"]).await;
    assert!(said.contains("invalid argument"), "{said}");
}
