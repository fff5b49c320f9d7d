//! Editing text in the user's editor: in a file that its owner alone can read, and that is kept unless all is well.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::signal::unix::{self, SignalKind};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::process::{Process, read_text_file};

/// The editor where no variable names one.
const DEFAULT_EDITOR: &str = "vi";
const PRIVATE_FILE: u32 = 0o600;

/// A file with text to edit.
pub(crate) struct EditedFile {
    path: PathBuf,
    /// The text that was written first.
    original: Option<Zeroizing<String>>,
}

impl EditedFile {
    /// Creates an empty file, in `TMPDIR` or `/tmp`.
    pub(crate) fn create(process: &Process) -> Result<Self, CliError> {
        let directory = process.variable("TMPDIR").map_or(Path::new("/tmp"), Path::new);
        let mut name = String::from("postern-edit-");
        for _ in 0..8 {
            // Writing to a String does not fail.
            let _ = write!(name, "{:02x}", process.random());
        }
        let path = directory.join(name + ".yaml");
        let file = Self { path, original: None };
        let created =
            OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&file.path);
        created.map_err(|error| file.error("write", &error))?;
        Ok(file)
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the content.
    pub(crate) fn write(&mut self, content: Zeroizing<String>) -> Result<(), CliError> {
        let opened = OpenOptions::new().write(true).truncate(true).open(&self.path);
        let written = opened.and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| self.error("write", &error))?;
        self.original.get_or_insert(content);
        Ok(())
    }

    /// Opens the editor, waits for its end, and reads the file.
    pub(crate) fn edit(&self, process: &Process) -> Result<Zeroizing<Vec<u8>>, CliError> {
        // Ctrl-C belongs to the editor. The listener stays, so that it does not end this process.
        let _interrupt = unix::signal(SignalKind::interrupt());
        let editor = ["KUBE_EDITOR", "EDITOR"].iter().find_map(|name| process.variable(name));
        let editor = editor.map_or(OsStr::new(DEFAULT_EDITOR), |editor| editor);
        // The variable may have arguments, so a shell reads it. The path is no part of its script.
        let mut script = editor.to_owned();
        script.push(" \"$1\"");
        let ended = Command::new("sh").arg("-c").arg(script).arg("sh").arg(&self.path).status();
        let status = ended.map_err(|error| CliError::new(format!("cannot run sh: {error}")))?;
        if !status.success() {
            let message = format!("the editor {} failed: {status}", editor.to_string_lossy());
            let error = CliError::new(message);
            return Err(error.hint("KUBE_EDITOR or EDITOR names the editor"));
        }
        read_text_file(&self.path)
    }

    /// Whether the file is as it was written first, or gone.
    pub(crate) fn is_unchanged(&self) -> bool {
        let original = self.original.as_ref().map(|text| text.as_bytes());
        let now = read_text_file(&self.path);
        now.map_or_else(|_| !self.path.exists(), |now| original == Some(now.as_slice()))
    }

    /// Removes the file.
    pub(crate) fn remove(self) -> Result<(), CliError> {
        fs::remove_file(&self.path).map_err(|error| self.error("remove", &error))
    }

    fn error(&self, what: &str, error: &io::Error) -> CliError {
        CliError::new(format!("cannot {what} {}: {error}", self.path.display()))
    }
}
