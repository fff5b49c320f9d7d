//! The units of systemd: their exposure, their syntax, and the permissions of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use postern_tests::kubectl::repository;
use postern_tests::objects::{secret, secrets};
use postern_tests::{Home, Setup, binary};

/// The units.
pub(crate) const UNITS: [&str; 2] = ["postern.service", "postern-agent.service"];

/// The most that a unit may expose, in tenths, of 10.
const MAX_EXPOSURE: u32 = 15;

/// The path of a file for systemd.
pub(crate) fn file(name: &str) -> PathBuf {
    repository().join("deploy/systemd").join(name)
}

/// The values of each setting of a unit, in their order.
pub(crate) fn settings(unit: &str) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(file(unit)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for (key, value) in lines.filter_map(|line| line.split_once('=')) {
        found.entry(key.to_owned()).or_default().push(value.to_owned());
    }
    found
}

/// The output of a test that has nothing to check.
const SKIPPED: &str = "skipped: this machine has no such program of systemd";

/// Runs a program of systemd, if it is there.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env("SYSTEMD_COLORS", "0").env("SYSTEMD_PAGER", "");
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{program}: {error}"),
    }
}

fn text(output: &Output) -> String {
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8(all).unwrap()
}

#[test]
fn a_unit_exposes_little() {
    for unit in UNITS {
        let (path, limit) = (file(unit), format!("--threshold={MAX_EXPOSURE}"));
        let words = ["security", "--offline=true", &limit, path.to_str().unwrap()];
        let Some(output) = run("systemd-analyze", &words) else {
            println!("{SKIPPED}");
            return;
        };
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        let line = said.lines().find(|line| line.contains("Overall exposure level")).unwrap();
        println!("{line}");
        // The threshold of a program that does not know the unit would not fail.
        let level = line.rsplit(": ").next().unwrap().split(' ').next().unwrap();
        let tenths: u32 = level.replace('.', "").parse().unwrap();
        assert!((1..=MAX_EXPOSURE).contains(&tenths), "{line}");
    }
}

#[test]
fn systemd_understands_each_line_of_a_unit() {
    for unit in UNITS {
        // The program is at its place on a machine where the package is installed.
        let home = tempfile::tempdir().unwrap();
        let copy = home.path().join(unit);
        let unit_text = std::fs::read_to_string(file(unit)).unwrap();
        std::fs::write(&copy, unit_text.replace("/usr/bin/postern", "/bin/true")).unwrap();
        let Some(output) = run("systemd-analyze", &["verify", copy.to_str().unwrap()]) else {
            println!("{SKIPPED}");
            return;
        };
        assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
        std::fs::write(&copy, unit_text.replace("Restart=on-failure", "Restrat=on-failure"))
            .unwrap();
        let output = run("systemd-analyze", &["verify", copy.to_str().unwrap()]).unwrap();
        assert!(text(&output).contains("Restrat"), "the check finds mistakes: {}", text(&output));
    }
}

#[test]
fn the_users_and_the_directories_of_the_units_are_made() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("etc")).unwrap();
    let root = format!("--root={}", home.path().display());
    let users = file("sysusers.d/postern.conf");
    let Some(output) = run("systemd-sysusers", &[&root, users.to_str().unwrap()]) else {
        println!("{SKIPPED}");
        return;
    };
    assert!(output.status.success(), "{}", text(&output));
    let made = std::fs::read_to_string(home.path().join("etc/passwd")).unwrap();
    let directories = std::fs::read_to_string(file("tmpfiles.d/postern.conf")).unwrap();
    for unit in UNITS {
        let settings = settings(unit);
        let user = &settings["User"][0];
        assert!(made.lines().any(|line| line.starts_with(&format!("{user}:"))), "{made}");
        for directory in settings["StateDirectory"][0].split(' ') {
            let words = ["d", &format!("/var/lib/{directory}"), "0700", user, user, "-"];
            let has = |line: &str| line.split_whitespace().eq(words);
            assert!(directories.lines().any(has), "{directory} of {unit}: {directories}");
        }
    }
}

