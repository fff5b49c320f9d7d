//! The cost of limited permissions: GET with a scope, and lists of the objects that the caller may get.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::figure;
use crate::bench::Bench;
use crate::bench::load::Measurement;
use crate::bench::report::{Ratio, Rounds, Section, Wanted};
use crate::bench::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io";

const OURS: &str = "management.platform.sh";

/// The user that may read some objects by one role.
const ONE: &str = "one-binding";

/// The user that may read the same objects by many bindings, directly and through teams.
pub(crate) const MANY: &str = "many-bindings";

/// The teams that this user is in.
const TEAMS: usize = 50;

/// How many objects there are, how many of them a list has, and how many bindings give them.
pub(crate) struct Size {
    pub(crate) objects: u64,
    pub(crate) visible: usize,
    pub(crate) bindings: usize,
}

/// Measures GET with a scoped key next to the administrator's, and filtered lists.
pub(super) fn measure(bench: &Bench) -> Result<Section> {
    let size = bench.pick(
        Size { objects: 100_000, visible: 1000, bindings: 4000 },
        Size { objects: 5000, visible: 200, bindings: 400 },
    );
    let mut postern = bench.start_postern()?;
    bench.fill_postern(&mut postern, size.objects)?;
    make_callers(bench, &postern, &size)?;
    let mut section = Section::new(&[&postern], bench);
    measure_gets(bench, &mut postern, &size, &mut section)?;
    measure_lists(bench, &mut postern, &size, &mut section)?;
    section.notes.push(format!(
        "The namespace has {} objects, and each its owner's Role and RoleBinding. Both users may get the \
         same {} of them: one by one Role with their names, the other by {} Roles and RoleBindings, given \
         directly and through {TEAMS} teams. The scope of the key has one rule. What decisions and \
         changes of the policy cost without a server is measured by \
         `cargo bench -p postern-auth`.",
        size.objects, size.visible, size.bindings
    ));
    Ok(section)
}

/// Measures GET by name with the scoped key of an ordinary user, and with the administrator's.
fn measure_gets(
    bench: &Bench,
    postern: &mut Server,
    size: &Size,
    section: &mut Section,
) -> Result<()> {
    let objects = size.visible.to_string();
    let seconds = bench.pick("5", "2");
    let get = ["load get", "--prefix", "base", "--objects", &objects, "--seconds", seconds];
    let tokens = tokens_file(postern, "scoped").display().to_string();
    let scoped = [&get[..], &["--tokens-file", &tokens]].concat();
    let mut rounds = Rounds::default();
    for _ in 0..bench.pick(5, 2) {
        let ours = bench.measure(postern, &scoped)?;
        let admin = bench.measure(postern, &get)?;
        ensure!(ours.number("statuses.403") == 0.0, "the scoped key may not get its objects");
        rounds.add(&ours, &admin, Measurement::per_second);
        section.figures.push(figure("GET with a scoped key", "postern", &ours));
        section.figures.push(figure("GET as administrator", "postern", &admin));
    }
    let what = "GET by name at 32 connections with the scoped key of an ordinary user, requests a second \
                to the administrator's";
    section.ratios.push(rounds.ratio(what, Wanted::AtLeast(0.9)));
    Ok(())
}

