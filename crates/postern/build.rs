//! Sets the commit of the build, which `/version` shows. Without git or a repository, set `POSTERN_COMMIT` and
//! `POSTERN_COMMIT_DATE` (RFC 3339, UTC). Otherwise the commit is unknown.
//!
//! The script runs again only when HEAD moves.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let found = from_git();
    for (name, value) in ["POSTERN_COMMIT", "POSTERN_COMMIT_DATE"].into_iter().zip(found) {
        println!("cargo:rerun-if-env-changed={name}");
        let value = std::env::var(name).unwrap_or(value);
        println!("cargo:rustc-env={name}={value}");
    }
}

/// The commit and its date; empty if they are unknown.
fn from_git() -> [String; 2] {
    // An unpacked archive can be inside an unrelated repository.
    if git(&["ls-files", "--error-unmatch", "Cargo.toml"]).is_none() {
        return Default::default();
    }
    // The log of HEAD changes with each commit and each checkout. HEAD itself changes only with the branch.
    for name in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]).unwrap_or_default();
        // A missing path would make each build run this script again.
        if Path::new(&path).is_file() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    let date = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
    let show = |format| git(&["show", "-s", date, format, "HEAD"]).unwrap_or_default();
    [show("--format=%H"), show("--format=%cd")]
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).env("TZ", "UTC").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
