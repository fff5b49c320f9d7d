//! Tests: in merged kubeconfigs, and after further logins, no context uses the key of another person.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use postern_kinds::SecretText;
use serde_json::{Value, json};

use super::connection::{Connection, Credential, Plugin, Writing, connect};
use super::edit::{Login, OtherLogins, WrittenLogin, login, logout};
use super::read::{Kubeconfig, LoginEntries};
use super::{Files, Origin};
use crate::error::CliError;
use crate::process::read_file;

const SERVER: &str = "https://h:8443/kubernetes/management";

/// A person with a kubeconfig, which others may write too.
struct Person<'a> {
    name: &'a str,
    files: Files,
}

/// How a context leads to a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Gateway,
    Direct,
}

impl Person<'_> {
    fn entry(&self, context: Option<&str>) -> String {
        let own = format!("postern_h_8443_{}", self.name);
        context.map_or(own.clone(), |context| format!("{own}/{context}"))
    }

    fn log_in(&self, context: Option<&str>, others: OtherLogins) -> Result<WrittenLogin, CliError> {
        let entry = self.entry(context);
        let key = SecretText::from(format!("pst_{}", self.name));
        let context = context.unwrap_or(&entry);
        let (server, authority) = (SERVER, None);
        let (sets_current, secret_namespaces) = (true, &[][..]);
        let (entry, key) = (entry.as_str(), &key);
        let login_entries = Login {
            context,
            entry,
            server,
            authority,
            key,
            sets_current,
            others,
            secret_namespaces,
        };
        login(&self.files, &login_entries)
    }

    fn connect(&self, context: Option<&str>, name: Option<&str>, way: Way) -> Result<(), CliError> {
        let config = Kubeconfig::load(&self.files).unwrap();
        let own = self.entry(context);
        let login = config.resolve(context.unwrap_or(&own)).unwrap();
        let entry = format!("{}_cluster_east", login.user_name);
        let plugin = Plugin {
            command: "postern".to_owned(),
            arguments: vec![login.cluster_name.to_owned(), login.user_name.to_owned()],
            kubeconfig: vec![],
        };
        let connection = Connection {
            name: name.map_or(format!("{}_cluster_east", login.name), str::to_owned),
            entry: name.map_or(entry.clone(), |name| format!("{entry}/{name}")),
            cluster: json!({ "server": "https://h:8443/kubernetes/cluster/east" }),
            namespace: None,
            credential: match way {
                Way::Gateway => Credential::OfLogin,
                Way::Direct => Credential::Plugin(plugin),
            },
            login,
        };
        let writing = Writing { sets_current: false, others: OtherLogins::Keep };
        connect(&self.files, &connection, writing)
    }
}

/// The owner of the key that a context uses, as its own credential or by the plugin.
fn key_of(config: &Kubeconfig, context: &str) -> String {
    let context = config.resolve(context).unwrap();
    let words = context.user["exec"]["args"].as_array().cloned().unwrap_or_default();
    let user = match (words[..].first(), words[..].get(1)) {
        (Some(cluster), Some(user)) => {
            let (cluster, user) = (cluster.as_str().unwrap(), user.as_str().unwrap());
            config.login_with(LoginEntries { cluster, user }).unwrap().user
        }
        _ => context.user,
    };
    user["token"].as_str().unwrap_or_default().to_owned()
}

fn files(paths: Vec<PathBuf>) -> Files {
    Files { paths, origin: Origin::Environment }
}

#[test]
fn in_merged_kubeconfigs_each_context_keeps_the_key_that_it_was_made_with() {
    let home = tempfile::tempdir().unwrap();
    for (case, context) in [None, Some("prod")].into_iter().enumerate() {
        let people = ["ada", "bob"].map(|name| Person {
            name,
            files: files(vec![home.path().join(format!("{name}{case}"))]),
        });
        for (person, way) in people.iter().zip([Way::Gateway, Way::Direct]) {
            person.log_in(context, OtherLogins::Keep).unwrap();
            person.connect(context, Some(person.name), way).unwrap();
            person.connect(context, None, way).unwrap();
        }
        let [ada, bob] = people;
        for order in [[&ada, &bob], [&bob, &ada]] {
            let paths = order.iter().flat_map(|person| person.files.paths.clone());
            let merged = Kubeconfig::load(&files(paths.collect())).unwrap();
            for name in merged.contexts() {
                let makers = order.iter().find(|person| {
                    Kubeconfig::load(&person.files).unwrap().resolve(name).is_some()
                });
                let maker = makers.expect("a person who made it").name;
                assert_eq!(key_of(&merged, name), format!("pst_{maker}"), "{name}");
            }
        }
    }
}

