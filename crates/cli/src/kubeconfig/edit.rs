//! Changing kubeconfigs. Entries, and fields of entries, that `postern` does not know stay as they
//! are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use postern_client::ServerUrl;
use postern_kinds::rbac::ALL;
use postern_kinds::{COMMON_NAMESPACE, SecretText, default_namespace};
use postern_meta::encode_yaml;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::Files;
use super::read::{
    ENTRY_PREFIX, EntryList, Kubeconfig, LoginEntries, LoginMark, ResolvedContext, read_one,
};
use crate::error::CliError;
use crate::escape::escape;
use crate::locked_file::FileLock;

/// The entries that a login writes.
pub(crate) struct Login<'a> {
    /// The name of the context.
    pub(crate) context: &'a str,
    /// The name of cluster and user. It has the server and the owner of the key in it: if kubeconfigs are merged, no
    /// context uses the key of another person.
    pub(crate) entry: &'a str,
    /// The server's URL.
    pub(crate) server: &'a str,
    /// The certificate authorities in base64; `None` for the system's.
    pub(crate) authority: Option<&'a str>,
    /// The access key.
    pub(crate) key: &'a SecretText,
    /// Whether it becomes the current context.
    pub(crate) sets_current: bool,
    /// The action for a context of this name that belongs to another login.
    pub(crate) others: OtherLogins,
    /// The namespaces in which the caller may create shared secrets, as Self says them.
    pub(crate) secret_namespaces: &'a [String],
}

/// The action of a command for a context of its name that another login made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OtherLogins {
    /// The command fails, and names the contexts that would change.
    Keep,
    /// The command replaces the context.
    Replace,
}

/// A login in a kubeconfig, and the other contexts of its server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenLogin {
    /// The namespace of the context.
    pub(crate) namespace: String,
    /// The contexts that use the new key.
    pub(crate) renewed: Vec<String>,
    /// The contexts of other logins, which keep their keys.
    pub(crate) kept: Vec<String>,
}

/// Writes a login into the first file.
pub(crate) fn login(files: &Files, login: &Login<'_>) -> Result<WrittenLogin, CliError> {
    let Some(first) = files.paths.first() else { return Ok(WrittenLogin::default()) };
    let refused = |what: String| {
        CliError::new(format!("{} is no kubeconfig: {what}", first.display()))
            .hint("nothing was written; choose another file with --kubeconfig or KUBECONFIG")
    };
    let all = Kubeconfig::load(files)?;
    let mut written = WrittenLogin::default();
    edit(first, |config| {
        let all = all.with_file(first, Value::Object(config.clone()));
        login.check(&all, config)?;
        written = login.other_contexts(&all);
        written.namespace = login.put(config).map_err(refused)?;
        if let Some(before) = all.resolve(login.context) {
            let after = LoginEntries { cluster: login.entry, user: login.entry };
            remove_unused(config, &all, &before, after);
        }
        Ok(())
    })?;
    Ok(written)
}

