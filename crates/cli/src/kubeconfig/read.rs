//! Reading kubeconfigs: several files as one, as kubectl does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use postern_meta::decode::{Format, decode_own_file};
use serde_json::{Map, Value};

use super::{Files, Origin};
use crate::error::CliError;
use crate::escape::escape;
use crate::explain::LOGIN_HINT;
use crate::process::{Process, read_text_file};

/// The extension of the contexts that `connect` writes: the login in it, as [`LoginMark`] has it.
pub(super) const LOGIN_EXTENSION: &str = "platform.sh/login";

/// How many contexts a message names at most.
const NAMES_MAX: usize = 10;

/// The files that exist.
pub(crate) struct Kubeconfig {
    files: Vec<(PathBuf, Value)>,
    /// The files that do not exist.
    missing: Vec<PathBuf>,
    origin: Origin,
}

/// A context with the cluster and the user that it names.
#[derive(Debug)]
pub(crate) struct ResolvedContext<'a> {
    /// The context's name.
    pub(crate) name: &'a str,
    /// The entry's `context`; null for a login without its context.
    pub(crate) context: &'a Value,
    /// The name of the cluster's entry.
    pub(crate) cluster_name: &'a str,
    /// The cluster's `cluster`; null where there is none of that name.
    pub(crate) cluster: &'a Value,
    /// The name of the user's entry.
    pub(crate) user_name: &'a str,
    /// The user's `user`; null where there is none of that name.
    pub(crate) user: &'a Value,
    /// The directory that paths in the cluster's entry are relative to.
    pub(crate) cluster_dir: &'a Path,
    /// The directory that paths in the user's entry are relative to.
    pub(crate) user_dir: &'a Path,
}

/// A list of entries that contexts refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryList {
    Clusters,
    Users,
}

impl EntryList {
    /// The name of the field.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Clusters => "clusters",
            Self::Users => "users",
        }
    }
}

/// The login that `connect` made a context with. The entries decide, because another login may get the name of the
/// context. Contexts of earlier versions have the name of the context alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoginMark<'a> {
    /// The name of the login's context.
    pub(crate) context: &'a str,
    /// The entries of the login.
    pub(crate) entries: Option<LoginEntries<'a>>,
}

/// The names of the cluster and of the user of a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoginEntries<'a> {
    /// The name in `clusters`.
    pub(crate) cluster: &'a str,
    /// The name in `users`.
    pub(crate) user: &'a str,
}

impl<'a> ResolvedContext<'a> {
    /// The login that this context was made with by `connect`; `None` for every other context.
    pub(crate) fn login(&self) -> Option<LoginMark<'a>> {
        LoginMark::of(self.context)
    }

    /// The names of its cluster and its user.
    pub(crate) fn entries(&self) -> LoginEntries<'a> {
        LoginEntries { cluster: self.cluster_name, user: self.user_name }
    }
}

impl<'a> LoginMark<'a> {
    /// The mark in the `context` of an entry that `connect` wrote.
    pub(super) fn of(context: &'a Value) -> Option<Self> {
        let extensions = context["extensions"].as_array()?;
        let own = &extensions.iter().find(|one| one["name"] == LOGIN_EXTENSION)?["extension"];
        let entries = match (own["cluster"].as_str(), own["user"].as_str()) {
            (Some(cluster), Some(user)) => Some(LoginEntries { cluster, user }),
            _ => None,
        };
        Some(Self { context: own["context"].as_str()?, entries })
    }

    /// Whether it is this login.
    pub(super) fn is(&self, login: &ResolvedContext<'_>) -> bool {
        match self.entries {
            Some(entries) => entries == login.entries(),
            None => self.context == login.name,
        }
    }
}

impl Kubeconfig {
    /// The files with another content of the one at `path`, which need not exist yet.
    pub(super) fn with_file(mut self, path: &Path, content: Value) -> Self {
        match self.files.iter_mut().find(|(known, _)| known == path) {
            Some((_, value)) => *value = content,
            None => self.files.insert(0, (path.to_owned(), content)),
        }
        self
    }

    /// The paths of the files that exist.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Reads every file that exists.
    pub(crate) fn load(files: &Files) -> Result<Self, CliError> {
        let mut read = Vec::new();
        let mut missing = Vec::new();
        for path in &files.paths {
            match read_one(path)? {
                Some(value) => read.push((path.clone(), value)),
                None => missing.push(path.clone()),
            }
        }
        Ok(Self { files: read, missing, origin: files.origin })
    }

