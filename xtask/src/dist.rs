//! `cargo xtask dist`: the archive that users install from, with everything that belongs to the
//! program.
//!
//! Two builds of one commit with one toolchain are equal byte for byte, in any directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::artefacts::archive::{self, Entry};
use crate::artefacts::dependencies::Dependencies;
use crate::artefacts::krew;
use crate::artefacts::licences::{self, StandardTexts};
use crate::artefacts::npm;
use crate::artefacts::program::{PROFILE, Program};
use crate::artefacts::release::{self, PACKAGE, Release};
use crate::artefacts::sbom::{self, Component};
use crate::{console, shell};

/// The file with the digests of the artefacts next to it.
const CHECKSUMS: &str = "SHA256SUMS";

/// Documents at the root of the workspace that the archive has.
const DOCUMENTS: &[&str] = &["LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"];

/// Shells, and the files that they look for completions in.
const COMPLETIONS: &[(&str, &str)] =
    &[("bash", "postern.bash"), ("zsh", "_postern"), ("fish", "postern.fish")];

/// Where the program comes from, and where an artefact goes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Takes this program as it is and builds none. The limit of its size does not apply
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
    /// The directory of the artefact, in place of target/dist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The common parts of every artefact.
pub(crate) struct Parts {
    pub(crate) release: Release,
    pub(crate) dependencies: Dependencies,
    pub(crate) program: Program,
    /// The licence texts of all crates, and of the packages in the web console.
    pub(crate) licences: String,
    /// The packages in the web console. A program that was given as it is has none that are known.
    pub(crate) console: Vec<Component>,
    /// The directory of the artefact.
    out: PathBuf,
}

impl Parts {
    /// Collects the parts that take seconds first, and then builds the program.
    pub(crate) fn prepare(root: &Path, options: &Options) -> Result<Self> {
        release::warn_of_changes(root);
        let release = Release::of(root)?;
        let dependencies = Dependencies::of(root, &release)?;
        let documents = toolchain_documents()?;
        let standard =
            StandardTexts { apache: root.join("LICENSE"), toolchain: documents.join("licenses") };
        let mut licences = licences::collect(&release, &dependencies, &standard)?;
        let mut in_console = Vec::new();
        if options.binary.is_none() {
            console::build(root)?;
            let packages = npm::bundled(&root.join("console"))?;
            licences.push_str(&npm::licences(&packages)?);
            in_console = packages.iter().map(Component::npm).collect::<Result<_>>()?;
        }
        let given = options.binary.as_deref();
        let program = Program::take_or_build(root, given, &release, &dependencies)?;
        let out = match &options.out {
            Some(out) => out.clone(),
            None => shell::target_directory(root)?.join(PROFILE),
        };
        Ok(Self { release, dependencies, program, licences, console: in_console, out })
    }

    /// The software bill of materials, with more components that are neither crates nor in the console.
    pub(crate) fn bill_of_materials(&self, more: &[Component]) -> Result<String> {
        let components = [self.console.as_slice(), more].concat();
        sbom::write(&self.release, &self.dependencies, &self.program.bytes, &components)
    }

    /// Writes an artefact, and the digests of all artefacts of this version next to it.
    pub(crate) fn publish(&self, name: &str, bytes: &[u8]) -> Result<()> {
        std::fs::create_dir_all(&self.out)?;
        let path = self.out.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        let checksums = checksums_in(&self.out, &self.release)?;
        std::fs::write(self.out.join(CHECKSUMS), checksum_lines(&checksums))?;
        println!(
            "    {}: {} bytes, sha256 {}",
            path.display(),
            bytes.len(),
            archive::sha256(bytes)
        );
        Ok(())
    }

    /// Writes the manifest of the kubectl plugin for the archives of this version in the directory.
    fn write_plugin_manifest(&self, root: &Path) -> Result<()> {
        let template = std::fs::read_to_string(root.join("deploy/krew/postern.yaml"))?;
        let archives = checksums_in(&self.out, &self.release)?;
        let manifest = krew::manifest(&template, &self.release, &archives)?;
        let path = self.out.join(format!("{PACKAGE}-{}-krew.yaml", self.release.version));
        std::fs::write(&path, manifest)?;
        if self.release.repository.is_none() {
            println!("    warning: Cargo.toml has no repository, so {} names none", path.display());
        }
        Ok(())
    }
}