#[test]
fn a_second_login_changes_no_context_of_another_person() {
    for way in [Way::Gateway, Way::Direct] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        let [ada, bob] =
            ["ada", "bob"].map(|name| Person { name, files: files(vec![path.clone()]) });
        ada.log_in(None, OtherLogins::Keep).unwrap();
        ada.connect(None, Some("east"), way).unwrap();
        let others = bob.log_in(None, OtherLogins::Keep).unwrap();
        assert_eq!(others.kept, [&ada.entry(None), "east"], "they are named");
        let refused = bob.connect(None, Some("east"), way).unwrap_err();
        assert!(refused.message.contains("another login is used by the context east"));
        let load = || Kubeconfig::load(&ada.files).unwrap();
        assert_eq!(load().current(), Some(&*bob.entry(None)));
        for (context, key) in [(ada.entry(None), "pst_ada"), ("east".to_owned(), "pst_ada")] {
            assert_eq!(key_of(&load(), &context), key);
        }
        // A new key of the same person counts in the contexts that were made before.
        let others = ada.log_in(None, OtherLogins::Keep).unwrap();
        assert_eq!((others.renewed, others.kept), (vec!["east".to_owned()], vec![bob.entry(None)]));

        // With a name of one's own.
        ada.log_in(Some("prod"), OtherLogins::Keep).unwrap();
        ada.connect(Some("prod"), None, way).unwrap();
        let before = read_file(&path, 10_000).unwrap();
        let refused = bob.log_in(Some("prod"), OtherLogins::Keep).unwrap_err();
        assert!(refused.message.contains("the context prod"), "{refused:?}");
        assert!(refused.hints.concat().contains("--replace"), "{refused:?}");
        assert_eq!(read_file(&path, 10_000).unwrap(), before);
        let others = bob.log_in(Some("prod"), OtherLogins::Replace).unwrap();
        assert!(others.kept.contains(&"prod_cluster_east".to_owned()), "{others:?}");
        assert_eq!(key_of(&load(), "prod"), "pst_bob");
        assert_eq!(key_of(&load(), "prod_cluster_east"), "pst_ada", "it is kept");

        // A logout removes only the entries that were made with this login.
        let own = bob.entry(Some("prod"));
        logout(&bob.files, "prod", LoginEntries { cluster: &own, user: &own }).unwrap();
        assert!(load().resolve("prod").is_none());
        assert_eq!(key_of(&load(), "prod_cluster_east"), "pst_ada");
    }
}

#[test]
fn contexts_of_earlier_versions_are_named_before_they_would_change() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    let mark = json!([{ "name": "platform.sh/login", "extension": { "context": "postern_h" } }]);
    let exec = json!({ "command": "postern", "args": ["token", "--context", "postern_h"] });
    let before = json!({
        "current-context": "postern_h",
        "clusters": [
            { "name": "postern_h", "cluster": { "server": SERVER } },
            { "name": "postern_h_cluster_east", "cluster": { "server": "https://east" } },
        ],
        "contexts": [
            { "name": "postern_h", "context": { "cluster": "postern_h", "user": "postern_h" } },
            { "name": "postern_h_cluster_east", "context":
                { "cluster": "postern_h_cluster_east", "user": "postern_h_cluster_east",
                  "extensions": mark } },
        ],
        "users": [
            { "name": "postern_h", "user": { "token": "pst_ada" } },
            { "name": "postern_h_cluster_east", "user": { "exec": exec } },
        ],
    });
    File::create(&path).unwrap().write_all(before.to_string().as_bytes()).unwrap();
    let bob = Person { name: "bob", files: files(vec![path.clone()]) };
    let refused = bob.log_in(Some("postern_h"), OtherLogins::Keep).unwrap_err();
    assert!(refused.message.contains("postern_h, postern_h_cluster_east"), "{refused:?}");
    let kept = bob.log_in(None, OtherLogins::Keep).unwrap().kept;
    assert_eq!(kept, ["postern_h", "postern_h_cluster_east"]);
    let load = || Kubeconfig::load(&bob.files).unwrap();
    assert_eq!(key_of(&load(), "postern_h"), "pst_ada");
    let east = load();
    let east = east.resolve("postern_h_cluster_east").unwrap();
    let config = load();
    assert_eq!(config.login_of(&east.login().unwrap()).unwrap().user["token"], "pst_ada");
    // The login of that time can end as before.
    let own = LoginEntries { cluster: "postern_h", user: "postern_h" };
    logout(&bob.files, "postern_h", own).unwrap();
    let names = load().contexts().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names, [bob.entry(None)]);
}

#[test]
fn a_logout_names_the_contexts_that_lose_their_credential_and_keeps_what_they_still_need() {
    let home = tempfile::tempdir().unwrap();
    let ada = Person { name: "ada", files: files(vec![home.path().join("config")]) };
    ada.log_in(None, OtherLogins::Keep).unwrap();
    let entry = ada.entry(None);
    super::edit::edit(&ada.files.paths[0], |config| {
        let contexts = config["contexts"].as_array_mut().unwrap();
        for (name, user) in [("team", entry.as_str()), ("robot", "robot")] {
            let context = json!({ "cluster": entry, "user": user });
            contexts.push(json!({ "name": name, "context": context }));
        }
        config["users"].as_array_mut().unwrap().push(json!({ "name": "robot", "user": {} }));
        Ok(())
    })
    .unwrap();
    let own = LoginEntries { cluster: &entry, user: &entry };
    assert_eq!(logout(&ada.files, &entry, own).unwrap(), ["team"]);
    let config = Kubeconfig::load(&ada.files).unwrap();
    assert_eq!(config.resolve("robot").unwrap().cluster["server"], SERVER);
    assert_eq!(config.resolve("team").unwrap().user, &Value::Null);
}