    /// Prints which files of `KUBECONFIG` do not exist, where others do. kubectl says nothing.
    ///
    /// # Errors
    /// When a file does not exist that the command line names, or no file that `KUBECONFIG` names.
    pub(crate) fn check_missing(&self, process: &Process) -> Result<(), CliError> {
        let missing: Vec<_> = self.missing.iter().map(|path| path.display().to_string()).collect();
        if missing.is_empty() || self.origin == Origin::Default {
            return Ok(());
        }
        let missing = missing.join(", ");
        if self.origin == Origin::Flag {
            return Err(CliError::new(format!("there is no {missing}")));
        }
        if self.files.is_empty() {
            let message = format!("not logged in: KUBECONFIG names no file that exists: {missing}");
            return Err(CliError::new(message)
                .hint("correct the environment variable, or unset it to use ~/.kube/config")
                .hint(LOGIN_HINT));
        }
        process.print_note(&format!("ignored: files in KUBECONFIG that do not exist: {missing}"));
        Ok(())
    }

    /// The name of the current context.
    pub(crate) fn current(&self) -> Option<&str> {
        let named =
            |value: &Value| value["current-context"].as_str().is_some_and(|n| !n.is_empty());
        let (_, value) = self.files.iter().find(|(_, value)| named(value))?;
        value["current-context"].as_str()
    }

    /// The names of all contexts.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = &str> {
        self.context_entries().filter_map(|entry| entry["name"].as_str())
    }

    /// The hint that names the contexts.
    pub(crate) fn contexts_hint(&self) -> String {
        let names: Vec<String> = self.contexts().map(str::to_owned).collect();
        if names.is_empty() {
            return "the kubeconfig has no context".to_owned();
        }
        format!("its contexts are {}", some_of(&names))
    }

    /// The entries of all contexts.
    pub(super) fn context_entries(&self) -> impl Iterator<Item = &Value> {
        let entries = self.files.iter().filter_map(|(_, value)| value["contexts"].as_array());
        entries.flatten()
    }

    /// A cluster that `login` wrote for this server.
    pub(crate) fn login_cluster(&self, server: &str) -> Option<&Value> {
        let entries = self.files.iter().filter_map(|(_, value)| value["clusters"].as_array());
        let mut clusters = entries.flatten().filter(|entry| {
            entry["name"].as_str().is_some_and(|name| name.starts_with(ENTRY_PREFIX))
        });
        let found = clusters.find(|entry| entry["cluster"]["server"] == server)?;
        Some(&found["cluster"])
    }

    /// The server of each cluster by its name.
    pub(super) fn servers(&self) -> BTreeMap<&str, &str> {
        let mut servers = BTreeMap::new();
        let entries = self.files.iter().filter_map(|(_, value)| value["clusters"].as_array());
        for entry in entries.flatten() {
            if let (Some(name), Some(url)) =
                (entry["name"].as_str(), entry["cluster"]["server"].as_str())
            {
                servers.entry(name).or_insert(url);
            }
        }
        servers
    }

    /// Whether a context other than `except` uses this entry, or is marked with it as its login.
    pub(super) fn is_used(&self, list: EntryList, name: &str, except: &str) -> bool {
        self.context_entries().filter(|entry| entry["name"] != except).any(|entry| {
            let context = &entry["context"];
            let of_login = LoginMark::of(context).and_then(|mark| mark.entries);
            match list {
                EntryList::Clusters => {
                    context["cluster"] == name
                        || of_login.is_some_and(|login| login.cluster == name)
                }
                EntryList::Users => {
                    context["user"] == name || of_login.is_some_and(|login| login.user == name)
                }
            }
        })
    }

    /// A context with its cluster and user; `None` when there is no such context.
    pub(crate) fn resolve(&self, name: &str) -> Option<ResolvedContext<'_>> {
        let (entry, _) = self.entry("contexts", name)?;
        let context = &entry["context"];
        let named = |field| context[field].as_str().unwrap_or_default();
        let entries = LoginEntries { cluster: named("cluster"), user: named("user") };
        Some(self.with_entries(entry["name"].as_str()?, context, entries))
    }

    /// The login of a context that `connect` wrote; `None` when it is gone.
    pub(crate) fn login_of<'a>(&'a self, mark: &LoginMark<'a>) -> Option<ResolvedContext<'a>> {
        match mark.entries {
            Some(entries) => self.login_with(entries),
            None => self.resolve(mark.context),
        }
    }

    /// The login with these entries; `None` when it is gone. If its context now belongs to another login, the entries
    /// alone count.
    pub(crate) fn login_with<'a>(
        &'a self,
        entries: LoginEntries<'a>,
    ) -> Option<ResolvedContext<'a>> {
        self.entry("users", entries.user)?;
        let is_own = |entry: &&Value| {
            let context = &entry["context"];
            context["cluster"] == entries.cluster
                && context["user"] == entries.user
                && LoginMark::of(context).is_none()
        };
        let own = self.context_entries().find(is_own);
        let own = own.and_then(|entry| Some((entry["name"].as_str()?, &entry["context"])));
        let (name, context) = own.unwrap_or((entries.user, &Value::Null));
        Some(self.with_entries(name, context, entries))
    }

    fn with_entries<'a>(
        &'a self,
        name: &'a str,
        context: &'a Value,
        entries: LoginEntries<'a>,
    ) -> ResolvedContext<'a> {
        let part = |list, inner, name| match self.entry(list, name) {
            Some((entry, dir)) => (&entry[inner], dir),
            None => (&Value::Null, Path::new("")),
        };
        let (cluster, cluster_dir) = part("clusters", "cluster", entries.cluster);
        let (user, user_dir) = part("users", "user", entries.user);
        let LoginEntries { cluster: cluster_name, user: user_name } = entries;
        ResolvedContext {
            name,
            context,
            cluster_name,
            cluster,
            user_name,
            user,
            cluster_dir,
            user_dir,
        }
    }

    /// The first entry of a name, and the directory of its file.
    pub(super) fn entry(&self, list: &str, name: &str) -> Option<(&Value, &Path)> {
        self.files.iter().find_map(|(path, value)| {
            let entry = value[list].as_array()?.iter().find(|entry| entry["name"] == name)?;
            Some((entry, path.parent().unwrap_or(Path::new(""))))
        })
    }
}

