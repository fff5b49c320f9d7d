//! Commands that only need the database. They work with and without a running server.

use anyhow::Context as _;
use postern_registry::clock::Source;
use postern_store::backup::WriteOptions;
use postern_store::seal::{KeyId, Sealed};
use postern_store::{Options, Store as _};
use tokio::io::AsyncWrite;
use zeroize::Zeroizing;

use super::backup::to_strings;
use super::{AdminCommand, CommandOutput, Progress, ServerFiles, backup, check};
use crate::data_dir::DataDir;
use crate::database;
use crate::keyring::KeySource;

/// Runs a command on a database that this process opens.
pub(super) async fn run_offline(
    files: &ServerFiles<'_>,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let ServerFiles { data_dir, key_dir, keyring, clock, .. } = *files;
    database::check_not_moved(data_dir)?;
    // Opening would create a missing database.
    let database = DataDir::database_in(data_dir);
    let exists = database.try_exists()?;
    anyhow::ensure!(
        exists,
        "the database {} does not exist, and no server runs on {}: if the server has --store, start it, and repeat the \
         command; otherwise pass the --data-dir of the server",
        database.display(),
        data_dir.display()
    );
    let dir = DataDir::open(data_dir, key_dir)?;
    let keys = KeySource::new(keyring, &dir);
    let sealed = database::open(&dir, &keys, Options::DEFAULT_CACHE_BYTES).await?;
    let target = Target { sealed: &sealed, keys: &keys, clock, server: None };
    let output = run(&target, command, out, report).await;
    sealed.close().await;
    output
}

/// The database, its keys and the clock that a command uses.
pub(super) struct Target<'a> {
    /// The open database.
    pub(super) sealed: &'a Sealed,
    /// Where its at-rest keys come from.
    pub(super) keys: &'a KeySource,
    /// The clock.
    pub(super) clock: &'a dyn Source,
    /// The id of the server that runs the command, among those that share the store.
    pub(super) server: Option<&'a str>,
}

impl Target<'_> {
    /// The addresses of the other servers that lack an at-rest key. This server's own announcement
    /// may be older than its keyring, so it is not used.
    fn others_without(&self, key: KeyId) -> Vec<String> {
        let Some(fleet) = self.sealed.fleet() else { return Vec::new() };
        let (members, key) = (fleet.members(), key.to_string());
        let members = members.borrow();
        let others = members.iter().filter(|member| Some(&*member.id) != self.server);
        let without = others.filter(|member| !member.seal_keys.contains(&key));
        without.map(|member| member.address.clone()).collect()
    }
}

/// Runs a command on an open database. `out` receives the bytes of a backup.
pub(super) async fn run(
    target: &Target<'_>,
    command: AdminCommand,
    out: &mut (dyn AsyncWrite + Send + Unpin),
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let Target { sealed, clock, .. } = target;
    match command {
        AdminCommand::ResetKey
        | AdminCommand::RotateSigningKey { .. }
        | AdminCommand::DropSigningKey { .. }
        | AdminCommand::Health => {
            anyhow::bail!("this command requires a running server")
        }
        AdminCommand::RotateKey => rotate_key(target).await,
        AdminCommand::Rewrap => rewrap(sealed, report).await,
        AdminCommand::DropKey { id } => drop_key(target, &id).await,
        AdminCommand::Check => check::run(sealed, report).await,
        AdminCommand::Backup { skip_corrupt } => {
            let options = WriteOptions { now: backup::system_time(*clock), skip_corrupt };
            backup::write(sealed, options, out, report).await
        }
    }
}

/// Creates an at-rest key. It is on the disk before any value is encrypted with it. If several servers share the store,
/// they use it when all of them have it.
async fn rotate_key(target: &Target<'_>) -> anyhow::Result<CommandOutput> {
    let Target { keys, sealed, .. } = target;
    if let Some(prepared) = sealed.prepared_key() {
        let without = target.others_without(prepared);
        anyhow::ensure!(
            !without.is_empty(),
            "the at-rest key {prepared} is prepared, all servers have it, and it becomes active soon: try again later"
        );
        anyhow::bail!(
            "the at-rest key {prepared} is prepared already. It becomes active when the servers {} have it: {}",
            without.join(", "),
            keys.way_to_others()
        );
    }
    let _changing = sealed.lock_keyring().await;
    let keyring = keys.add_key(sealed).await?;
    let (current, all) = (keyring.current().to_string(), to_strings(keyring.ids()));
    sealed.use_keyring(keyring).await?;
    match sealed.prepared_key() {
        None => Ok(CommandOutput::RotateKey { current, all }),
        Some(prepared) => {
            let without = target.others_without(prepared);
            let (prepared, in_store) = (prepared.to_string(), keys.kms().is_some());
            Ok(CommandOutput::PrepareKey { prepared, without, in_store })
        }
    }
}

