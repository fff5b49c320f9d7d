//! Building the web console, and `cargo xtask serve`, which starts the server with it.
//!
//! It takes Node.js. Where the machine has none that Vite takes, a Python package brings one into `.cache/venv`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::artefacts::npm::BUNDLED;
use crate::build::{Profile, build_server};
use crate::{fetch, shell};

/// The output of the build and the packages of npm: neither is a source.
const MADE: &[&str] = &["dist", "node_modules"];

/// What the build does not read: that, and the unit tests.
const NOT_BUILT: &[&str] = &["dist", "node_modules", "test"];

/// A file that is written when the checks pass.
const CHECKED: &str = "node_modules/.checked";

/// The page of the console, which every build writes.
const PAGE: &str = "dist/index.html";

/// The lock file, and its copy next to the packages that were installed from it.
const LOCK: &str = "package-lock.json";
const INSTALLED: &str = "node_modules/.installed-lock.json";

/// How the server runs.
#[derive(Args)]
pub(crate) struct Options {
    /// Builds the program that users run, which takes some minutes more. Without it, the program is not optimized, and
    /// reads the console's files from console/dist.
    #[arg(long)]
    release: bool,
    /// Flags of postern serve, such as --listen
    #[arg(last = true)]
    flags: Vec<OsString>,
}

/// Builds the console and the server, and goes on as the server.
pub(crate) fn serve(root: &Path, options: &Options) -> Result<()> {
    build(root)?;
    let profile = if options.release { Profile::Release } else { Profile::Debug };
    match profile {
        Profile::Debug => println!(
            "building the server without optimizations, for trying it (--release builds the program that users run): the first \
             time takes some minutes"
        ),
        Profile::Release => println!("building the server: the first time takes some minutes"),
    }
    let started = Instant::now();
    let program = build_server(root, profile)?;
    println!("    done in {}", seconds(started.elapsed()));
    let error = Command::new(&program).arg("serve").args(&options.flags).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Builds the console, unless the last build is newer than every source.
pub(crate) fn build(root: &Path) -> Result<()> {
    let console = root.join("console");
    ensure!(console.join("package.json").exists(), "there is no console/package.json");
    let built = modified(&console.join(PAGE));
    let is_newest = |built| newest_source(&console, NOT_BUILT).is_none_or(|source| source <= built);
    // A new installation does not say which packages are in the console.
    if built.is_some_and(is_newest) && console.join(BUNDLED).exists() {
        println!("the console is up to date");
        return Ok(());
    }
    println!("building the console");
    let started = Instant::now();
    let node = Node::find_or_fetch(root)?;
    let lock = std::fs::read_to_string(console.join(LOCK))?;
    if std::fs::read_to_string(console.join(INSTALLED)).is_ok_and(|installed| installed == lock) {
        println!("    the packages of npm are as the lock file says");
    } else {
        let quiet = ["--no-audit", "--no-fund", "--loglevel", "error"];
        shell::run(node.npm(&console).args(["ci", "--ignore-scripts"]).args(quiet))?;
        std::fs::write(console.join(INSTALLED), lock).context("cannot write into node_modules")?;
    }
    shell::run(node.npm(&console).args(["run", "build"]))?;
    ensure!(console.join(PAGE).exists(), "npm run build wrote no console/{PAGE}");
    println!("    done in {}", seconds(started.elapsed()));
    Ok(())
}

/// Checks the types of the console's sources, and runs its unit tests, unless they passed after the last change.
pub(crate) fn check(root: &Path) -> Result<()> {
    let console = root.join("console");
    let checked = modified(&console.join(CHECKED));
    if checked.is_some_and(|checked| newest_source(&console, MADE) <= Some(checked)) {
        println!("the checks of the console are up to date");
        return Ok(());
    }
    let node = Node::find_or_fetch(root)?;
    shell::run(node.npm(&console).args(["run", "check"]))?;
    shell::run(node.npm(&console).args(["test"]))?;
    std::fs::write(console.join(CHECKED), "").context("cannot write into node_modules")
}

/// The program node, for tests.
pub(crate) fn node(root: &Path) -> Result<PathBuf> {
    let node = Node::find_or_fetch(root)?;
    Ok(node.directory.map_or_else(|| PathBuf::from("node"), |directory| directory.join("node")))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|data| data.modified()).ok()
}

