//! Five faults, each brought about for real: the metric shows it, and its alert fires in a real Prometheus, where that
//! was fetched.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use postern_tests::http::Client;
use postern_tests::objects::{based, make, make_kubeconfig};
use postern_tests::prometheus::Prometheus;
use postern_tests::rights::{user, with_key};
use postern_tests::{Form, Home, Server, Setup, binary, wait};
use serde_json::json;
use tokio::task::JoinSet;

use crate::agent::scene::{Central, member, start_agent_with};
use crate::observe::scrape::{Metrics, until};

/// MiB of the small disk, and of the file that fills it: less than the 64 MiB that writes need are free then.
const DISK_MIB: u64 = 110;
const FILLER_MIB: u64 = 60;

/// Simultaneous requests of the owner that sends more than its share, and slots for all reads. One
/// owner has an eighth.
const REQUESTS_AT_ONCE: usize = 30;
const FEW_READS: &str = "--max-reads-in-flight=8";

const DISK_FULL: &str = "PosternDiskFull";

/// A program that mounts a separate small disk on the directory of the database, and then becomes
/// the server. No other process sees its mounts: outside, the directory is empty.
fn on_small_disk(home: &Home) -> PathBuf {
    let directory = home.data().join("db");
    let mut private = std::fs::DirBuilder::new();
    private.recursive(true).mode(0o700).create(&directory).unwrap();
    let path = home.path().join("on-small-disk");
    let script = format!(
        "#!/bin/sh
exec unshare --user --map-root-user --mount sh -c '
  mount -t tmpfs -o size={DISK_MIB}m,mode=700 tmpfs {} || exit 1
  exec {} \"$@\"' sh \"$@\"
",
        directory.display(),
        binary::path().display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// Whether this machine lets a process have private mounts. Some containers do not.
fn may_mount() -> bool {
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "x", "/mnt"]);
    let may = command.output().is_ok_and(|output| output.status.success());
    assert!(
        may || Form::of_this_run() == Form::Short,
        "this machine allows no mounts: unshare --user --mount"
    );
    may
}

async fn try_write(admin: &Client, name: &str) -> u16 {
    let namespace = json!({ "metadata": { "name": name } });
    admin.post(&based("/api/v1/namespaces")).json(&namespace).send().await.status
}

#[tokio::test]
async fn a_full_disk_is_seen() {
    if !may_mount() {
        eprintln!("skipped: this machine lets no process have mounts of its own");
        return;
    }
    let home = Home::new();
    let server = Setup::on(&home).program(on_small_disk(&home)).start().await;
    let admin = server.client();
    let prometheus = Prometheus::start(&home, server.kubeconfig(), None).await;
    assert_eq!(try_write(&admin, "before").await, 201);
    let before = Metrics::of(&admin).await;
    let reserve = before.value("postern_store_reserve_bytes");
    assert!(before.value("postern_store_free_bytes") > reserve);
    assert!(before.value("apiserver_storage_size_bytes") > 0.0);
    let failed = before.value("postern_store_failed_commits_total");

    // The server's own view of its disk.
    let root = Path::new("/proc").join(server.id().to_string()).join("root");
    let filler = root.join(home.data().join("db/filler").strip_prefix("/").unwrap());
    std::fs::write(&filler, vec![1; usize::try_from(FILLER_MIB << 20).unwrap()]).unwrap();
    assert_eq!(try_write(&admin, "full").await, 503);
    let full = Metrics::of(&admin).await;
    assert!(full.value("postern_store_free_bytes") < reserve);
    assert!(full.value("postern_store_failed_commits_total") > failed);
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing(DISK_FULL).await;
    }

    std::fs::remove_file(&filler).unwrap();
    assert_eq!(try_write(&admin, "after").await, 201, "without a restart");
    assert!(Metrics::of(&admin).await.value("postern_store_free_bytes") > reserve);
    if let Some(prometheus) = &prometheus {
        prometheus.until_quiet(DISK_FULL).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_cluster_that_is_down_is_seen() {
    let member = Server::start().await;
    let home = Home::new();
    let server = Setup::on(&home).argument("--allow-local-upstreams").start().await;
    let admin = server.client();
    let kubeconfig = std::fs::read_to_string(member.home().kubeconfig()).unwrap();
    make_kubeconfig(&admin, "platform", "member-kubeconfig", &kubeconfig).await;
    let config = json!({ "secretName": "member-kubeconfig", "secretNamespace": "platform" });
    make(&admin, "clusters", "member", json!({ "config": config })).await;
    let version = "/kubernetes/cluster/member/version";
    admin.get(version).send().await.expect(200);
    let prometheus = Prometheus::start(&home, server.kubeconfig(), None).await;
    let failures = "postern_gateway_failures_total";
    let by_kubeconfig = ["connection=\"kubeconfig\"", "phase=\"Ready\""];
    let is_ready = |metrics: &Metrics| metrics.sum("postern_clusters", &by_kubeconfig) == Some(1.0);
    let before = until("the cluster to be ready", &admin, is_ready).await;
    assert_eq!(before.sum(failures, &["reason=\"unreachable\""]), Some(0.0));

    member.stop().await;
    let reply = admin.get(version).send().await;
    assert!([502, 503].contains(&reply.status), "{}", reply.text());
    // The kept connection may have broken first.
    let reply = admin.get(version).send().await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let after = Metrics::of(&admin).await;
    assert!(after.sum(failures, &["reason=\"unreachable\""]) >= Some(1.0));
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing("PosternClusterUnreachable").await;
    }
}