#[test]
fn the_paths_in_the_units_and_in_the_settings_agree() {
    let server = settings("postern.service");
    let shipped = std::fs::read_to_string(file("postern.yaml")).unwrap();
    let shipped: serde_json::Value = serde_saphyr::from_str(&shipped).unwrap();
    let state: Vec<_> =
        server["StateDirectory"][0].split(' ').map(|name| format!("/var/lib/{name}")).collect();
    assert_eq!(
        state,
        [&shipped["data-dir"], &shipped["key-dir"]].map(|path| path.as_str().unwrap())
    );
    let config = &server["ConditionPathExists"][0];
    assert_eq!(server["ExecStart"], [format!("/usr/bin/postern serve --config {config}")]);
    assert_eq!(server["EnvironmentFile"], ["-/etc/postern/postern.env"]);
    let agent = settings("postern-agent.service");
    assert_eq!(agent["EnvironmentFile"], agent["ConditionPathExists"]);
    let names: Vec<_> =
        agent["Environment"].iter().map(|one| one.split('=').next().unwrap()).collect();
    let known = super::pages::agent_variables();
    for name in names {
        assert!(known.contains(name), "{name} is a variable of the agent");
    }
}

/// The system calls of a group, and of the groups in it.
fn calls_of(group: &str) -> Option<BTreeSet<String>> {
    let output = run("systemd-analyze", &["syscall-filter", group])?;
    assert!(output.status.success(), "{}", text(&output));
    let mut calls = BTreeSet::new();
    let listed = text(&output);
    for name in listed.lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#')) {
        if name.starts_with('@') {
            calls.extend(calls_of(name)?);
        } else if !name.is_empty() {
            calls.insert(name.to_owned());
        }
    }
    Some(calls)
}

/// The system calls that a unit allows: each line of its filter adds some, or takes some away.
fn allowed_calls(unit: &str) -> Option<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    for line in &settings(unit)["SystemCallFilter"] {
        let (takes_away, names) =
            line.strip_prefix('~').map_or((false, line.as_str()), |rest| (true, rest));
        for name in names.split(' ') {
            let calls =
                if name.starts_with('@') { calls_of(name)? } else { [name.to_owned()].into() };
            if takes_away {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    Some(allowed)
}

/// The server runs under strace, from its first start to its end. A call that its unit refuses would fail only on the
/// machine of a user.
#[tokio::test]
async fn the_unit_of_the_server_allows_every_call_that_the_server_makes() {
    let allowed = allowed_calls("postern.service");
    let has_strace = Command::new("strace").arg("--version").output().is_ok();
    let Some(allowed) = allowed.filter(|_| has_strace) else {
        println!("skipped: this machine has no strace, or no systemd-analyze");
        return;
    };
    let home = Home::new();
    let (program, traced) = (home.path().join("traced"), home.path().join("calls"));
    // The tracer is the child, so that signals reach the server.
    let script = format!(
        "#!/bin/sh\nexec strace -D -f -o '{}' '{}' \"$@\"\n",
        traced.display(),
        binary::path().display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Setup::on(&home).program(program).start().await;
    let admin = server.client();
    admin.post(&secrets("platform")).json(&secret("s1", "v")).send().await.expect(201);
    admin.get("/metrics").send().await;
    server.stop().await;
    let traced = std::fs::read_to_string(traced).unwrap();
    // `PID name(arguments) = result`
    let names = traced.lines().filter_map(|line| line.split_once(' ')?.1.trim().split_once('('));
    let is_name =
        |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let made: BTreeSet<&str> = names.map(|(name, _)| name).filter(is_name).collect();
    assert!(made.contains("accept4") && made.contains("fdatasync"), "{made:?}");
    let refused: Vec<_> = made.iter().filter(|name| !allowed.contains(**name)).collect();
    assert!(refused.is_empty(), "the unit refuses {refused:?}");
}