/// Removes a login from the files that it is in, and the contexts that `connect` made with it. Returns the names of
/// other contexts, which have no credential any more.
pub(crate) fn logout(
    files: &Files,
    context: &str,
    login: LoginEntries<'_>,
) -> Result<Vec<String>, CliError> {
    let all = Kubeconfig::load(files)?;
    let Some(login) = all.login_with(login) else { return Ok(Vec::new()) };
    let mut gone = vec![context];
    for entry in all.context_entries() {
        let made_with = LoginMark::of(&entry["context"]).is_some_and(|mark| mark.is(&login));
        gone.extend(entry["name"].as_str().filter(|_| made_with));
    }
    let gone: BTreeSet<&str> = gone.into_iter().collect();
    let stays = |entry: &&Value| !entry["name"].as_str().is_some_and(|name| gone.contains(name));
    let left: Vec<&Value> = all.context_entries().filter(stays).collect();
    let broken = left.iter().filter(|entry| entry["context"]["user"] == login.user_name);
    let broken = broken.filter_map(|entry| entry["name"].as_str()).map(str::to_owned).collect();
    let going: Vec<ResolvedContext<'_>> =
        gone.iter().filter_map(|name| all.resolve(name)).collect();
    let is_left =
        |field: &str, name: &str| left.iter().any(|entry| entry["context"][field] == name);
    let names = |list: EntryList| -> BTreeSet<&str> {
        let of_list = going.iter().map(|one| match list {
            EntryList::Clusters => one.cluster_name,
            EntryList::Users => one.user_name,
        });
        of_list
            .filter(|name| match list {
                // Another credential may use the cluster.
                EntryList::Clusters => !is_left("cluster", name),
                EntryList::Users => *name == login.user_name || !is_left("user", name),
            })
            .collect()
    };
    let mut lists = BTreeMap::from([
        ("contexts", gone.clone()),
        ("clusters", names(EntryList::Clusters)),
        ("users", names(EntryList::Users)),
    ]);
    for path in files.paths.iter().filter(|path| path.exists()) {
        edit(path, |config| {
            remove_first(config, &mut lists);
            let current = config.get("current-context").and_then(Value::as_str);
            if current.is_some_and(|current| gone.contains(current)) {
                config.insert("current-context".to_owned(), json!(""));
            }
            Ok(())
        })?;
    }
    Ok(broken)
}

/// Removes the entries of these names, and the names that were found. Only the first entry of a name counts: later ones
/// belong to something else.
fn remove_first(config: &mut Map<String, Value>, lists: &mut BTreeMap<&str, BTreeSet<&str>>) {
    for (list, names) in lists {
        let Some(Value::Array(entries)) = config.get_mut(*list) else { continue };
        entries.retain(|entry| !entry["name"].as_str().is_some_and(|name| names.remove(name)));
    }
}

/// Reads, changes and replaces a file under its lock. A file without a change is not touched.
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

