//! The log's file: appended to, put aside when it is full, and made anew when somebody else has moved
//! it away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{AuditLog, AuditSettings};
use crate::clock::Source;

/// How often it is looked whether the file is still where it was.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Owner only, as all files of the server.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// Where lines go.
pub(super) struct LogFile {
    settings: AuditSettings,
    source: Arc<dyn Source>,
    output: Output,
    /// Bytes of the batch at hand that are written.
    done: usize,
    /// Has it been said that files cannot be put aside?
    complained: bool,
}

enum Output {
    Stdout(io::Stdout),
    File(Regular),
}

/// An open file, which can be a pipe or a device as well.
struct Regular {
    file: File,
    /// Which file it is, by device and number, if it is a regular one.
    identity: Option<(u64, u64)>,
    bytes: u64,
    looked: Instant,
}

impl Regular {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)?;
        let found = file.metadata()?;
        let identity = found.is_file().then(|| (found.dev(), found.ino()));
        Ok(Self { file, identity, bytes: found.len(), looked: Instant::now() })
    }

    /// Is there still this file under the path? Its length is noted besides: somebody may have
    /// emptied it.
    fn is_at(&mut self, path: &Path) -> bool {
        let Some(identity) = self.identity else { return true };
        let Ok(found) = fs::metadata(path) else { return false };
        self.bytes = found.len();
        (found.dev(), found.ino()) == identity
    }
}

impl LogFile {
    /// Opens it, and makes its directory if there is none.
    ///
    /// # Errors
    /// When it cannot be opened; says which.
    pub(super) fn open(settings: AuditSettings, source: Arc<dyn Source>) -> io::Result<Self> {
        let output = match &settings.log {
            AuditLog::Stdout => Output::Stdout(io::stdout()),
            AuditLog::File(path) => Output::File(open(path).map_err(|error| {
                let what = format!("cannot open the audit log {}: {error}", path.display());
                io::Error::new(error.kind(), what)
            })?),
        };
        Ok(Self { settings, source, output, done: 0, complained: false })
    }