/// Builds the archive.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let parts = Parts::prepare(root, options)?;
    let name = parts.release.name();
    let mut entries = vec![Entry::program(PACKAGE, parts.program.bytes.clone())];
    for document in DOCUMENTS {
        entries.push(Entry::file(*document, std::fs::read(root.join(document))?));
    }
    entries.push(Entry::file("LICENSES-third-party.txt", parts.licences.clone()));
    entries.extend(standard_library_licences()?);
    let bom = parts.bill_of_materials(&[])?;
    entries.push(Entry::file("sbom.cdx.json", bom));
    entries.extend(printed_by(&parts.program.path)?);
    entries.extend(files_below(&root.join("deploy/systemd"), "systemd")?);
    let entries = entries.into_iter().map(|entry| entry.below(&name)).collect();
    let archive = archive::gzip(&archive::tar(entries, parts.release.epoch)?)?;
    parts.publish(&format!("{name}.tar.gz"), &archive)?;
    parts.write_plugin_manifest(root)
}

/// Builds the program of a release, with the console in it, and returns its path.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    release::warn_of_changes(root);
    let release = Release::of(root)?;
    let dependencies = Dependencies::of(root, &release)?;
    console::build(root)?;
    Ok(Program::take_or_build(root, None, &release, &dependencies)?.path)
}

/// The licences of Rust's standard library, which the toolchain has as one document.
pub(crate) fn standard_library_licences() -> Result<Option<Entry>> {
    let document = toolchain_documents()?.join("COPYRIGHT-library.html");
    let Ok(text) = std::fs::read(&document) else {
        println!("    warning: the toolchain has no {}", document.display());
        return Ok(None);
    };
    Ok(Some(Entry::file("LICENSES-rust-standard-library.html", text)))
}

/// The directory in which the toolchain has its licences.
fn toolchain_documents() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let toolchain = shell::output_of(Command::new(rustc).args(["--print", "sysroot"]))?;
    Ok(Path::new(&toolchain).join("share/doc/rust"))
}

/// Manual pages and completion scripts, which the program prints itself.
fn printed_by(program: &Path) -> Result<Vec<Entry>> {
    let directory = TempDir::new()?;
    let command = || {
        let mut command = Command::new(program);
        // No setting of this machine may show in a text.
        command.env_clear().current_dir(directory.path());
        command
    };
    shell::output_of(command().args(["man", "--out", "man"]))?;
    let mut entries = files_below(&directory.path().join("man"), "man/man1")?;
    ensure!(!entries.is_empty(), "the program has written no manual page");
    for (shell, file) in COMPLETIONS {
        let script = shell::output_of(command().args(["completion", shell]))?;
        entries.push(Entry::file(format!("completions/{file}"), script + "\n"));
    }
    Ok(entries)
}

/// The files below a directory, in a directory of the archive. None, if the directory does not exist.
fn files_below(directory: &Path, name: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    if !directory.is_dir() {
        return Ok(entries);
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            entries.extend(files_below(&entry.path(), &name)?);
        } else {
            entries.push(Entry::file(name, std::fs::read(entry.path())?));
        }
    }
    Ok(entries)
}

/// The name and the digest of each artefact of this version in a directory, in order.
fn checksums_in(directory: &Path, release: &Release) -> Result<Vec<(String, String)>> {
    let start = format!("{PACKAGE}-{}-", release.version);
    let mut artefacts = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let extension = Path::new(&name).extension().unwrap_or_default();
        if name.starts_with(&start) && (extension == "gz" || extension == "tar") {
            let digest = archive::sha256(&std::fs::read(directory.join(&name))?);
            artefacts.push((name, digest));
        }
    }
    artefacts.sort();
    Ok(artefacts)
}

/// A line for each artefact, as `sha256sum --check` reads them.
fn checksum_lines(artefacts: &[(String, String)]) -> String {
    let lines: Vec<_> =
        artefacts.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_artefacts_of_this_version() {
        let directory = TempDir::new().unwrap();
        for name in [
            "postern-0.2.0-oci.tar",
            "postern-0.2.0-x86_64-unknown-linux-gnu.tar.gz",
            "postern-0.1.0-oci.tar",
            "postern",
            "postern.d",
            "SHA256SUMS",
        ] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let checksums = checksums_in(directory.path(), &release::example()).unwrap();
        let names: Vec<_> = checksums.iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            ["postern-0.2.0-oci.tar", "postern-0.2.0-x86_64-unknown-linux-gnu.tar.gz"]
        );
        std::fs::write(directory.path().join(CHECKSUMS), checksum_lines(&checksums)).unwrap();
        let mut check = Command::new("sha256sum");
        check.current_dir(directory.path()).args(["--check", "--strict", CHECKSUMS]);
        shell::output_of(&mut check).unwrap();
    }

    #[test]
    fn files_of_subdirectories_are_in_the_archive() {
        let directory = TempDir::new().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/c.conf"), "x").unwrap();
        let found = files_below(&directory.path().join("a"), "etc").unwrap();
        assert_eq!(found, [Entry::file("etc/b/c.conf", "x")]);
        assert_eq!(files_below(&directory.path().join("none"), "etc").unwrap(), []);
    }
}
