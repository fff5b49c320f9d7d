//! The user that a person gets: the one with the same issuer and subject, and no other.

use std::net::Ipv4Addr;

use postern_tests::identity_provider::IdentityProvider;
use postern_tests::objects::{collection, make};
use postern_tests::rights::{allow, path, set};
use postern_tests::wait;
use serde_json::{Value, json};

use super::scene::{Browser, Scene};

/// The users that exist, and that a person could be taken for.
async fn victims(scene: &Scene) {
    let admin = &scene.admin;
    for (name, spec) in [
        ("carol", json!({ "email": "carol@example.com", "username": "carol.c" })),
        ("dave", json!({ "subject": "oidc|dave" })),
        ("root", json!({ "groups": ["system:masters"] })),
    ] {
        make(admin, "users", name, spec).await;
    }
    // A user that does not exist yet has rights already.
    let rules = json!([postern_tests::rights::rule(&["sharedsecrets"], &["*"])]);
    allow(admin, "to-come", None, rules, "platform:user:newcomer").await;
    let binding = json!({
        "metadata": { "name": "by-name" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "to-come",
        },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "promised",
        }],
    });
    let bindings = "/kubernetes/management/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(bindings).json(&binding).send().await.expect(201);
    make(admin, "ownedaccesskeys", "raw", json!({ "subject": "robot" })).await;
}

/// The names that must not be given to a person.
const TAKEN: [&str; 8] =
    ["carol", "carol.c", "dave", "root", "admin", "newcomer", "promised", "robot"];

/// Claims by which a person tries to be another user.
fn attempts() -> Vec<Value> {
    let mut all: Vec<Value> =
        TAKEN.iter().map(|name| json!({ "preferred_username": name })).collect();
    // Names that become one of these when characters are dropped or folded.
    all.extend(
        [
            "Admin",
            "ADMIN",
            "admin ",
            " admin",
            "-admin-",
            "admin@",
            "@admin",
            "_admin",
            "admin.",
            "аdmin",
            "admin\u{200b}",
            "ADMIN!",
            "..admin..",
            "Carol",
            "CAROL",
            "Root",
            "dave-",
            "new\u{200b}comer",
        ]
        .map(|name| json!({ "preferred_username": name })),
    );
    all.extend([
        json!({ "preferred_username": "x1", "email": "carol@example.com" }),
        json!({ "preferred_username": "x2", "email": "CAROL@EXAMPLE.COM" }),
        json!({ "preferred_username": "x3", "name": "Administrator" }),
        json!({ "preferred_username": "system:admin" }),
        json!({ "preferred_username": "platform:user:carol" }),
        json!({ "preferred_username": "x4", "groups": ["system:masters"] }),
        json!({ "preferred_username": "x5", "groups": ["platform:team:shop", "masters"] }),
    ]);
    all
}

#[tokio::test]
async fn a_person_is_nobody_who_was_there_before() {
    let scene = Scene::start().await;
    victims(&scene).await;
    let before = scene.users().await;
    let attempts = attempts();
    assert!(attempts.len() >= 30);
    for (number, claims) in attempts.iter().enumerate() {
        let mut claims = claims.clone();
        claims["sub"] = json!(format!("attacker-{number}"));
        scene.provider.set(|state| state.claims = claims.clone());
        let (browser, response) = scene.log_in().await;
        assert!(browser.has_session(), "{claims}: {}", response.text());
        let me = browser.me().await;
        let name = me["status"]["user"]["name"].as_str().unwrap();
        assert!(!before.iter().any(|taken| taken == name), "{claims} is {name}");
        assert!(!TAKEN.contains(&name), "{claims} is {name}");
        let groups = me["status"]["groups"].as_array().unwrap();
        let own = format!("platform:user:{name}");
        for group in groups.iter().map(|group| group.as_str().unwrap()) {
            let is_usual = ["platform:authenticated", "system:authenticated", "platform:user:*"];
            let is_expected =
                is_usual.contains(&group) || group == own || group.starts_with("corp:");
            assert!(is_expected, "{claims} is in {group}");
        }
        // The user gets nothing from the shares of other users.
        let secrets = browser.get(&postern_tests::objects::secrets("platform")).await;
        assert_eq!(secrets.json()["items"].as_array().map_or(0, Vec::len), 0, "{claims}");
        let users = browser.get(&path("users", "admin")).await;
        assert_ne!(users.status, 200, "{claims}");
    }
}

