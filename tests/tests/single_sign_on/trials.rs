//! The test of a connector, and trial logins.

use postern_tests::cli::CliUser;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{path, set, user};
use serde_json::{Value, json};

use super::scene::Scene;

/// The checks of a test that failed, and the messages of them.
fn failed(tested: &Value) -> Vec<(&str, &str)> {
    let checks = tested["checks"].as_array().unwrap().iter();
    let failed = checks.filter(|check| check["passed"] == false);
    failed
        .map(|check| (check["name"].as_str().unwrap(), check["message"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_test_says_what_a_connector_lacks() {
    let scene = Scene::start().await;
    let at = path("connectors", "corp/test");
    let tested = scene.admin.get(&at).send().await.expect(200);
    assert_eq!(tested["kind"], "ConnectorTest");
    assert_eq!(tested["metadata"]["name"], "corp");
    assert_eq!(failed(&tested), []);
    assert_eq!(tested["checks"].as_array().unwrap().len(), 5);
    let redirect = tested["redirectURI"].as_str().unwrap();
    assert!(redirect.ends_with("/auth/oidc/corp/callback"), "{redirect}");
    assert_eq!(tested.get("logoutRedirectURI"), None, "the provider offers no logout");
    let user_names = |tested: &Value| {
        let found = tested["checks"].as_array().unwrap().iter();
        let found = found.into_iter().find(|check| check["name"] == "UserNames").unwrap();
        found["message"].as_str().unwrap().to_owned()
    };
    let linked = json!({ "identities": [{ "issuer": scene.provider.issuer(), "subject": "bo" }] });
    make(&scene.admin, "users", "bo", linked).await;
    scene.log_in().await;
    let listed = user_names(&scene.admin.get(&at).send().await.expect(200));
    assert!(listed.contains(" 1 users are not corp:NAME") && listed.ends_with(" bo"), "{listed}");
    scene.admin.get(&path("connectors", "none/test")).send().await.expect(404);
    user(&scene.admin, "eve").await.get(&at).send().await.expect(403);

    // Each of these is another provider to the server, since it has another issuer.
    let spec = |issuer: &str| {
        json!({
            "issuer": issuer, "clientId": "postern", "allow": { "everyone": true },
            "disabled": true,
            "clientSecret": { "secretName": "missing", "secretNamespace": "platform" },
        })
    };
    make(&scene.admin, "connectors", "gone", spec("https://127.0.0.1:1/")).await;
    let tested = scene.admin.get(&path("connectors", "gone/test")).send().await.expect(200);
    let names: Vec<&str> = failed(&tested).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Enabled", "Discovery", "Keys", "ClientSecret"]);
    let messages = tested["checks"].to_string();
    assert!(messages.contains("could not be reached") && messages.contains("missing"));
}

#[tokio::test]
async fn a_trial_login_shows_the_claims_and_leaves_nothing() {
    let scene = Scene::start().await;
    make(&scene.admin, "teams", "shop", json!({ "ssoGroups": ["corp:group-canary"] })).await;
    let tested = scene.admin.get(&path("connectors", "corp/test")).send().await.expect(200);
    let trial = tested["trialURL"].as_str().unwrap();
    let (_, start) = trial.split_once("/auth/").unwrap();
    let start = format!("/auth/{start}");
    let trial = async || {
        let mut browser = scene.browser();
        let address = browser.begin(&start).await;
        let page = browser.visit(&scene.provider.log_in(&address)).await;
        assert!(!browser.has_session());
        page.expect(200)
    };
    let page = trial().await;
    assert!(!page["claims"]["sub"].as_str().unwrap().is_empty());
    assert_eq!(page["userInfo"]["groups"], json!(["group-canary"]), "so groupsFrom can be chosen");
    let expected = json!({
        "allowed": true, "user": null, "nameOfNewUser": "ada", "teams": ["shop"],
        "groups": ["corp:group-canary"], "hasRefreshToken": false,
    });
    assert_eq!(page["trial"], expected);
    assert_eq!((scene.sessions().await, scene.users().await), (0, vec!["admin".to_owned()]));
    // First a known person, then one that is not allowed.
    scene.log_in().await;
    assert_eq!(trial().await["trial"]["user"], "ada");
    let allow = json!({ "allow": { "groups": ["others"], "everyone": null } });
    set(&scene.admin, &path("connectors", "corp"), allow).await;
    let page = trial().await;
    assert_eq!(page["trial"]["allowed"], false);
    assert!(page["trial"]["why"].as_str().unwrap().contains("does not allow this user"), "{page}");
    scene.provider.set(|state| state.user_info = json!({ "sub": "another" }));
    let page = trial().await;
    assert_eq!(page.get("userInfo"), None);
    assert!(page["userInfoError"].as_str().unwrap().contains("about another user"), "{page}");
    assert_eq!(scene.sessions().await, 1);
    let keys = scene.admin.get(&collection("ownedaccesskeys")).send().await.expect(200);
    assert_eq!(keys["items"].as_array().unwrap().len(), 2, "the administrator's, and the login's");
}

#[tokio::test]
async fn a_trial_login_says_what_a_login_would_do() {
    let scene = Scene::start().await;
    let corp = path("connectors", "corp");
    let outcome = async || {
        let mut browser = scene.browser();
        let address = browser.begin("/auth/oidc/corp/start?return=/auth/trial").await;
        let page = browser.visit(&scene.provider.log_in(&address)).await.expect(200);
        page["trial"].clone()
    };
    let why = async |text: &str| {
        let outcome = outcome().await;
        assert_eq!(outcome["allowed"], false, "{outcome}");
        assert!(outcome["why"].as_str().unwrap().contains(text), "{outcome}");
        let (_, refused) = scene.log_in().await;
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains(text), "{}", refused.text());
    };
    set(&scene.admin, &corp, json!({ "provisioning": "Match" })).await;
    why("no User is linked with this identity").await;
    set(&scene.admin, &corp, json!({ "provisioning": "Create" })).await;
    make(&scene.admin, "users", "ada", json!({})).await;
    let name = outcome().await["nameOfNewUser"].as_str().unwrap().to_owned();
    assert!(name.starts_with("ada-"), "{name}");
    assert_eq!(scene.users().await, ["ada", "admin"]);
    scene.log_in().await;
    assert_eq!(scene.users().await, ["ada", &*name, "admin"]);
    let known = outcome().await;
    assert_eq!((&known["user"], &known["nameOfNewUser"]), (&json!(name), &Value::Null));
    set(&scene.admin, &path("users", &name), json!({ "disabled": true })).await;
    why("the user is disabled").await;
}

#[tokio::test]
async fn the_command_line_tests_a_connector() {
    let scene = Scene::start().await;
    let kubeconfig = scene.server.home().kubeconfig();
    let admin = CliUser::new().with("KUBECONFIG", kubeconfig.to_str().unwrap());
    let printed = admin.ok(&["test", "connector", "corp"]).await;
    for text in ["Discovery", "yes", "Redirect URI:", "/auth/oidc/corp/callback", "Trial login:"] {
        assert!(printed.contains(text), "{printed}");
    }
    let json = admin.ok(&["test", "connector", "corp", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(failed(&json), []);
    set(&scene.admin, &path("connectors", "corp"), json!({ "disabled": true })).await;
    let done = admin.run(&["test", "connector", "corp"]).await;
    assert_eq!(done.code, 1);
    assert!(done.err.contains("1 of 5 checks"), "{}", done.err);
    let out = String::from_utf8(done.out).unwrap();
    assert!(out.contains("spec.disabled is true"), "{out}");
}