/// The first names of a list, in a sentence.
pub(crate) fn some_of(names: &[String]) -> String {
    let first: Vec<_> = names.iter().take(NAMES_MAX).map(|name| escape(name)).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Reads one file; `None` when it does not exist. An empty one is an empty mapping.
pub(super) fn read_one(path: &Path) -> Result<Option<Value>, CliError> {
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let bytes = read_text_file(path)?;
    let wrong = |what: &str| CliError::new(format!("{} is no kubeconfig: {what}", path.display()));
    let blank = |line: &[u8]| line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#");
    if bytes.split(|byte| *byte == b'\n').all(blank) {
        return Ok(Some(Value::Object(Map::new())));
    }
    let decoded =
        decode_own_file(&bytes, Format::Yaml).map_err(|error| wrong(&error.to_string()))?;
    if let Some(field) = decoded.duplicates.first() {
        // Readers differ in which of the two they use, and writing would lose one.
        return Err(wrong(&format!("{field} occurs twice")));
    }
    match decoded.value {
        Value::Null => Ok(Some(Value::Object(Map::new()))),
        value @ Value::Object(_) => Ok(Some(value)),
        _ => Err(wrong("it is not a mapping")),
    }
}

/// The prefix of the names of entries that `login` writes.
pub(crate) const ENTRY_PREFIX: &str = "postern_";

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    fn load(text: &[u8]) -> Result<Kubeconfig, CliError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config");
        File::create(&path).unwrap().write_all(text).unwrap();
        Kubeconfig::load(&Files { paths: vec![path], origin: Origin::Environment })
    }

    #[test]
    fn large_files_and_other_encodings_are_read() {
        let mut text = "current-context: c1999\ncontexts:\n".to_owned();
        for index in 0..2_000 {
            writeln!(text, "- {{name: c{index}, context: {{cluster: k{index}, user: u{index}}}}}")
                .unwrap();
        }
        text += "clusters:\n";
        for index in 0..2_000 {
            writeln!(text, "- {{name: k{index}, cluster: {{server: 'https://h{index}', 1: x}}}}")
                .unwrap();
        }
        text += "---\n";
        let utf16 = format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [text.clone().into_bytes(), format!("\u{feff}{text}").into_bytes(), utf16] {
            let config = load(&bytes).unwrap();
            let current = config.resolve(config.current().unwrap()).unwrap();
            assert_eq!(current.cluster["server"], "https://h1999");
        }
        for empty in ["", "# nothing\n", "---\n# nothing\n", "--- # nothing\n---\n", "null\n---\n"]
        {
            assert_eq!(load(empty.as_bytes()).unwrap().contexts().count(), 0, "{empty:?}");
        }
        let wrong = load(&[0xff, 0xfe, 0x61]).err().unwrap();
        assert!(wrong.message.contains("UTF-16"), "{wrong:?}");
    }
}
