//! Changing kubeconfigs. Entries, and fields of entries, that `postern` does not know stay as they
//! are.

use std::path::Path;

use postern_kinds::{SecretText, default_namespace};
use postern_meta::encode_yaml;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::Files;
use super::connection;
use super::read::read_one;
use crate::error::CliError;
use crate::locked_file::FileLock;

/// The entries that a login writes.
pub(crate) struct Login<'a> {
    /// The name of context, cluster and user.
    pub(crate) name: &'a str,
    /// The server's URL.
    pub(crate) server: &'a str,
    /// The certificate authorities in base64; `None` for the system's.
    pub(crate) authority: Option<&'a str>,
    /// The access key.
    pub(crate) key: &'a SecretText,
}

/// Writes a login into the first file, and makes it the current context.
pub(crate) fn login(files: &Files, login: &Login<'_>) -> Result<(), CliError> {
    let Some(first) = files.paths.first() else { return Ok(()) };
    let refused = |what: String| {
        CliError::new(format!("{} is no kubeconfig: {what}", first.display()))
            .hint("nothing was written; choose another file with --kubeconfig or KUBECONFIG")
    };
    edit(first, |config| {
        if !is_free(config, login) {
            let message = format!(
                "{} already has an entry {:?} that `postern` did not write",
                first.display(),
                login.name
            );
            return Err(CliError::new(message)
                .hint("nothing was written; choose another name with --context"));
        }
        put(config, login).map_err(refused)
    })
}

