//! Tests of the commands, with a running server and without one.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use postern_store::Options;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

use super::*;
use crate::data_dir::DataDir;
use crate::keyring::KeySource;
use crate::{Limits, Settings, System, open};

/// The settings of a server on a directory.
pub(crate) fn settings(dir: &Path) -> Settings {
    Settings {
        users: crate::UserPolicy::default(),
        tokens: crate::TokenPolicy::default(),
        data_dir: dir.to_owned(),
        key_dir: None,
        keyring: KeyringSetting::KeyDirectory,
        listen: ([127, 0, 0, 1], 0).into(),
        hosts: Vec::new(),
        member_host: None,
        certificate: None,
        history: Duration::from_mins(5),
        shutdown_delay: Duration::ZERO,
        store_silence: Duration::from_secs(15),
        drain_timeout: Duration::from_secs(10),
        limits: Limits::default(),
        gateway: crate::GatewaySettings::default(),
        audit: crate::AuditSettings {
            log: crate::AuditLog::File(DataDir::audit_log_in(dir)),
            policy_file: None,
            max_file_bytes: u64::MAX,
            max_rotated_files: 1,
            before_answer: false,
            exec_commands: true,
        },
        store: None,
        cache_bytes: Options::DEFAULT_CACHE_BYTES,
        build: crate::Build::default(),
        namespaces: crate::GivenNames::default(),
        advertised_version: None,
        console: false,
        clients: crate::ClientAddresses::default(),
        max_login_failures: crate::DEFAULT_LOGIN_FAILURES,
    }
}

/// Runs a server on the directory while `run` runs.
async fn with_server(dir: &Path, run: impl Future<Output = ()>) {
    let opening = Box::pin(open(settings(dir), Arc::new(System::default())));
    let (running, _) = opening.await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let work = async {
        // The socket opens when the server starts to serve, which is at the same time.
        while tokio::net::UnixStream::connect(dir.join("admin.sock")).await.is_err() {
            tokio::task::yield_now().await;
        }
        run.await;
        stop.send(()).unwrap();
    };
    let until = async { stopped.await.unwrap() };
    let (_reload, reloads) = watch::channel(());
    let (ended, ()) = tokio::join!(Box::pin(running.serve(until, reloads)), work);
    ended.unwrap();
}

#[tokio::test]
async fn a_server_that_may_no_longer_use_its_store_ends_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let opening = Box::pin(open(settings(home.path()), Arc::new(System::default())));
    let (mut running, _) = opening.await.unwrap();
    let (unusable, reason) = watch::channel(None);
    running.set_unusable(reason);
    let (_reload, reloads) = watch::channel(());
    let serving = Box::pin(running.serve(std::future::pending(), reloads));
    let (ended, _) = tokio::join!(serving, async { unusable.send(Some("newer".to_owned())) });
    assert_eq!(ended.unwrap_err().to_string(), "newer");
}

async fn open_database(dir: &DataDir) -> postern_store::seal::Sealed {
    let keys = KeySource::new(&KeyringSetting::KeyDirectory, dir);
    crate::database::open(dir, &keys, Options::DEFAULT_CACHE_BYTES).await.unwrap()
}

fn files(dir: &TempDir) -> ServerFiles<'_> {
    static CLOCK: LazyLock<System> = LazyLock::new(System::default);
    ServerFiles {
        data_dir: dir.path(),
        key_dir: None,
        keyring: &KeyringSetting::KeyDirectory,
        clock: &*CLOCK,
        store: None,
    }
}

async fn run(dir: &TempDir, command: AdminCommand) -> anyhow::Result<CommandOutput> {
    call(&files(dir), command, |_| {}).await
}

/// Rotates, rewraps and checks. Returns the id of the current at-rest key.
async fn rotate_and_rewrap(dir: &TempDir, keys: usize) -> String {
    let CommandOutput::RotateKey { current, all } =
        run(dir, AdminCommand::RotateKey).await.unwrap()
    else {
        panic!("wrong output")
    };
    assert_eq!(all.len(), keys);
    assert_eq!(all.last(), Some(&current));
    let CommandOutput::Rewrap { seen, rewritten, corrupt, needed } =
        run(dir, AdminCommand::Rewrap).await.unwrap()
    else {
        panic!("wrong output")
    };
    assert_eq!((rewritten, corrupt), (seen, 0), "all values had an older key");
    assert!(needed.unwrap().contains(&current));
    let again = run(dir, AdminCommand::Rewrap).await.unwrap();
    assert!(matches!(again, CommandOutput::Rewrap { rewritten: 0, .. }));
    let checked = run(dir, AdminCommand::Check).await.unwrap();
    let CommandOutput::Check { seen, corrupt, corrupt_total } = checked else {
        panic!("wrong output")
    };
    assert!(seen > 3);
    assert_eq!((corrupt, corrupt_total), (Vec::new(), 0));
    current
}

