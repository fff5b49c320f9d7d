//! The one command that passes the tests: every check in its order, each with its time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::build::{Profile, build_server};
use crate::{cluster, console, deb, fetch, instructions, layout, shell};

/// The test programs that run only when they are named: with `--all`. They need programs that are not fetched
/// for the other tests.
const ONLY_WITH_ALL: [&str; 3] = ["every_artefact", "every_client", "every_way"];

/// Fetches the tools and runs every check; stops at the first that fails. With `all` it also runs
/// the clients of every age, and every way to a cluster.
pub(crate) fn run(root: &Path, quick: bool, all: bool) -> Result<()> {
    std::env::set_current_dir(root).context("cannot go to the workspace's directory")?;
    let mut steps = Steps::new(if quick { 8 } else { 10 + 7 * usize::from(all) });
    let tools = steps.take("fetch what the tests need", || fetch_what_is_needed(root, all))?;
    steps.take("build the web console", || {
        console::build(root)?;
        let changed = if quick { changed_files(root)? } else { None };
        let is_console = |file: &PathBuf| file.starts_with(root.join("console"));
        if changed.is_none_or(|files| files.iter().any(is_console)) {
            console::check(root)?;
        }
        Ok(())
    })?;
    steps.take("formatting", || shell::run(shell::cargo().args(["fmt", "--all", "--check"])))?;
    steps.take("lints", || {
        let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        shell::run(shell::cargo().args(words))?;
        // Targets that do not run by default are not part of all targets. The whole workspace is
        // checked, because a change of features would check the dependencies again.
        let mut command = shell::cargo();
        command.args(["clippy", "--workspace"]).args(only_with_all_words());
        shell::run(command.args(["--", "-D", "warnings"]))
    })?;
    steps.take("layout", || layout::check(root))?;
    let binary = steps.take("build the server", || build_server(root, Profile::Debug))?;
    // As in the README: cargo has to choose this program without its name.
    shell::run(shell::cargo().args(["run", "--quiet", "--", "--version"]))?;
    let mut counts = Counts::default();
    steps.take("build the tests", || build_tests(&tools, &binary))?;
    let form = if all { "full" } else { "short" };
    steps.take("tests", || tests(root, &tools, &binary, quick, form, &mut counts))?;
    if all {
        let package = steps.take("make the Debian package", || deb::make(root, &binary))?;
        let exporter =
            steps.take("build a server that exports traces", || build_exporter(root, &binary))?;
        let previous = steps.take("build the commit before", || build_previous(root))?;
        steps.take("every artefact, every client, and every way to a cluster", || {
            let made = Made { package: &package, exporter: &exporter, previous: &previous };
            only_with_all(&tools, &binary, &made, &mut counts)
        })?;
        steps.take("three servers in the place of one", || {
            three_servers(&tools, &binary, &mut counts)
        })?;
        steps.take("export of traces", || export_of_traces(&mut counts))?;
    }
    if !quick {
        steps.take("documentation", documentation)?;
        steps.take("licences and sources of dependencies", || dependencies(&mut counts))?;
    }
    if all {
        // Last: its build takes the processors that tests would be slow without.
        steps
            .take("instructions", || instructions::run(root, &instructions::Options::default()))?;
    }
    steps.print();
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(())
}

/// Fetches the tools of the tests. With `all` it also fetches those that only `cargo xtask test
/// --all` runs.
pub(crate) fn fetch_what_is_needed(root: &Path, all: bool) -> Result<fetch::Tools> {
    let tools = fetch::everything(root, all)?;
    if all {
        fetch::nginx()?;
        fetch::proxies()?;
        fetch::prometheus(root)?;
        fetch::faketime(root)?;
        fetch::openbao(root)?;
        cluster::fetch(root)?;
    }
    Ok(tools)
}

/// Numbers the steps, and prints how long each took: when it ends, and all of them at the end.
struct Steps {
    started: Instant,
    taken: Vec<(String, Duration)>,
    all: usize,
}

impl Steps {
    fn new(all: usize) -> Self {
        Self { started: Instant::now(), taken: Vec::new(), all }
    }