/// Whether the owner with most requests has more than four times as many waiting as in flight, as the alert says it.
fn is_above_share(metrics: &Metrics) -> bool {
    let of = |state: &str| metrics.sum("postern_owner_requests", &["rank=\"1\"", state]);
    match (of("state=\"waiting\""), of("state=\"in_flight\"")) {
        (Some(waiting), Some(in_flight)) => waiting > 4.0 * in_flight,
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_above_the_share_is_seen() {
    let home = Home::new();
    let server = Setup::on(&home).argument(FEW_READS).start().await;
    let admin = server.client();
    let mallory = user(&admin, "mallory").await;
    let prometheus = Prometheus::start(&home, server.kubeconfig(), None).await;
    let before = Metrics::of(&admin).await;
    assert!(!is_above_share(&before));
    assert_eq!(before.sum("postern_requests_queued_total", &["readOnly"]), Some(0.0));

    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS_AT_ONCE {
        let mallory = mallory.clone();
        requests.spawn(async move {
            let mut connection = mallory.connect().await.unwrap();
            loop {
                let request = mallory.get(&based("/api/v1/namespaces"));
                drop(request.try_send_on(&mut connection).await);
            }
        });
    }
    let seen = until("one owner above its share", &admin, is_above_share).await;
    assert!(seen.sum("postern_requests_queued_total", &["readOnly"]) > Some(0.0));
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing("PosternOwnerAboveShare").await;
    }
    requests.shutdown().await;
    until("the requests to end", &admin, |metrics| !is_above_share(metrics)).await;
    if let Some(prometheus) = &prometheus {
        prometheus.until_quiet("PosternOwnerAboveShare").await;
    }
}

#[tokio::test]
async fn an_agent_that_is_disconnected_is_seen() {
    let (central, member, home) = (Central::new().await, member().await, Home::new());
    let agent = start_agent_with(&central, &member, &home, &["--metrics-listen=127.0.0.1:0"]).await;
    agent.ready().await;
    let admin = central.admin();
    let connected = |metrics: &Metrics| metrics.count("postern_agent_connected");
    let tunnels = |metrics: &Metrics| metrics.sum("postern_gateway_tunnels", &[]);
    let before = until("the agent to connect", &admin, |metrics| {
        connected(metrics) == 1 && tunnels(metrics) >= Some(1.0)
    });
    let before = before.await;
    let by_agent = before.sum("postern_clusters", &["connection=\"agent\""]);
    assert_eq!(by_agent, Some(1.0));
    let server = central.server.as_ref().unwrap().kubeconfig();
    let prometheus = Prometheus::start(&home, server, Some(&agent)).await;
    if let Some(prometheus) = &prometheus {
        prometheus.until_quiet("PosternAgentDisconnected").await;
    }

    central.relay.disconnect();
    until("the agent to be missed", &admin, |metrics| {
        connected(metrics) == 0 && tunnels(metrics) == Some(0.0)
    })
    .await;
    wait::until("the agent to notice it", async || {
        let age = Metrics::of_agent(&agent).await.value("postern_agent_feed_age_seconds");
        (age >= 2.0).then_some(())
    })
    .await;
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing("PosternAgentDisconnected").await;
    }
    central.reconnect();
    until("the agent to come back", &admin, |metrics| connected(metrics) == 1).await;
    if let Some(prometheus) = &prometheus {
        prometheus.until_quiet("PosternAgentDisconnected").await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_missing_keyring_is_seen() {
    let home = Home::new();
    let server = Setup::on(&home).start().await;
    let admin = server.client();
    let prometheus = Prometheus::start(&home, server.kubeconfig(), None).await;
    let readable = "postern_keyring_readable";
    assert_eq!(Metrics::of(&admin).await.count(readable), 1);
    assert_eq!(Metrics::of(&admin).await.count("postern_keyring_keys"), 1);
    let (keyring, aside) = (home.data().join("keys/seal.keys"), home.path().join("seal.keys"));

    std::fs::rename(&keyring, &aside).unwrap();
    assert_eq!(Metrics::of(&admin).await.count(readable), 0);
    assert_eq!(try_write(&admin, "with-the-keys-in-memory").await, 201);
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing("PosternKeyringUnreadable").await;
    }
    std::fs::copy(&aside, &keyring).unwrap();
    std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(Metrics::of(&admin).await.count(readable), 0, "others can read it");
    std::fs::set_permissions(&keyring, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(Metrics::of(&admin).await.count(readable), 1);

    // Without it, the next start ends at once.
    std::fs::remove_file(&keyring).unwrap();
    server.stop().await;
    let ended = Setup::on(&home).run_to_end().await;
    assert!(!ended.status.success());
    assert!(
        ended.stderr.contains("the keyring") && ended.stderr.contains("is missing"),
        "{ended:?}"
    );
    if let Some(prometheus) = &prometheus {
        prometheus.until_firing("PosternServerDown").await;
    }
}

/// The key of the page on monitoring can read only the metrics.
#[tokio::test]
async fn the_key_of_prometheus_reads_metrics_alone() {
    let server = Server::start().await;
    let admin = server.client();
    let scope = json!({ "rules": [{ "verbs": ["get"], "nonResourceURLs": ["/metrics"] }] });
    let spec = json!({ "user": "admin", "scope": scope });
    let prometheus = with_key(&admin, "prometheus", spec).await;
    prometheus.get("/metrics").send().await.expect_text(200);
    assert_eq!(prometheus.get(&based("/api/v1/namespaces")).send().await.status, 403);
    let raw = server.kubectl().ok(&["get", "--raw", "/metrics"]).await;
    assert!(raw.contains("postern_store_free_bytes"), "as the runbooks read it");
}
