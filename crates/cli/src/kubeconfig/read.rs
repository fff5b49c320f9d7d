//! Reading kubeconfigs: several files as one, as kubectl does.

use std::io;
use std::path::{Path, PathBuf};

use postern_meta::decode::{Format, decode};
use serde_json::{Map, Value};

use super::{FILE_MAX_BYTES, Files, Origin};
use crate::error::CliError;
use crate::explain::LOGIN_HINT;
use crate::process::{Process, read_file};

/// The extension of the contexts that `connect` writes: `context` in it names the login.
pub(super) const LOGIN_EXTENSION: &str = "platform.sh/login";

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
    /// The entry's `context`.
    pub(crate) context: &'a Value,
    /// The cluster's `cluster`; null where there is none of that name.
    pub(crate) cluster: &'a Value,
    /// The user's `user`; null where there is none of that name.
    pub(crate) user: &'a Value,
    /// The directory that paths in the cluster's entry are relative to.
    pub(crate) cluster_dir: &'a Path,
    /// The directory that paths in the user's entry are relative to.
    pub(crate) user_dir: &'a Path,
}

impl<'a> ResolvedContext<'a> {
    /// The name of the context of the login that this one was made with by `connect`; `None` for every
    /// other context.
    pub(crate) fn login(&self) -> Option<&'a str> {
        login_of(self.context)
    }
}

/// The name of the login in the `context` of an entry that `connect` wrote.
pub(super) fn login_of(context: &Value) -> Option<&str> {
    let extensions = context["extensions"].as_array()?;
    let own = extensions.iter().find(|one| one["name"] == LOGIN_EXTENSION)?;
    own["extension"]["context"].as_str()
}

impl Kubeconfig {
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
        let entries = self.files.iter().filter_map(|(_, value)| value["contexts"].as_array());
        entries.flatten().filter_map(|entry| entry["name"].as_str())
    }

    /// A context with its cluster and user; `None` when there is no such context.
    pub(crate) fn resolve(&self, name: &str) -> Option<ResolvedContext<'_>> {
        let (entry, _) = self.entry("contexts", name)?;
        let context = &entry["context"];
        let part = |list, inner, what| {
            let found = context[what].as_str().and_then(|name| self.entry(list, name));
            found.map_or((&Value::Null, Path::new("")), |(entry, dir)| (&entry[inner], dir))
        };
        let (cluster, cluster_dir) = part("clusters", "cluster", "cluster");
        let (user, user_dir) = part("users", "user", "user");
        let name = entry["name"].as_str()?;
        Some(ResolvedContext { name, context, cluster, user, cluster_dir, user_dir })
    }

    /// The first entry of a name, and the directory of its file.
    fn entry(&self, list: &str, name: &str) -> Option<(&Value, &Path)> {
        self.files.iter().find_map(|(path, value)| {
            let entry = value[list].as_array()?.iter().find(|entry| entry["name"] == name)?;
            Some((entry, path.parent().unwrap_or(Path::new(""))))
        })
    }
}

/// Reads one file; `None` when it does not exist. An empty one is an empty mapping.
pub(super) fn read_one(path: &Path) -> Result<Option<Value>, CliError> {
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let bytes = read_file(path, FILE_MAX_BYTES)?;
    let wrong = |what: &str| CliError::new(format!("{} is no kubeconfig: {what}", path.display()));
    let blank = |line: &[u8]| line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#");
    if bytes.split(|byte| *byte == b'\n').all(blank) {
        return Ok(Some(Value::Object(Map::new())));
    }
    let decoded = decode(&bytes, Format::Yaml).map_err(|error| wrong(&error.to_string()))?;
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