#[tokio::test]
async fn storage_commands_work_with_and_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let missing = run(&dir, AdminCommand::Check).await.unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    with_server(dir.path(), async {
        rotate_and_rewrap(&dir, 2).await;
    })
    .await;
    assert!(!dir.path().join("admin.sock").exists());
    rotate_and_rewrap(&dir, 3).await;
    let refused = run(&dir, AdminCommand::ResetKey).await.unwrap_err();
    assert!(refused.to_string().contains("start it"), "{refused}");
    with_server(dir.path(), async {}).await;
}

#[tokio::test]
async fn progress_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let mut last = None;
    let output = call(&files(&dir), AdminCommand::Check, |at| last = Some(at)).await.unwrap();
    let CommandOutput::Check { seen, .. } = output else { panic!("wrong output") };
    assert_eq!(last, Some(Progress { seen, remaining: 0 }));
}

#[tokio::test]
async fn corrupt_values_are_reported_by_key_and_without_content() {
    use postern_store::{Change, Store as _, Txn};
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let opened = DataDir::open(dir.path(), None).unwrap();
    let sealed = open_database(&opened).await;
    let put = |key: &str, value: &'static str| Change::Put {
        key: key.into(),
        value: value.as_bytes().into(),
    };
    let key = "/objects/management.platform.sh/sharedsecrets/platform/broken";
    let changes = vec![put(key, "canary"), put("/digests/00", "canary")];
    sealed.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    // This value cannot be decrypted: it is written without encryption.
    let changes = vec![put("/objects/core/namespaces/unsealed", "canary")];
    sealed.inner().commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    sealed.close().await;
    drop(sealed);
    let output = run(&dir, AdminCommand::Check).await.unwrap();
    let CommandOutput::Check { corrupt, corrupt_total, .. } = output else {
        panic!("wrong output")
    };
    let mut keys: Vec<&str> = corrupt.iter().map(|value| value.key.as_str()).collect();
    keys.sort_unstable();
    let ours = "management.platform.sh/sharedsecrets/platform/broken";
    assert_eq!(keys, ["/digests/00", "core/namespaces/unsealed", ours]);
    assert_eq!(corrupt_total, 3);
    assert!(corrupt.iter().all(|value| !value.reason.contains("canary")), "{corrupt:?}");
}

#[tokio::test]
async fn skip_corrupt_omits_corrupt_values_and_names_them() {
    use postern_store::{Change, Store as _, Txn};
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let opened = DataDir::open(dir.path(), None).unwrap();
    let sealed = open_database(&opened).await;
    let value = "canary".as_bytes().into();
    let changes = vec![Change::Put { key: "/objects/core/namespaces/unsealed".into(), value }];
    sealed.inner().commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    sealed.close().await;
    drop(sealed);
    let mut to =
        BackupFile { path: dir.path().join("backup"), overwrite: false, skip_corrupt: false };
    with_server(dir.path(), async {
        let refused = backup(&files(&dir), &to, |_| {}).await.unwrap_err().to_string();
        assert!(refused.contains("core/namespaces/unsealed"), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
        let mut left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        assert!(!left.any(|path| path.to_string_lossy().contains("/backup")));
        to.skip_corrupt = true;
        let made = backup(&files(&dir), &to, |_| {}).await.unwrap();
        let CommandOutput::Backup { content, omitted } = made else { panic!("wrong output") };
        assert_eq!((content.omitted, omitted[0].key.as_str()), (1, "core/namespaces/unsealed"));
        assert_eq!(std::fs::metadata(&to.path).unwrap().len(), content.bytes);
    })
    .await;
}

#[tokio::test]
async fn only_a_backup_in_progress_blocks_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let to = BackupFile { path: dir.path().join("backup"), overwrite: false, skip_corrupt: false };
    let unfinished = dir.path().join("backup.unfinished");
    let other = crate::data_dir::create_private(&unfinished).unwrap();
    rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let refused = backup(&files(&dir), &to, |_| {}).await.unwrap_err();
    assert!(format!("{refused:#}").contains("another backup is being written"), "{refused:#}");
    assert!(unfinished.exists(), "the file of another process stays");
    drop(other);
    let mut last = None;
    backup(&files(&dir), &to, |at| last = Some(at)).await.unwrap();
    assert!(to.path.exists() && !unfinished.exists());
    assert_eq!(last.map(|at| at.remaining), Some(0));
}

