//! The licence texts of all crates in the program, in one file. Each text is there once, with the crates that have it.
//!
//! The texts are files of the crates. If a crate has none, the standard text of the licence that its manifest names
//! takes the place, with a line that says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cargo_metadata::Package;

use super::dependencies::Dependencies;
use super::release::Release;

/// How the names of files with licences begin, in small letters.
const NAMES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Extensions of files about licences that are no text of one.
const NO_TEXTS: &[&str] = &["rs", "c", "h", "go", "py", "sh", "html", "json", "toml", "yml"];

/// Directories below the one of a crate in which its own licences are.
const OWN_DIRECTORIES: &[&str] = &["", "licenses", "license", "licences"];

/// Standard texts of licences, by their SPDX identifiers.
pub(crate) struct StandardTexts {
    /// The file with the licence of the program, which is Apache-2.0.
    pub(crate) apache: PathBuf,
    /// The directory in which the toolchain has a file for each identifier.
    pub(crate) toolchain: PathBuf,
}

impl StandardTexts {
    fn find(&self, identifier: &str) -> Option<String> {
        let path = match identifier {
            "Apache-2.0" => self.apache.clone(),
            other => self.toolchain.join(format!("{other}.txt")),
        };
        std::fs::read_to_string(path).ok()
    }

    /// The texts of the first alternative of an expression for which there are all, in the order of the
    /// identifiers' names.
    fn for_expression(&self, expression: &str) -> Option<Vec<(String, String)>> {
        let mut alternatives = alternatives(expression)?;
        alternatives.sort();
        let texts = |identifiers: &Vec<String>| {
            let text = |identifier: &String| Some((identifier.clone(), self.find(identifier)?));
            identifiers.iter().map(text).collect::<Option<Vec<_>>>()
        };
        alternatives.iter().find_map(texts)
    }
}

/// The alternatives of an expression, each with the licences that apply together. An expression with parentheses or
/// exceptions has none that can be chosen here.
fn alternatives(expression: &str) -> Option<Vec<Vec<String>>> {
    let expression = normal_form(expression);
    if expression.contains(['(', ')']) || expression.contains(" WITH ") {
        return None;
    }
    let together = |one: &str| one.split(" AND ").map(|part| part.trim().to_owned()).collect();
    Some(expression.split(" OR ").map(together).collect())
}

/// The expression in SPDX's syntax. Old manifests have a slash for `OR`.
pub(crate) fn normal_form(expression: &str) -> String {
    let parts: Vec<_> = expression.split('/').map(str::trim).collect();
    parts.join(" OR ")
}

/// The file with all texts.
pub(crate) fn collect(
    release: &Release,
    dependencies: &Dependencies,
    standard: &StandardTexts,
) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut listed = String::new();
    for package in &dependencies.foreign {
        let (name, version) = (&package.name, &package.version);
        let expression = package.license.as_deref().map(normal_form);
        let expression = expression.as_deref().unwrap_or("see its file");
        writeln!(listed, "{name} {version}: {expression}")?;
        for (origin, text) in texts_of(package, standard)? {
            texts.entry(text).or_default().push(format!("{name} {version}, {origin}"));
        }
    }
    let line = "=".repeat(100);
    let (package, own) = (release.name(), &release.licence);
    let mut file = format!("Licences of the crates in {package}\n\n");
    writeln!(file, "Postern itself is under {own}, see LICENSE. The crates and their licences:\n")?;
    writeln!(file, "{listed}\nThe texts follow, each with the crates that have it.")?;
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|left, right| left.1.cmp(&right.1));
    for (text, origins) in texts {
        writeln!(file, "\n{line}\n{}\n{line}\n\n{text}", origins.join("\n"))?;
    }
    Ok(file)
}

/// The texts of a crate, each with its origin.
fn texts_of(package: &Package, standard: &StandardTexts) -> Result<Vec<(String, String)>> {
    let name = &package.name;
    let directory = package.manifest_path.parent().context("a manifest is in a directory")?;
    let named = package.license_file.as_ref().map(|path| path.as_std_path());
    let found = files_in(directory.as_std_path(), named)
        .with_context(|| format!("cannot read the licences of {name}"))?;
    if found.iter().any(|(path, _)| is_own(path, named)) {
        let text = |(path, text): (PathBuf, String)| (path.display().to_string(), text);
        return Ok(found.into_iter().map(text).collect());
    }
    let expression = package.license.as_deref().unwrap_or_default();
    let texts = standard.for_expression(expression).with_context(|| {
        format!("{name} has no licence file, and there is no standard text for {expression:?}")
    })?;
    let authors = package.authors.join(", ");
    let told = |(identifier, text)| {
        let origin = format!(
            "no file in the crate: the standard text of {identifier}, which its manifest names. Authors: {authors}"
        );
        (origin, text)
    };
    Ok(texts.into_iter().map(told).collect())
}

/// Whether a file has a licence of the crate itself, and not of something in it.
fn is_own(path: &Path, named: Option<&Path>) -> bool {
    let directory = path.parent().unwrap_or(Path::new("")).to_string_lossy().to_lowercase();
    named == Some(path) || OWN_DIRECTORIES.contains(&directory.as_str())
}

