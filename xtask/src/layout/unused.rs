//! Dependencies that nothing uses: of each package, and of the workspace as a whole.
//!
//! A dependency is used where its crate is named in a path, an import or an attribute. One that
//! is switched on by a feature counts as used where any configuration names it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use cargo_metadata::{Dependency, DependencyKind, Metadata, Package, TargetKind};
use proc_macro2::{Span, TokenStream, TokenTree};

use super::modules::{self, Crate, SourceFile};
use super::{Finding, files};

/// The package whose product is its tests: all of its files count, for all of its dependencies.
const TESTS: &str = "postern-tests";

/// The dependencies of the workspace's packages that nothing uses.
pub(super) fn check(root: &Path, metadata: &Metadata, crates: &[Crate]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut from_workspace = BTreeSet::new();
    for package in metadata.workspace_packages() {
        let manifest = package.manifest_path.as_std_path();
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest);
        let text = files::read(root, manifest)?;
        let entries = entries(&text);
        from_workspace.extend(entries.iter().filter(|entry| entry.workspace).map(Entry::key));
        let named = Named::by(root, metadata, package, crates)?;
        for dependency in &package.dependencies {
            if let Some(message) = judge(dependency, &named) {
                let line = line_of(&entries, dependency);
                findings.push(Finding { path: manifest.to_path_buf(), line, message });
            }
        }
    }
    let manifest = Path::new("Cargo.toml");
    findings.extend(unused_in_workspace(&files::read(root, manifest)?, &from_workspace));
    Ok(findings)
}

/// The crates that a package names, by who names them.
#[derive(Default)]
struct Named {
    /// Outside of what is only built for tests.
    product: BTreeSet<String>,
    build_script: BTreeSet<String>,
    anywhere: BTreeSet<String>,
}

impl Named {
    fn by(root: &Path, metadata: &Metadata, package: &Package, crates: &[Crate]) -> Result<Self> {
        let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
        let mut named = Self::default();
        for one in crates.iter().filter(|one| one.package == package.id) {
            named.product.extend(crates_named_in(&one.files));
        }
        let build_scripts =
            package.targets.iter().filter(|target| target.kind.contains(&TargetKind::CustomBuild));
        for target in build_scripts {
            let files = modules::files(target.src_path.as_std_path(), &read);
            named.build_script.extend(crates_named_in(&files));
        }
        let directory = package.manifest_path.parent();
        let directory = directory.and_then(|path| path.strip_prefix(&metadata.workspace_root).ok());
        for path in files::with_extension(root, directory.map_or("", |path| path.as_str()), "rs")? {
            let text = files::read(root, &path)?;
            named.anywhere.extend(crates_named(text.parse().ok(), &|_| false));
        }
        if package.name == TESTS {
            named.product.clone_from(&named.anywhere);
        }
        Ok(named)
    }
}

/// The names of crates in these files, outside of what is only built for tests.
fn crates_named_in(files: &[SourceFile]) -> BTreeSet<String> {
    let named = |file: &SourceFile| {
        crates_named(Some(file.tokens.clone()), &|span| file.is_for_tests(span))
    };
    files.iter().flat_map(named).collect()
}

/// The error about a dependency, if there is one.
fn judge(dependency: &Dependency, named: &Named) -> Option<String> {
    let key = dependency.rename.as_ref().unwrap_or(&dependency.name);
    let name = &key.replace('-', "_");
    let used = match dependency.kind {
        DependencyKind::Development => &named.anywhere,
        DependencyKind::Build => &named.build_script,
        _ => &named.product,
    };
    if used.contains(name) {
        return None;
    }
    Some(if dependency.kind == DependencyKind::Normal && named.anywhere.contains(name) {
        format!("only tests use {key}: move it to [dev-dependencies]")
    } else {
        format!("nothing uses {key}: remove it")
    })
}

/// The names that could be those of other crates: what a path or an import begins with.
/// Paths in strings count inside attributes, where serde and clap take them. Comments and other
/// strings do not, and neither does what `skipped` says.
fn crates_named(tokens: Option<TokenStream>, skipped: &dyn Fn(Span) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(tokens.unwrap_or_default(), false, skipped, &mut names);
    names
}