/// Removes a login from the file that it is in, and the contexts that `connect` made with it.
pub(crate) fn logout(files: &Files, name: &str) -> Result<(), CliError> {
    let mut found = false;
    for path in files.paths.iter().filter(|path| path.exists()) {
        edit(path, |config| {
            // Only the first entry of a name is ever used: later ones belong to something else.
            let mut gone = connection::made_with(config, name);
            if !found && named(config, "contexts", name).is_some() {
                found = true;
                gone.push(name.to_owned());
            }
            for name in &gone {
                remove(config, name);
            }
            let current = config.get("current-context").and_then(Value::as_str).unwrap_or_default();
            if current == name || gone.iter().any(|one| one == current) {
                config.insert("current-context".to_owned(), json!(""));
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Reads, changes and replaces a file under its lock; one that stays the same is not touched.
pub(super) fn edit(
    path: &Path,
    change: impl FnOnce(&mut Map<String, Value>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let lock = FileLock::take(path)?;
    let before = read_one(lock.target())?.unwrap_or_else(|| json!({}));
    let Value::Object(mut config) = before.clone() else { return Ok(()) };
    change(&mut config)?;
    let after = Value::Object(config);
    if after == before {
        return Ok(());
    }
    lock.replace(Zeroizing::new(encode_yaml(&after)).as_bytes())
}

pub(super) fn named<'a>(
    config: &'a Map<String, Value>,
    list: &str,
    name: &str,
) -> Option<&'a Value> {
    config.get(list)?.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// Whether writing this login loses nothing: whether there is nothing of its name, or a
/// login at the same server.
fn is_free(config: &Map<String, Value>, login: &Login<'_>) -> bool {
    let name = login.name;
    let entries = ["contexts", "clusters", "users"].map(|list| named(config, list, name));
    match entries {
        [None, None, None] => true,
        [Some(context), Some(cluster), _] => {
            context["context"]["cluster"] == name
                && context["context"]["user"] == name
                && cluster["cluster"]["server"] == login.server
        }
        _ => false,
    }
}

fn put(config: &mut Map<String, Value>, login: &Login<'_>) -> Result<(), String> {
    let name = login.name;
    put_head(config);
    let cluster = entry(config, "clusters", "cluster", name)?;
    for other in ["certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"]
    {
        cluster.remove(other);
    }
    cluster.insert("server".to_owned(), json!(login.server));
    if let Some(authority) = login.authority {
        cluster.insert("certificate-authority-data".to_owned(), json!(authority));
    }
    let user = entry(config, "users", "user", name)?;
    // Other credentials would win over the key, and `as` would make requests as another user.
    user.clear();
    user.insert("token".to_owned(), json!(login.key.expose()));
    let context = entry(config, "contexts", "context", name)?;
    context.insert("cluster".to_owned(), json!(name));
    context.insert("user".to_owned(), json!(name));
    context.entry("namespace").or_insert_with(|| json!(default_namespace()));
    config.insert("current-context".to_owned(), json!(name));
    Ok(())
}

/// Says that it is a kubeconfig.
pub(super) fn put_head(config: &mut Map<String, Value>) {
    config.entry("apiVersion").or_insert_with(|| json!("v1"));
    config.entry("kind").or_insert_with(|| json!("Config"));
}

/// The content of the entry of this name, which is added where it is missing.
pub(super) fn entry<'a>(
    config: &'a mut Map<String, Value>,
    list: &str,
    inner: &str,
    name: &str,
) -> Result<&'a mut Map<String, Value>, String> {
    let entries = config.entry(list).or_insert(Value::Null);
    if entries.is_null() {
        *entries = json!([]);
    }
    let Value::Array(entries) = entries else { return Err(format!("{list} is not a list")) };
    let at = entries.iter().position(|entry| entry["name"] == name);
    let at = at.unwrap_or_else(|| {
        entries.push(json!({ "name": name }));
        entries.len() - 1
    });
    let inside = entries[at].as_object_mut().ok_or("an entry is not a mapping")?;
    let inside = inside.entry(inner).or_insert(Value::Null);
    if inside.is_null() {
        *inside = json!({});
    }
    inside.as_object_mut().ok_or_else(|| format!("{inner} of {name} is not a mapping"))
}

fn remove(config: &mut Map<String, Value>, name: &str) {
    for list in ["contexts", "clusters", "users"] {
        if let Some(Value::Array(entries)) = config.get_mut(list) {
            entries.retain(|entry| entry["name"] != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::*;
    use crate::kubeconfig::{Kubeconfig, Origin};
    use crate::process::{Process, read_file};

    const OTHERS: &str = "\
apiVersion: v1
kind: Config
current-context: work
preferences: {colors: true}
clusters:
- name: work
  cluster:
    server: https://work:6443
    extensions: [{name: x, extension: {when: '2026-01-01', answer: 42, lit: true, octal: '0600'}}]
contexts:
- {name: work, context: {cluster: work, user: me, future-field: kept}}
users:
- name: me
  user: {exec: {command: login, env: null, apiVersion: v1}}
from-the-future: [1, 2.5, null]
";

    fn file(home: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = home.path().join(name);
        File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    }

    fn files(paths: &[&PathBuf]) -> Files {
        let paths = paths.iter().map(|path| (*path).clone()).collect();
        Files { paths, origin: Origin::Environment }
    }

    fn entry_of(key: &SecretText) -> Login<'_> {
        Login { name: "postern_h", server: "https://h/x", authority: Some("QUE="), key }
    }

    fn key() -> SecretText {
        SecretText::from("pst_hush".to_owned())
    }

    #[test]
    fn a_login_and_a_logout_lose_nothing() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home, "config", OTHERS);
        let before = read_one(&path).unwrap().unwrap();
        login(&files(&[&path]), &entry_of(&key())).unwrap();
        let config = Kubeconfig::load(&files(&[&path])).unwrap();
        assert_eq!(config.current(), Some("postern_h"));
        let resolved = config.resolve("postern_h").unwrap();
        assert_eq!(resolved.cluster["certificate-authority-data"], "QUE=");
        assert_eq!(resolved.user["token"], "pst_hush");
        assert_eq!(resolved.context["namespace"], "platform");
        assert_eq!(config.resolve("work").unwrap().context["future-field"], "kept");
        logout(&files(&[&path]), "postern_h").unwrap();
        let mut after = read_one(&path).unwrap().unwrap();
        assert_eq!(after["current-context"], "");
        after["current-context"] = json!("work");
        assert_eq!(after, before);
    }

    #[test]
    fn the_first_file_is_written_and_may_be_new() {
        let home = tempfile::tempdir().unwrap();
        let (new, old) = (home.path().join("new/config"), file(&home, "old", OTHERS));
        let untouched = read_file(&old, 10_000).unwrap();
        login(&files(&[&new, &old]), &entry_of(&key())).unwrap();
        assert_eq!(*read_file(&old, 10_000).unwrap(), *untouched);
        let config = Kubeconfig::load(&files(&[&new, &old])).unwrap();
        assert_eq!(config.current(), Some("postern_h"));
        assert_eq!(config.contexts().collect::<Vec<_>>(), ["postern_h", "work"]);
    }

    #[test]
    fn a_second_login_keeps_the_namespace_and_replaces_the_credential() {
        let home = tempfile::tempdir().unwrap();
        let path = file(
            &home,
            "config",
            "clusters: [{name: postern_h, cluster: {server: 'https://h/x', \
             insecure-skip-tls-verify: true}}]\nusers: [{name: postern_h, user: {tokenFile: \
             t, as: bob, as-groups: [ops], as-uid: u, as-user-extra: {why: [x]}}}]\ncontexts: \
             [{name: postern_h, context: {cluster: postern_h, user: postern_h, namespace: \
             team}}]\n",
        );
        login(&files(&[&path]), &Login { authority: None, ..entry_of(&key()) }).unwrap();
        let config = Kubeconfig::load(&files(&[&path])).unwrap();
        let resolved = config.resolve("postern_h").unwrap();
        assert_eq!(resolved.cluster, &json!({ "server": "https://h/x" }));
        assert_eq!(resolved.user, &json!({ "token": "pst_hush" }));
        assert_eq!(resolved.context["namespace"], "team");
    }

    #[test]
    fn what_is_no_kubeconfig_is_not_changed() {
        let home = tempfile::tempdir().unwrap();
        for text in ["- a\n", "a: {\n", "a: 1\na: 2\n", "clusters: 7\n"] {
            let path = file(&home, "config", text);
            let error = login(&files(&[&path]), &entry_of(&key())).expect_err(text);
            assert!(error.message.contains("is no kubeconfig"), "{error:?}");
            assert_eq!(**read_file(&path, 100).unwrap(), *text.as_bytes());
        }
        for text in ["", "\n# nothing yet\n", "null\n", "clusters: null\n"] {
            let path = file(&home, "config", text);
            login(&files(&[&path]), &entry_of(&key())).expect(text);
        }
    }

    #[test]
    fn entries_of_something_else_are_not_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let key = key();
        for text in [
            "users: [{name: postern_h, user: {token: only-copy}}]\n",
            "clusters: [{name: postern_h, cluster: {server: 'https://other'}}]\n",
            "users: [{name: postern_h, user: 1}]\n",
        ] {
            let path = file(&home, "config", text);
            let error = login(&files(&[&path]), &entry_of(&key)).expect_err(text);
            assert!(error.message.contains("did not write"), "{error:?}");
            assert_eq!(**read_file(&path, 100).unwrap(), *text.as_bytes());
        }
        // The same name at another server.
        let path = file(&home, "config", "");
        login(&files(&[&path]), &entry_of(&key)).unwrap();
        let other = Login { server: "https://other/x", ..entry_of(&key) };
        assert!(login(&files(&[&path]), &other).is_err());
    }

    #[test]
    fn a_logout_leaves_namesakes_in_later_files_alone() {
        let home = tempfile::tempdir().unwrap();
        let first = file(&home, "first", "");
        let text = "users: [{name: postern_h, user: {token: only-copy}}]\n";
        let second = file(&home, "second", text);
        let both = files(&[&first, &second]);
        login(&both, &entry_of(&key())).unwrap();
        logout(&both, "postern_h").unwrap();
        assert_eq!(**read_file(&second, 100).unwrap(), *text.as_bytes());
        assert!(Kubeconfig::load(&both).unwrap().resolve("postern_h").is_none());
    }

    #[test]
    fn where_the_kubeconfig_is() {
        let of = |variables: &[(&str, &str)]| {
            Files::find(None, &Process::with(variables)).map(|files| files.paths)
        };
        let home = ("HOME", "/h");
        assert_eq!(of(&[home]).unwrap(), [PathBuf::from("/h/.kube/config")]);
        assert_eq!(of(&[home, ("KUBECONFIG", "")]).unwrap(), [PathBuf::from("/h/.kube/config")]);
        let list = of(&[home, ("KUBECONFIG", "/a::/b")]).unwrap();
        assert_eq!(list, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert!(of(&[]).is_err());
    }
}