/// Measures filtered lists: each has only the objects that its caller may get. Sends one at a time.
fn measure_lists(
    bench: &Bench,
    postern: &mut Server,
    size: &Size,
    section: &mut Section,
) -> Result<()> {
    let list = ["load list", "--connections", "1", "--seconds", bench.pick("5", "2")];
    let mut rounds = Rounds::default();
    let mut times = [("p50", Vec::new()), ("p99", Vec::new())];
    let tokens = |user| tokens_file(postern, user).display().to_string();
    let (by_one, by_many) = (tokens(ONE), tokens(MANY));
    for _ in 0..bench.pick(5, 2) {
        let one = bench.measure(postern, &[&list[..], &["--tokens-file", &by_one]].concat())?;
        let many = bench.measure(postern, &[&list[..], &["--tokens-file", &by_many]].concat())?;
        let same = one.text("body_bytes_average") == many.text("body_bytes_average");
        ensure!(same, "the two users do not see the same objects");
        for (at, milliseconds) in &mut times {
            milliseconds.push(one.number(&format!("latency_microseconds.{at}")) / 1000.0);
        }
        rounds.add(&many, &one, |measurement| measurement.number("latency_microseconds.mean"));
        section.figures.push(figure("filtered list by one binding", "postern", &one));
        section.figures.push(figure("filtered list by many bindings", "postern", &many));
    }
    for (at, milliseconds) in times {
        let Size { objects, visible, .. } = size;
        let what = format!("a list of {visible} visible among {objects} objects, {at}, ms");
        let wanted = Wanted::AtMost(20.0);
        section.ratios.push(Ratio::of_rounds(&what, wanted, milliseconds, None));
    }
    let what = format!(
        "the same list by {} bindings, directly and through {TEAMS} teams, time to that by one binding",
        size.bindings
    );
    section.ratios.push(rounds.ratio(&what, Wanted::AtMost(1.5)));
    Ok(())
}

/// Makes both users with their rights, and files with their tokens for the load program.
pub(crate) fn make_callers(bench: &Bench, postern: &Server, size: &Size) -> Result<()> {
    let mut objects: Vec<Value> = [ONE, MANY].map(|name| ours("User", name, &json!({}))).into();
    let team = |number| ours("Team", &format!("t{number}"), &json!({"users": [MANY]}));
    objects.extend((0..TEAMS).map(team));
    let names: Vec<String> = (0..size.visible).map(object_name).collect();
    objects.extend(grant("bench-all", &names, ("User", ONE)));
    for number in 0..size.bindings {
        let team = number % (TEAMS + 1);
        let group = format!("platform:team:t{team}");
        let subject = if team == TEAMS { ("User", MANY) } else { ("Group", group.as_str()) };
        let names = [object_name(number % size.visible)];
        objects.extend(grant(&format!("bench-{number}"), &names, subject));
    }
    create_all(bench, postern, &objects)?;
    let scope = postern.path("scope.json");
    let rule = json!({
        "verbs": ["get", "list"],
        "resources": [{"group": OURS, "resources": ["sharedsecrets"]}],
        "namespaces": ["platform"],
        "requestTargets": ["Management"],
    });
    std::fs::write(&scope, json!({"rules": [rule]}).to_string())?;
    let scope = scope.display().to_string();
    for (key, user, flags) in [
        (ONE, ONE, &[][..]),
        (MANY, MANY, &[][..]),
        ("scoped", ONE, &["--scope-file", scope.as_str()][..]),
    ] {
        let create = [&["create", "accesskey", key, "--user", user][..], flags].concat();
        let token = bench.postern_cli(postern, &create)?;
        std::fs::write(tokens_file(postern, key), token)?;
    }
    Ok(())
}

/// The file with the token of a key: [`ONE`], [`MANY`], or `scoped`.
pub(crate) fn tokens_file(postern: &Server, key: &str) -> PathBuf {
    postern.path(&format!("{key}.tokens"))
}

/// The name that the load program gives to an object.
fn object_name(number: usize) -> String {
    format!("base-{number:08}")
}

fn ours(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{OURS}/v1"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// A Role to read these objects, and its RoleBinding.
fn grant(name: &str, objects: &[String], (kind, subject): (&str, &str)) -> [Value; 2] {
    let api_version = format!("{RBAC}/v1");
    let metadata = json!({"name": name, "namespace": "platform"});
    let rule = json!({
        "verbs": ["get", "list", "watch"],
        "apiGroups": [OURS],
        "resources": ["sharedsecrets"],
        "resourceNames": objects,
    });
    [
        json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": [rule]}),
        json!({
            "apiVersion": api_version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}],
        }),
    ]
}

/// Creates objects from one file.
fn create_all(bench: &Bench, postern: &Server, objects: &[Value]) -> Result<()> {
    let mut text = String::new();
    for object in objects {
        writeln!(text, "---\n{object}")?;
    }
    let file = postern.path("callers.yaml");
    std::fs::write(&file, text)?;
    bench.postern_cli(postern, &["create", "-f", &file.display().to_string()])?;
    Ok(())
}
