//! The Debian package, as its manifest and its scripts describe it. `every_artefact/debian.rs` makes it and unpacks it.

use std::path::PathBuf;
use std::process::Command;

use postern_tests::kubectl::repository;
use serde_json::Value;

use super::systemd::{UNITS, settings};

/// The section of the manifest, as JSON: the part of TOML that it uses is close enough.
fn manifest() -> String {
    let text = std::fs::read_to_string(repository().join("crates/postern/Cargo.toml")).unwrap();
    let (_, section) = text.split_once("[package.metadata.deb]\n").unwrap();
    section.split("\n[").next().unwrap().to_owned()
}

/// The files of the package: the source, the destination, and the mode.
fn assets() -> Vec<(String, String, String)> {
    let manifest = manifest();
    let (_, list) = manifest.split_once("assets = [\n").unwrap();
    let rows = list.lines().take_while(|line| *line != "]");
    rows.map(|row| {
        let row: Value = serde_json::from_str(row.trim().trim_end_matches(',')).unwrap();
        let of = |index: usize| row[index].as_str().unwrap().to_owned();
        (of(0), of(1), of(2))
    })
    .collect()
}

/// Where a file is installed.
fn destination((source, destination, _): &(String, String, String)) -> PathBuf {
    let directory = destination.strip_suffix('/');
    let name = source.rsplit('/').next().unwrap();
    directory.map_or_else(
        || PathBuf::from("/").join(destination),
        |directory| PathBuf::from("/").join(directory).join(name),
    )
}

#[test]
fn each_file_of_the_package_exists_or_is_made_by_the_build() {
    for (source, destination, mode) in assets() {
        let mode_for_programs = if destination == "usr/bin/" { "755" } else { "644" };
        assert_eq!(mode, mode_for_programs, "{source}");
        if source.starts_with("target/") {
            continue;
        }
        let path = repository().join("crates/postern").join(&source);
        assert!(path.is_file(), "{source}");
    }
}

#[test]
fn the_paths_that_a_unit_names_are_in_the_package() {
    let installed: Vec<_> = assets().iter().map(destination).collect();
    let has = |path: &str| installed.iter().any(|one| one.to_str() == Some(path));
    for unit in UNITS {
        assert!(has(&format!("/usr/lib/systemd/system/{unit}")), "{unit}");
        let settings = settings(unit);
        let program = settings["ExecStart"][0].split(' ').next().unwrap();
        assert!(has(program), "{unit} starts {program}");
    }
    assert!(has(&settings("postern.service")["ConditionPathExists"][0]), "{installed:?}");
    assert!(has("/usr/share/doc/postern/agent.env.example"), "{installed:?}");
}

#[test]
fn a_file_below_etc_is_a_configuration_file() {
    let manifest = manifest();
    let (_, list) = manifest.split_once("conf-files = ").unwrap();
    let list: Vec<PathBuf> = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    let below: Vec<_> =
        assets().iter().map(destination).filter(|path| path.starts_with("/etc")).collect();
    assert_eq!(list, below);
}

#[test]
fn the_scripts_of_the_package_are_scripts_that_end_at_the_first_failure() {
    for name in ["postinst", "prerm", "postrm"] {
        let path = repository().join("deploy/debian").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/bin/sh\nset -e\n"), "{name}");
        let checked = Command::new("sh").arg("-n").arg(&path).status().unwrap();
        assert!(checked.success(), "{name}");
    }
}

/// The scripts name the files that the package installs.
#[test]
fn the_installation_makes_the_users_and_directories_of_the_package() {
    let script = std::fs::read_to_string(repository().join("deploy/debian/postinst")).unwrap();
    let installed: Vec<_> = assets().iter().map(destination).collect();
    for directory in ["sysusers.d", "tmpfiles.d"] {
        let path = PathBuf::from(format!("/usr/lib/{directory}/postern.conf"));
        assert!(installed.contains(&path) && script.contains(path.to_str().unwrap()), "{script}");
    }
}
