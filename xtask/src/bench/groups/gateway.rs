//! The cost of the way to a connected cluster: through the gateway, and through the cluster's
//! agent, each next to nginx in front of the same cluster.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::figure;
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::nginx::Proxied;
use crate::bench::postern::{BODY_BYTES, CA, COLLECTION};
use crate::bench::report::{Ratio, Rounds, Section, Wanted};
use crate::bench::server::KUBECONFIG;
use crate::bench::server::{Server, directory, free_port, spawn};

const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Objects of the cluster that are read.
const OBJECTS: &str = "1000";

/// The path of the objects, below the path of a target: for the cluster, that is the server's own
/// base path.
const SECRETS: &str = "/apis/management.platform.sh/v1/namespaces/platform/sharedsecrets";

/// The file with the credential of the user.
const TOKENS: &str = "ada.token";

/// Arguments of the central server.
pub(crate) const CENTRAL: [&str; 3] =
    ["--allow-local-upstreams", "--external-url", "https://postern.test"];

/// The identity that the cluster sees, from each server that forwards requests.
const USER: &str = "ada";
const GROUPS: [&str; 4] =
    ["platform:user:ada", "platform:user:*", "platform:authenticated", "system:authenticated"];

const MB: f64 = 1_000_000.0;

/// The ways to one cluster.
struct Ways {
    /// The cluster itself.
    cluster: Server,
    nginx: Server,
    gateway: Server,
    agent: Server,
}

/// Measures GET on each way, and watches through the agent.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut ways = Ways::open(bench)?;
    let Ways { cluster, nginx, gateway, agent } = &ways;
    let mut section = Section::new(&[cluster, nginx, gateway, agent], bench);
    measure_gets(bench, &mut ways, &mut section)?;
    measure_memory(bench, &mut ways.agent, &mut section)?;
    measure_get_next_to_watches(bench, &mut ways.agent, &mut section)?;
    section.notes.push(
        "The cluster is another server of ours. nginx has one worker, TLS on both sides, connections to the \
         cluster that stay open, and no access log. It sends the same identity as the gateway and the agent. \
         These two authenticate, decide and audit each request. `cargo bench -p postern-auth` measures what \
         the verification of a token costs."
            .to_owned(),
    );
    Ok(section)
}

fn measure_gets(bench: &Bench, ways: &mut Ways, section: &mut Section) -> Result<()> {
    let seconds = bench.pick("5", "2");
    let get = ["load get", "--prefix", "base", "--objects", OBJECTS, "--seconds", seconds];
    let alone = [&get[..], &["--connections", "1"]].concat();
    for (name, pick) in [
        ("gateway", (|ways| &mut ways.gateway) as fn(&mut Ways) -> &mut Server),
        ("agent", |ways| &mut ways.agent),
    ] {
        let (mut rate, mut added) = (Rounds::default(), Vec::new());
        for _ in 0..bench.pick(5, 2) {
            let ours = bench.measure(pick(ways), &get)?;
            let theirs = bench.measure(&mut ways.nginx, &get)?;
            for one in [&ours, &theirs] {
                ensure!(one.number("statuses.200") > 0.0, "the objects could not be read");
            }
            rate.add(&ours, &theirs, Measurement::per_second);
            section.figures.push(figure("GET over 32 connections", name, &ours));
            section.figures.push(figure("GET over 32 connections", "nginx", &theirs));
            let direct = bench.measure(&mut ways.cluster, &alone)?;
            let through = bench.measure(pick(ways), &alone)?;
            let p50 = |one: &Measurement| one.number("latency_microseconds.p50");
            added.push(p50(&through) - p50(&direct));
        }
        let what = format!("GET through the {name}, requests a second to those through nginx");
        section.ratios.push(rate.ratio(&what, Wanted::AtLeast(0.7)));
        let what = format!("what the {name} adds to a GET at the median, one at a time, µs");
        section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(150.0), added, None));
    }
    Ok(())
}

/// Measures the memory of the agent with many watches.
fn measure_memory(bench: &Bench, agent: &mut Server, section: &mut Section) -> Result<()> {
    let stat = ["stat", "--pids", &agent.pids()].map(str::to_owned);
    let idle = bench.run_load(&stat)?.number("rss_kib") * 1024.0 / MB;
    let watchers = bench.pick("1000", "100");
    let watch =
        ["watch", "--watchers", watchers, "--events", "5", "--rate", "5", "--prefix", "{run}"];
    let measurement = bench.once(agent, &watch)?;
    let with_watchers = measurement.number("rss_kib_with_watchers") * 1024.0 / MB;
    ensure!(
        measurement.text("events") == measurement.text("events_expected"),
        "events are missing"
    );
    let what = format!("{watchers} watches through the agent, memory beyond that of before, MB");
    let beyond = vec![with_watchers - idle];
    section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(64.0), beyond, None));
    Ok(())
}

