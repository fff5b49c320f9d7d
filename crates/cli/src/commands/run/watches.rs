//! The secrets of a supervised command, as they change. Each secret has one watch for all keys that
//! the command gets. So the values of one secret always come from one version of it.

use std::future::pending;
use std::mem;
use std::time::Duration;

use postern_client::Collection;
use postern_kinds::Info;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::values_of;
use crate::commands::secret_watch::{SecretChanges, SecretState};
use crate::error::CliError;
use crate::parse::SecretPath;
use crate::process::Process;
use crate::session::Session;
use crate::variables::Data;

/// How many changes wait for the command to be restarted. Further ones wait in the watches.
const CHANGES_MAX: usize = 16;
/// How long after a change the supervisor waits for further ones. Changes of several secrets often come together, and
/// their watches are not in step.
const MERGE_TIME: Duration = Duration::from_millis(50);

/// A change of one of the secrets.
pub(super) struct SecretChange {
    /// The position of the secret.
    index: usize,
    /// Its values; `None` if it was deleted. An error ends its watch.
    state: Result<Option<Data>, CliError>,
}

/// The watches of all secrets.
pub(super) struct Watches {
    changes: mpsc::Receiver<SecretChange>,
    /// The changes since the last batch.
    batch: Vec<SecretChange>,
    /// The end of the current batch, if it has begun.
    batch_end: Option<Instant>,
    /// The watches end with their set.
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Begins to watch.
    pub(super) fn begin(
        values: &Values,
        session: &Session,
        of: Collection<'_>,
        process: &Process,
    ) -> Result<Self, CliError> {
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let mut tasks = JoinSet::new();
        let namespace = of.namespace().unwrap_or_default();
        for (index, secret) in values.secrets.iter().enumerate() {
            let watch = SecretWatch {
                index,
                name: secret.name.clone(),
                keys: secret.keys.clone(),
                info: of.info(),
                namespace: namespace.to_owned(),
            };
            tasks.spawn(watch.run(session.again(process)?, sender.clone()));
        }
        Ok(Self { _tasks: tasks, ..Self::of(changes) })
    }

    fn of(changes: mpsc::Receiver<SecretChange>) -> Self {
        Self { changes, batch: Vec::new(), batch_end: None, _tasks: JoinSet::new() }
    }

    /// The next changes: one, and those that follow it within [`MERGE_TIME`]. Loses none if it is
    /// dropped. If all watches have ended, waits without a limit.
    pub(super) async fn next(&mut self) -> Vec<SecretChange> {
        loop {
            let Some(end) = self.batch_end else {
                let Some(change) = self.changes.recv().await else { return pending().await };
                self.batch.push(change);
                self.batch_end = Some(Instant::now() + MERGE_TIME);
                continue;
            };
            if let Ok(Some(change)) = timeout_at(end, self.changes.recv()).await {
                self.batch.push(change);
            } else {
                self.batch_end = None;
                return mem::take(&mut self.batch);
            }
        }
    }

    /// Waits for the first values of all secrets.
    ///
    /// # Errors
    /// If a secret cannot be read, or lacks a key that the command needs.
    pub(super) async fn load(&mut self, values: &mut Values) -> Result<(), CliError> {
        let mut missing = values.secrets.len();
        while missing > 0 {
            let Some(SecretChange { index, state }) = self.changes.recv().await else { break };
            let secret = &mut values.secrets[index];
            let absent = || CliError::new(format!("the secret {} was deleted", secret.name));
            let data = state?.ok_or_else(absent)?;
            if let Some(key) = secret.missing_key(&data) {
                let message = format!("the secret {} has no key {key}", secret.name);
                return Err(CliError::new(message));
            }
            missing -= usize::from(secret.data.is_none());
            secret.data = Some(data);
        }
        Ok(())
    }
}

/// The last values of all secrets.
pub(super) struct Values {
    paths: Vec<SecretPath>,
    secrets: Vec<Secret>,
}

/// A secret, and the keys that the command needs of it.
struct Secret {
    name: String,
    /// The keys that paths name.
    keys: Vec<String>,
    /// `None` before the first values.
    data: Option<Data>,
}

impl Secret {
    fn missing_key(&self, data: &Data) -> Option<&str> {
        self.keys.iter().find(|key| !data.contains_key(*key)).map(String::as_str)
    }
}

impl Values {
    /// The secrets of these paths, each once, and without values yet.
    pub(super) fn new(paths: Vec<SecretPath>) -> Self {
        let mut secrets: Vec<Secret> = Vec::new();
        for path in &paths {
            let keys = path.key.iter().cloned();
            match secrets.iter_mut().find(|secret| secret.name == path.name) {
                Some(known) => known.keys.extend(keys),
                None => secrets.push(Secret {
                    name: path.name.clone(),
                    keys: keys.collect(),
                    data: None,
                }),
            }
        }
        Self { paths, secrets }
    }

    /// The paths.
    pub(super) fn paths(&self) -> &[SecretPath] {
        &self.paths
    }

