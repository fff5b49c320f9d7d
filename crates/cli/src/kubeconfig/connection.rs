//! The contexts that `connect` writes: each is for a cluster, with a credential for kubectl. They
//! are marked with the login that they were made with. Only contexts with this mark are replaced
//! and removed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Files;
use super::edit::{OtherLogins, belongs_to_another, edit, entry, put_head, remove_unused};
use super::read::{Kubeconfig, LOGIN_EXTENSION, LoginEntries, LoginMark, ResolvedContext};
use crate::error::CliError;

/// The version in which kubectl takes a credential from a plugin. kubectl 1.20 and 1.21 do not know `v1`, and newer ones
/// still know this one.
const EXEC_VERSION: &str = "client.authentication.k8s.io/v1beta1";
/// The text that kubectl prints if it does not find the plugin.
const INSTALL_HINT: &str = "postern is the credential plugin of this context: put it on the PATH, and run \
                            `postern connect` again";

/// A context to write.
pub(crate) struct Connection<'a> {
    /// The name of the context.
    pub(crate) name: String,
    /// The name of the cluster, and of the user if the credential is not the login's. It contains
    /// the name of the login's user, so that merged kubeconfigs do not mix up the targets of two
    /// people.
    pub(crate) entry: String,
    /// The login of the context.
    pub(crate) login: ResolvedContext<'a>,
    /// The `cluster` of the entry.
    pub(crate) cluster: Value,
    /// The namespace of requests that name none.
    pub(crate) namespace: Option<String>,
    /// The credential of its requests.
    pub(crate) credential: Credential,
}

/// How a context is written into a kubeconfig.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Writing {
    /// Whether it becomes the current context.
    pub(crate) sets_current: bool,
    /// The action for a context of this name that belongs to another login.
    pub(crate) others: OtherLogins,
}

/// The credential of a context.
pub(crate) enum Credential {
    /// The user of the login's context, with the access key.
    OfLogin,
    /// A credential plugin.
    Plugin(Plugin),
}

/// A call of this program as a credential plugin.
pub(crate) struct Plugin {
    /// The program.
    pub(crate) command: String,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The kubeconfig with the login.
    pub(crate) kubeconfig: Vec<PathBuf>,
}

/// Writes a context into the first file.
pub(crate) fn connect(
    files: &Files,
    connection: &Connection<'_>,
    writing: Writing,
) -> Result<(), CliError> {
    let Some(first) = files.paths.first() else { return Ok(()) };
    let all = Kubeconfig::load(files)?;
    edit(first, |config| {
        let all = all.with_file(first, Value::Object(config.clone()));
        check(&all, connection, writing.others)?;
        connection.put(config, writing.sets_current).map_err(|what| {
            CliError::new(format!("{} is no kubeconfig: {what}", first.display()))
                .hint("nothing was written; choose another file with --kubeconfig or KUBECONFIG")
        })?;
        if let Some(before) = all.resolve(&connection.name) {
            let after = LoginEntries { cluster: &connection.entry, user: connection.user() };
            remove_unused(config, &all, &before, after);
        }
        Ok(())
    })
}

/// Checks that writing loses nothing, and changes no context of another login unless that is asked for.
fn check(
    all: &Kubeconfig,
    connection: &Connection<'_>,
    others: OtherLogins,
) -> Result<(), CliError> {
    let not_ours = |name: &str| {
        CliError::new(format!(
            "the kubeconfig already has an entry {name:?} that `postern` did not write"
        ))
        .hint("nothing was written; choose another name with --name")
    };
    let entry = connection.entry.as_str();
    let exists = ["clusters", "users"].iter().any(|list| all.entry(list, entry).is_some());
    let uses = |context: &Value| context["cluster"] == entry || context["user"] == entry;
    let is_marked = |one: &Value| uses(&one["context"]) && LoginMark::of(&one["context"]).is_some();
    if exists && !all.context_entries().any(is_marked) {
        return Err(not_ours(entry));
    }
    let Some(before) = all.resolve(&connection.name) else { return Ok(()) };
    match before.login() {
        None => Err(not_ours(&connection.name)),
        Some(mark) if mark.is(&connection.login) || others == OtherLogins::Replace => Ok(()),
        Some(_) => Err(belongs_to_another(&connection.name, std::iter::empty(), "--name")),
    }
}

