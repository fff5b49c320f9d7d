//! The dynamic loader and the libraries that the program is linked to, from Debian's packages on this machine.
//!
//! Each file is in the image where it is here, so that the loader finds it without a cache. The licence of each
//! package goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::artefacts::archive::{self, Entry};
use crate::shell;

/// The directory of the texts that many licences refer to.
const COMMON_LICENCES: &str = "/usr/share/common-licenses/";

/// A Debian package of which the image has files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DebianPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    /// The source package and its version.
    source: String,
}

/// A file of this machine, and whether it is executed.
struct SystemFile {
    bytes: Vec<u8>,
    is_executed: bool,
    package: String,
}

/// Files of Debian packages, by their paths here and in the image.
#[derive(Default)]
pub(crate) struct SystemFiles {
    files: BTreeMap<PathBuf, SystemFile>,
    packages: BTreeMap<String, DebianPackage>,
}

/// The loader and the libraries of a program. A static program has none.
pub(crate) fn of(program: &Path) -> Result<SystemFiles> {
    let mut command = Command::new("ldd");
    let output =
        command.arg(program).env("LC_ALL", "C").output().context("ldd cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut system = SystemFiles::default();
    for path in paths_of_ldd(&format!("{text}{errors}"))? {
        let package = owner_of(&path)?;
        system.add(&path, &package, true)?;
    }
    Ok(system)
}

/// The paths in the output of ldd: `NAME => PATH (ADDRESS)`, and `PATH (ADDRESS)` for the loader. The library of the
/// kernel has no path.
fn paths_of_ldd(text: &str) -> Result<Vec<PathBuf>> {
    if text.contains("statically linked") || text.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        ensure!(!line.ends_with("=> not found"), "a library is missing here: {line}");
        let path = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = path.split(" (").next().unwrap_or_default();
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    ensure!(!paths.is_empty(), "ldd names no library: {text}");
    Ok(paths)
}

/// The name of the package that a file belongs to. The package may know the file without `/usr`, by the old place of
/// its directory.
fn owner_of(path: &Path) -> Result<String> {
    let canonical = path.canonicalize()?;
    let mut candidates = vec![path.to_owned(), canonical.clone()];
    candidates.extend(canonical.strip_prefix("/usr").map(|rest| Path::new("/").join(rest)));
    for candidate in candidates {
        let mut query = Command::new("dpkg-query");
        if let Ok(line) = shell::output_of(query.arg("--search").arg(candidate)) {
            return owner_in(&line).with_context(|| format!("dpkg-query has a line {line:?}"));
        }
    }
    bail!("{} belongs to no Debian package, so its licence is not known", path.display())
}

/// The package in a line such as `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
fn owner_in(line: &str) -> Option<String> {
    let (package, _) = line.lines().next()?.split_once(": ")?;
    Some(package.split([':', ',']).next()?.to_owned())
}

impl SystemFiles {
    /// Adds a file that is only read. The package need not own it, since some make files while they are installed.
    pub(crate) fn add_file(&mut self, path: &Path, package: &str) -> Result<()> {
        self.add(path, package, false)
    }

    fn add(&mut self, path: &Path, package: &str, is_executed: bool) -> Result<()> {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !self.packages.contains_key(package) {
            self.packages.insert(package.to_owned(), describe(package)?);
        }
        let file = SystemFile { bytes, is_executed, package: package.to_owned() };
        self.files.insert(path.to_owned(), file);
        Ok(())
    }

    /// The packages that the files belong to.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &DebianPackage> {
        self.packages.values()
    }

    /// The files, and the licences of their packages.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (path, file) in &self.files {
            let path = inside(path);
            let bytes = file.bytes.clone();
            let entry = if file.is_executed { Entry::program } else { Entry::file };
            entries.push(entry(path, bytes));
        }
        let mut common = BTreeSet::new();
        for name in self.packages.keys() {
            let path = PathBuf::from(format!("/usr/share/doc/{name}/copyright"));
            let text = std::fs::read(&path)
                .with_context(|| format!("the licence of {name} is not in {}", path.display()))?;
            common.extend(common_licences(&String::from_utf8_lossy(&text)));
            entries.push(Entry::file(inside(&path), text));
        }
        for name in common {
            let path = Path::new(COMMON_LICENCES).join(&name);
            let text = std::fs::read(&path)
                .with_context(|| format!("there is no licence {}", path.display()))?;
            entries.push(Entry::file(inside(&path), text));
        }
        Ok(entries)
    }

    /// A text that says which files are from which package, and where their licences and sources are.
    pub(crate) fn note(&self) -> String {
        let mut note = String::from(
            "Files of Debian packages in this image. They are not changed. The program is linked to the\n\
            libraries dynamically, so they can be replaced by others.\n\n",
        );
        for package in self.packages() {
            let DebianPackage { name, version, architecture, source } = package;
            // Writing to a string does not fail.
            let _ = writeln!(note, "{name} {version} ({architecture})");
            let _ = writeln!(note, "  licences: /usr/share/doc/{name}/copyright");
            let _ = writeln!(note, "  source: Debian's source package {source}");
            for (path, file) in self.files.iter().filter(|(_, file)| file.package == *name) {
                let digest = archive::sha256(&file.bytes);
                let _ = writeln!(note, "  {}, sha256 {digest}", path.display());
            }
        }
        note
    }
}