impl Login<'_> {
    /// Checks that writing loses nothing, and changes no context of another login unless that is asked for.
    fn check(&self, all: &Kubeconfig, first: &Map<String, Value>) -> Result<(), CliError> {
        let not_ours = |name: &str| {
            CliError::new(format!(
                "the kubeconfig already has an entry {name:?} that `postern` did not write"
            ))
            .hint("nothing was written; choose another name with --context")
        };
        let is_here = |cluster: &Value| cluster["server"] == self.server;
        let cluster = all.entry("clusters", self.entry).map(|(entry, _)| &entry["cluster"]);
        let is_other = |list: EntryList| {
            let in_first = first.get(list.field()).and_then(Value::as_array);
            let in_first =
                in_first.is_some_and(|all| all.iter().any(|one| one["name"] == self.entry));
            in_first || all.is_used(list, self.entry, self.context)
        };
        let is_foreign = match cluster {
            Some(cluster) => !is_here(cluster) && is_other(EntryList::Clusters),
            None => all.entry("users", self.entry).is_some() && is_other(EntryList::Users),
        };
        if is_foreign {
            return Err(not_ours(self.entry));
        }
        let Some(before) = all.resolve(self.context) else { return Ok(()) };
        if !is_login(&before) || !is_here(before.cluster) {
            return Err(not_ours(self.context));
        }
        if before.user_name == self.entry || self.others == OtherLogins::Replace {
            return Ok(());
        }
        // Contexts of earlier versions name the context of their login alone.
        let follows = |mark: LoginMark<'_>| mark.entries.is_none() && mark.context == self.context;
        let marked = all
            .context_entries()
            .filter(|entry| LoginMark::of(&entry["context"]).is_some_and(follows));
        let names = marked.filter_map(|entry| entry["name"].as_str());
        Err(belongs_to_another(self.context, names, "--context"))
    }

    fn other_contexts(&self, all: &Kubeconfig) -> WrittenLogin {
        let mut others = WrittenLogin::default();
        let servers = all.servers();
        let is_here = |cluster: &str| servers.get(cluster).is_some_and(|url| *url == self.server);
        for entry in all.context_entries().filter(|entry| entry["name"] != self.context) {
            let (Some(name), context) = (entry["name"].as_str(), &entry["context"]) else {
                continue;
            };
            let text = |field| context[field].as_str().unwrap_or_default();
            let own = LoginEntries { cluster: text("cluster"), user: text("user") };
            let of_login = match LoginMark::of(context) {
                Some(LoginMark { entries: Some(entries), .. }) => entries,
                Some(mark) => all.resolve(mark.context).map_or(own, |login| login.entries()),
                None => own,
            };
            if own.user == self.entry || of_login.user == self.entry {
                others.renewed.push(name.to_owned());
            } else if is_here(of_login.cluster) {
                others.kept.push(name.to_owned());
            }
        }
        others
    }

    /// Writes the entries. Returns the namespace of the context.
    fn put(&self, config: &mut Map<String, Value>) -> Result<String, String> {
        put_head(config);
        let cluster = entry(config, "clusters", "cluster", self.entry)?;
        let others =
            ["certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"];
        for other in others {
            cluster.remove(other);
        }
        cluster.insert("server".to_owned(), json!(self.server));
        if let Some(authority) = self.authority {
            cluster.insert("certificate-authority-data".to_owned(), json!(authority));
        }
        let user = entry(config, "users", "user", self.entry)?;
        // Other credentials would win over the key, and `as` would make requests as another user.
        user.clear();
        user.insert("token".to_owned(), json!(self.key.expose()));
        let context = entry(config, "contexts", "context", self.context)?;
        context.insert("cluster".to_owned(), json!(self.entry));
        context.insert("user".to_owned(), json!(self.entry));
        let namespace = self.namespace(context.get("namespace").and_then(Value::as_str));
        context.insert("namespace".to_owned(), json!(namespace));
        if self.sets_current {
            config.insert("current-context".to_owned(), json!(self.context));
        }
        Ok(namespace)
    }

    /// The namespace of the context, which had the namespace `before`: that one, or one in which the caller may create shared
    /// secrets. Only these two come into question: an administrator of a project can let the caller create secrets in the
    /// project, and would then decide what the caller stores there and reads from there.
    fn namespace(&self, before: Option<&str>) -> String {
        if let Some(before) = before.filter(|name| !name.is_empty()) {
            return before.to_owned();
        }
        let own = [default_namespace(), COMMON_NAMESPACE];
        let allowed = own.into_iter().find(|name| may_create_in(self.secret_namespaces, name));
        allowed.unwrap_or(default_namespace()).to_owned()
    }
}

/// Whether these namespaces, as Self says them, have one of this name.
pub(crate) fn may_create_in(secret_namespaces: &[String], name: &str) -> bool {
    secret_namespaces.iter().any(|one| one == ALL || one == name)
}

/// Whether `login` wrote a context.
pub(crate) fn is_login(context: &ResolvedContext<'_>) -> bool {
    let LoginEntries { cluster, user } = context.entries();
    context.login().is_none()
        && cluster == user
        && (user == context.name || user.starts_with(ENTRY_PREFIX))
        && context.cluster["server"].as_str().is_some_and(ServerUrl::is_postern)
}

/// The error for a context that another login made. It names all that would change.
pub(super) fn belongs_to_another<'a>(
    name: &'a str,
    more: impl Iterator<Item = &'a str>,
    flag: &str,
) -> CliError {
    let names: Vec<_> = std::iter::once(name).chain(more).map(escape).collect();
    let plural = if names.len() == 1 { "context" } else { "contexts" };
    CliError::new(format!("the key of another login is used by the {plural} {}", names.join(", ")))
        .hint(format!("nothing was written; choose another name with {flag}"))
        .hint("--replace makes the new login count there")
}