    fn take<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.taken.len() + 1;
        println!("\n[{number}/{}] {name}", self.all);
        let started = Instant::now();
        let result = step().with_context(|| format!("step {number}, {name}, failed"))?;
        let time = started.elapsed();
        println!("    done in {}", seconds(time));
        self.taken.push((name.to_owned(), time));
        Ok(result)
    }

    fn print(&self) {
        println!();
        for (name, time) in &self.taken {
            println!("{:>10}  {name}", seconds(*time));
        }
        println!("{:>10}  all steps passed", seconds(self.started.elapsed()));
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    /// Adds the counts of a closing line of nextest (`Summary [1.2s] 3 tests run: 3 passed, 1
    /// skipped`) or of cargo's own runner (`test result: ok. 3 passed; 0 failed; 1 ignored; …`).
    fn read(&mut self, line: &str) {
        let line = line.trim_start();
        if !line.starts_with("Summary [") && !line.starts_with("test result:") {
            return;
        }
        let words: Vec<_> = line.split([' ', ',', ';', '.', '(', ')']).collect();
        for (index, word) in words.iter().enumerate() {
            let number = index.checked_sub(1).and_then(|before| words[before].parse().ok());
            let number: u64 = number.unwrap_or(0);
            match *word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "skipped" | "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// Builds the server with the feature `otel`, and returns its path. The binary stays the one without the feature.
fn build_exporter(root: &Path, binary: &Path) -> Result<PathBuf> {
    let mut command = shell::cargo();
    let features = ["--features", "postern/otel"];
    shell::run(command.args(["build", "--workspace", "--bin", "postern"]).args(features))?;
    let exporter = binary.with_file_name("postern-otel");
    std::fs::copy(binary, &exporter).context("cannot keep the server that exports traces")?;
    build_server(root, Profile::Debug)?;
    Ok(exporter)
}

/// Builds the commit before this one, in a separate directory. The result is the path of its
/// server.
fn build_previous(root: &Path) -> Result<PathBuf> {
    let directory = shell::target_directory(root)?.join("previous");
    let (source, archive) = (directory.join("source"), directory.join("source.tar"));
    if source.exists() {
        std::fs::remove_dir_all(&source)?;
    }
    std::fs::create_dir_all(&source)?;
    let mut git = Command::new("git");
    git.args(["archive", "--output"]).arg(&archive).arg("HEAD~1").current_dir(root);
    shell::run(&mut git)
        .context("the commit before is needed: get the history with `git fetch --unshallow`")?;
    // The files get the present time. Otherwise cargo would confuse them with the files of the last
    // build.
    shell::run(Command::new("tar").arg("-xmf").arg(&archive).arg("-C").arg(&source))?;
    let mut command = shell::cargo();
    command.args(["build", "--workspace", "--bin", "postern", "--target-dir"]);
    shell::run(command.arg(directory.join("target")).current_dir(&source))?;
    Ok(directory.join("target/debug/postern"))
}

/// cargo with the tools that the tests run.
fn cargo_with(tools: &fetch::Tools, binary: &Path) -> Command {
    let mut command = shell::cargo();
    command.env("POSTERN_TEST_KUBECTL", &tools.kubectl).env("POSTERN_TEST_BIN", binary);
    command.env("POSTERN_TEST_KUBECTL_OLD", &tools.old_kubectl);
    command.env("POSTERN_TEST_ETCD", &tools.etcd);
    command.env("POSTERN_TEST_PYTHON", &tools.python);
    // Snapshots are compared here, never written.
    command.env("INSTA_UPDATE", "no");
    command
}

fn has_nextest() -> bool {
    shell::succeeds("cargo", &["nextest", "--version"])
}

/// Builds the tests by themselves, so that the time of the build is known.
fn build_tests(tools: &fetch::Tools, binary: &Path) -> Result<()> {
    let mut command = cargo_with(tools, binary);
    if has_nextest() {
        return shell::run(command.args(["nextest", "run", "--workspace", "--no-run"]));
    }
    shell::run(command.args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"]))
}

/// Runs the tests. `form` is how much of the long ones: `short` or `full`.
fn tests(
    root: &Path,
    tools: &fetch::Tools,
    binary: &Path,
    quick: bool,
    form: &str,
    counts: &mut Counts,
) -> Result<()> {
    let mut command = cargo_with(tools, binary);
    command.env("POSTERN_TEST_FORM", form).env("POSTERN_TEST_NODE", console::node(root)?);
    if form == "full" {
        command.env("POSTERN_TEST_FAKETIME", fetch::faketime(root)?);
    }
    if has_nextest() {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--color", "never"]);
        if quick {
            command.args(["--profile", "quick"]);
            if let Some(filter) = affected(root)? {
                command.args(["-E", &filter]);
            }
        }
        return shell::run_watching(&mut command, true, |line| counts.read(line));
    }
    println!("    cargo-nextest is not installed: going on with `cargo test`, one test at a time");
    command.args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]);
    if quick {
        println!("    --quick leaves out tests only with cargo-nextest");
    }
    command.args(["--", "--test-threads", "1"]);
    shell::run_watching(&mut command, false, |line| counts.read(line))
}

/// The files that differ from the commit before the last one; `None` in a clone without that commit.
fn changed_files(root: &Path) -> Result<Option<Vec<PathBuf>>> {
    let git = |words: &[&str]| shell::output_of(Command::new("git").args(words).current_dir(root));
    let Ok(changed) = git(&["diff", "--name-only", "HEAD~1"]) else { return Ok(None) };
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(Some(changed.lines().chain(new.lines()).map(|file| root.join(file)).collect()))
}

/// The filter of nextest for the tests that a change can reach. These are the tests of the packages with changed files, of
/// the packages that depend on them, and the black-box tests. `None` means all: after a change of other files, such as
/// `Cargo.lock`, and in a clone without that commit.
fn affected(root: &Path) -> Result<Option<String>> {
    let metadata = cargo_metadata::MetadataCommand::new().current_dir(root).no_deps().exec()?;
    let Some(changed) = changed_files(root)? else { return Ok(None) };
    let mut packages = BTreeSet::new();
    for path in changed {
        if path.extension().is_some_and(|extension| extension == "md") {
            continue;
        }
        let is_in = |package: &&cargo_metadata::Package| {
            package.manifest_path.parent().is_some_and(|folder| path.starts_with(folder))
        };
        let Some(package) = metadata.packages.iter().find(is_in) else { return Ok(None) };
        packages.insert(format!("rdeps(={})", package.name));
    }
    packages.insert("package(postern-tests)".to_owned());
    Ok(Some(Vec::from_iter(packages).join(" + ")))
}

/// Runs suites that know of one server against three servers on one etcd behind nginx.
fn three_servers(tools: &fetch::Tools, binary: &Path, counts: &mut Counts) -> Result<()> {
    anyhow::ensure!(has_nextest(), "this step needs cargo-nextest, which selects its tests");
    let mut command = cargo_with(tools, binary);
    command.env("POSTERN_TEST_FLEET", "1");
    command.args(["nextest", "run", "--profile", "fleet", "--workspace", "--color", "never"]);
    command.args(["--test", "requests", "--test", "tools"]);
    shell::run_watching(&mut command, true, |line| counts.read(line))
}

fn only_with_all_words() -> impl Iterator<Item = &'static str> {
    ONLY_WITH_ALL.iter().flat_map(|program| ["--test", program])
}

/// Files that only the tests of `--all` need.
struct Made<'a> {
    /// The Debian package.
    package: &'a Path,
    /// The server with the export of traces.
    exporter: &'a Path,
    /// The server of the commit before.
    previous: &'a Path,
}

