//! The flag `-f` of commands that take objects from files, directories and the standard input.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use postern_kinds::Verb;

use crate::batch::{self, Failure};
use crate::error::CliError;
use crate::flags::{CollectionFlags, NamespaceFlag};
use crate::manifest::{self, Manifest};
use crate::output::escape;
use crate::process::{Process, TEXT_FILE_MAX_BYTES, in_utf8, read_text_file};

/// The most files of all directories together.
const FILES_MAX: usize = 10_000;
/// How deep directories may be nested.
const NESTED_MAX: usize = 32;
/// The endings of files that are read in a directory.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Objects in files.
#[derive(Args, Clone, Debug)]
pub(crate) struct FileFlags {
    /// A file with objects in YAML or JSON, a directory with such files, or - for the standard input; may be
    /// repeated
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Also the directories in a directory
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// An object of a file, if it is not in another namespace than the one of the flag.
fn in_namespace(manifest: Manifest, flag: &NamespaceFlag) -> Result<Manifest, CliError> {
    let own = manifest.object.metadata.namespace.as_str();
    let Some(wanted) = flag.namespace.as_deref().filter(|wanted| *wanted != own) else {
        return Ok(manifest);
    };
    if own.is_empty() || !manifest.info.is_namespaced() {
        return Ok(manifest);
    }
    let message = format!(
        "{}: the object is in the namespace {}, and -n names {wanted}",
        manifest.location,
        escape(own)
    );
    Err(CliError::new(message).hint("omit -n, or correct metadata.namespace"))
}

impl FileFlags {
    /// Reads everything, before anything is done with it. Each object has its own error.
    pub(crate) fn read(
        &self,
        verb: Verb,
        flags: &CollectionFlags,
        process: &Process,
    ) -> Result<Vec<Result<Manifest, CliError>>, CliError> {
        let stdin_count = self.files.iter().filter(|file| is_stdin(file)).count();
        let key_from_stdin = flags.connection.target.credential.reads_key_from_stdin();
        if stdin_count + usize::from(key_from_stdin) > 1 {
            let message = "the standard input can be used only once: for `-f -` or for \
                           `--access-key -`";
            return Err(CliError::usage(message));
        }
        let mut manifests = Vec::new();
        for file in &self.files {
            if is_stdin(file) {
                let bytes = process.read_stdin(TEXT_FILE_MAX_BYTES)?;
                let bytes = in_utf8(bytes, "the standard input")?;
                manifests.extend(manifest::parse("the standard input", &bytes, verb));
                continue;
            }
            for file in self.files_of(file)? {
                let bytes = read_text_file(&file)?;
                manifests.extend(manifest::parse(&file.display().to_string(), &bytes, verb));
            }
        }
        if manifests.is_empty() {
            return Err(CliError::new("the files of -f contain no object"));
        }
        let manifests =
            manifests.into_iter().map(|manifest| in_namespace(manifest?, &flags.namespace));
        Ok(manifests.collect())
    }

    /// The file itself, or the files of a directory in the order of their names.
    fn files_of(&self, path: &Path) -> Result<Vec<PathBuf>, CliError> {
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let mut found = Vec::new();
        self.add_directory(path, 0, &mut found)?;
        if found.is_empty() {
            let message =
                format!("{} has no file that ends with .yaml, .yml or .json", path.display());
            let error = CliError::new(message);
            return Err(error.hint_if(!self.recursive, "-R also reads the directories in it"));
        }
        Ok(found)
    }

    fn add_directory(
        &self,
        directory: &Path,
        depth: usize,
        found: &mut Vec<PathBuf>,
    ) -> Result<(), CliError> {
        let cannot = |error: std::io::Error| {
            CliError::new(format!("cannot read {}: {error}", directory.display()))
        };
        let entries = fs::read_dir(directory).map_err(cannot)?;
        let entries = entries.map(|entry| entry.map(|entry| entry.path()));
        let entries: BTreeSet<PathBuf> = entries.collect::<Result<_, _>>().map_err(cannot)?;
        for path in entries {
            // A link to a directory could lead back to this one. A link to a file is read.
            let is_directory = fs::symlink_metadata(&path).map_err(cannot)?.is_dir();
            if is_directory && self.recursive && depth < NESTED_MAX {
                self.add_directory(&path, depth + 1, found)?;
            }
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if !is_directory && ENDINGS.contains(&ending) && path.is_file() {
                found.push(path);
            }
            if found.len() > FILES_MAX {
                let message = format!("{} has more than {FILES_MAX} files", directory.display());
                return Err(CliError::new(message));
            }
        }
        Ok(())
    }
}

/// Does the work for one object of the files after the other.
pub(crate) async fn each(
    manifests: &[Result<Manifest, CliError>],
    process: &Process,
    mut work: impl AsyncFnMut(&Manifest) -> Result<(), Failure>,
) -> Result<(), CliError> {
    let label =
        |manifest: &Result<Manifest, CliError>| Some(manifest.as_ref().ok()?.location.clone());
    batch::each(manifests, label, process, async |manifest| match manifest {
        Ok(manifest) => work(manifest).await.map_err(|failure| failure.at(&manifest.location)),
        Err(error) => Err(Failure::One(error.clone())),
    })
    .await
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_files_of_a_directory_come_in_their_order() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        fs::create_dir_all(root.join("deep/deeper")).unwrap();
        for name in ["b.yaml", "a.json", "c.yml", "notes.txt", "deep/d.yaml", "deep/deeper/e.yaml"]
        {
            File::create(root.join(name)).unwrap();
        }
        symlink(root, root.join("deep/loop")).unwrap();
        symlink(root.join("b.yaml"), root.join("deep/link.yaml")).unwrap();
        let names = |path: &Path, recursive: bool| {
            let flags = FileFlags { files: Vec::new(), recursive };
            let found = flags.files_of(path)?.into_iter();
            let name = |path: PathBuf| path.strip_prefix(root).unwrap().display().to_string();
            Ok::<_, CliError>(found.map(name).collect::<Vec<_>>())
        };
        assert_eq!(names(root, false).unwrap(), ["a.json", "b.yaml", "c.yml"]);
        let all =
            ["a.json", "b.yaml", "c.yml", "deep/d.yaml", "deep/deeper/e.yaml", "deep/link.yaml"];
        assert_eq!(names(root, true).unwrap(), all);
        assert_eq!(names(&root.join("notes.txt"), false).unwrap(), ["notes.txt"]);
        fs::create_dir(root.join("empty")).unwrap();
        let error = names(&root.join("empty"), false).unwrap_err();
        assert!(error.message.contains(".yaml") && error.hints[0].contains("-R"), "{error:?}");
    }
}