/// Measures one GET at a time alone, and next to many open watches of the same cluster.
fn measure_get_next_to_watches(
    bench: &Bench,
    agent: &mut Server,
    section: &mut Section,
) -> Result<()> {
    let get = [
        "load get",
        "--prefix",
        "base",
        "--objects",
        OBJECTS,
        "--seconds",
        "3",
        "--connections",
        "1",
    ];
    let watchers = bench.pick("300", "30");
    // Few events: it is the open watches that count.
    let watch = [
        "watch",
        "--watchers",
        watchers,
        "--events",
        "8",
        "--rate",
        "1",
        "--prefix",
        "next-to",
        "--path",
        &agent.collection.clone(),
    ];
    let words: Vec<String> =
        watch.iter().map(|word| (*word).to_owned()).chain(agent.access.iter().cloned()).collect();
    let alone = bench.once(agent, &get)?;
    let next_to = std::thread::scope(|scope| {
        let watching = scope.spawn(|| bench.run_load(&words));
        bench.stop.sleep(Duration::from_secs(2))?;
        let next_to = bench.once(agent, &get)?;
        watching.join().map_err(|_| anyhow::anyhow!("the watchers panicked"))??;
        Ok::<_, anyhow::Error>(next_to)
    })?;
    let mut rounds = Rounds::default();
    rounds.add(&next_to, &alone, |one| one.number("latency_microseconds.p50"));
    section.figures.push(figure("GET alone", "agent", &alone));
    section.figures.push(figure("GET next to watches", "agent", &next_to));
    let what = format!("GET next to {watchers} watches through one upstream, median to that alone");
    section.ratios.push(rounds.ratio(&what, Wanted::AtMost(1.2)));
    Ok(())
}

impl Ways {
    fn open(bench: &Bench) -> Result<Self> {
        let mut cluster = bench.start_postern_unaudited()?;
        let fill = ["load create", "--prefix", "base", "--body-bytes", BODY_BYTES];
        bench.once(&mut cluster, &[&fill[..], &["--count", OBJECTS]].concat())?;
        create(bench, &cluster, &may("sharedsecrets", &["get", "list", "watch", "create"]))?;
        let central = bench.start_postern_with(&CENTRAL.map(str::to_owned))?;
        // The gateway goes by this kubeconfig, and not through the agent.
        let upstream = cluster.path(KUBECONFIG);
        let keys = connect(bench, &central, &upstream)?;
        let program = (Command::new(&bench.postern), directory()?);
        let agent = start_agent(bench, program, &central, &upstream, &keys)?;
        let gateway = as_gateway(bench, central)?;
        let nginx = start_nginx(bench, &cluster)?;
        let mut ways = Self { cluster, nginx, gateway, agent };
        for way in [&mut ways.nginx, &mut ways.gateway, &mut ways.agent] {
            way.upstream = ways.cluster.pids();
        }
        Ok(ways)
    }
}

/// The keys of the users of a connected cluster.
pub(crate) struct Keys {
    /// The key of the cluster's agent.
    pub(crate) agent: String,
    /// The key of the user with the right to use the cluster.
    pub(crate) user: String,
}

/// Connects the cluster `member` by its kubeconfig, and makes a user with the right to use it.
pub(crate) fn connect(bench: &Bench, central: &Server, kubeconfig: &Path) -> Result<Keys> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "member", "namespace": "platform"},
        "stringData": {"config": std::fs::read_to_string(kubeconfig)?},
    });
    create(bench, central, &[secret])?;
    let of_cluster = ["create", "cluster", "member", "--kubeconfig-secret", "platform/member"];
    let agent = bench.postern_cli(central, &of_cluster)?;
    let user = give_access(bench, central)?;
    Ok(Keys { agent, user })
}

/// Makes a user with the right to use clusters. The result is the key of that user.
pub(super) fn give_access(bench: &Bench, central: &Server) -> Result<String> {
    bench.postern_cli(central, &["create", "user", USER])?;
    let user = bench.postern_cli(central, &["create", "accesskey", "ada", "--user", USER])?;
    std::fs::write(central.path(TOKENS), &user)?;
    create(bench, central, &may("clusters", &["use"]))?;
    Ok(user)
}