fn collect(
    tokens: TokenStream,
    in_attribute: bool,
    skipped: &dyn Fn(Span) -> bool,
    names: &mut BTreeSet<String>,
) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let (before, behind) = (&tokens[..index], &tokens[index + 1..]);
        match token {
            token if skipped(token.span()) => {}
            TokenTree::Group(group) => {
                let attribute = in_attribute || is_punct(before.last(), '#');
                collect(group.stream(), attribute, skipped, names);
                if is_ident(before.last(), &["use"]) {
                    names.extend(first_of_each(group.stream()));
                }
            }
            TokenTree::Ident(ident) => {
                let begins_path = is_punct(behind.first(), ':') && is_punct(behind.get(1), ':');
                let imported = is_ident(before.last(), &["use", "crate"]);
                if imported || begins_path && !continues_path(before) {
                    names.insert(ident.to_string().trim_start_matches("r#").to_owned());
                }
            }
            TokenTree::Literal(literal) if in_attribute => {
                let text = literal.to_string();
                let first = text.trim_matches('"').split("::").next().unwrap_or_default();
                names.insert(first.to_owned());
            }
            _ => {}
        }
    }
}

/// Whether what comes before a name is the beginning of its path: `a::`, and not the `::` that
/// begins the path to another crate, which has a space in front.
fn continues_path(before: &[TokenTree]) -> bool {
    let [.., beginning, colon, second] = before else { return false };
    is_punct(Some(colon), ':')
        && is_punct(Some(second), ':')
        && (matches!(beginning, TokenTree::Ident(_)) || is_punct(Some(beginning), '>'))
        && beginning.span().end() == colon.span().start()
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_ident(token: Option<&TokenTree>, wanted: &[&str]) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if wanted.iter().any(|word| ident == word))
}

/// The first name of each part of `use {a, b::c}`.
fn first_of_each(group: TokenStream) -> BTreeSet<String> {
    let tokens: Vec<_> = group.into_iter().collect();
    let first = |index: usize| index == 0 || is_punct(tokens.get(index - 1), ',');
    let idents = tokens.iter().enumerate().filter_map(|(index, token)| match token {
        TokenTree::Ident(ident) if first(index) => Some(ident.to_string()),
        _ => None,
    });
    idents.collect()
}

/// A line of a manifest that names a dependency.
#[derive(Debug, PartialEq, Eq)]
struct Entry<'a> {
    /// The name in the header of the section, such as `dev-dependencies`.
    section: &'a str,
    key: &'a str,
    line: usize,
    /// Whether it is taken from the workspace's own table.
    workspace: bool,
}

impl Entry<'_> {
    fn key(&self) -> String {
        self.key.to_owned()
    }
}

/// The dependencies that a manifest has in tables of one line each. Cargo reads manifests
/// for everything else; this says only on which line an entry is, and whence its version comes.
fn entries(manifest: &str) -> Vec<Entry<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        if let Some(header) = line.trim().strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if section.ends_with("dependencies")
            && let Some((key, value)) = line.split_once('=')
            && line.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        {
            let (key, field) = key.trim().split_once('.').unwrap_or((key.trim(), ""));
            let value: String = value.split_whitespace().collect();
            let workspace = field == "workspace" || value.contains("workspace=true");
            found.push(Entry { section, key, line: index + 1, workspace });
        }
    }
    found
}

fn line_of(entries: &[Entry], dependency: &Dependency) -> usize {
    let section = match dependency.kind {
        DependencyKind::Development => "dev-dependencies",
        DependencyKind::Build => "build-dependencies",
        _ => "dependencies",
    };
    let key = dependency.rename.as_ref().unwrap_or(&dependency.name);
    let mut matching = entries.iter().filter(|entry| {
        entry.key == key && entry.section.rsplit('.').next().is_some_and(|last| last == section)
    });
    matching.next().map_or(1, |entry| entry.line)
}

