//! The directory of an agent: the last configuration, so that it works after a restart while the central server
//! is down, and its certificate authority. Files are for the agent alone (0600), and replaced whole.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use postern_kinds::agent_config::Spec;
use postern_meta::decode::decode_typed;
use serde::{Deserialize, Serialize};

/// The file with the last configuration.
const CONFIG_FILE: &str = "agentconfig.json";

/// A stored configuration, and the time of the last contact.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredConfig {
    /// In seconds since 1970.
    pub(crate) at: i64,
    /// The configuration.
    pub(crate) spec: Spec,
}

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// Locked as long as the agent runs.
    _lock: Arc<File>,
}

impl StateDir {
    /// Opens the directory; makes it where it is missing. No other agent can open it then.
    ///
    /// # Errors
    /// When it cannot be made, or another agent has it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("cannot make the directory {}", path.display()))?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock"));
        let lock = lock.with_context(|| format!("cannot use the directory {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: Arc::new(lock) }),
            Err(TryLockError::WouldBlock) => anyhow::bail!(
                "another agent uses the directory {}: give each agent a --state-dir of its own",
                path.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock the directory {}", path.display()))
            }
        }
    }

    /// The path of something in the directory.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The last stored configuration of this cluster; `None` where there is none. An unusable one counts as
    /// missing: the agent rejects all requests until the central server answers, and then replaces it.
    pub(crate) fn load_config(&self, cluster: &str) -> Option<StoredConfig> {
        let path = self.path.join(CONFIG_FILE);
        let read = read_if_there(&path).and_then(|text| {
            let decode = |text: Vec<u8>| decode_typed::<StoredConfig>(&text);
            text.map(decode).transpose().map_err(|error| anyhow::anyhow!("it is corrupt: {error}"))
        });
        let stored = read.unwrap_or_else(|error| {
            tracing::error!(
                file = %path.display(),
                "cannot read the stored configuration; requests are rejected until the central server answers: {error:#}"
            );
            None
        });
        // The directory of another cluster's agent says nothing about this one.
        stored.filter(|stored| stored.spec.cluster.name == cluster)
    }

    /// Stores a configuration.
    ///
    /// # Errors
    /// When it cannot be written; the stored one then stays.
    pub(crate) fn store_config(&self, stored: &StoredConfig) -> anyhow::Result<()> {
        let text = serde_json::to_vec(stored)?;
        self.write(CONFIG_FILE, &text)
    }

    /// A file's text; `None` where there is no such file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<Option<String>> {
        let text = read_if_there(&self.path.join(name))?;
        let text = text.map(String::from_utf8).transpose();
        text.map_err(|_| anyhow::anyhow!("{name} in {} is no text", self.path.display()))
    }

    /// Replaces a file.
    ///
    /// # Errors
    /// When it cannot be written; the old one then stays.
    pub(crate) fn write(&self, name: &str, text: &[u8]) -> anyhow::Result<()> {
        let path = self.path.join(name);
        let written = (|| {
            let unfinished = self.path.join(format!("{name}.unfinished"));
            let mut file = create_anew(&unfinished)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.path)?.sync_all()
        })();
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Creates a private file, in place of one that an earlier run may have left. Follows no link.
///
/// # Errors
/// When it cannot be removed or created.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The contents of a file; `None` where there is none.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read_if_there(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    #[expect(clippy::disallowed_methods, reason = "the files of the agent are read here")]
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// The contents of a file that the operator names.
///
/// # Errors
/// If the file cannot be read, or does not exist.
pub(crate) fn read_given(path: &Path) -> anyhow::Result<Vec<u8>> {
    read_if_there(path)?.with_context(|| format!("{} does not exist", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use postern_kinds::agent_config::ClusterId;

    use super::*;

    #[test]
    fn what_was_heard_is_there_after_a_restart_and_for_nobody_else() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let cluster = ClusterId { name: "east".to_owned(), uid: "u1".to_owned() };
        let stored =
            || StoredConfig { at: 5, spec: Spec { cluster: cluster.clone(), ..Spec::default() } };
        let dir = StateDir::open(&path).unwrap();
        assert_eq!(dir.load_config("east"), None);
        dir.store_config(&StoredConfig { at: 4, ..stored() }).unwrap();
        dir.store_config(&stored()).unwrap();
        let refused = StateDir::open(&path).unwrap_err().to_string();
        assert!(refused.contains("another agent") && refused.contains("--state-dir"), "{refused}");
        drop(dir);
        let again = StateDir::open(&path).unwrap();
        assert_eq!(again.load_config("east"), Some(stored()));
        assert_eq!(again.load_config("west"), None);
        let file = path.join("agentconfig.json");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let elsewhere = home.path().join("elsewhere");
        create_anew(&elsewhere).unwrap().write_all(b"kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, path.join("agentconfig.json.unfinished")).unwrap();
        again.write("agentconfig.json", b"{").unwrap();
        assert_eq!(read_given(&elsewhere).unwrap(), b"kept", "a link is not followed");
    }

    #[test]
    fn a_corrupt_configuration_counts_as_missing_and_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let dir = StateDir::open(home.path()).unwrap();
        let cluster = ClusterId { name: "east".to_owned(), uid: "u1".to_owned() };
        let stored =
            || StoredConfig { at: 5, spec: Spec { cluster: cluster.clone(), ..Spec::default() } };
        let whole = serde_json::to_vec(&stored()).unwrap();
        let corrupt: [&[u8]; 7] = [
            b"",
            b"{",
            b"\xff\xfe\0",
            b"null",
            br#"{"at":5}"#,
            br#"{"at":"5","spec":{"cluster":{"name":"east"}}}"#,
            &whole[..whole.len() / 2],
        ];
        for text in corrupt {
            dir.write("agentconfig.json", text).unwrap();
            assert_eq!(dir.load_config("east"), None, "{}", String::from_utf8_lossy(text));
            dir.store_config(&stored()).unwrap();
            assert_eq!(dir.load_config("east"), Some(stored()));
        }
        fs::remove_file(home.path().join("agentconfig.json")).unwrap();
        fs::create_dir(home.path().join("agentconfig.json")).unwrap();
        assert_eq!(dir.load_config("east"), None, "what cannot be read");
    }
}
