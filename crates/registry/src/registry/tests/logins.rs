//! Logins through identity providers: the lifetime of their groups and codes, and the effects of a
//! logout at the provider.

use postern_auth::bearer::{BearerToken, Refusal};
use postern_auth::digest::Digest;
use postern_kinds::SecretText;
use postern_kinds::command_line_consent::CommandLineConsent;
use postern_kinds::connector::{self, Connector};
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::ConnectorRef;
use postern_oidc::command_line::Asked;

use super::*;
use crate::actions::logins::{LoginFor, Person, log_in};
use crate::actions::refreshes::{self, LoginKey, logged_out};
use crate::actions::{command_line, sessions};

pub(super) const ISSUER: &str = "https://login.example.com";
const DAY_SECONDS: i64 = 24 * 3600;

/// Creates a connector at which users log in. Returns its spec with the defaults.
pub(super) async fn make_connector(server: &Fixture) -> (ConnectorRef, connector::Spec) {
    let spec = json!({ "issuer": ISSUER, "clientId": "postern", "allow": { "everyone": true } });
    let made = server.make(at(&Connector, "corp"), json!({ "spec": spec })).await;
    let connector = ConnectorRef { name: "corp".to_owned(), uid: made.metadata.uid };
    (connector, serde_json::from_value(made.fields["spec"].clone()).unwrap())
}

/// A person that logs in at the provider, in a session there.
pub(super) fn person(subject: &str, session: &str, groups: Vec<String>) -> Person {
    Person {
        issuer: ISSUER.to_owned(),
        subject: subject.to_owned(),
        name: subject.to_owned(),
        username: subject.to_owned(),
        display_name: String::new(),
        email: String::new(),
        email_verified: false,
        groups,
        rejected_groups: Vec::new(),
        session: session.to_owned(),
        id_token: SecretText::from("token".to_owned()),
        refresh_token: Some(SecretText::from("refresh".to_owned())),
    }
}

/// The browser of a login.
pub(super) fn browser() -> sessions::Login {
    sessions::Login { address: "127.0.0.1".to_owned(), user_agent: String::new() }
}

/// A server with a connector at which users log in.
struct Scene {
    fixture: Fixture,
    connector: ConnectorRef,
    spec: connector::Spec,
}

impl Scene {
    async fn start() -> Self {
        let fixture = fixture().await;
        let (connector, spec) = make_connector(&fixture).await;
        Self { fixture, connector, spec }
    }

    /// Logs a user in, in a session at the provider. Returns the name of the key, and its digest.
    async fn log_in(&self, subject: &str, session: &str) -> (String, Digest) {
        let by = LoginFor {
            connector: &self.connector.name,
            connector_uid: &self.connector.uid,
            spec: &self.spec,
            browser: Some(browser()),
        };
        let person = person(subject, session, vec!["developers".to_owned()]);
        let made = log_in(&self.fixture.registry, &by, person).await.unwrap();
        self.fixture.current().await;
        let digest = self.fixture.registry.digester().digest(&BearerToken::of_key(&made.value));
        (made.access_key, digest)
    }

    fn now(&self) -> i64 {
        self.fixture.clock.now().unix_seconds()
    }

    /// The names of the keys that a logout token ends.
    fn ended(&self, subject: Option<&str>, session: Option<&str>) -> Vec<String> {
        let registry = &self.fixture.registry;
        let keys = logged_out(registry, &self.connector, ISSUER, subject, session);
        keys.into_iter().map(|key| key.name).collect()
    }
}

#[tokio::test]
async fn groups_that_are_too_old_do_not_count_although_nothing_can_be_written() {
    let scene = Scene::start().await;
    scene.log_in("ada", "").await;
    let registry = &scene.fixture.registry;
    let key = scene.fixture.key_of("own", "ada", json!({})).await;
    let counts = || {
        let key = scene.fixture.identify(&key, scene.now()).unwrap();
        key.identity.is_in("corp:developers")
    };
    let written = scene.fixture.store.revision().await.unwrap();
    scene.fixture.pass_seconds(DAY_SECONDS);
    registry.forget_old_groups();
    assert!(counts());
    scene.fixture.pass_seconds(1);
    registry.forget_old_groups();
    assert!(!counts());
    assert_eq!(scene.fixture.store.revision().await.unwrap(), written);
    // A server that starts then has them from the store, and they do not count there either.
    let again = start(scene.fixture.store.clone(), scene.fixture.clock.clone()).await;
    assert_eq!(again.registry.cache().principals().users_with_old_groups().count(), 1);
}

#[tokio::test]
async fn a_logout_ends_the_session_that_it_names_and_those_that_may_be_it() {
    let scene = Scene::start().await;
    let (one, _) = scene.log_in("ada", "one").await;
    let (two, _) = scene.log_in("ada", "two").await;
    let (unknown, _) = scene.log_in("ada", "").await;
    let (other, _) = scene.log_in("bob", "").await;
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let all_of_ada = sorted(vec![one.clone(), two.clone(), unknown.clone()]);
    for (subject, session, expected) in [
        (Some("ada"), None, all_of_ada),
        (None, Some("two"), vec![two.clone()]),
        (None, Some("three"), vec![]),
        (Some("ada"), Some("two"), vec![two, unknown.clone()]),
        (Some("ada"), Some("three"), vec![unknown]),
        (Some("bob"), Some("one"), vec![other]),
        (Some("eve"), Some("one"), vec![]),
    ] {
        let ended = sorted(scene.ended(subject, session));
        assert_eq!(ended, sorted(expected), "{subject:?} {session:?}");
    }
}

