//! Files: the files that the first start creates, their permissions, and the start with missing or
//! corrupt files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use postern_tests::objects::{secret, secret_path, secrets, value_of};
use postern_tests::{Home, Random, Server, Setup};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn files_under(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_path_buf()];
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| files_under(&entry)).collect()
}

#[tokio::test]
async fn only_the_owner_can_read_the_files_of_the_first_start() {
    let server = Server::start().await;
    let data = server.home().data();
    for file in files_under(&data) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    for directory in [data.clone(), data.join("keys")] {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
    }
    let kubeconfig = server.kubeconfig();
    assert!(kubeconfig.server.ends_with("/kubernetes/management"));
    assert_eq!(kubeconfig.namespace, "platform");
    // The server prints the path when it serves requests, perhaps a moment after the first one.
    let path = data.join("admin.kubeconfig");
    postern_tests::wait::until("the path of the kubeconfig", async || {
        server.home().printed().contains(path.to_str().unwrap()).then_some(())
    })
    .await;
    assert!(!server.home().printed().contains(&kubeconfig.token));
    server.stop().await;
}

#[tokio::test]
async fn a_second_start_has_the_keys_and_objects_of_the_first() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let first = server.kubeconfig().clone();
    let made = server
        .client()
        .post(&secrets("platform"))
        .json(&secret("s1", "v"))
        .send()
        .await
        .expect(201);
    server.stop().await;
    let server = Setup::on(&home).start().await;
    let second = server.kubeconfig();
    assert_eq!(second.token, first.token, "the key is still the same");
    assert_eq!(second.authority, first.authority, "and the certificate's authority");
    let read = server.client().get(&secret_path("s1")).send().await.expect(200);
    assert_eq!(read, made);
    std::fs::remove_file(home.kubeconfig()).unwrap();
    server.client().get(&secret_path("s1")).send().await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let before = std::fs::read(home.kubeconfig()).unwrap();
    let ended = Setup::on(&home).run_to_end().await;
    assert!(!ended.status.success());
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    let stderr = &ended.stderr;
    assert!(stderr.contains("another process has the database open"), "{stderr}");
    assert!(
        stderr.contains(home.data().to_str().unwrap()),
        "the error names the directory: {stderr}"
    );
    assert_eq!(
        std::fs::read(home.kubeconfig()).unwrap(),
        before,
        "the first one's file is left alone"
    );
    server.client().get(&secrets("platform")).send().await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_reported_and_leaves_nothing_behind() {
    let one = Server::start().await;
    let home = Home::new();
    let address = one.kubeconfig().authority_of_server().to_owned();
    let data = home.path().join("new");
    let taken = Setup::bare(&home).argument("serve").argument("--data-dir").argument(&data);
    let ended = taken.argument("--listen").argument(&address).run_to_end().await;
    assert!(!ended.status.success());
    assert!(ended.stderr.contains(&address), "{}", ended.stderr);
    assert!(!data.exists());
    Setup::on(&home).start().await.stop().await;
}

#[tokio::test]
async fn a_database_without_its_key_does_not_start() {
    let home = Home::new();
    Setup::on(&home).start().await.stop().await;
    let (keys, aside) = (home.data().join("keys"), home.path().join("aside"));
    std::fs::rename(&keys, &aside).unwrap();
    let ended = Setup::on(&home).run_to_end().await;
    assert!(!ended.status.success());
    assert!(ended.stderr.to_lowercase().contains("key"), "{}", ended.stderr);
    let made = if keys.exists() { files_under(&keys) } else { Vec::new() };
    let seal = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains("seal");
    assert!(!made.iter().any(seal), "no new seal key is made for it: {made:?}");
    if keys.exists() {
        std::fs::remove_dir_all(&keys).unwrap();
    }
    std::fs::rename(&aside, &keys).unwrap();
    Setup::on(&home).start().await.stop().await;
}

#[tokio::test]
async fn another_databases_key_does_not_open_it() {
    let (one, two) = (Home::new(), Home::new());
    Setup::on(&one).start().await.stop().await;
    Setup::on(&two).start().await.stop().await;
    std::fs::rename(one.data().join("keys"), one.path().join("aside")).unwrap();
    std::fs::rename(two.data().join("keys"), one.data().join("keys")).unwrap();
    let ended = Setup::on(&one).run_to_end().await;
    assert!(!ended.status.success());
    assert!(ended.stderr.to_lowercase().contains("key"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[tokio::test]
async fn keys_can_be_in_another_directory() {
    let home = Home::new();
    let keys = home.path().join("elsewhere");
    let setup = || Setup::on(&home).argument("--key-dir").argument(&keys);
    setup().start().await.stop().await;
    assert!(!home.data().join("keys").exists());
    assert!(!files_under(&keys).is_empty());
    setup().start().await.stop().await;
}

/// Overwrites a few bytes at one offset after the other. The server then returns correct data or an
/// error. It never returns wrong data, and never leaves something out.
#[tokio::test]
async fn heavy_a_corrupt_database_is_refused_or_reported() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    for number in 0..COUNT {
        let object = secret(&format!("s{number}"), &value(number));
        server.client().post(&secrets("platform")).json(&object).send().await.expect(201);
    }
    server.stop().await;
    // The database was closed, so it needs no log.
    let database = home.data().join("db/postern.redb");
    let whole = std::fs::read(&database).unwrap();
    let mut random = Random::new(7);
    for _ in 0..24 {
        let mut corrupt = whole.clone();
        let offset = usize::try_from(random.below(whole.len() as u64 - 8)).unwrap();
        for byte in &mut corrupt[offset..offset + 8] {
            *byte ^= 0x55;
        }
        std::fs::write(&database, &corrupt).unwrap();
        match Setup::on(&home).start_or_end().await {
            Ok(server) => every_read_is_correct_or_fails(&server, offset).await,
            Err(ended) => {
                assert!(!ended.status.success());
                assert!(!ended.stderr.contains("panicked"), "at {offset}: {}", ended.stderr);
            }
        }
        std::fs::write(&database, &whole).unwrap();
    }
    let server = Setup::on(&home).start().await;
    every_read_is_correct_or_fails(&server, 0).await;
    server.stop().await;
}

const COUNT: usize = 100;

fn value(number: usize) -> String {
    format!("value {number} ").repeat(40)
}

async fn every_read_is_correct_or_fails(server: &Server, offset: usize) {
    for number in 0..COUNT {
        let reply = server.client().get(&secret_path(&format!("s{number}"))).send().await;
        match reply.status {
            200 => assert_eq!(value_of(&reply.json()), value(number), "corruption at {offset}"),
            500 => assert_eq!(reply.json()["kind"], "Status"),
            // The damage is in the file's own structure, and not in one value: a commit has found it.
            503 => assert_eq!(reply.json()["details"]["retryAfterSeconds"], 1),
            code => panic!("corruption at {offset}: {code} {}", reply.text()),
        }
    }
    let list = server.client().get(&secrets("platform")).send().await;
    match list.status {
        200 => assert_eq!(list.json()["items"].as_array().unwrap().len(), COUNT),
        code => assert!(matches!(code, 500 | 503), "{}", list.text()),
    }
}
