//! The crates in the program: the normal dependencies of the package for one target, with the released features.
//!
//! `cargo tree` knows which crates one package has. `cargo metadata` knows more about each, but resolves the features
//! of the whole workspace. The checksums are in `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::release::{PACKAGE, Release};
use crate::shell;

/// The name and the version of a crate.
pub(crate) type Name = (String, String);

/// The crates in the program.
pub(crate) struct Dependencies {
    /// The program's own package, and the others of the workspace.
    pub(crate) own: Vec<Package>,
    /// Every other crate, by name and version.
    pub(crate) foreign: Vec<Package>,
    /// For each crate, the crates that it uses.
    pub(crate) uses: BTreeMap<Name, BTreeSet<Name>>,
    /// The SHA-256 digests of the crates that come from a registry.
    pub(crate) checksums: BTreeMap<Name, String>,
}

impl Dependencies {
    /// Asks cargo, and reads `Cargo.lock`.
    pub(crate) fn of(root: &Path, release: &Release) -> Result<Self> {
        let in_program = in_program(root, release)?;
        let mut options =
            ["--locked", "--filter-platform", &release.target].map(str::to_owned).to_vec();
        for feature in &release.features {
            options.extend(["--features".to_owned(), format!("{PACKAGE}/{feature}")]);
        }
        let metadata = MetadataCommand::new().current_dir(root).other_options(options).exec()?;
        let (mut own, mut foreign) = (Vec::new(), Vec::new());
        for package in metadata.packages.iter().filter(|one| in_program.contains(&name_of(one))) {
            if package.source.is_none() { &mut own } else { &mut foreign }.push(package.clone());
        }
        let found = own.len() + foreign.len();
        ensure!(found == in_program.len(), "cargo metadata and cargo tree name different crates");
        own.sort_by_key(name_of);
        foreign.sort_by_key(name_of);
        let uses = uses(&metadata, &in_program)?;
        let lock = root.join("Cargo.lock");
        let lock = std::fs::read_to_string(&lock).context("cannot read Cargo.lock")?;
        Ok(Self { own, foreign, uses, checksums: checksums(&lock) })
    }

    /// The directories that the sources of crates are unpacked in: one for each registry.
    pub(crate) fn source_directories(&self) -> Vec<PathBuf> {
        let directories = self.foreign.iter().filter_map(|package| {
            Some(package.manifest_path.parent()?.parent()?.as_std_path().to_owned())
        });
        directories.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The name and the version of a package.
pub(crate) fn name_of(package: &Package) -> Name {
    (package.name.to_string(), package.version.to_string())
}

fn in_program(root: &Path, release: &Release) -> Result<BTreeSet<Name>> {
    let mut command = shell::cargo();
    command.current_dir(root).args(["tree", "--locked", "--package", PACKAGE, "--edges", "normal"]);
    command.args(["--target", &release.target, "--prefix", "none", "--format", "{p}"]);
    if !release.features.is_empty() {
        command.arg("--features").arg(release.features.join(","));
    }
    names_in_tree(&shell::output_of(&mut command)?)
}

/// The crates in lines such as `serde v1.0.0 (proc-macro) (*)`.
fn names_in_tree(tree: &str) -> Result<BTreeSet<Name>> {
    let name = |line: &str| {
        let mut words = line.split(' ');
        let version = |word: &str| word.strip_prefix('v').map(str::to_owned);
        let name = words.next().zip(words.next().and_then(version));
        let (name, version) = name.with_context(|| format!("cargo tree has a line {line:?}"))?;
        Ok((name.to_owned(), version))
    };
    tree.lines().filter(|line| !line.is_empty()).map(name).collect()
}

/// The arrows of the graph that are normal dependencies between crates in the program.
fn uses(
    metadata: &Metadata,
    in_program: &BTreeSet<Name>,
) -> Result<BTreeMap<Name, BTreeSet<Name>>> {
    let graph = metadata.resolve.as_ref().context("cargo metadata has no graph")?;
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, name_of(package))).collect();
    let name = |id| names.get(id).filter(|name| in_program.contains(name)).cloned();
    let mut uses = BTreeMap::new();
    for node in &graph.nodes {
        let Some(from) = name(&node.id) else { continue };
        let normal = node.deps.iter().filter(|dependency| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        });
        uses.insert(from, normal.filter_map(|dependency| name(&dependency.pkg)).collect());
    }
    Ok(uses)
}

/// The checksums in a `Cargo.lock`, which cargo writes with one value a line.
fn checksums(lock: &str) -> BTreeMap<Name, String> {
    let block = |block: &str| {
        let value = |key: &str| {
            let lines = block.lines().filter_map(|line| line.split_once(" = "));
            let mut values = lines.filter(|(name, _)| *name == key).map(|(_, value)| value);
            values.next().map(|value| value.trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str, version: &str) -> Name {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn crates_are_read_from_lines_of_cargo_tree() {
        let tree = "postern v0.2.0 (/src/crates/postern)\nserde v1.0.2\n\
            serde_derive v1.0.2 (proc-macro)\nserde v1.0.2 (*)\n\nserde v2.0.0-rc.1\n";
        let expected = [
            name("postern", "0.2.0"),
            name("serde", "1.0.2"),
            name("serde", "2.0.0-rc.1"),
            name("serde_derive", "1.0.2"),
        ];
        assert_eq!(names_in_tree(tree).unwrap(), BTreeSet::from(expected));
        for invalid in ["serde", "serde 1.0.2", "[features]"] {
            let error = names_in_tree(invalid).unwrap_err().to_string();
            assert!(error.contains(invalid), "{error}");
        }
    }

    #[test]
    fn checksums_are_those_of_crates_from_a_registry() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\
            source = \"registry+x\"\nchecksum = \"12ab\"\ndependencies = [\n \"b\",\n]\n\n\
            [[package]]\nname = \"b\"\nversion = \"0.2.0\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(name("a", "1.0.0"), "12ab".to_owned())]));
    }

    /// The crates of this workspace. The test needs no target, because every target has these.
    #[test]
    fn the_program_has_its_own_crates_and_none_of_the_tests() {
        let root = shell::workspace_root().unwrap();
        let release = Release::of(&root).unwrap();
        let dependencies = Dependencies::of(&root, &release).unwrap();
        let own: Vec<_> = dependencies.own.iter().map(|one| one.name.as_str()).collect();
        for (package, is_in) in
            [("postern", true), ("postern-server", true), ("postern-tests", false)]
        {
            assert_eq!(own.contains(&package), is_in, "{package} in {own:?}");
        }
        let foreign: Vec<_> = dependencies.foreign.iter().map(|one| one.name.as_str()).collect();
        for (package, is_in) in [("tokio", true), ("kube", false), ("insta", false), ("cc", false)]
        {
            assert_eq!(foreign.contains(&package), is_in, "{package} in {foreign:?}");
        }
        for package in &dependencies.foreign {
            let name = name_of(package);
            assert!(dependencies.checksums.contains_key(&name), "{name:?} has a checksum");
            assert!(dependencies.uses.values().any(|used| used.contains(&name)), "{name:?}");
        }
        assert!(!dependencies.source_directories().is_empty());
    }
}