/// The licence files below a directory, with their texts, sorted by their paths from there.
fn files_in(directory: &Path, named: Option<&Path>) -> Result<Vec<(PathBuf, String)>> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(below) = open.pop() {
        for entry in std::fs::read_dir(directory.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                open.push(path);
            } else if named == Some(&path) || is_licence(&path) {
                let text = std::fs::read(entry.path())?;
                let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
                found.insert(path, text.trim_end().to_owned());
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let in_own_directory = || {
        let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
        OWN_DIRECTORIES[1..].contains(&parent.to_string_lossy().to_lowercase().as_str())
    };
    let is_named = NAMES.iter().any(|start| name.starts_with(start)) || in_own_directory();
    is_named && !NO_TEXTS.contains(&extension.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// A crate in its own directory.
    struct Fixture {
        directory: TempDir,
        standard: StandardTexts,
    }

    impl Fixture {
        fn with(files: &[&str]) -> Self {
            let directory = TempDir::new().unwrap();
            let path = directory.path().join("crate");
            for file in files {
                let file = path.join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, format!("text of {}\r\n", file.display())).unwrap();
            }
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(directory.path().join("LICENSE"), "apache").unwrap();
            std::fs::write(directory.path().join("MIT.txt"), "mit").unwrap();
            let standard = StandardTexts {
                apache: directory.path().join("LICENSE"),
                toolchain: directory.path().to_owned(),
            };
            Self { directory, standard }
        }

        fn package(&self, licence: Option<&str>, licence_file: Option<&str>) -> Package {
            let manifest = self.directory.path().join("crate/Cargo.toml");
            let package = json!({
                "name": "one", "version": "1.2.3", "id": "one", "license": licence,
                "license_file": licence_file, "authors": ["Ada"], "dependencies": [],
                "targets": [], "features": {}, "manifest_path": manifest,
            });
            serde_json::from_value(package).unwrap()
        }

        fn origins(&self, package: &Package) -> Result<Vec<String>, String> {
            let texts = texts_of(package, &self.standard).map_err(|error| format!("{error:#}"))?;
            Ok(texts.into_iter().map(|(origin, _)| origin).collect())
        }
    }

    #[test]
    fn licences_are_the_files_with_their_names() {
        for (files, expected) in [
            (&["LICENSE"][..], &["LICENSE"][..]),
            (&["LICENSE-MIT", "license-apache.txt"], &["LICENSE-MIT", "license-apache.txt"]),
            (&["COPYING", "NOTICE.md", "README.md"], &["COPYING", "NOTICE.md"]),
            (&["UNLICENSE", "src/license.rs", "licenses.json"], &["UNLICENSE"]),
            (&["LICENSES/MIT.txt", "src/lib.rs"], &["LICENSES/MIT.txt"]),
            (&["LICENSE", "c/part/LICENSE"], &["LICENSE", "c/part/LICENSE"]),
        ] {
            let fixture = Fixture::with(files);
            let origins = fixture.origins(&fixture.package(Some("MIT"), None));
            assert_eq!(origins.unwrap(), expected, "{files:?}");
        }
        let fixture = Fixture::with(&["terms.txt"]);
        assert_eq!(
            fixture.origins(&fixture.package(None, Some("terms.txt"))).unwrap(),
            ["terms.txt"]
        );
        let texts = texts_of(&fixture.package(None, Some("terms.txt")), &fixture.standard).unwrap();
        assert!(texts[0].1.ends_with("terms.txt"), "without the end of the line: {:?}", texts[0]);
    }

    #[test]
    fn a_crate_without_a_file_has_the_standard_text_and_says_so() {
        for (files, expression, expected) in [
            (&[][..], "MIT", Some(&["MIT"][..])),
            (&["src/part/LICENSE"], "MIT", Some(&["MIT"])),
            (&[], "MIT/Apache-2.0", Some(&["Apache-2.0"])),
            (&[], "MIT OR Unknown-1.0", Some(&["MIT"])),
            (&[], "MIT AND Apache-2.0", Some(&["MIT", "Apache-2.0"])),
            (&[], "MIT AND Unknown-1.0", None),
            (&[], "Unknown-1.0", None),
            (&[], "(MIT OR Apache-2.0) AND MIT", None),
            (&[], "Apache-2.0 WITH LLVM-exception", None),
        ] {
            let fixture = Fixture::with(files);
            let origins = fixture.origins(&fixture.package(Some(expression), None));
            if let Some(identifiers) = expected {
                let origins = origins.unwrap();
                assert_eq!(origins.len(), identifiers.len(), "{expression}");
                for (origin, identifier) in origins.iter().zip(identifiers) {
                    let start = format!("no file in the crate: the standard text of {identifier},");
                    assert!(origin.starts_with(&start) && origin.ends_with("Ada"), "{origin}");
                }
            } else {
                let error = origins.unwrap_err();
                assert!(error.contains("one has no licence file"), "{error}");
                assert!(error.contains(expression), "{error}");
            }
        }
    }

    #[test]
    fn expressions_of_old_manifests_get_the_syntax_of_spdx() {
        for (old, new) in [
            ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
            ("Apache-2.0 / MIT", "Apache-2.0 OR MIT"),
            ("MIT OR Zlib", "MIT OR Zlib"),
        ] {
            assert_eq!(normal_form(old), new);
        }
    }

    #[test]
    fn a_text_that_two_crates_have_is_there_once() {
        let fixture = Fixture::with(&["LICENSE"]);
        let mut other = fixture.package(Some("MIT"), None);
        other.version = "2.0.0".parse().unwrap();
        let dependencies = Dependencies {
            own: Vec::new(),
            foreign: vec![fixture.package(Some("MIT/Zlib"), None), other],
            uses: BTreeMap::new(),
            checksums: BTreeMap::new(),
        };
        let release = super::super::release::example();
        let file = collect(&release, &dependencies, &fixture.standard).unwrap();
        assert_eq!(file.matches("text of").count(), 1, "{file}");
        for line in [
            "one 1.2.3: MIT OR Zlib\none 2.0.0: MIT\n",
            "one 1.2.3, LICENSE\none 2.0.0, LICENSE\n",
            "under Apache-2.0, see LICENSE",
        ] {
            assert!(file.contains(line), "{line}: {file}");
        }
    }
}