/// The names of the common licences that a text refers to.
fn common_licences(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-.".contains(letter);
    let names = text.split(COMMON_LICENCES).skip(1).map(|rest| {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        rest[..end].trim_end_matches('.').to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The path of an entry for a path of this machine.
fn inside(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

fn describe(package: &str) -> Result<DebianPackage> {
    let format = "${Version} ${Architecture} ${source:Package} ${source:Version}\n";
    let mut query = Command::new("dpkg-query");
    let line = shell::output_of(query.args(["--show", "--showformat", format, package]))?;
    let mut words = line.lines().next().unwrap_or_default().split(' ').map(str::to_owned);
    let mut word = || words.next().with_context(|| format!("dpkg-query says {line:?}"));
    Ok(DebianPackage {
        name: package.to_owned(),
        version: word()?,
        architecture: word()?,
        source: format!("{} {}", word()?, word()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_ldd_are_those_of_the_libraries_and_of_the_loader() {
        let dynamic = "\tlinux-vdso.so.1 (0x00007ffd4a5f2000)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        let found = ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib/x86_64-linux-gnu/libc.so.6"];
        let found: Vec<_> = [&found[..], &["/lib64/ld-linux-x86-64.so.2"]].concat();
        for (text, expected) in [
            (dynamic, Some(&found[..])),
            ("\tstatically linked\n", Some(&[])),
            ("\tnot a dynamic executable\n", Some(&[])),
            ("\tlibx.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n", None),
            ("ldd: ./x: No such file or directory\n", None),
            ("", None),
        ] {
            let expected = expected.map(|paths| paths.iter().map(PathBuf::from).collect());
            assert_eq!(paths_of_ldd(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn the_owner_of_a_file_is_a_package_without_its_architecture() {
        for (line, expected) in [
            ("libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6", Some("libc6")),
            ("ca-certificates: /usr/share/ca-certificates", Some("ca-certificates")),
            ("a:amd64, b:amd64: /usr/share/x", Some("a")),
            ("nothing", None),
        ] {
            assert_eq!(owner_in(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn licences_that_a_text_refers_to_are_found() {
        let text = "see `/usr/share/common-licenses/LGPL-2.1'. Or in\n\
            /usr/share/common-licenses/GPL-3. And /usr/share/common-licenses/LGPL-2.1, in\n\
            /usr/share/common-licenses/.";
        assert_eq!(Vec::from_iter(common_licences(text)), ["GPL-3", "LGPL-2.1"]);
        assert!(common_licences("none").is_empty());
    }

    #[test]
    fn the_note_names_each_file_with_its_package() {
        let mut system = SystemFiles::default();
        let package = |name: &str| DebianPackage {
            name: name.to_owned(),
            version: "1.0-2".to_owned(),
            architecture: "amd64".to_owned(),
            source: format!("{name}-source 1.0"),
        };
        for (path, name) in [("/lib/a.so", "liba"), ("/lib/b.so", "libb")] {
            system.packages.insert(name.to_owned(), package(name));
            let (bytes, package) = (path.as_bytes().to_vec(), name.to_owned());
            let file = SystemFile { bytes, is_executed: true, package };
            system.files.insert(path.into(), file);
        }
        let note = system.note();
        let digest = archive::sha256(b"/lib/b.so");
        let expected = format!(
            "libb 1.0-2 (amd64)\n  licences: /usr/share/doc/libb/copyright\n  \
            source: Debian's source package libb-source 1.0\n  /lib/b.so, sha256 {digest}\n"
        );
        assert!(note.ends_with(&expected), "{note}");
    }
}
