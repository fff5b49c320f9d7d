//! Building the program that is released, so that the directory of the build does not change a byte of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::dependencies::Dependencies;
use super::release::{PACKAGE, Release};
use crate::shell;

/// The profile of cargo, which has the directory of the same name.
pub(crate) const PROFILE: &str = "dist";

/// The largest size of a released program in bytes.
const MAX_BYTES: usize = 30_000_000;

/// The separator of cargo's encoded flags, which may have spaces in them.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// The compiler flag that strips the symbols by rustc's linker, so the machine needs no `strip`.
/// Cargo does not strip a package that has its own settings in the profile.
const STRIP: &str = "-Cstrip=symbols";

/// A program to release.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl Program {
    /// The given program, or a new build of it. A build has at most 30 MB.
    pub(crate) fn take_or_build(
        root: &Path,
        given: Option<&Path>,
        release: &Release,
        dependencies: &Dependencies,
    ) -> Result<Self> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => build(root, release, dependencies)?,
        };
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        println!("    program: {} bytes, {}", bytes.len(), path.display());
        if given.is_none() {
            check(&bytes)?;
        }
        // The program is started by its path, and not looked up.
        Ok(Self { path: path.canonicalize()?, bytes })
    }
}

/// Checks that a program can be released: it is small enough, and has no symbols.
fn check(program: &[u8]) -> Result<()> {
    let bytes = program.len();
    ensure!(
        bytes <= MAX_BYTES,
        "the program has {bytes} bytes, which is more than {MAX_BYTES}: find what has grown, before you raise the limit"
    );
    ensure!(!has_symbols(program), "the program has symbols, although rustc strips them");
    Ok(())
}

/// Whether an ELF file has a table of symbols next to the one of its dynamic linking. Its sections
/// are named at its end.
fn has_symbols(elf: &[u8]) -> bool {
    elf.windows(b"\0.symtab\0".len()).any(|part| part == b"\0.symtab\0")
}

fn build(root: &Path, release: &Release, dependencies: &Dependencies) -> Result<PathBuf> {
    let target = shell::target_directory(root)?;
    let renamed = renamed_directories(root, &target, &dependencies.source_directories());
    let mut command = shell::cargo();
    command.current_dir(root).args(["build", "--locked", "--profile", PROFILE]);
    command.args(["--package", PACKAGE, "--bin", PACKAGE]);
    if !release.features.is_empty() {
        command.arg("--features").arg(release.features.join(","));
    }
    command
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&renamed))
        .env("CFLAGS", c_flags(&renamed))
        // Data for later builds splits the code in other places.
        .env("CARGO_INCREMENTAL", "0")
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .env("POSTERN_COMMIT", &release.commit)
        .env("POSTERN_COMMIT_DATE", &release.date);
    shell::run(&mut command)?;
    Ok(target.join(PROFILE).join(PACKAGE))
}

/// Directories of this machine, and the names that messages of the program have for them. A later one wins
/// where several match.
fn renamed_directories(
    root: &Path,
    target: &Path,
    sources: &[PathBuf],
) -> Vec<(PathBuf, &'static str)> {
    let mut renamed = vec![(root.to_owned(), "/postern"), (target.to_owned(), "/target")];
    renamed.extend(sources.iter().map(|source| (source.clone(), "/crates")));
    renamed
}

fn rust_flags(renamed: &[(PathBuf, &str)]) -> OsString {
    let mut flags = vec![OsString::from(STRIP)];
    flags.extend(renamed.iter().map(|(from, to)| with_paths("--remap-path-prefix=", from, to)));
    flags.join(FLAG_SEPARATOR.as_ref())
}

fn c_flags(renamed: &[(PathBuf, &str)]) -> OsString {
    let flags = renamed.iter().map(|(from, to)| with_paths("-ffile-prefix-map=", from, to));
    flags.collect::<Vec<_>>().join(" ".as_ref())
}

fn with_paths(flag: &str, from: &Path, to: &str) -> OsString {
    let mut text = OsString::from(flag);
    text.push(from);
    text.push("=");
    text.push(to);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_too_large_or_has_symbols_is_refused() {
        check(&vec![0; MAX_BYTES]).unwrap();
        let error = check(&vec![0; MAX_BYTES + 1]).unwrap_err().to_string();
        assert!(error.starts_with("the program has 30000001 bytes"), "{error}");
        let error = check(b"\x7fELF\0.text\0.symtab\0.strtab\0").unwrap_err().to_string();
        assert!(error.contains("has symbols"), "{error}");
        check(b"\x7fELF\0.text\0.dynsym\0").unwrap();
    }

    #[test]
    fn no_directory_of_the_machine_is_left() {
        let sources = [PathBuf::from("/home/x y/.cargo/registry/src/index")];
        let renamed = renamed_directories(Path::new("/src"), Path::new("/src/target"), &sources);
        assert_eq!(
            rust_flags(&renamed).to_str().unwrap().split(FLAG_SEPARATOR).collect::<Vec<_>>(),
            [
                STRIP,
                "--remap-path-prefix=/src=/postern",
                "--remap-path-prefix=/src/target=/target",
                "--remap-path-prefix=/home/x y/.cargo/registry/src/index=/crates",
            ]
        );
        let flags = c_flags(&renamed[..2]);
        assert_eq!(flags, "-ffile-prefix-map=/src=/postern -ffile-prefix-map=/src/target=/target");
    }
}
