//! The direction of dependencies between the workspace's own crates, and who may use the
//! Kubernetes types.

use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{Dependency, Metadata, Package};

use super::Finding;

/// The drawn direction: a crate, and the crates of ours that it may name in its manifest.
/// Dependencies for tests count too, or the drawing would only hold on paper.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    (
        "postern",
        &[
            "postern-cli",
            "postern-client",
            "postern-server",
            "postern-agent",
            "postern-telemetry",
            "postern-kinds",
            "postern-meta",
            "postern-store",
        ],
    ),
    ("postern-cli", &["postern-client", "postern-kinds", "postern-meta"]),
    ("postern-client", &["postern-kinds", "postern-meta"]),
    (
        "postern-server",
        &[
            "postern-registry",
            "postern-openapi",
            "postern-flow",
            "postern-auth",
            "postern-store",
            "postern-listen",
            "postern-proxy",
            "postern-tunnel",
            "postern-telemetry",
            "postern-kinds",
            "postern-meta",
        ],
    ),
    (
        "postern-registry",
        &[
            "postern-flow",
            "postern-auth",
            "postern-store",
            "postern-telemetry",
            "postern-kinds",
            "postern-meta",
        ],
    ),
    ("postern-openapi", &["postern-kinds", "postern-meta"]),
    ("postern-flow", &["postern-kinds", "postern-meta"]),
    (
        "postern-agent",
        &[
            "postern-auth",
            "postern-listen",
            "postern-proxy",
            "postern-tunnel",
            "postern-client",
            "postern-telemetry",
            "postern-kinds",
            "postern-meta",
        ],
    ),
    ("postern-auth", &["postern-kinds", "postern-meta"]),
    ("postern-kinds", &["postern-meta"]),
    ("postern-meta", &[]),
    ("postern-store", &[]),
    ("postern-listen", &[]),
    ("postern-proxy", &[]),
    ("postern-tunnel", &[]),
    ("postern-telemetry", &[]),
    // Black box: what the tests share with the product can hide the product's mistakes.
    (TESTS, &[]),
    // Measures over the wire, any server alike.
    ("postern-bench", &[]),
    ("xtask", &[]),
];

/// The one package that may use the Kubernetes project's types, as an independent client.
const TESTS: &str = "postern-tests";

/// Crates with Kubernetes types of their own; shared types would let wire mistakes cancel out.
const KUBERNETES: &[&str] =
    &["kube", "kube-client", "kube-core", "kube-derive", "kube-runtime", "k8s-openapi"];

/// The dependencies that the drawing does not have.
pub(super) fn check(root: &Path, metadata: &Metadata) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in metadata.workspace_packages() {
        check_package(root, metadata, package, &mut findings)?;
    }
    Ok(findings)
}

fn check_package(
    root: &Path,
    metadata: &Metadata,
    package: &Package,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let manifest = package.manifest_path.as_std_path();
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let mut add = |needle: &str, message: String| {
        findings.push(Finding {
            path: manifest.strip_prefix(root).unwrap_or(manifest).to_path_buf(),
            line: line_naming(&text, needle),
            message,
        });
    };
    let name = package.name.as_str();
    let Some(allowed) = allowed_for(name) else {
        add("name", format!("{name} is not in the drawing: add it to {}", file!()));
        return Ok(());
    };
    for dependency in &package.dependencies {
        if let Some(message) = judge(metadata, name, allowed, dependency) {
            add(&dependency.name, message);
        }
    }
    Ok(())
}

fn allowed_for(package: &str) -> Option<&'static [&'static str]> {
    MAY_DEPEND_ON.iter().find(|(name, _)| *name == package).map(|(_, allowed)| *allowed)
}

fn judge(
    metadata: &Metadata,
    package: &str,
    allowed: &[&str],
    dependency: &Dependency,
) -> Option<String> {
    let wanted = dependency.name.as_str();
    let ours = metadata.workspace_packages().iter().any(|other| other.name == wanted);
    if ours && !allowed.contains(&wanted) {
        return Some(format!(
            "{package} must not depend on {wanted}: it may use {}. Move the code to where the \
             direction allows it, or change the drawing in ARCHITECTURE.md and {} with a record \
             in docs/adr/ that says why",
            if allowed.is_empty() { "none of our crates".to_owned() } else { allowed.join(", ") },
            file!(),
        ));
    }
    if KUBERNETES.contains(&wanted) && package != TESTS {
        return Some(format!(
            "{package} must not depend on {wanted}: only {TESTS} may, as an independent client. \
             Use our own meta types",
        ));
    }
    None
}

/// The line of a manifest that names the dependency, for the finding to point at.
fn line_naming(text: &str, needle: &str) -> usize {
    text.lines()
        .position(|line| {
            let line = line.trim_start();
            line.strip_prefix(needle).is_some_and(|rest| {
                !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            })
        })
        .map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table itself points one way: no crate reaches itself over any path.
    #[test]
    fn the_drawing_has_no_cycle() {
        fn visit<'a>(name: &'a str, path: &mut Vec<&'a str>) {
            assert!(!path.contains(&name), "cycle: {path:?} -> {name}");
            path.push(name);
            for next in allowed_for(name).unwrap_or_else(|| panic!("{name} is not in the table")) {
                visit(next, path);
            }
            path.pop();
        }
        for (name, _) in MAY_DEPEND_ON {
            visit(name, &mut Vec::new());
        }
    }

    #[test]
    fn a_finding_points_at_the_dependency_and_not_at_its_namesake() {
        let manifest = "[dependencies]\npostern-metal = \"1\"\npostern-meta.workspace = true\n";
        assert_eq!(line_naming(manifest, "postern-meta"), 3);
        assert_eq!(line_naming(manifest, "kube"), 1);
    }
}
