//! The files that documents name: each target of a link, and each path of a source file or directory
//! between backticks, exists. The headings that links lead to are not looked at here.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Finding, files};

/// Directories of the repository. A path that begins with one is a path from the root.
const DIRECTORIES: [&str; 6] = ["benches", "crates", "docs", "fuzz", "tests", "xtask"];

/// The extension of files that a document may name by the end of their paths.
const SOURCE: &str = ".rs";

/// Checks each document.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let sources = files::rust(root)?;
    let exists = |path: &Path| root.join(path).exists();
    let is_source = |path: &Path| sources.iter().any(|source| source.ends_with(path));
    let mut findings = Vec::new();
    for path in files::documents(root)? {
        let text = files::read(root, &path)?;
        findings.extend(check_text(&path, &text, &exists, &is_source));
    }
    Ok(findings)
}

fn check_text(
    path: &Path,
    text: &str,
    exists: &dyn Fn(&Path) -> bool,
    is_source: &dyn Fn(&Path) -> bool,
) -> Vec<Finding> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        let links = link_targets(line).filter(|target| !exists(&directory.join(target)));
        let named = line.split('`').skip(1).step_by(2).filter(|name| {
            let is_known = is_from_root(name) && exists(Path::new(name));
            is_path(name) && !is_known && !is_source(Path::new(name))
        });
        findings.extend(links.chain(named).map(|missing| Finding {
            path: PathBuf::from(path),
            line: index + 1,
            message: format!("there is no file `{missing}`: name the one that is meant"),
        }));
    }
    findings
}

/// The files that the links of a line lead to, without headings.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://"));
    local.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty())
}

/// Whether a text between backticks is the path of a source file, or of a file or directory from
/// the root. Files that are generated, and patterns, are none.
fn is_path(text: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
    let is_generated = text.split('/').any(|part| files::SKIPPED.contains(&part));
    text.chars().all(is_part) && !is_generated && (is_from_root(text) || text.ends_with(SOURCE))
}

fn is_from_root(text: &str) -> bool {
    text.split_once('/').is_some_and(|(first, _)| DIRECTORIES.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_lead_to_files() {
        let exists = |path: &Path| {
            ["docs/../crates/x", "crates/x", "docs/a.md"]
                .iter()
                .any(|known| Path::new(known) == path)
        };
        let is_source = |path: &Path| Path::new("crates/x/src/deep/y.rs").ends_with(path);
        let found = |text: &str| {
            let findings = check_text(Path::new("docs/p.md"), text, &exists, &is_source);
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for right in [
            "[a](a.md), [a](a.md#b), [here](#b), [web](https://a.example/b.md), [x](../crates/x)",
            "`deep/y.rs`, `y.rs`, `crates/x/src/deep/y.rs`, `crates/x`, `docs/a.md`",
            "`fuzz/artifacts/x`, `crates/*/src`, `a b.rs`, `word`, `other/word`, z.rs",
            "```\n`z.rs`\n[z](z.md)\n```",
        ] {
            assert_eq!(found(right), [""; 0], "{right}");
        }
        for (wrong, name) in [
            ("[z](z.md#b)", "z.md"),
            ("`z.rs`", "z.rs"),
            ("`eep/y.rs`", "eep/y.rs"),
            ("`crates/z`", "crates/z"),
            ("`tests/tests/z.rs`", "tests/tests/z.rs"),
        ] {
            let expected =
                format!("docs/p.md:2: there is no file `{name}`: name the one that is meant");
            assert_eq!(found(&format!("\n{wrong}")), [expected]);
        }
    }
}
