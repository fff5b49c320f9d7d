//! The npm packages in the web console: for the licences and the software bill of materials.
//!
//! The build of the console writes their names. `package-lock.json` has their versions, licences
//! and digests, and `node_modules` their licence texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// The output of the console's build: the names of the packages, as JSON.
pub(crate) const BUNDLED: &str = "node_modules/.bundled.json";

/// A package with code in the console.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NpmPackage {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its licence, as an SPDX expression.
    pub(crate) licence: String,
    /// The digest of its archive, as the lock file has it: SHA-512 in base64.
    pub(crate) integrity: String,
    /// Its licence texts.
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Lock {
    packages: BTreeMap<String, Locked>,
}

#[derive(Deserialize)]
struct Locked {
    version: Option<String>,
    license: Option<String>,
    integrity: Option<String>,
}

/// The packages in the console that was built last.
pub(crate) fn bundled(console: &Path) -> Result<Vec<NpmPackage>> {
    let read = |name: &str| {
        let path = console.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let names: Vec<String> = serde_json::from_str(&read(BUNDLED)?)?;
    // A framework is compiled into the console, so an empty list is a mistake of the build.
    ensure!(!names.is_empty(), "console/{BUNDLED} names no package");
    let mut lock: Lock = serde_json::from_str(&read("package-lock.json")?)?;
    let package = |name: String| {
        let path = format!("node_modules/{name}");
        let locked = lock.packages.remove(&path);
        let locked = locked.with_context(|| format!("the lock file does not have {name}"))?;
        let missing = |what: &str| format!("the lock file has no {what} of {name}");
        Ok(NpmPackage {
            version: locked.version.with_context(|| missing("version"))?,
            licence: locked.license.with_context(|| missing("licence"))?,
            integrity: locked.integrity.with_context(|| missing("digest"))?,
            text: licence_text(&console.join(path))
                .with_context(|| format!("{name} has no licence text"))?,
            name,
        })
    };
    names.into_iter().map(package).collect()
}

/// The licence texts, as a part of the file with all texts.
pub(crate) fn licences(packages: &[NpmPackage]) -> Result<String> {
    let line = "=".repeat(100);
    let mut text = String::from("\n\nLicences of the npm packages in the web console\n");
    for NpmPackage { name, version, licence, text: own, .. } in packages {
        writeln!(text, "\n{line}\n{name} {version}: {licence}\n{line}\n\n{own}")?;
    }
    Ok(text)
}

/// The licence texts of an installed package.
fn licence_text(directory: &Path) -> Result<String> {
    let entries = std::fs::read_dir(directory)?.filter_map(Result::ok);
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        ["license", "licence", "notice"].iter().any(|start| name.starts_with(start))
    });
    paths.sort();
    ensure!(!paths.is_empty(), "no file in {}", directory.display());
    let texts = paths.iter().map(std::fs::read_to_string).collect::<std::io::Result<Vec<_>>>()?;
    Ok(texts.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A console that was built, with two packages in it and one that only builds it.
    fn console() -> tempfile::TempDir {
        let directory = tempfile::TempDir::new().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(BUNDLED, r#"["@a/b", "c"]"#);
        write(
            "package-lock.json",
            r#"{ "packages": {
                "": { "version": "0.0.0" },
                "node_modules/@a/b": { "version": "1.2.3", "license": "MIT", "integrity": "sha512-AAEC", "dev": true },
                "node_modules/c": { "version": "4.0.0", "license": "ISC", "integrity": "sha512-Aw==" },
                "node_modules/tool": { "version": "9.0.0", "license": "MIT", "integrity": "sha512-" }
            } }"#,
        );
        write("node_modules/@a/b/LICENSE.md", "text of b");
        write("node_modules/c/license", "text of c");
        write("node_modules/c/NOTICE", "notice of c");
        directory
    }

    #[test]
    fn packages_come_with_what_the_lock_file_says_and_with_their_texts() {
        let directory = console();
        let packages = bundled(directory.path()).unwrap();
        let told: Vec<_> = packages
            .iter()
            .map(|one| (one.name.as_str(), one.version.as_str(), one.licence.as_str()))
            .collect();
        assert_eq!(told, [("@a/b", "1.2.3", "MIT"), ("c", "4.0.0", "ISC")]);
        let texts = licences(&packages).unwrap();
        for part in ["@a/b 1.2.3: MIT", "text of b", "c 4.0.0: ISC", "notice of c\ntext of c"] {
            assert!(texts.contains(part), "{part} in {texts}");
        }
        assert!(!texts.contains("tool"), "{texts}");
    }

    #[test]
    fn a_package_without_a_licence_text_or_a_line_in_the_lock_file_is_an_error() {
        let directory = console();
        std::fs::remove_file(directory.path().join("node_modules/@a/b/LICENSE.md")).unwrap();
        let error = format!("{:#}", bundled(directory.path()).unwrap_err());
        assert!(error.starts_with("@a/b has no licence text"), "{error}");
        let directory = console();
        for (names, expected) in [
            (r#"["d"]"#, "the lock file does not have d"),
            ("[]", "console/node_modules/.bundled.json names no package"),
        ] {
            std::fs::write(directory.path().join(BUNDLED), names).unwrap();
            assert_eq!(bundled(directory.path()).unwrap_err().to_string(), expected);
        }
    }
}