impl Connection<'_> {
    /// A separate kubeconfig with only this context. If the credential is the login's, the access
    /// key is in it only with `with_key`; otherwise the user is left out.
    pub(crate) fn alone(&self, with_key: bool) -> Result<Value, CliError> {
        let mut config = Map::new();
        let wrong =
            |what: String| CliError::new(format!("the kubeconfig cannot be written: {what}"));
        self.put(&mut config, true).map_err(wrong)?;
        if with_key && let Credential::OfLogin = self.credential {
            let user = entry(&mut config, "users", "user", self.user()).map_err(wrong)?;
            user.clone_from(self.login.user.as_object().unwrap_or(&Map::new()));
            make_absolute(user, "tokenFile", self.login.user_dir);
        }
        Ok(Value::Object(config))
    }

    fn put(&self, config: &mut Map<String, Value>, set_current: bool) -> Result<(), String> {
        let name = &self.name;
        put_head(config);
        let cluster = entry(config, "clusters", "cluster", &self.entry)?;
        cluster.clone_from(self.cluster.as_object().unwrap_or(&Map::new()));
        match &self.credential {
            Credential::Plugin(plugin) => {
                let user = entry(config, "users", "user", &self.entry)?;
                // Other credentials would win over the plugin, and `as` would make requests as another user.
                user.clear();
                user.insert("exec".to_owned(), plugin.exec());
            }
            Credential::OfLogin => {}
        }
        let context = entry(config, "contexts", "context", name)?;
        context.insert("cluster".to_owned(), json!(self.entry));
        context.insert("user".to_owned(), json!(self.user()));
        if let Some(namespace) = &self.namespace {
            context.insert("namespace".to_owned(), json!(namespace));
        }
        let LoginEntries { cluster, user } = self.login.entries();
        let login = json!({ "context": self.login.name, "cluster": cluster, "user": user });
        let own = json!({ "name": LOGIN_EXTENSION, "extension": login });
        context.insert("extensions".to_owned(), json!([own]));
        if set_current {
            config.insert("current-context".to_owned(), json!(name));
        }
        Ok(())
    }

    /// The name of the user.
    fn user(&self) -> &str {
        match &self.credential {
            Credential::Plugin(_) => &self.entry,
            Credential::OfLogin => self.login.user_name,
        }
    }
}

impl Plugin {
    fn exec(&self) -> Value {
        let kubeconfig = std::env::join_paths(&self.kubeconfig).unwrap_or_default();
        json!({
            "apiVersion": EXEC_VERSION,
            "command": self.command,
            "args": self.arguments,
            // The location of the login, for every file that kubectl reads this from.
            "env": [{ "name": "KUBECONFIG", "value": kubeconfig.to_string_lossy() }],
            "interactiveMode": "Never",
            "provideClusterInfo": false,
            "installHint": INSTALL_HINT,
        })
    }
}

