//! The Debian package. cargo-deb makes it, from the section `package.metadata.deb` of `crates/postern/Cargo.toml`. One
//! version of cargo-deb is built into `.cache/tools`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;

/// The version of cargo-deb. Its own lock file pins its dependencies.
const CARGO_DEB_VERSION: &str = "3.8.0";

/// A shell, and the file with its completions in the package.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "postern.bash"), ("zsh", "_postern"), ("fish", "postern.fish")];

/// Makes the package of a binary, and returns its path.
pub(crate) fn make(root: &Path, binary: &Path) -> Result<PathBuf> {
    let cargo_deb = cargo_deb(root)?;
    // cargo-deb finds the files of `target/release/` in the target directory. This one has nothing but them.
    let stage = shell::target_directory(root)?.join("debian-package");
    stage_files(binary, &stage)?;
    let mut command = Command::new(cargo_deb);
    command.current_dir(root).env("CARGO_TARGET_DIR", &stage);
    command.args(["--no-build", "--no-strip", "--locked", "--package", "postern"]);
    // The files get the time of the commit, so that two builds of it are equal.
    if let Ok(time) =
        shell::output_of(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]))
    {
        command.env("SOURCE_DATE_EPOCH", time);
    }
    shell::run(&mut command)?;
    let made = std::fs::read_dir(stage.join("debian"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"));
    made.context("cargo-deb left no package")
}

/// Puts the files of a package where cargo-deb looks for them: the stripped program, its pages and its completions.
fn stage_files(binary: &Path, stage: &Path) -> Result<()> {
    if stage.exists() {
        std::fs::remove_dir_all(stage)?;
    }
    let release = stage.join("release");
    let made = release.join("deb");
    for directory in [&release, &made] {
        std::fs::create_dir_all(directory)?;
    }
    let program = release.join("postern");
    shell::run(Command::new("strip").arg("-o").arg(&program).arg(binary))
        .context("strip is in Debian's binutils")?;
    let pages = made.join("man");
    shell::run(Command::new(&program).args(["man", "--out"]).arg(&pages))?;
    shell::run(Command::new("gzip").args(["--no-name", "--best", "--recursive"]).arg(&pages))?;
    for (name, file) in COMPLETIONS {
        let text = shell::output_of(Command::new(&program).args(["completion", name]))?;
        ensure!(!text.is_empty(), "`postern completion {name}` printed nothing");
        std::fs::write(made.join(file), text + "\n")?;
    }
    Ok(())
}

/// The path of cargo-deb, which is built the first time.
fn cargo_deb(root: &Path) -> Result<PathBuf> {
    let tools = root.join(".cache").join("tools");
    let program = tools.join("bin").join("cargo-deb");
    let version = shell::output_of(Command::new(&program).arg("--version"));
    if version.is_ok_and(|version| version.ends_with(CARGO_DEB_VERSION)) {
        return Ok(program);
    }
    println!("    building cargo-deb {CARGO_DEB_VERSION} into .cache/tools, for some minutes");
    let mut install = shell::cargo();
    install.args(["install", "cargo-deb", "--locked", "--force", "--version", CARGO_DEB_VERSION]);
    shell::run(install.arg("--root").arg(&tools))?;
    Ok(program)
}