#[tokio::test]
async fn a_corrupt_administrator_is_created_again_with_a_new_key() {
    use postern_store::{Change, Store as _, Txn};
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let opened = DataDir::open(dir.path(), None).unwrap();
    let sealed = open_database(&opened).await;
    let key = "/objects/management.platform.sh/users/admin".into();
    let changes = vec![Change::Put { key, value: "canary".as_bytes().into() }];
    sealed.commit(Txn { conditions: Vec::new(), changes }).await.unwrap();
    sealed.close().await;
    drop(sealed);
    with_server(dir.path(), async {
        for is_repaired in [true, false] {
            let output = run(&dir, AdminCommand::ResetKey).await.unwrap();
            let CommandOutput::ResetKey { user_repaired, .. } = output else {
                panic!("wrong output")
            };
            assert_eq!(user_repaired, is_repaired);
        }
    })
    .await;
}

#[tokio::test]
async fn a_reset_key_is_only_in_the_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {
        let read = || crate::data_dir::read_if_there(&dir.path().join("admin.kubeconfig"));
        let old = read().unwrap().unwrap();
        let output = run(&dir, AdminCommand::ResetKey).await.unwrap();
        let debug = format!("{output:?}");
        let CommandOutput::ResetKey { kubeconfig, user_repaired, other_keys, .. } = output else {
            panic!("wrong output")
        };
        assert_eq!(kubeconfig, dir.path().join("admin.kubeconfig"));
        assert_eq!(other_keys, ["admin"]);
        assert!(!user_repaired);
        let new = read().unwrap().unwrap();
        assert_ne!(old, new);
        let token = new.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
        assert!(!debug.contains(token));
    })
    .await;
}

#[tokio::test]
async fn a_signing_key_is_published_replaced_and_dropped() {
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {
        let rotate = async |force| {
            let output = run(&dir, AdminCommand::RotateSigningKey { force }).await.unwrap();
            let CommandOutput::RotateSigningKey { kid, was_announced, .. } = output else {
                panic!("wrong output")
            };
            (kid, was_announced)
        };
        let (announced, _) = rotate(false).await;
        assert_eq!(rotate(false).await, (announced.clone(), true));
        let (first, _) = rotate(true).await;
        assert_ne!(first, announced);
        let drop = |kid: &str| AdminCommand::DropSigningKey { kid: kid.to_owned() };
        let refused = run(&dir, drop(&first)).await.unwrap_err().to_string();
        assert!(refused.contains("rotate-signing-key --force"), "{refused}");
        let (second, _) = rotate(true).await;
        let dropped = run(&dir, drop(&first)).await.unwrap();
        assert_eq!(dropped, CommandOutput::DropSigningKey { kid: first.clone() });
        let gone = run(&dir, drop(&first)).await.unwrap_err().to_string();
        assert!(gone.contains(&second) && !gone.contains(&announced), "{gone}");
    })
    .await;
    let refused = run(&dir, AdminCommand::RotateSigningKey { force: true }).await.unwrap_err();
    assert!(refused.to_string().contains("no server runs"), "{refused:#}");
}

#[tokio::test]
async fn a_user_without_rights_is_repaired() {
    use postern_meta::object::Object;
    use postern_store::{Change, Store as _, Txn};
    let dir = tempfile::tempdir().unwrap();
    with_server(dir.path(), async {}).await;
    let opened = DataDir::open(dir.path(), None).unwrap();
    let key = "/objects/management.platform.sh/users/admin";
    for round in 0..2 {
        let sealed = open_database(&opened).await;
        let changes = if round == 0 {
            let stored = sealed.get(key).await.unwrap().value.unwrap().value;
            let mut user = Object::from_value(decode_typed(&stored).unwrap()).unwrap();
            user.fields["spec"] = serde_json::json!({ "disabled": true, "groups": ["others"] });
            vec![Change::Put { key: key.into(), value: postern_registry::cache::to_stored(user) }]
        } else {
            let keys = [key, "/unique/management.platform.sh/users/admin"];
            keys.iter().map(|&key| Change::Delete { key: key.into() }).collect()
        };
        let txn = Txn { conditions: Vec::new(), changes };
        sealed.commit(txn).await.unwrap();
        sealed.close().await;
        drop(sealed);
        with_server(dir.path(), async {
            for repaired in [true, false] {
                let output = run(&dir, AdminCommand::ResetKey).await.unwrap();
                let CommandOutput::ResetKey { user_repaired, .. } = output else {
                    panic!("wrong output")
                };
                assert_eq!(user_repaired, repaired, "round {round}");
            }
        })
        .await;
    }
}
