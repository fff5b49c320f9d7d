//! Files that are corrupt, lost, or from another server. The server notices each at the start. Its
//! message names the file and the remedy. The server makes no new file in the place of a lost one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use postern_tests::cli::CliUser;
use postern_tests::objects::{secret, secret_path, secrets};
use postern_tests::{Ended, Home, Kubeconfig, Setup, wait};
use serde_json::Value;

/// The message of a start that is refused.
async fn refused(setup: Setup) -> String {
    let Ended { status, stderr, .. } = setup.run_to_end().await;
    assert!(!status.success(), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(!stderr.contains(", 45, "), "a list of bytes: {stderr}");
    stderr
}

async fn started_once() -> Home {
    let home = Home::new();
    Setup::on(&home).start().await.stop().await;
    home
}

#[tokio::test]
async fn a_certificate_authority_is_never_replaced() {
    let (home, other) = (started_once().await, started_once().await);
    let keys = home.data().join("keys");
    let (certificate, key) = (keys.join("tls-ca.pem"), keys.join("tls-ca-key.pem"));
    let read = |path: &Path| std::fs::read(path).unwrap();
    let (whole, whole_key) = (read(&certificate), read(&key));
    let put = |path: &Path, bytes: &[u8]| {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    std::fs::remove_file(&certificate).unwrap();
    let missing = refused(Setup::on(&home)).await;
    assert!(missing.contains("tls-ca.pem is missing"), "{missing}");
    std::fs::remove_file(&key).unwrap();
    let missing = refused(Setup::on(&home)).await;
    assert!(missing.contains("its key are missing") && !key.exists(), "{missing}");
    // The kubeconfig is kept elsewhere, as the documentation advises: there was still an authority.
    let (kubeconfig, elsewhere) = (home.kubeconfig(), home.path().join("elsewhere"));
    std::fs::rename(&kubeconfig, &elsewhere).unwrap();
    let missing = refused(Setup::on(&home)).await;
    assert!(missing.contains("its key are missing") && !key.exists(), "{missing}");
    assert!(missing.contains("with an empty file"), "{missing}");
    std::fs::rename(&elsewhere, &kubeconfig).unwrap();
    put(&key, &whole_key);
    for (bytes, wanted) in [
        (&b"-----BEGIN CERTIFICATE\n"[..], "tls-ca.pem is corrupt"),
        (b"", "tls-ca.pem is corrupt"),
        (b"\xff\xfe", "not text"),
        (&read(&other.data().join("keys/tls-ca.pem")), "files of the same authority"),
    ] {
        put(&certificate, bytes);
        let message = refused(Setup::on(&home)).await;
        assert!(message.contains(wanted), "{message}");
    }
    put(&certificate, &whole);
    put(&key, b"-----BEGIN PRIVATE KEY");
    let message = refused(Setup::on(&home)).await;
    assert!(message.contains("tls-ca-key.pem is corrupt"), "{message}");
    put(&key, &whole_key);
    let server = Setup::on(&home).start().await;
    assert_eq!(server.kubeconfig().authority, whole, "clients trust the same authority");
    server.stop().await;
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_said_to_be_so() {
    let home = started_once().await;
    for (content, wanted) in [(&b""[..], "is empty"), (b"\xff", "not text"), (b"[", "is corrupt")] {
        std::fs::write(home.kubeconfig(), content).unwrap();
        let (logged, printed) = (home.logged().len(), home.printed().len());
        let mut server = Setup::on(&home).start_unready();
        wait::until("a message about the kubeconfig", async || {
            let log = home.logged().split_off(logged);
            (log.contains(wanted) && log.contains("admin reset-key")).then_some(())
        })
        .await;
        assert_eq!(home.printed().len(), printed, "its path is not printed as if it were good");
        assert_eq!(std::fs::read(home.kubeconfig()).unwrap(), content, "it is left as it is");
        let operator = CliUser::new().with("POSTERN_DATA_DIR", home.data().to_str().unwrap());
        wait::until("a new kubeconfig", async || {
            (operator.run(&["admin", "reset-key"]).await.code == 0).then_some(())
        })
        .await;
        server.ready().await;
        let kubeconfig = Kubeconfig::read(&home.kubeconfig()).unwrap();
        let admin = server.client().with_token(&kubeconfig.token);
        admin.get(&secrets("platform")).send().await.expect(200);
        server.stop().await;
    }
}

#[tokio::test]
async fn half_a_record_in_the_audit_log_is_removed() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    server.client().post(&secrets("platform")).json(&secret("db", "v")).send().await.expect(201);
    server.stop().await;
    let first = std::fs::read_to_string(home.audit_log()).unwrap();
    let half = &first[..first.find("\"verb\"").unwrap()];
    // A file system that lost power may leave zeros where data was to come.
    for partial in [half, &"\0".repeat(5000)] {
        let whole = std::fs::read_to_string(home.audit_log()).unwrap();
        std::fs::write(home.audit_log(), format!("{whole}{partial}")).unwrap();
        let logged = home.logged().len();
        let server = Setup::on(&home).start().await;
        server.client().get(&secret_path("db")).send().await.expect(200);
        server.stop().await;
        let text = std::fs::read_to_string(home.audit_log()).unwrap();
        let more = text.strip_prefix(&whole).expect("whole records stay");
        let records: Vec<Value> =
            more.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert!(records.iter().any(|record| record["objectRef"]["name"] == "db"), "{more}");
        assert!(home.logged()[logged..].contains("was removed"));
    }
}

#[tokio::test]
async fn directories_that_others_can_use_are_refused() {
    let home = started_once().await;
    let set = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in [".", "db", "keys", "audit"] {
        let path = home.data().join(name);
        set(&path, 0o777);
        let message = refused(Setup::on(&home)).await;
        assert!(message.contains("mode 0777") && message.contains("chmod 700"), "{message}");
        set(&path, 0o700);
    }
    // The operator may have made it, as in a script.
    set(&home.data(), 0o755);
    Setup::on(&home).start().await.stop().await;
}

#[tokio::test]
async fn a_database_that_was_lost_is_not_made_anew() {
    let home = started_once().await;
    let database = home.data().join("db/postern.redb");
    let whole = std::fs::read(&database).unwrap();
    let aside = home.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    // The kubeconfig is kept elsewhere, as is advised.
    std::fs::rename(home.kubeconfig(), aside.join("kubeconfig")).unwrap();
    let lose: [&dyn Fn(); 2] =
        [&|| std::fs::write(&database, "").unwrap(), &|| std::fs::remove_file(&database).unwrap()];
    let log = home.data().join("db/postern.redb.log");
    for lose in lose {
        lose();
        let message = refused(Setup::on(&home)).await;
        assert!(message.contains("is missing or empty"), "{message}");
        let names = ["postern.redb.log, ", "tls-ca.pem"];
        assert!(names.iter().all(|name| message.contains(name)), "{message}");
        assert!(log.exists() && !home.data().join("db/postern.redb.log.old").exists());
    }
    // As after a restore that did not finish.
    std::fs::rename(home.data().join("db"), aside.join("db")).unwrap();
    std::fs::create_dir(home.data().join("db")).unwrap();
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(home.data().join("db"), private).unwrap();
    std::fs::write(home.data().join("db/postern.redb.new"), "half").unwrap();
    let message = refused(Setup::on(&home)).await;
    assert!(message.contains("is missing or empty"), "{message}");
    std::fs::remove_dir_all(home.data().join("db")).unwrap();
    std::fs::rename(aside.join("db"), home.data().join("db")).unwrap();
    std::fs::write(&database, whole).unwrap();
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(aside.join("kubeconfig"), home.kubeconfig()).unwrap();
    Setup::on(&home).start().await.stop().await;
}

#[tokio::test]
async fn an_inconsistent_copy_of_the_database_is_named() {
    let home = started_once().await;
    let path = home.data().join("db/postern.redb");
    let whole = std::fs::read(&path).unwrap();
    // As a copy that was begun before the file grew.
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let message = refused(Setup::on(&home)).await;
    assert!(message.contains("the copy is inconsistent"), "{message}");
    assert!(message.contains("postern storage backup"), "{message}");
    let operator = CliUser::new().with("POSTERN_DATA_DIR", home.data().to_str().unwrap());
    let message = operator.fails(1, &["storage", "check"]).await;
    assert!(
        message.contains("the copy is inconsistent") && !message.contains("panicked"),
        "{message}"
    );
}

#[tokio::test]
async fn what_is_no_file_is_called_a_directory() {
    let home = started_once().await;
    for name in ["keys/seal.keys", "keys/tls-ca.pem"] {
        let path = home.data().join(name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let message = refused(Setup::on(&home)).await;
        assert!(message.contains("is a directory") && message.contains(name), "{message}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, whole).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
    }
    Setup::on(&home).start().await.stop().await;
}