    /// The values of each path.
    pub(super) fn by_path(&self) -> Vec<Data> {
        let data = |path: &SecretPath| {
            let secret = self.secrets.iter().find(|secret| secret.name == path.name);
            secret.and_then(|secret| secret.data.clone()).unwrap_or_default()
        };
        self.paths.iter().map(|path| values_of(path, data(path))).collect()
    }

    /// Takes the values of a change, and returns whether there are new ones. A secret that was
    /// deleted, or that lost a key of the command, keeps all its earlier values. A part of the new
    /// ones would not fit the rest.
    pub(super) fn take(&mut self, change: SecretChange, process: &Process) -> bool {
        let secret = &mut self.secrets[change.index];
        let name = &secret.name;
        match change.state {
            // The watch has said which key is gone.
            Ok(Some(data)) if secret.missing_key(&data).is_some() => {
                process.print_warning("the command goes on with the earlier values");
                false
            }
            Ok(Some(data)) => {
                secret.data = Some(data);
                true
            }
            Ok(None) => {
                process.print_warning(&format!(
                    "the secret {name} was deleted: the command goes on with its last values"
                ));
                false
            }
            Err(error) => {
                process.print_error(&error);
                process
                    .print_warning(&format!("changes of the secret {name} are not seen any more"));
                false
            }
        }
    }
}

/// The watch of one secret, as a task.
struct SecretWatch {
    index: usize,
    name: String,
    keys: Vec<String>,
    info: &'static Info,
    namespace: String,
}

impl SecretWatch {
    /// Sends the values as they are, and then each change. Ends when there is no receiver, and after an error.
    async fn run(self, mut session: Session, sender: mpsc::Sender<SecretChange>) {
        let send =
            async |state| sender.send(SecretChange { index: self.index, state }).await.is_ok();
        let of = Collection::new(self.info, Some(&self.namespace));
        let data = |state: Option<SecretState>| state.map(|state| state.data);
        let begun = SecretChanges::begin(&mut session, of, self.name, self.keys).await;
        let (mut changes, first) = match begun {
            Ok((changes, first)) => (changes.for_ever(), first),
            Err(error) => {
                send(Err(error)).await;
                return;
            }
        };
        let mut state = Ok(data(first));
        loop {
            let is_last = state.is_err();
            if !send(state).await || is_last {
                return;
            }
            state = changes.next(&mut session).await.map(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_kinds::SecretText;

    use super::*;

    fn path(name: &str, key: Option<&str>) -> SecretPath {
        SecretPath { name: name.to_owned(), key: key.map(str::to_owned) }
    }

    fn data(pairs: &[(&str, &str)]) -> Data {
        let one = |(key, value): &(&str, &str)| {
            ((*key).to_owned(), SecretText::from((*value).to_owned()))
        };
        pairs.iter().map(one).collect()
    }

    fn change(index: usize, pairs: &[(&str, &str)]) -> SecretChange {
        SecretChange { index, state: Ok(Some(data(pairs))) }
    }

    #[test]
    fn all_keys_of_a_secret_come_from_one_version() {
        let process = Process::with(&[]);
        let paths =
            [path("db", Some("user")), path("mail", None), path("db", Some("password"))].to_vec();
        let mut values = Values::new(paths);
        assert_eq!(values.secrets.len(), 2, "one watch for each secret");
        assert!(values.take(change(0, &[("user", "a1"), ("password", "b1")]), &process));
        assert!(values.take(change(1, &[("token", "t1")]), &process));
        let wanted =
            |pairs: [(&str, &str); 3]| pairs.map(|pair| data(&[pair])).into_iter().collect();
        let first: Vec<Data> = wanted([("user", "a1"), ("token", "t1"), ("password", "b1")]);
        assert_eq!(values.by_path(), first);
        // A version without one of the keys changes none.
        assert!(!values.take(change(0, &[("user", "a2")]), &process));
        assert!(!values.take(SecretChange { index: 1, state: Ok(None) }, &process));
        assert_eq!(values.by_path(), first);
        assert!(values.take(change(0, &[("user", "a3"), ("password", "b3")]), &process));
        let third: Vec<Data> = wanted([("user", "a3"), ("token", "t1"), ("password", "b3")]);
        assert_eq!(values.by_path(), third);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_together_are_one_batch() {
        let (sender, receiver) = mpsc::channel(CHANGES_MAX);
        let mut watches = Watches::of(receiver);
        let mut send = JoinSet::new();
        send.spawn(async move {
            for wait in [0, 30, 15, 60] {
                tokio::time::sleep(Duration::from_millis(wait)).await;
                assert!(sender.send(change(0, &[])).await.is_ok());
            }
            pending::<()>().await;
        });
        // A dropped wait loses nothing.
        let early = tokio::time::timeout(Duration::from_millis(40), watches.next());
        assert!(early.await.is_err());
        assert_eq!(watches.next().await.len(), 3);
        assert_eq!(watches.next().await.len(), 1);
    }
}