/// Makes the path in a field count in every directory. It is relative to this one.
pub(crate) fn make_absolute(fields: &mut Map<String, Value>, field: &str, directory: &Path) {
    if let Some(path) = fields.get(field).and_then(Value::as_str).filter(|path| !path.is_empty()) {
        let whole = directory.join(path);
        fields.insert(field.to_owned(), json!(whole.to_string_lossy()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;
    use crate::kubeconfig::{Kubeconfig, Origin, logout};

    const BEFORE: &str = "\
current-context: h
clusters:
- {name: h, cluster: {server: 'https://h/kubernetes/management'}}
- {name: work, cluster: {server: 'https://work'}}
contexts:
- {name: h, context: {cluster: h, user: h, namespace: platform}}
- {name: work, context: {cluster: work, user: work}}
users:
- {name: h, user: {token: pst_hush}}
- {name: work, user: {token: others}}
";

    struct Scene {
        _home: tempfile::TempDir,
        files: Files,
    }

    impl Scene {
        fn new(text: &str) -> Self {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("config");
            File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
            let files = Files { paths: vec![path], origin: Origin::Environment };
            Self { _home: home, files }
        }

        fn config(&self) -> Kubeconfig {
            Kubeconfig::load(&self.files).unwrap()
        }

        fn connect(&self, name: &str, is_direct: bool, sets_current: bool) -> Result<(), CliError> {
            let config = self.config();
            let plugin = Plugin {
                command: "postern".to_owned(),
                arguments: vec!["token".to_owned()],
                kubeconfig: vec!["/a".into(), "/b".into()],
            };
            let connection = Connection {
                name: name.to_owned(),
                entry: name.to_owned(),
                login: config.resolve("h").unwrap(),
                cluster: json!({ "server": "https://agent" }),
                namespace: is_direct.then(|| "ns".to_owned()),
                credential: if is_direct {
                    Credential::Plugin(plugin)
                } else {
                    Credential::OfLogin
                },
            };
            assert!(!connection.alone(false).unwrap().to_string().contains("hush"));
            assert_eq!(connection.alone(true).unwrap().to_string().contains("hush"), !is_direct);
            let others = OtherLogins::Keep;
            super::connect(&self.files, &connection, Writing { sets_current, others })
        }
    }

    #[test]
    fn a_context_is_added_and_replaced_and_nothing_else_changes() {
        let scene = Scene::new(BEFORE);
        scene.connect("h_east", true, true).unwrap();
        let config = scene.config();
        assert_eq!(config.current(), Some("h_east"));
        let east = config.resolve("h_east").unwrap();
        let login = config.login_of(&east.login().unwrap()).unwrap();
        assert_eq!((login.name, &east.context["namespace"]), ("h", &json!("ns")));
        let exec = &east.user["exec"];
        assert_eq!((&exec["args"], &exec["env"][0]["value"]), (&json!(["token"]), &json!("/a:/b")));
        assert_eq!(config.resolve("work").unwrap().user["token"], "others");
        assert_eq!(config.resolve("h").unwrap().user["token"], "pst_hush");
        // Without a direct endpoint, the plugin goes.
        scene.connect("h_east", false, false).unwrap();
        let config = scene.config();
        let east = config.resolve("h_east").unwrap();
        assert_eq!((&east.context["user"], &east.user["token"]), (&json!("h"), &json!("pst_hush")));
        assert_eq!(east.context["namespace"], "ns", "what the user has chosen stays");
    }

    #[test]
    fn what_others_wrote_is_not_replaced() {
        let scene = Scene::new(BEFORE);
        for name in ["work", "h"] {
            let error = scene.connect(name, true, true).unwrap_err();
            assert!(error.message.contains("did not write"), "{error:?}");
        }
        assert_eq!(scene.config().current(), Some("h"));
    }

    #[test]
    fn a_logout_takes_the_contexts_of_the_login_along() {
        let scene = Scene::new(BEFORE);
        scene.connect("h_east", true, true).unwrap();
        scene.connect("h_west", false, false).unwrap();
        logout(&scene.files, "h", LoginEntries { cluster: "h", user: "h" }).unwrap();
        let config = scene.config();
        assert_eq!(config.contexts().collect::<Vec<_>>(), ["work"]);
        assert_eq!(config.current(), None);
        let text = std::fs::File::open(&scene.files.paths[0]).map(std::io::read_to_string);
        let text = text.unwrap().unwrap();
        assert!(!text.contains("h_east") && !text.contains("hush"), "{text}");
    }
}
