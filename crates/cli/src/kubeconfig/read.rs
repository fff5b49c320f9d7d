//! What the kubeconfig says: the files read as one, in the manner of kubectl.

use std::io;
use std::path::{Path, PathBuf};

use postern_meta::decode::{Format, decode};
use serde_json::{Map, Value};

use super::{FILE_MAX_BYTES, Files};
use crate::failure::Failure;
use crate::surroundings::read_file;

/// The files that are there.
pub(crate) struct Kubeconfig {
    files: Vec<(PathBuf, Value)>,
}

/// Where a context leads.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// The context's name.
    pub(crate) name: &'a str,
    /// What stands under `context`.
    pub(crate) context: &'a Value,
    /// What stands under `cluster`; null where the context leads nowhere.
    pub(crate) cluster: &'a Value,
    /// What stands under `user`; null where there is none.
    pub(crate) user: &'a Value,
    /// The directory that paths in the cluster's entry count from.
    pub(crate) cluster_dir: &'a Path,
    /// The same for the user's.
    pub(crate) user_dir: &'a Path,
}

impl Kubeconfig {
    /// Reads every file that is there.
    pub(crate) fn load(files: &Files) -> Result<Self, Failure> {
        let mut read = Vec::new();
        for path in &files.paths {
            match read_one(path)? {
                Some(value) => read.push((path.clone(), value)),
                None if files.must_exist => {
                    return Err(Failure::new(format!("there is no {}", path.display())));
                }
                None => {}
            }
        }
        Ok(Self { files: read })
    }

    /// The context that counts when none is named.
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

    /// Where a context leads; `None` when there is no such context.
    pub(crate) fn place(&self, name: &str) -> Option<Place<'_>> {
        let (entry, _) = self.entry("contexts", name)?;
        let context = &entry["context"];
        let part = |list, inner, what| {
            let found = context[what].as_str().and_then(|name| self.entry(list, name));
            found.map_or((&Value::Null, Path::new("")), |(entry, dir)| (&entry[inner], dir))
        };
        let (cluster, cluster_dir) = part("clusters", "cluster", "cluster");
        let (user, user_dir) = part("users", "user", "user");
        let name = entry["name"].as_str()?;
        Some(Place { name, context, cluster, user, cluster_dir, user_dir })
    }

    /// The first entry of a name counts.
    fn entry(&self, list: &str, name: &str) -> Option<(&Value, &Path)> {
        self.files.iter().find_map(|(path, value)| {
            let entry = value[list].as_array()?.iter().find(|entry| entry["name"] == name)?;
            Some((entry, path.parent().unwrap_or(Path::new(""))))
        })
    }
}

/// One file; `None` when it is not there. An empty one is an empty object.
pub(super) fn read_one(path: &Path) -> Result<Option<Value>, Failure> {
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let bytes = read_file(path, FILE_MAX_BYTES)?;
    let wrong = |what: &str| Failure::new(format!("{} is no kubeconfig: {what}", path.display()));
    let blank = |line: &[u8]| line.trim_ascii().is_empty() || line.trim_ascii().starts_with(b"#");
    if bytes.split(|byte| *byte == b'\n').all(blank) {
        return Ok(Some(Value::Object(Map::new())));
    }
    let decoded = decode(&bytes, Format::Yaml).map_err(|error| wrong(&error.to_string()))?;
    if let Some(field) = decoded.duplicates.first() {
        // Which of the two counts is not for us to decide, and writing would lose one.
        return Err(wrong(&format!("{field} stands in it twice")));
    }
    match decoded.value {
        Value::Null => Ok(Some(Value::Object(Map::new()))),
        value @ Value::Object(_) => Ok(Some(value)),
        _ => Err(wrong("it is no mapping")),
    }
}
