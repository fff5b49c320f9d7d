//! Tells the program from which commit it is built: `/version` shows it. Where there is no git, or
//! these files are not in a repository, nothing is known, unless `POSTERN_COMMIT` and
//! `POSTERN_COMMIT_DATE` (RFC 3339, UTC) say it.
//!
//! It runs again only when HEAD moves.

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

/// The commit and its date; empty texts where they are not known.
fn from_git() -> [String; 2] {
    // A repository around an unpacked archive is another one.
    if git(&["ls-files", "--error-unmatch", "Cargo.toml"]).is_none() {
        return Default::default();
    }
    // The log of HEAD changes with each commit and each checkout; HEAD itself only with the branch.
    for name in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]).unwrap_or_default();
        // A path that does not exist would make each build run this again.
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