/// The entries of the workspace's table that no member takes.
fn unused_in_workspace(manifest: &str, taken: &BTreeSet<String>) -> Vec<Finding> {
    entries(manifest)
        .into_iter()
        .filter(|entry| entry.section == "workspace.dependencies" && !taken.contains(entry.key))
        .map(|Entry { key, line, .. }| Finding {
            path: "Cargo.toml".into(),
            line,
            message: format!("no member of the workspace uses {key}: remove it"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::modules::SourceFile;

    fn named(text: &str) -> Vec<String> {
        crates_named(text.parse().ok(), &|_| false).into_iter().collect()
    }

    #[test]
    fn crates_are_named_in_paths_imports_and_attributes() {
        for text in [
            "use hex::encode;",
            "use hex;",
            "use hex as h;",
            "use ::hex::x;",
            "use {hex, std::fmt};",
            "use {std::fmt, hex::x};",
            "extern crate hex;",
            "fn f() { hex::encode(x) }",
            "fn f() { x(&::hex::encode(x)) }",
            "struct S(Vec<hex::Error>);",
            "fn f() { println!(\"{}\", hex::encode(x)) }",
            "#[hex::derive] fn f() {}",
            "#[derive(Debug, hex::Hex)] struct S;",
            "struct S { #[serde(with = \"hex\")] x: u8 }",
            "struct S { #[serde(with = \"hex::serde\")] x: u8 }",
            "#[cfg(feature = \"x\")] use hex::x;",
        ] {
            assert!(named(text).contains(&"hex".to_owned()), "{text}");
        }
    }

    #[test]
    fn words_that_only_look_like_a_crate_do_not_count() {
        for text in [
            "// use hex::encode;",
            "/// See [`hex::encode`].\nfn f() {}",
            "fn f() { g(\"hex\") }",
            "fn f(hex: u8) { hex }",
            "use crate::hex::x;",
            "use a::{hex, b};",
            "fn f() { x.hex() }",
        ] {
            assert!(!named(text).contains(&"hex".to_owned()), "{text}");
        }
    }

    fn dependency(name: &str, kind: &str, rename: Option<&str>) -> Dependency {
        let value = serde_json::json!({
            "name": name, "req": "*", "kind": kind, "rename": rename, "optional": false,
            "uses_default_features": true, "features": [],
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_dependency_is_looked_for_where_it_may_be_used() {
        let text = "use serde_json::x; #[cfg(test)] mod tests { use proptest::y; }";
        let file = SourceFile::parse("x.rs".into(), Vec::new(), text).unwrap();
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let named = Named {
            product: crates_named_in(&[file]),
            build_script: set(&["cc"]),
            anywhere: set(&["serde_json", "proptest", "cc"]),
        };
        let of = |name, kind, rename| judge(&dependency(name, kind, rename), &named);
        assert_eq!(of("serde-json", "normal", None), None);
        assert_eq!(of("proptest", "dev", None), None);
        assert_eq!(of("cc", "build", None), None);
        assert_eq!(of("other", "normal", Some("serde-json")), None);
        assert_eq!(of("hex", "normal", None).unwrap(), "nothing uses hex: remove it");
        assert_eq!(
            of("serde-json", "normal", Some("json")).unwrap(),
            "nothing uses json: remove it"
        );
        assert_eq!(of("hex", "dev", None).unwrap(), "nothing uses hex: remove it");
        assert_eq!(of("serde-json", "build", None).unwrap(), "nothing uses serde-json: remove it");
        assert_eq!(
            of("proptest", "normal", None).unwrap(),
            "only tests use proptest: move it to [dev-dependencies]"
        );
    }

    #[test]
    fn an_entry_of_the_workspace_that_nobody_takes_is_found_on_its_line() {
        let manifest = "[workspace]\nmembers = [\"a\"]\n[workspace.dependencies]\n# hex = 1\n\
                        serde = \"1\"\nhex = { version = \"1\", features = [\"x=y\"] }\n\
                        [workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let found = unused_in_workspace(manifest, &["serde".to_owned()].into());
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["Cargo.toml:6: no member of the workspace uses hex: remove it"]);
    }

    #[test]
    fn entries_of_a_manifest_have_their_section_and_line() {
        let manifest = "[dependencies]\na.workspace = true\nb = { workspace = true }\nc = \"1\"\n\
                        [target.'cfg(unix)'.dev-dependencies]\na = { path = \"x\" }\n[features]\nd = []\n";
        let expected = [
            Entry { section: "dependencies", key: "a", line: 2, workspace: true },
            Entry { section: "dependencies", key: "b", line: 3, workspace: true },
            Entry { section: "dependencies", key: "c", line: 4, workspace: false },
            Entry {
                section: "target.'cfg(unix)'.dev-dependencies",
                key: "a",
                line: 6,
                workspace: false,
            },
        ];
        let entries = entries(manifest);
        assert_eq!(entries, expected);
        assert_eq!(line_of(&entries, &dependency("a", "normal", None)), 2);
        assert_eq!(line_of(&entries, &dependency("a", "dev", None)), 6);
    }
}