/// The text of a server's keyring with one more key, which is the current one. Changes nothing. The text is secret.
///
/// # Errors
/// When the keyring cannot be read.
pub fn rotated_keyring(files: &ServerFiles<'_>) -> anyhow::Result<Zeroizing<String>> {
    let ServerFiles { data_dir, key_dir, keyring, .. } = *files;
    let keys = KeySource::with_file(keyring, DataDir::keyring_file_in(data_dir, key_dir));
    Ok(keys.read_file()?.rotated()?.to_text())
}

/// Removes an at-rest key from the keyring, unless a value or the history needs it.
async fn drop_key(target: &Target<'_>, id: &str) -> anyhow::Result<CommandOutput> {
    let Target { keys, sealed, .. } = target;
    let id: KeyId = id.parse()?;
    // First come the checks that do not depend on the stored values, because reading all values may
    // take long.
    let changing = sealed.lock_keyring().await;
    let keyring = keys.load(sealed).await?;
    let without = keyring.without(id);
    if sealed.fleet().is_some() && keyring.holds(id) {
        // Another server may have made a key active a moment ago. This reads the marker again.
        sealed.use_keyring(keyring).await?;
        check_retired(target, id)?;
    }
    drop(changing);
    without.context("cannot change the keyring")?;
    let needed = sealed.key_ids_in_use().await;
    let needed = needed.context("cannot determine which at-rest keys are still needed")?;
    anyhow::ensure!(
        !needed.contains(&id),
        "stored values or their history need the at-rest key {id}: run postern storage rewrap, wait until history is \
         compacted (--history), and try again"
    );
    let _changing = sealed.lock_keyring().await;
    let keyring = keys.remove_key(sealed, id).await?;
    let left = to_strings(keyring.ids());
    sealed.use_keyring(keyring).await?;
    Ok(CommandOutput::DropKey { left, in_store: keys.kms().is_some() })
}

/// Checks that a key of a shared store was active, and is no longer active. A key that another
/// server can still make active must not be dropped.
fn check_retired(target: &Target<'_>, id: KeyId) -> anyhow::Result<()> {
    let Target { keys, sealed, .. } = target;
    let (active, prepared) = (sealed.active_key(), sealed.prepared_key());
    let time_of = |prepared| match &*target.others_without(prepared) {
        [] => "all servers have it, and it becomes active soon".to_owned(),
        others => format!(
            "it becomes active when the servers {} have it: {}",
            others.join(", "),
            keys.way_to_others()
        ),
    };
    anyhow::ensure!(
        id != active,
        "the at-rest key {id} is the current one, with which all servers encrypt: it must stay in all keyrings; {}",
        match prepared {
            Some(prepared) =>
                format!("the at-rest key {prepared} is prepared, and {}", time_of(prepared)),
            None => "rotate first".to_owned(),
        }
    );
    if prepared == Some(id) {
        anyhow::bail!(
            "the at-rest key {id} is prepared, and not active yet: {}; the active one is {active}",
            time_of(id)
        );
    }
    anyhow::ensure!(
        sealed.is_retired(id),
        "the at-rest key {id} was never active, but a server makes it active if its keyring names it on the line \
         \"current\": check that no keyring does, and remove its line \"key\" from the keyrings of all servers by hand; the \
         active one is {active}, which must stay"
    );
    Ok(())
}

