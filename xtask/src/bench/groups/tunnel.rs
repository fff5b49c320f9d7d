//! The cost of the way to a cluster through the tunnels of its agent, next to nginx in front of the
//! same cluster. In addition, the cost of tunnels without work.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::figure;
use super::gateway::{
    CENTRAL, Keys, as_gateway, create, give_access, may, start_agent, start_nginx,
};
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::postern::BODY_BYTES;
use crate::bench::report::{Figure, Ratio, Rounds, Section, Wanted};
use crate::bench::server::KUBECONFIG;
use crate::bench::server::{Server, directory, spawn};

/// Objects of the cluster that are read.
const OBJECTS: &str = "1000";

/// The path of a workload behind a cluster. Its last segment is a number of bytes.
const BULK: &str = "/api/v1/namespaces/default/pods/p/proxy/";

const MB: f64 = 1_000_000.0;

/// Clusters with agents that do nothing.
const IDLE_CLUSTERS: usize = 200;

/// A central server, and the agent with tunnels to it.
struct Ways {
    gateway: Server,
    agent: Server,
}

/// Measures requests, long bodies and watches through tunnels, and idle tunnels.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let mut cluster = bench.start_postern_unaudited()?;
    let fill = ["load create", "--prefix", "base", "--body-bytes", BODY_BYTES];
    bench.once(&mut cluster, &[&fill[..], &["--count", OBJECTS]].concat())?;
    create(bench, &cluster, &may("sharedsecrets", &["get", "list", "watch", "create"]))?;
    let mut nginx = start_nginx(bench, &cluster)?;
    let mut ways = behind(bench, &cluster.path(KUBECONFIG))?;
    let upstreams = format!("{},{}", cluster.pids(), ways.agent.pids());
    for way in [&mut nginx, &mut ways.gateway] {
        way.upstream.clone_from(&upstreams);
    }
    let mut section = Section::new(&[&cluster, &nginx, &ways.gateway, &ways.agent], bench);
    measure_gets(bench, &mut ways.gateway, &mut nginx, &mut cluster, &mut section)?;
    drop(nginx);
    measure_watches(bench, &cluster, &mut section)?;
    drop((ways, cluster));
    measure_bulk(bench, &mut section)?;
    measure_idle(bench, &mut section)?;
    section.notes.push(
        "The agent listens for the direct way, and has tunnels to the central server. Only these lead from the server \
         to the cluster. nginx is that of the section before. Idle agents are connections of the load program: each \
         cluster has two watches of its configuration, and its tunnels."
            .to_owned(),
    );
    Ok(section)
}

/// A central server with a way through tunnels to the cluster of this kubeconfig, and the agent
/// itself.
fn behind(bench: &Bench, kubeconfig: &std::path::Path) -> Result<Ways> {
    // With the watches of one owner, there are writes of the same owner.
    let settings = CENTRAL.iter().chain(&["--max-watches-per-owner", "1100"]);
    let central =
        bench.start_postern_with(&settings.map(|one| (*one).to_owned()).collect::<Vec<_>>())?;
    let agent = bench.postern_cli(&central, &["create", "cluster", "member"])?;
    let user = give_access(bench, &central)?;
    let program = (Command::new(&bench.postern), directory()?);
    let agent = start_agent(bench, program, &central, kubeconfig, &Keys { agent, user })?;
    let mut gateway = as_gateway(bench, central)?;
    gateway.name = "tunnel";
    Ok(Ways { gateway, agent })
}

fn measure_gets(
    bench: &Bench,
    tunnel: &mut Server,
    nginx: &mut Server,
    cluster: &mut Server,
    section: &mut Section,
) -> Result<()> {
    let seconds = bench.pick("5", "2");
    let get = ["load get", "--prefix", "base", "--objects", OBJECTS, "--seconds", seconds];
    let alone = [&get[..], &["--connections", "1"]].concat();
    let (mut rate, mut added) = (Rounds::default(), Vec::new());
    for _ in 0..bench.pick(5, 2) {
        let ours = bench.measure(tunnel, &get)?;
        let theirs = bench.measure(nginx, &get)?;
        ensure!(ours.number("statuses.200") > 0.0, "the objects could not be read");
        rate.add(&ours, &theirs, Measurement::per_second);
        section.figures.push(figure("GET over 32 connections", "tunnel", &ours));
        section.figures.push(figure("GET over 32 connections", "nginx", &theirs));
        let direct = bench.measure(cluster, &alone)?;
        let through = bench.measure(tunnel, &alone)?;
        let p50 = |one: &Measurement| one.number("latency_microseconds.p50");
        added.push(p50(&through) - p50(&direct));
    }
    let what = "GET through a tunnel, requests a second to those through nginx";
    section.ratios.push(rate.ratio(what, Wanted::AtLeast(0.6)));
    let what = "what the tunnel adds to a GET at the median, one at a time, µs";
    section.ratios.push(Ratio::of_rounds(what, Wanted::AtMost(250.0), added, None));
    Ok(())
}

