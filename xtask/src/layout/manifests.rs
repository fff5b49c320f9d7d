//! The dependencies in manifests: each one is used, and the tests share no code with the product. Cargo keeps the direction
//! of dependencies between crates.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use cargo_metadata::{Metadata, Package};

use super::{Finding, files};

/// The package of the black-box tests. It uses no crate of this workspace, because shared code can
/// hide a mistake. It is the only one that uses a client of Kubernetes, as an independent one.
const TESTS: &str = "postern-tests";

/// Crates with types of Kubernetes.
const KUBERNETES: [&str; 2] = ["kube", "k8s-openapi"];

/// The unused dependencies, and the forbidden ones.
pub(super) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let packages = metadata.workspace_packages();
    let is_ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut used_by_members = BTreeSet::new();
    for package in &packages {
        let manifest = package.manifest_path.as_std_path();
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        let words = words_in_code(root, package, manifest)?;
        for dependency in &package.dependencies {
            let key = dependency.rename.as_ref().unwrap_or(&dependency.name);
            used_by_members.insert(key.clone());
            let message = if !words.contains(&key.replace('-', "_")) {
                format!("nothing uses {key}: remove it")
            } else if package.name == TESTS && is_ours(key) {
                format!("{TESTS} must not use {key}: the tests share no code with the product")
            } else if package.name != TESTS && KUBERNETES.contains(&key.as_str()) {
                format!("only {TESTS} may use {key}, as an independent client")
            } else {
                continue;
            };
            findings.push(Finding { path: manifest.to_path_buf(), line: 1, message });
        }
    }
    let path = Path::new("Cargo.toml");
    let table = files::read(root, path)?;
    let lines =
        table.lines().enumerate().skip_while(|(_, line)| *line != "[workspace.dependencies]");
    for (index, line) in lines.skip(1).take_while(|(_, line)| !line.starts_with('[')) {
        let key = line.split([' ', '=', '.']).next().unwrap_or_default();
        if !key.is_empty() && !key.starts_with('#') && !used_by_members.contains(key) {
            let message = format!("no member of the workspace uses {key}: remove it");
            findings.push(Finding { path: path.to_path_buf(), line: index + 1, message });
        }
    }
    Ok(findings)
}

/// The identifiers in the code of a package.
fn words_in_code(root: &Path, package: &Package, manifest: &Path) -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    let directory = manifest.parent().and_then(Path::to_str).unwrap_or_default();
    for path in files::with_extension(root, directory, "rs")? {
        let text = files::read(root, &path)?;
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let is_separator = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
        words.extend(code.flat_map(|line| line.split(is_separator)).map(str::to_owned));
    }
    anyhow::ensure!(!words.is_empty(), "{} has no code", package.name);
    Ok(words)
}
