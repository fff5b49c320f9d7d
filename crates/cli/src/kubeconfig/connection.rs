//! The contexts that `connect` writes: of a cluster, with what kubectl says there who is asking. They are marked with
//! the login that they were made with, and only contexts with this mark are replaced and removed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::Files;
use super::edit::{edit, entry, named, put_head};
use super::read::{LOGIN_EXTENSION, ResolvedContext, login_of};
use crate::error::CliError;

/// The version in which kubectl takes a credential from a plugin.
const EXEC_VERSION: &str = "client.authentication.k8s.io/v1";
/// The text that kubectl prints if it does not find the plugin.
const INSTALL_HINT: &str = "postern is the credential plugin of this context: put it on the PATH, and run \
                            `postern connect` again";

/// A context to write.
pub(crate) struct Connection<'a> {
    /// The name of context and cluster, and of the user where the credential is not the login's.
    pub(crate) name: String,
    /// The login of the context.
    pub(crate) login: ResolvedContext<'a>,
    /// The `cluster` of the entry.
    pub(crate) cluster: Value,
    /// The namespace of requests that name none.
    pub(crate) namespace: Option<String>,
    /// The credential of its requests.
    pub(crate) credential: Credential,
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
    set_current: bool,
) -> Result<(), CliError> {
    let Some(first) = files.paths.first() else { return Ok(()) };
    edit(first, |config| {
        if !is_free(config, connection) {
            let message = format!(
                "{} already has an entry {:?} that `postern` did not write",
                first.display(),
                connection.name
            );
            return Err(
                CliError::new(message).hint("nothing was written; choose another name with --name")
            );
        }
        connection.put(config, set_current).map_err(|what| {
            CliError::new(format!("{} is no kubeconfig: {what}", first.display()))
                .hint("nothing was written; choose another file with --kubeconfig or KUBECONFIG")
        })
    })
}

/// Whether writing loses nothing: whether there is nothing of this name, or a context that was made with
/// the same login.
fn is_free(config: &Map<String, Value>, connection: &Connection<'_>) -> bool {
    let name = &connection.name;
    match ["contexts", "clusters", "users"].map(|list| named(config, list, name)) {
        [None, None, None] => true,
        [Some(context), ..] => login_of(&context["context"]) == Some(connection.login.name),
        _ => false,
    }
}

/// The names of the contexts that were made with a login.
pub(super) fn made_with(config: &Map<String, Value>, login: &str) -> Vec<String> {
    let contexts = config.get("contexts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let own = contexts.iter().filter(|entry| login_of(&entry["context"]) == Some(login));
    own.filter_map(|entry| entry["name"].as_str()).map(str::to_owned).collect()
}

impl Connection<'_> {
    /// Makes it a kubeconfig of its own. If the credential is the login's, the access key is in it only with
    /// `with_key`; otherwise the user is left out.
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
        let cluster = entry(config, "clusters", "cluster", name)?;
        cluster.clone_from(self.cluster.as_object().unwrap_or(&Map::new()));
        match &self.credential {
            Credential::Plugin(plugin) => {
                let user = entry(config, "users", "user", name)?;
                // Other credentials would win over the plugin, and `as` would make requests as another user.
                user.clear();
                user.insert("exec".to_owned(), plugin.exec());
            }
            Credential::OfLogin => {
                // From an earlier time, when there was a direct endpoint.
                if let Some(Value::Array(users)) = config.get_mut("users") {
                    users.retain(|entry| entry["name"] != name.as_str());
                }
            }
        }
        let context = entry(config, "contexts", "context", name)?;
        context.insert("cluster".to_owned(), json!(name));
        context.insert("user".to_owned(), json!(self.user()));
        if let Some(namespace) = &self.namespace {
            context.insert("namespace".to_owned(), json!(namespace));
        }
        let own = json!({ "name": LOGIN_EXTENSION, "extension": { "context": self.login.name } });
        context.insert("extensions".to_owned(), json!([own]));
        if set_current {
            config.insert("current-context".to_owned(), json!(name));
        }
        Ok(())
    }

    /// The name of the user.
    fn user(&self) -> &str {
        match &self.credential {
            Credential::Plugin(_) => &self.name,
            Credential::OfLogin => self.login.context["user"].as_str().unwrap_or_default(),
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
            // Where the login is, whatever file kubectl reads this from.
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

        fn connect(&self, name: &str, is_direct: bool, set_current: bool) -> Result<(), CliError> {
            let config = self.config();
            let plugin = Plugin {
                command: "postern".to_owned(),
                arguments: vec!["token".to_owned()],
                kubeconfig: vec!["/a".into(), "/b".into()],
            };
            let connection = Connection {
                name: name.to_owned(),
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
            super::connect(&self.files, &connection, set_current)
        }
    }

    #[test]
    fn a_context_is_added_and_replaced_and_nothing_else_changes() {
        let scene = Scene::new(BEFORE);
        scene.connect("h_east", true, true).unwrap();
        let config = scene.config();
        assert_eq!(config.current(), Some("h_east"));
        let east = config.resolve("h_east").unwrap();
        assert_eq!((east.login(), &east.context["namespace"]), (Some("h"), &json!("ns")));
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
        logout(&scene.files, "h").unwrap();
        let config = scene.config();
        assert_eq!(config.contexts().collect::<Vec<_>>(), ["work"]);
        assert_eq!(config.current(), None);
        let text = std::fs::File::open(&scene.files.paths[0]).map(std::io::read_to_string);
        let text = text.unwrap().unwrap();
        assert!(!text.contains("h_east") && !text.contains("hush"), "{text}");
    }
}
