//! A real cluster's control plane for the tests of `--all`: etcd as Debian has packaged it, and
//! kube-apiserver, which Debian has only as source. Both end up in `.cache/`; the repository
//! contains neither.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{fetch, shell};

/// The Debian package that carries etcd.
const ETCD_PACKAGE: &str = "etcd-server";

/// The Debian source package of Kubernetes.
const SOURCE_PACKAGE: &str = "kubernetes";

/// How the versions of it begin that the tests are written for.
const SOURCE_VERSION: &str = "1.20";

/// The Debian package of a library that the source has in an older version. The older one reads Go's maps by symbols
/// that Go 1.18 changed: kube-apiserver ends when it stores a custom resource.
const REFLECT_PACKAGE: &str = "golang-github-modern-go-reflect2-dev";

/// The directory of that library, below each directory of Go packages.
const REFLECT_LIBRARY: &str = "github.com/modern-go/reflect2";

/// Programs that the build starts.
const BUILD_PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("go", &["version"], "golang-go"),
    ("make", &["--version"], "make"),
    ("rsync", &["--version"], "rsync"),
    ("dpkg-source", &["--version"], "dpkg-dev"),
];

/// Fetches or builds the missing programs.
pub(crate) fn fetch(root: &Path) -> Result<()> {
    let directory = root.join(".cache").join("cluster");
    std::fs::create_dir_all(&directory)?;
    let etcd = etcd(&directory).context("no etcd, which a real cluster needs")?;
    println!("    etcd: {}", etcd.display());
    let server = kube_apiserver(&directory).context("no kube-apiserver")?;
    println!("    kube-apiserver: {}", server.display());
    Ok(())
}

/// Unpacks etcd from Debian's package. It is not installed: that would start it as a service.
fn etcd(directory: &Path) -> Result<PathBuf> {
    fetch::unpack_debian(ETCD_PACKAGE, &directory.join("etcd-package"), "usr/bin/etcd")
}

/// Builds kube-apiserver from Debian's source package, and keeps the program alone.
fn kube_apiserver(directory: &Path) -> Result<PathBuf> {
    let program = directory.join("kube-apiserver");
    // A program of an earlier recipe is built again.
    let stamp = directory.join("kube-apiserver-recipe");
    let recipe = format!("{SOURCE_PACKAGE} {SOURCE_VERSION}, {REFLECT_PACKAGE}\n");
    if program.exists() && std::fs::read_to_string(&stamp).is_ok_and(|made| made == recipe) {
        return Ok(program);
    }
    fetch::programs(BUILD_PROGRAMS)?;
    let work = directory.join("build");
    if work.exists() {
        // The files of an interrupted build.
        std::fs::remove_dir_all(&work)?;
    }
    let source = source(&work)?;
    replace_reflect(&work, &source).context("the library for custom resources")?;
    println!("    building kube-apiserver, for a quarter of an hour on two cores");
    build(&work, &source)?;
    let built = source.join("_output/bin/kube-apiserver");
    std::fs::rename(&built, &program)
        .with_context(|| format!("the build left no {}", built.display()))?;
    std::fs::write(&stamp, recipe)?;
    // Two gigabytes that nothing needs any more.
    std::fs::remove_dir_all(&work)?;
    Ok(program)
}

/// Downloads and unpacks the source, from where this machine's packages come from.
fn source(work: &Path) -> Result<PathBuf> {
    let lists = work.join("lists");
    std::fs::create_dir_all(lists.join("partial"))?;
    let origins = shell::output_of(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
        "Origin: Debian",
    ]))
    .context("the source comes from where Debian's packages come from: an apt-get is needed")?;
    let sources = work.join("sources.list");
    std::fs::write(&sources, origins + "\n")?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.current_dir(work).arg("-q");
        for (name, value) in [
            ("Dir::Etc::SourceList", sources.as_path()),
            ("Dir::Etc::SourceParts", Path::new("/dev/null")),
            ("Dir::State::Lists", lists.as_path()),
        ] {
            command.arg("-o").arg(format!("{name}={}", value.display()));
        }
        command
    };
    shell::run(apt().arg("update"))?;
    // Its signature and digests are checked against the lists.
    shell::run(apt().args(["source", "--download-only", SOURCE_PACKAGE]))?;
    let description = std::fs::read_dir(work)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|ending| ending == "dsc"))
        .with_context(|| format!("there is no source package {SOURCE_PACKAGE}"))?;
    let name = description.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ensure!(
        name.starts_with(&format!("{SOURCE_PACKAGE}_{SOURCE_VERSION}")),
        "the source package is {name}, and the tests are for {SOURCE_VERSION}"
    );
    let unpacked = work.join("source");
    let mut unpack = Command::new("dpkg-source");
    shell::run(unpack.args(["--no-check", "-x"]).arg(&description).arg(&unpacked))?;
    Ok(unpacked)
}

/// Replaces the library that does not work with Debian's Go with Debian's own package of it.
fn replace_reflect(work: &Path, source: &Path) -> Result<()> {
    let library = Path::new("usr/share/gocode/src").join(REFLECT_LIBRARY);
    let file = library.join("reflect2.go").to_string_lossy().into_owned();
    let packaged = fetch::unpack_debian(REFLECT_PACKAGE, &work.join("reflect"), &file)?;
    let packaged = packaged.parent().context("the library has no directory")?;
    let vendored = source.join("vendor").join(REFLECT_LIBRARY);
    std::fs::remove_dir_all(&vendored)
        .with_context(|| format!("the source has no {REFLECT_LIBRARY}"))?;
    shell::run(Command::new("cp").arg("-r").arg(packaged).arg(&vendored))
}

/// Runs the source's own makefile, as Debian does, for this one program. One package after the other, and after
/// everything else that runs here: others want the machine too.
fn build(work: &Path, source: &Path) -> Result<()> {
    // The makefile expects to be found where a GOPATH would have it.
    let path = source.join(".go");
    std::fs::create_dir_all(path.join("src/k8s.io"))?;
    std::os::unix::fs::symlink("../../..", path.join("src/k8s.io/kubernetes"))?;
    let mut make = Command::new("nice");
    make.args(["make", "WHAT=cmd/kube-apiserver", "GOFLAGS=-p=1"]).current_dir(source);
    make.env("GOPATH", &path).env("HOME", work).env("CGO_ENABLED", "0").env_remove("MAKEFLAGS");
    shell::run(&mut make)
}