/// The central server as the gateway that the user goes through.
pub(crate) fn as_gateway(bench: &Bench, mut central: Server) -> Result<Server> {
    central.name = "gateway";
    let (base, ca) = (central.address()?, central.path(CA).display().to_string());
    let token = central.path(TOKENS).display().to_string();
    let access = ["--base", &base, "--ca", &ca, "--token-file", &token];
    central.access = access.map(str::to_owned).to_vec();
    central.collection = format!("/kubernetes/cluster/member{SECRETS}");
    let list = format!("{}?limit=1", central.collection);
    bench.wait_until_ok(&mut central, &list, READY_TIMEOUT)?;
    Ok(central)
}

/// Starts the agent of the cluster, as a process of the command in the directory. Its caller has a token for it.
pub(crate) fn start_agent(
    bench: &Bench,
    (mut command, dir): (Command, TempDir),
    central: &Server,
    upstream: &Path,
    keys: &Keys,
) -> Result<Server> {
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("key"), &keys.agent)?;
    let (server, ca) = (central.address()?, central.path(CA));
    let port = free_port()?;
    command.args(["agent", "--cluster", "member", "--log", "warn", "--server", &server]);
    command.arg("--ca-file").arg(&ca).arg("--key-file").arg(at("key"));
    command.arg("--upstream").arg(upstream);
    command.arg("--listen").arg(format!("127.0.0.1:{port}")).arg("--state-dir").arg(at("state"));
    let child = spawn(&mut command, &dir)?;
    let mut agent = Server::new("agent", child, dir);
    let ca = ca.display().to_string();
    let of_caller = ["--server", &server, "--ca-file", &ca, "--access-key", &keys.user];
    let token = [&["token", "--ttl", "10h"][..], &of_caller].concat();
    std::fs::write(agent.path(TOKENS), bench.postern_cli(central, &token)?)?;
    let (ca, tokens) = (agent.path("state/ca.pem"), agent.path(TOKENS));
    let (ca, tokens) = (ca.display().to_string(), tokens.display().to_string());
    let base = format!("https://127.0.0.1:{port}");
    let access = ["--base", &base, "--ca", &ca, "--token-file", &tokens];
    agent.access = access.map(str::to_owned).to_vec();
    agent.collection = format!("/kubernetes/cluster{SECRETS}");
    let list = format!("{}?limit=1", agent.collection);
    bench.wait_until_ok(&mut agent, &list, READY_TIMEOUT)?;
    Ok(agent)
}

/// Starts nginx in front of the cluster, with the same identity as the gateway sends.
pub(super) fn start_nginx(bench: &Bench, cluster: &Server) -> Result<Server> {
    let token = cluster.token()?;
    let identity = GROUPS.iter().map(|group| ("Impersonate-Group", (*group).to_owned()));
    let headers =
        [("Authorization", format!("Bearer {token}")), ("Impersonate-User", USER.to_owned())];
    let mut nginx = bench.start_proxying_nginx(&Proxied {
        address: cluster.address()?,
        ca: cluster.path(CA),
        headers: headers.into_iter().chain(identity).collect(),
    })?;
    COLLECTION.clone_into(&mut nginx.collection);
    let list = format!("{COLLECTION}?limit=1");
    bench.wait_until_ok(&mut nginx, &list, READY_TIMEOUT)?;
    nginx.find_helpers()?;
    Ok(nginx)
}

/// A role and its binding to the user.
pub(super) fn may(resource: &str, verbs: &[&str]) -> [Value; 2] {
    let rbac = "rbac.authorization.k8s.io";
    let (version, metadata) = (format!("{rbac}/v1"), json!({"name": "bench"}));
    let rule = json!({
        "verbs": verbs, "apiGroups": ["management.platform.sh"], "resources": [resource],
    });
    [
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": [rule],
        }),
        json!({
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "bench"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": GROUPS[0]}],
        }),
    ]
}

/// Creates objects with kubectl, because postern itself creates no Secrets.
pub(super) fn create(bench: &Bench, server: &Server, objects: &[Value]) -> Result<()> {
    let file = server.path("objects.json");
    std::fs::write(
        &file,
        json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
    )?;
    let mut command = Command::new(crate::fetch::kubectl(&bench.root)?);
    command.arg("--kubeconfig").arg(server.path(KUBECONFIG)).args(["create", "-f"]).arg(&file);
    let output = command.arg("--cache-dir").arg(server.path("kubectl")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