/// Removes the entries that a context used before and no longer uses, unless another context uses
/// them.
pub(super) fn remove_unused(
    config: &mut Map<String, Value>,
    all: &Kubeconfig,
    before: &ResolvedContext<'_>,
    after: LoginEntries<'_>,
) {
    let lists = [
        (EntryList::Clusters, before.cluster_name, after.cluster),
        (EntryList::Users, before.user_name, after.user),
    ];
    for (list, name, kept) in lists {
        if name == kept || all.is_used(list, name, before.name) {
            continue;
        }
        if let Some(Value::Array(entries)) = config.get_mut(list.field()) {
            entries.retain(|entry| entry["name"] != name);
        }
    }
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

    const OWN: LoginEntries<'_> = LoginEntries { cluster: "postern_h", user: "postern_h" };

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
        Login {
            context: "postern_h",
            entry: "postern_h",
            server: "https://h/kubernetes/management",
            authority: Some("QUE="),
            key,
            sets_current: true,
            others: OtherLogins::Keep,
            secret_namespaces: &[],
        }
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
        logout(&files(&[&path]), "postern_h", OWN).unwrap();
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
    fn a_login_can_leave_the_current_context() {
        let home = tempfile::tempdir().unwrap();
        let path = file(&home, "config", OTHERS);
        let key = key();
        let entries = Login { sets_current: false, ..entry_of(&key) };
        login(&files(&[&path]), &entries).unwrap();
        let config = Kubeconfig::load(&files(&[&path])).unwrap();
        assert_eq!(config.current(), Some("work"));
        assert_eq!(config.resolve("postern_h").unwrap().user["token"], "pst_hush");
    }

    #[test]
    fn a_second_login_keeps_the_namespace_and_replaces_the_credential() {
        let home = tempfile::tempdir().unwrap();
        let path = file(
            &home,
            "config",
            "clusters: [{name: postern_h, cluster: {server: 'https://h/kubernetes/management', \
             insecure-skip-tls-verify: true}}]\nusers: [{name: postern_h, user: {tokenFile: \
             t, as: bob, as-groups: [ops], as-uid: u, as-user-extra: {why: [x]}}}]\ncontexts: \
             [{name: postern_h, context: {cluster: postern_h, user: postern_h, namespace: \
             team}}]\n",
        );
        login(&files(&[&path]), &Login { authority: None, ..entry_of(&key()) }).unwrap();
        let config = Kubeconfig::load(&files(&[&path])).unwrap();
        let resolved = config.resolve("postern_h").unwrap();
        assert_eq!(resolved.cluster, &json!({ "server": "https://h/kubernetes/management" }));
        assert_eq!(resolved.user, &json!({ "token": "pst_hush" }));
        assert_eq!(resolved.context["namespace"], "team");
    }

    #[test]
    fn a_new_context_has_a_namespace_in_which_the_user_may_create() {
        let key = key();
        for (before, allowed, wanted) in [
            (None, &["*"][..], "platform"),
            (None, &["platform", "default"], "platform"),
            (None, &["shop", "default"], "default"),
            // An administrator of a project can grant this permission.
            (None, &["p-shop"], "platform"),
            (None, &[], "platform"),
            // A later login does not move the commands of a script to another namespace.
            (Some("platform"), &["default"], "platform"),
            (Some("default"), &["platform"], "default"),
            (Some("team"), &["default"], "team"),
            (Some(""), &["default"], "default"),
        ] {
            let home = tempfile::tempdir().unwrap();
            let path = file(&home, "config", "");
            let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
            login(&files(&[&path]), &entry_of(&key)).unwrap();
            edit(&path, |config| {
                let context = entry(config, "contexts", "context", "postern_h").unwrap();
                match before {
                    Some(before) => context.insert("namespace".to_owned(), json!(before)),
                    None => context.remove("namespace"),
                };
                Ok(())
            })
            .unwrap();
            let entries = Login { secret_namespaces: &allowed, ..entry_of(&key) };
            let written = login(&files(&[&path]), &entries).unwrap();
            let config = Kubeconfig::load(&files(&[&path])).unwrap();
            let context = config.resolve("postern_h").unwrap().context;
            assert_eq!(context["namespace"], wanted, "{before:?} {allowed:?}");
            assert_eq!(written.namespace, wanted);
        }
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
        let other = Login { server: "https://other/kubernetes/management", ..entry_of(&key) };
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
        logout(&both, "postern_h", OWN).unwrap();
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