/// Measures the memory of both ends with many watches. Each end is a new process, because a process
/// does not give used memory back to the system.
fn measure_watches(bench: &Bench, cluster: &Server, section: &mut Section) -> Result<()> {
    let watchers = bench.pick("1000", "100");
    for end in ["server", "agent"] {
        let ways = behind(bench, &cluster.path(KUBECONFIG))?;
        let pids = if end == "server" { ways.gateway.pids() } else { ways.agent.pids() };
        let memory = |name: &str, one: &Measurement| one.number(name) * 1024.0 / MB;
        let stat = bench.run_load(&["stat", "--pids", &pids].map(str::to_owned))?;
        let watch = ["watch", "--watchers", watchers, "--events", "5", "--rate", "5"];
        let more = ["--prefix", end, "--pids", &pids, "--path", &ways.gateway.collection];
        let watch = watch.iter().chain(&more).map(|word| (*word).to_owned());
        let watch: Vec<_> = watch.chain(ways.gateway.access.iter().cloned()).collect();
        let watched = bench.run_load(&watch)?;
        ensure!(watched.text("events") == watched.text("events_expected"), "events are missing");
        let beyond = memory("rss_kib_with_watchers", &watched) - memory("rss_kib", &stat);
        let what = format!(
            "{watchers} watches through tunnels, memory of the {end} beyond that of before, MB"
        );
        section.ratios.push(Ratio::of_rounds(&what, Wanted::AtMost(96.0), vec![beyond], None));
    }
    Ok(())
}

/// Measures a long body both ways, through a tunnel and through the agent's own listener.
fn measure_bulk(bench: &Bench, section: &mut Section) -> Result<()> {
    let dir = directory()?;
    let mut command = Command::new(&bench.load);
    command.args(["bulk-server", "--seconds", "1800", "--dir"]).arg(dir.path());
    let child = spawn(&mut command, &dir)?;
    let workload = Server::new("workload", child, dir);
    bench.stop.wait_for("the workload", std::time::Duration::from_secs(10), || {
        Ok(workload.path("address").exists())
    })?;
    let mut ways = behind(bench, &workload.path("kubeconfig"))?;
    let bytes = bench.pick("1073741824", "67108864");
    for (direction, flag) in [("down", None), ("up", Some("--up"))] {
        let mut rates = Vec::new();
        for _ in 0..bench.pick(3, 1) {
            let mut rate = |server: &mut Server, at: &str| {
                let path = format!("{at}{BULK}");
                let words = ["bulk", "--path", &path, "--bytes", bytes];
                let words: Vec<&str> = words.into_iter().chain(flag).collect();
                let measured = bench.once(server, &words)?;
                let rate = measured.number("megabytes_per_second");
                section.figures.push(Figure {
                    run: format!("a body of {bytes} bytes {direction}"),
                    server: server.name.to_owned(),
                    values: vec![format!("{rate:.0} MB/s")],
                });
                Ok::<_, anyhow::Error>(rate)
            };
            let through = rate(&mut ways.gateway, "/kubernetes/cluster/member")?;
            let direct = rate(&mut ways.agent, "/kubernetes/cluster")?;
            rates.push(through / direct.max(0.001));
        }
        let what = format!(
            "1 GiB {direction} through a tunnel, bytes a second to those at the agent's endpoint"
        );
        section.ratios.push(Ratio::of_rounds(&what, Wanted::AtLeast(0.5), rates, None));
    }
    Ok(())
}

/// Measures the server while agents wait.
fn measure_idle(bench: &Bench, section: &mut Section) -> Result<()> {
    let server = bench.start_postern()?;
    let count = bench.pick(IDLE_CLUSTERS, 20);
    let mut agents = String::new();
    for number in 0..count {
        let name = format!("idle-{number}");
        let key = bench.postern_cli(&server, &["create", "cluster", &name])?;
        writeln!(agents, "{name} {}", key.trim()).context("a String takes all")?;
    }
    let file = server.path("agents");
    std::fs::write(&file, agents)?;
    let file = file.display().to_string();
    let idle = |each: &str| {
        let words = ["tunnels", "--agents", &file, "--each", each, "--pids", &server.pids()];
        let words = words.map(str::to_owned).into_iter().chain(server.access.iter().cloned());
        bench.run_load(&words.collect::<Vec<_>>())
    };
    let two = idle("2")?;
    let memory =
        format!("{count} clusters with two idle tunnels each, memory beyond that of before, MB");
    section.ratios.push(Ratio::of_rounds(
        &memory,
        Wanted::AtMost(64.0),
        vec![two.number("beyond_mb")],
        None,
    ));
    let share = format!("{count} clusters with two idle tunnels each, percent of a core");
    section.ratios.push(Ratio::of_rounds(
        &share,
        Wanted::AtMost(1.0),
        vec![two.number("core_percent")],
        None,
    ));
    let ten = idle("10")?;
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let wanted = (count * 10) as f64;
    let what = format!("tunnels of {} that are open after a minute", count * 10);
    section.ratios.push(Ratio::of_rounds(
        &what,
        Wanted::AtLeast(wanted),
        vec![ten.number("held")],
        None,
    ));
    section.figures.push(Figure {
        run: format!("{} idle tunnels", count * 10),
        server: "postern".to_owned(),
        values: vec![
            format!("{:.1} MB beyond that of before", ten.number("beyond_mb")),
            format!("{:.2} % of a core", ten.number("core_percent")),
        ],
    });
    Ok(())
}