    /// Writes a batch of whole lines, and empties it. After an error it goes on where it ended, when
    /// it is called with the same batch again.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn write(&mut self, batch: &mut Vec<u8>) -> io::Result<()> {
        self.prepare(batch.len())?;
        let written = match &mut self.output {
            Output::Stdout(out) => {
                write_from(out, batch, &mut self.done).and_then(|()| out.flush())
            }
            Output::File(open) => {
                let before = self.done;
                let written = write_from(&mut open.file, batch, &mut self.done);
                open.bytes += (self.done - before) as u64;
                if written.is_err() {
                    self.done = take_back(open, batch, self.done);
                }
                written
            }
        };
        written?;
        self.done = 0;
        batch.clear();
        Ok(())
    }

    /// Sees to it that the file is where it should be, and has room for so many bytes.
    fn prepare(&mut self, batch_bytes: usize) -> io::Result<()> {
        let (AuditLog::File(path), Output::File(open)) = (&self.settings.log, &mut self.output)
        else {
            return Ok(());
        };
        // A line that is begun must be ended where it was.
        if self.done > 0 {
            return Ok(());
        }
        if open.looked.elapsed() >= LOOK_INTERVAL {
            open.looked = Instant::now();
            if !open.is_at(path) {
                *open = self::open(path)?;
            }
        }
        let full = open.bytes.saturating_add(batch_bytes as u64) > self.settings.max_file_bytes;
        if full && open.bytes > 0 && open.identity.is_some() {
            let time = self.source.now_micro().to_string();
            match put_aside(path, &time, self.settings.max_files_aside) {
                Ok(new) => *open = new,
                // Too large a file is better than none.
                Err(error) if !self.complained => {
                    tracing::error!("the audit log cannot be put aside, and grows on: {error}");
                    self.complained = true;
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Gives the file another name, and answers a new one.
fn put_aside(path: &Path, time: &str, most: usize) -> io::Result<Regular> {
    fs::rename(path, aside(path, time))?;
    let new = open(path)?;
    forget_oldest(path, most)?;
    Ok(new)
}

fn open(path: &Path) -> io::Result<Regular> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
    }
    Regular::open(path)
}

fn write_from(out: &mut impl Write, batch: &[u8], done: &mut usize) -> io::Result<()> {
    while *done < batch.len() {
        match out.write(&batch[*done..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(bytes) => *done += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes the beginning of a line that could not be ended out of the file again, so that whoever
/// reads it meanwhile sees whole lines. Answers how much of the batch is written then.
fn take_back(open: &mut Regular, batch: &[u8], done: usize) -> usize {
    let whole = batch[..done].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let bytes = open.bytes.saturating_sub((done - whole) as u64);
    if open.identity.is_none() || open.file.set_len(bytes).is_err() {
        return done;
    }
    open.bytes = bytes;
    whole
}

/// `audit.log` becomes `audit-2006-01-02T15-04-05.000000.log`.
fn aside(path: &Path, time: &str) -> PathBuf {
    let (stem, extension) = parts(path);
    let time = time.trim_end_matches('Z').replace(':', "-");
    path.with_file_name(format!("{stem}-{time}{extension}"))
}

/// A file's name without its extension, and the extension with its dot.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| {
        part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let extension = text(path.extension());
    let dot = if extension.is_empty() { "" } else { "." };
    (text(path.file_stem()), format!("{dot}{extension}"))
}

/// Removes the oldest of the files that were put aside, if there are more than so many.
fn forget_oldest(path: &Path, most: usize) -> io::Result<()> {
    let (stem, extension) = parts(path);
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut aside = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
        let time = time.and_then(|rest| rest.strip_suffix(&extension));
        // Nothing but what was put aside here: it ends in a time.
        if time.is_some_and(|time| time.len() == "2006-01-02T15-04-05.000000".len()) {
            aside.push(name);
        }
    }
    aside.sort();
    let surplus = aside.len().saturating_sub(most);
    aside.iter().take(surplus).try_for_each(|name| fs::remove_file(dir.join(name)))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::clock::System;

    fn log(dir: &TempDir, max_file_bytes: u64) -> (LogFile, PathBuf) {
        let path = dir.path().join("sub/audit.log");
        let settings = AuditSettings {
            log: AuditLog::File(path.clone()),
            policy_file: None,
            max_file_bytes,
            max_files_aside: 2,
        };
        (LogFile::open(settings, Arc::new(System::default())).unwrap(), path)
    }

    fn write(log: &mut LogFile, text: &str) {
        log.write(&mut text.as_bytes().to_vec()).unwrap();
    }

    fn files(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path.parent().unwrap()).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    }

    #[test]
    fn a_full_file_is_put_aside_and_the_oldest_forgotten() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 4);
        for line in ["1\n", "2\n", "3\n", "4\n"] {
            write(&mut log, line);
        }
        assert_eq!(files(&path), ["1\n2\n", "3\n4\n"]);
        // A batch is never torn, and never waits for room that there will not be.
        write(&mut log, "a long one\n");
        assert_eq!(files(&path), ["1\n2\n", "3\n4\n", "a long one\n"]);
        fs::write(path.with_file_name("audit-notes.log"), "mine").unwrap();
        write(&mut log, "5\n");
        assert_eq!(files(&path), ["3\n4\n", "a long one\n", "mine", "5\n"]);
    }

    #[test]
    fn a_file_that_is_there_is_continued() {
        let dir = TempDir::new().unwrap();
        let (mut first, path) = log(&dir, 100);
        write(&mut first, "1\n");
        write(&mut log(&dir, 100).0, "2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_moved_away_is_made_anew() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        write(&mut log, "1\n");
        fs::rename(&path, path.with_file_name("theirs")).unwrap();
        write(&mut log, "2\n");
        tokio::time::advance(LOOK_INTERVAL).await;
        write(&mut log, "3\n");
        assert_eq!(files(&path), ["3\n", "1\n2\n"]);
    }

    #[test]
    fn a_line_that_cannot_be_ended_is_taken_back() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        let Output::File(open) = &mut log.output else { panic!("a file") };
        open.file.write_all(b"1\n2\nbeg").unwrap();
        open.bytes = 7;
        assert_eq!(take_back(open, b"1\n2\nbegun\n", 7), 4);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        log.done = 4;
        write(&mut log, "1\n2\nbegun\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\nbegun\n");
    }
}