/// Runs the test programs that do not run by default.
fn only_with_all(
    tools: &fetch::Tools,
    binary: &Path,
    made: &Made<'_>,
    counts: &mut Counts,
) -> Result<()> {
    let mut command = cargo_with(tools, binary);
    command.env("POSTERN_TEST_DEB", made.package).env("POSTERN_TEST_OTEL_BIN", made.exporter);
    command.env("POSTERN_TEST_PREVIOUS_BIN", made.previous);
    let nextest = has_nextest();
    if nextest {
        command.args(["nextest", "run", "--color", "never"]);
    } else {
        command.arg("test");
    }
    command.args(["--workspace", "--no-fail-fast"]).args(only_with_all_words());
    if !nextest {
        command.args(["--", "--test-threads", "1"]);
    }
    shell::run_watching(&mut command, nextest, |line| counts.read(line))
}

/// Lints and tests the exporter of traces, which is in builds with the feature `otel` only.
fn export_of_traces(counts: &mut Counts) -> Result<()> {
    let otel = ["-p", "postern-telemetry", "--features", "otel"];
    let mut lints = shell::cargo();
    shell::run(lints.arg("clippy").args(otel).args(["--all-targets", "--", "-D", "warnings"]))?;
    let mut tests = shell::cargo();
    tests.arg("test").args(otel).args(["--lib", "--tests"]);
    shell::run_watching(&mut tests, false, |line| counts.read(line))
}

fn documentation() -> Result<()> {
    let mut command = shell::cargo();
    command.env("RUSTDOCFLAGS", "-D warnings");
    shell::run(command.args(["doc", "--workspace", "--no-deps"]))
}

fn dependencies(counts: &mut Counts) -> Result<()> {
    if !shell::succeeds("cargo", &["deny", "--version"]) {
        counts.skipped += 1;
        println!("    cargo-deny is not installed: skipped (`cargo install cargo-deny` brings it)");
        return Ok(());
    }
    shell::run(shell::cargo().args([
        "deny",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_counted() {
        let mut counts = Counts::default();
        counts
            .read("     Summary [   5.031s] 12 tests run: 10 passed (1 slow), 2 failed, 3 skipped");
        counts.read("test result: ok. 4 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        counts.read("        PASS [   0.016s] ( 1/12) a test named 7 failed");
        assert_eq!((counts.passed, counts.failed, counts.skipped), (14, 2, 4));
    }
}