#[tokio::test]
async fn the_code_of_a_command_line_ends_after_a_minute_and_by_its_use() {
    let scene = Scene::start().await;
    let (_, digest) = scene.log_in("ada", "one").await;
    let registry = &scene.fixture.registry;
    let permit = at(&CommandLineConsent, "").permit(Verb::Create);
    let permit = permit.with_credential(scene.fixture.credential(digest));
    let asked = Asked { challenge: String::new(), host: "laptop".to_owned(), ttl_seconds: 0 };
    let code = async |text: &str| {
        let stored = SecretText::from(text.repeat(8));
        command_line::code_of(registry, &stored).await.unwrap()
    };
    let allow = async |text: &str| {
        let stored = SecretText::from(text.repeat(8));
        command_line::allow(registry, &permit, &asked, stored).await.unwrap();
    };
    allow("first").await;
    scene.fixture.pass_seconds(59);
    assert_eq!(code("first").await.err(), None);
    scene.fixture.pass_seconds(1);
    assert_eq!(code("first").await.err(), Some(Refusal::Expired));
    allow("second").await;
    let found = code("second").await.unwrap();
    command_line::redeem(registry, &found, browser()).await.unwrap();
    assert_eq!(code("second").await.err(), Some(Refusal::Unknown));
    let again = command_line::redeem(registry, &found, browser()).await;
    assert_eq!(again.err().map(|error| error.code()), Some(401));
}

/// Whether a key of ada has the group of the provider.
fn has_group(scene: &Scene, key: &Digest) -> bool {
    let key = scene.fixture.identify(key, scene.now()).unwrap();
    key.identity.is_in("corp:developers")
}

#[tokio::test]
async fn groups_end_with_the_last_login_that_confirms_them_and_not_with_a_logout_of_the_console() {
    let scene = Scene::start().await;
    let registry = &scene.fixture.registry;
    let own = {
        scene.log_in("ada", "first").await;
        scene.fixture.key_of("own", "ada", json!({})).await
    };
    let end = async |name: &str| {
        let uid = {
            let principals = registry.cache().principals();
            let found = principals.keys_of_user("ada").find(|(key, _)| *key == name);
            found.unwrap().1.to_owned()
        };
        refreshes::end(registry, &LoginKey { name: name.to_owned(), uid }).await.unwrap();
        registry.cache().wait_until_current().await.unwrap();
    };
    // While another login of the connector confirms the groups, they stay.
    let (second, _) = scene.log_in("ada", "second").await;
    end(&second).await;
    assert!(has_group(&scene, &own));
    // A disabled login confirms nothing.
    let (third, _) = scene.log_in("ada", "third").await;
    let keys = {
        registry
            .cache()
            .principals()
            .keys_of_connector("corp")
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for name in keys.iter().filter(|name| **name != third) {
        change_key(&scene, name, |key| key["spec"]["disabled"] = true.into()).await;
    }
    end(&third).await;
    assert!(!has_group(&scene, &own), "no login confirms them any more");

    // A logout of the console takes nothing at once.
    let (session, digest) = scene.log_in("ada", "fourth").await;
    assert!(has_group(&scene, &own));
    let permit = at(&OwnedAccessKey, &session).permit(Verb::Delete);
    let permit = permit.with_credential(scene.fixture.credential(digest));
    sessions::end(registry, &permit).await.unwrap();
    registry.cache().wait_until_current().await.unwrap();
    assert!(has_group(&scene, &own));
    // The provider says that the user is gone: at once, although no login is left.
    refreshes::take_groups(registry, &scene.connector, ISSUER, "ada").await.unwrap();
    registry.cache().wait_until_current().await.unwrap();
    assert!(!has_group(&scene, &own));
    // An ended login takes nothing with it when it is removed.
    let (old, _) = scene.log_in("ada", "fifth").await;
    scene.fixture.pass_seconds(13 * 3600);
    end(&old).await;
    assert!(has_group(&scene, &own));
}

async fn change_key(scene: &Scene, name: &str, change: impl Fn(&mut Value)) {
    scene.fixture.change(at(&OwnedAccessKey, name), change).await;
    scene.fixture.current().await;
}

#[tokio::test]
async fn a_use_of_any_key_of_the_user_makes_a_login_due() {
    let scene = Scene::start().await;
    let registry = &scene.fixture.registry;
    let (login, _) = scene.log_in("ada", "one").await;
    let own = scene.fixture.key_of("own", "ada", json!({})).await;
    scene.fixture.pass_seconds(1000);
    assert!(refreshes::due(registry, &scene.connector, 900).now.is_empty(), "no key was used");
    scene.fixture.use_key(&own);
    assert_eq!(refreshes::due(registry, &scene.connector, 900).now, [login]);
}

#[tokio::test]
async fn the_name_of_a_new_user_in_access_decisions_begins_with_the_connector() {
    let scene = Scene::start().await;
    let (_, digest) = scene.log_in("release-bot", "one").await;
    let key = scene.fixture.identify(&digest, scene.now()).unwrap();
    assert_eq!(key.identity.name, "corp:release-bot");
    assert_eq!(key.identity.user.as_deref(), Some("release-bot"));
}