async fn rewrap(
    sealed: &Sealed,
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let done = sealed.rewrap(|at| report(Progress { seen: at.seen, remaining: at.remaining }));
    let done = done.await?;
    let needed = match sealed.key_ids_in_use().await {
        Ok(ids) => Some(to_strings(ids)),
        Err(error) => {
            tracing::warn!("cannot determine which at-rest keys are still needed: {error}");
            None
        }
    };
    let postern_store::seal::Progress { seen, rewritten, corrupt, .. } = done;
    Ok(CommandOutput::Rewrap { seen, rewritten, corrupt, needed })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postern_store::Member;
    use postern_store::hostile::{Faults, Remote};
    use postern_store::seal::Keyring;
    use tempfile::TempDir;

    use super::*;
    use crate::System;
    use crate::keyring::KeyringSetting;

    /// A server on a shared store.
    struct Server {
        name: &'static str,
        home: TempDir,
        keys: KeySource,
        sealed: Sealed,
    }

    impl Server {
        /// Opens the store with a copy of another server's keyring, or else with a new one.
        async fn open(name: &'static str, remote: &Arc<Remote>, other: Option<&Self>) -> Self {
            let home = tempfile::tempdir().unwrap();
            let dir = DataDir::open(home.path(), None).unwrap();
            match other {
                Some(other) => drop(std::fs::copy(other.file(), dir.keyring_file()).unwrap()),
                None => drop(Keyring::create(dir.keyring_file()).unwrap()),
            }
            let keys = KeySource::new(&KeyringSetting::KeyDirectory, &dir);
            let keyring = keys.read_file().unwrap();
            let sealed = Sealed::open(remote.connect(), keyring).await.unwrap();
            let server = Self { name, home, keys, sealed };
            server.announce().await;
            server
        }

        fn file(&self) -> std::path::PathBuf {
            DataDir::keyring_file_in(self.home.path(), None)
        }

        async fn announce(&self) {
            let me = Member {
                id: self.name.into(),
                address: format!("{}:1", self.name),
                format: 1,
                seal_keys: self.sealed.key_ids(),
            };
            self.sealed.fleet().unwrap().join(me).await.unwrap();
        }

        async fn run(&self, command: AdminCommand) -> anyhow::Result<CommandOutput> {
            let clock = System::default();
            let (sealed, keys) = (&self.sealed, &self.keys);
            let target = Target { sealed, keys, clock: &clock, server: Some(self.name) };
            run(&target, command, &mut tokio::io::sink(), &mut |_| ()).await
        }

        async fn rotate(&self) -> (KeyId, Vec<String>) {
            match self.run(AdminCommand::RotateKey).await.unwrap() {
                CommandOutput::PrepareKey { prepared, without, .. } => {
                    (prepared.parse().unwrap(), without)
                }
                other => panic!("{other:?}"),
            }
        }

        async fn refusal(&self, id: KeyId) -> String {
            let refused = self.run(AdminCommand::DropKey { id: id.to_string() }).await;
            format!("{:#}", refused.unwrap_err())
        }
    }

    #[tokio::test]
    async fn a_key_is_dropped_only_after_it_was_active() {
        let remote = Remote::new(Faults::default());
        let one = Server::open("one", &remote, None).await;
        let two = Server::open("two", &remote, Some(&one)).await;
        let first = one.sealed.active_key();
        let (second, without) = one.rotate().await;
        assert_eq!(without, ["two:1"], "this server has the key, whatever it has announced");

        let active = one.refusal(first).await;
        assert!(active.contains("is the current one") && active.contains("must stay"), "{active}");
        let waits = format!("{second} is prepared, and it becomes active when the servers two:1");
        assert!(active.contains(&waits) && !active.contains("remove"), "{active}");
        let prepared = one.refusal(second).await;
        assert!(prepared.contains("is prepared, and not active yet"), "{prepared}");
        assert!(!prepared.contains("remove"), "{prepared}");
        let unknown = two.refusal(second).await;
        assert!(unknown.contains("does not have key"), "{unknown}");

        // The other server has another prepared key, and does not know that the first server's key may become active.
        std::fs::copy(one.file(), two.file()).unwrap();
        let third = Keyring::rotate(two.file()).unwrap().current();
        let never = two.refusal(second).await;
        assert!(never.contains("was never active"), "{never}");
        assert!(never.contains(&format!("the active one is {first}, which must stay")), "{never}");
        one.sealed.activate_prepared_key().await.unwrap();
        // No watch has told the other server.
        let active = two.refusal(second).await;
        assert!(active.contains("is the current one") && active.contains("must stay"), "{active}");
        assert!(active.contains(&format!("{third} is prepared")), "{active}");
        for server in [&one, &two] {
            let retired = server.refusal(first).await;
            assert!(retired.contains("need the at-rest key"), "{retired}");
        }
    }

    #[tokio::test]
    async fn without_a_database_the_message_says_that_a_server_must_run() {
        let home = tempfile::tempdir().unwrap();
        let files = ServerFiles {
            data_dir: home.path(),
            key_dir: None,
            keyring: &KeyringSetting::KeyDirectory,
            clock: &System::default(),
            store: None,
        };
        let drop_key = AdminCommand::DropKey { id: "0123456789abcdef".to_owned() };
        for command in [AdminCommand::RotateKey, AdminCommand::Rewrap, drop_key] {
            let refused = crate::admin::call(&files, command, |_| ()).await.unwrap_err();
            let refused = refused.to_string();
            assert!(refused.contains("no server runs on"), "{refused}");
            assert!(refused.contains("if the server has --store, start it"), "{refused}");
        }
    }
}