/// When the newest source was changed. A file that was removed changes its directory.
fn newest_source(console: &Path, ignored: &[&str]) -> Option<SystemTime> {
    let entries = std::fs::read_dir(console).ok()?.filter_map(Result::ok);
    let sources = entries.filter(|entry| !ignored.iter().any(|name| entry.file_name() == *name));
    sources.filter_map(|entry| newest_below(&entry.path())).max()
}

fn newest_below(path: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let below = entries.filter_map(|entry| newest_below(&entry.path()));
    below.chain(modified(path)).max()
}

/// A Node.js with its npm.
struct Node {
    /// The directory of the program node, if it is not on the PATH.
    directory: Option<PathBuf>,
    /// The script of npm, if npm is not on the PATH.
    npm: Option<PathBuf>,
}

impl Node {
    /// The Node.js of the machine, or the one of a Python package.
    fn find_or_fetch(root: &Path) -> Result<Self> {
        let own = shell::output_of(Command::new("node").arg("--version")).ok();
        if let Some(version) = own.as_deref().filter(|version| is_for_vite(version))
            && shell::succeeds("npm", &["--version"])
        {
            println!("    Node.js {version}, of this machine");
            return Ok(Self { directory: None, npm: None });
        }
        let package = fetch::node(root)?;
        let node = package.join("bin/node");
        let version = shell::output_of(Command::new(&node).arg("--version"))?;
        if !is_for_vite(&version) {
            bail!("{} is {version}, which does not build the console", node.display());
        }
        println!("    Node.js {version}, in .cache/venv");
        let npm = package.join("lib/node_modules/npm/bin/npm-cli.js");
        Ok(Self { directory: Some(package.join("bin")), npm: Some(npm) })
    }

    /// npm, to run in a directory. Its scripts find the same Node.js.
    fn npm(&self, directory: &Path) -> Command {
        let mut command = match (&self.directory, &self.npm) {
            (Some(bin), Some(npm)) => {
                let mut command = Command::new(bin.join("node"));
                command.arg(npm);
                let path = std::env::var_os("PATH").unwrap_or_default();
                let paths = std::iter::once(bin.clone()).chain(std::env::split_paths(&path));
                if let Ok(path) = std::env::join_paths(paths) {
                    command.env("PATH", path);
                }
                command
            }
            _ => Command::new("npm"),
        };
        command.current_dir(directory);
        command
    }
}

/// Whether Vite runs with this version: 20.19 and newer, or 22.12 and newer.
fn is_for_vite(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => match major {
            20 => minor >= 19,
            22 => minor >= 12,
            _ => major > 22,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_that_vite_takes() {
        for good in ["v20.19.0", "v20.20.2", "v22.12.0", "v23.0.1", "v24.19.0"] {
            assert!(is_for_vite(good), "{good}");
        }
        for bad in ["v18.20.0", "v20.18.9", "v21.7.0", "v22.11.0", "", "node"] {
            assert!(!is_for_vite(bad), "{bad}");
        }
    }

    #[test]
    fn a_source_that_is_newer_is_seen_and_what_is_made_is_not() {
        let directory = tempfile::TempDir::new().unwrap();
        let console = directory.path();
        for name in ["src/lib", "dist", "node_modules/x", "test"] {
            std::fs::create_dir_all(console.join(name)).unwrap();
        }
        let at = |path: &str, seconds: u64| {
            let file = std::fs::File::create(console.join(path)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        };
        at("src/lib/a.ts", 1_000);
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(2_000);
        for name in ["src/lib", "src"] {
            std::fs::File::open(console.join(name)).unwrap().set_modified(old).unwrap();
        }
        at("dist/index.html", 9_000_000_000);
        at("node_modules/x/y.js", 9_000_000_000);
        at("test/a.test.ts", 9_000_000_000);
        assert_eq!(newest_source(console, NOT_BUILT), Some(old), "a directory counts");
        at("src/lib/a.ts", 8_000_000_000);
        let newer = SystemTime::UNIX_EPOCH + Duration::from_secs(8_000_000_000);
        assert_eq!(newest_source(console, NOT_BUILT), Some(newer));
    }
}