#[tokio::test]
async fn the_same_subject_at_another_issuer_is_another_person() {
    let scene = Scene::start().await;
    let (first, _) = scene.log_in().await;
    assert_eq!(first.me().await["status"]["user"]["name"], "ada");
    let other = IdentityProvider::start().await;
    make(&scene.admin, "connectors", "other", other.connector()).await;
    let mut browser = scene.browser();
    let callback = other.log_in(&browser.begin("/auth/oidc/other/start").await);
    let response = browser.visit(&callback).await;
    assert!(browser.has_session(), "{}", response.text());
    let me = browser.me().await;
    let name = me["status"]["user"]["name"].as_str().unwrap();
    assert!(name.starts_with("ada-") && name.len() == "ada-".len() + 6, "{name}");
    assert_ne!(me["status"]["uid"], first.me().await["status"]["uid"]);
}

#[tokio::test]
async fn a_later_connector_of_the_same_name_adds_no_members_to_a_team() {
    let scene = Scene::start().await;
    let (admin, at) = (&scene.admin, path("teams", "shop"));
    let none = json!({ "metadata": { "name": "none" }, "spec": { "ssoGroups": ["none:dev"] } });
    let refused = admin.post(&collection("teams")).json(&none).send().await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.ssoGroups");
    make(admin, "teams", "shop", json!({ "ssoGroups": ["corp:group-canary"] })).await;
    let team_count = async || {
        let (browser, _) = scene.log_in().await;
        browser.me().await["status"]["user"]["teams"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(team_count().await, 1);
    let connector = path("connectors", "corp");
    let spec = admin.get(&connector).send().await.expect(200)["spec"].clone();
    admin.delete(&connector).send().await.expect(200);
    make(admin, "connectors", "corp", spec).await;
    assert_eq!(team_count().await, 0);
    // Neither a change of another field nor another group of the name trusts the later connector.
    set(admin, &at, json!({ "description": "still the first" })).await;
    set(admin, &at, json!({ "ssoGroups": ["corp:group-canary", "corp:more"] })).await;
    assert_eq!(team_count().await, 0);
    set(admin, &at, json!({ "ssoGroups": [] })).await;
    set(admin, &at, json!({ "ssoGroups": ["corp:group-canary"] })).await;
    assert_eq!(team_count().await, 1);
}

#[tokio::test]
async fn two_first_logins_at_once_make_one_user() {
    let scene = Scene::start().await;
    let mut browsers: Vec<Browser> = (1..=6)
        .map(|last| Browser::at(&scene.admin, Ipv4Addr::new(127, 0, 4, last).into()))
        .collect();
    let mut callbacks = Vec::new();
    for browser in &mut browsers {
        callbacks.push(scene.provider.log_in(&browser.begin("/auth/oidc/corp/start").await));
    }
    let visits =
        browsers.iter_mut().zip(&callbacks).map(|(browser, callback)| browser.visit(callback));
    let responses = futures_util::future::join_all(visits).await;
    assert!(responses.iter().all(|response| response.status == 303), "{responses:?}");
    assert_eq!(scene.users().await, ["ada", "admin"]);
    for browser in &browsers {
        assert_eq!(browser.me().await["status"]["user"]["name"], "ada");
    }
}

/// The audit log names users of this server, and not the names that a person claims.
#[tokio::test]
async fn a_refused_login_is_not_recorded_under_a_claimed_name() {
    let scene = Scene::start().await;
    set(&scene.admin, &path("connectors", "corp"), json!({ "provisioning": "Match" })).await;
    scene.provider.set(|state| state.claims = json!({ "preferred_username": "admin" }));
    let (browser, response) = scene.log_in().await;
    assert!(!browser.has_session(), "{}", response.text());
    let records = wait::until("the record", async || {
        let of_login = |record: &Value| record["verb"] == "login";
        let records: Vec<Value> =
            scene.server.home().records().into_iter().filter(of_login).collect();
        let is_refused = |record: &Value| record["responseStatus"]["code"] == 403;
        records.iter().any(is_refused).then_some(records)
    })
    .await;
    for record in &records {
        assert_eq!(record["user"]["username"], Value::Null, "{record}");
    }
}

#[tokio::test]
async fn an_administrator_links_a_user_who_exists() {
    let scene = Scene::start().await;
    let identity = json!({
        "connector": "corp", "issuer": scene.provider.issuer(), "subject": "sub-canary-ada",
    });
    make(&scene.admin, "users", "lovelace", json!({ "identities": [identity] })).await;
    let (browser, _) = scene.log_in().await;
    assert_eq!(browser.me().await["status"]["user"]["name"], "lovelace");
}
