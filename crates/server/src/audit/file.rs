//! The log's file: appended to, put aside when it is full, and made anew when somebody else has moved
//! it away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{AuditLog, AuditSettings};
use crate::clock::Source;

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
}

impl Regular {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE).open(path)?;
        let found = file.metadata()?;
        let identity = found.is_file().then(|| (found.dev(), found.ino()));
        let mut open = Self { file, identity, bytes: found.len() };
        if identity.is_some() {
            open.end_line(path)?;
        }
        Ok(open)
    }

    /// Ends a line that a sudden death has torn, so that the next one stands by itself.
    /// It is read apart: a pipe that were opened for both would never say that nobody reads it.
    fn end_line(&mut self, path: &Path) -> io::Result<()> {
        let mut last = [b'\n'];
        if self.bytes > 0 {
            File::open(path)?.read_exact_at(&mut last, self.bytes - 1)?;
        }
        if last != [b'\n'] {
            self.file.write_all(b"\n")?;
            self.bytes += 1;
        }
        Ok(())
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
    pub(super) fn open(mut settings: AuditSettings, source: Arc<dyn Source>) -> io::Result<Self> {
        let output = match &settings.log {
            AuditLog::Stdout => Output::Stdout(io::stdout()),
            AuditLog::File(path) => Output::File(open(path)?),
        };
        // Of a link, it is the file that is put aside, and not the link. What is no file (a pipe by
        // way of /dev/stdout, say) may have no other path.
        if let (AuditLog::File(path), Output::File(Regular { identity: Some(_), .. })) =
            (&mut settings.log, &output)
        {
            *path = fs::canonicalize(&*path)?;
        }
        Ok(Self { settings, source, output, done: 0, complained: false })
    }

    /// Writes a batch of whole lines, and empties it. After an error it goes on where it ended, when
    /// it is called with the same batch again.
    ///
    /// # Errors
    /// Those of the file.
    pub(super) fn write(&mut self, batch: &mut Vec<u8>) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
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
                    take_back(open, batch, &mut self.done);
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
        if !open.is_at(path) {
            *open = self::open(path)?;
        }
        let full = open.bytes.saturating_add(batch_bytes as u64) > self.settings.max_file_bytes;
        if full && open.bytes > 0 && open.identity.is_some() {
            let time = self.source.now_micro().to_string();
            let put = put_aside(path, &time).map(|new| *open = new);
            // Too large a file, or too many, are better than none.
            let done = put.and_then(|()| forget_oldest(path, self.settings.max_files_aside));
            match done {
                Err(error) if !self.complained => {
                    tracing::error!("files of the audit log cannot be put aside: {error}");
                    self.complained = true;
                }
                Err(_) => {}
                Ok(()) => self.complained = false,
            }
        }
        Ok(())
    }
}

/// Gives the file another name, and answers a new one.
fn put_aside(path: &Path, time: &str) -> io::Result<Regular> {
    fs::rename(path, aside(path, time))?;
    open(path)
}

fn open(path: &Path) -> io::Result<Regular> {
    let opened = (|| {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
        }
        Regular::open(path)
    })();
    opened.map_err(|error| {
        let what = format!("cannot open the audit log {}: {error}", path.display());
        io::Error::new(error.kind(), what)
    })
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
/// reads it meanwhile sees whole lines, and the rest can go into another file. Where that does not
/// work, as with a pipe, the line is gone on with later.
fn take_back(open: &mut Regular, batch: &mut Vec<u8>, done: &mut usize) {
    let whole = batch[..*done].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let bytes = open.bytes.saturating_sub((*done - whole) as u64);
    let torn = whole < *done;
    if torn && (open.identity.is_none() || open.file.set_len(bytes).is_err()) {
        return;
    }
    open.bytes = bytes;
    batch.drain(..whole);
    *done = 0;
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
        if time.is_some_and(is_time) {
            aside.push(name);
        }
    }
    aside.sort();
    let surplus = aside.len().saturating_sub(most);
    let mut removed = Ok(());
    for name in aside.iter().take(surplus) {
        // One that cannot be removed does not keep the others.
        removed = fs::remove_file(dir.join(name)).and(removed);
    }
    removed
}

/// Is it such a time as stands in the names of files that were put aside? Nothing else of that name
/// is ours to remove.
fn is_time(text: &str) -> bool {
    let form = "0000-00-00T00-00-00.000000";
    let fits = |(c, form): (char, char)| if form == '0' { c.is_ascii_digit() } else { c == form };
    text.len() == form.len() && text.chars().zip(form.chars()).all(fits)
}

#[cfg(test)]
impl LogFile {
    /// Takes nothing from now on, until the file is opened anew.
    pub(super) fn break_file(&mut self) {
        if let Output::File(open) = &mut self.output {
            // It can be read, and not written.
            open.file = File::open("/dev/null").unwrap();
        }
    }
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
        fs::write(path.with_file_name("audit-what-is-this-of-that-size-.log"), "mine").unwrap();
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

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        write(&mut log, "1\n");
        fs::rename(&path, path.with_file_name("theirs")).unwrap();
        write(&mut log, "2\n");
        assert_eq!(files(&path), ["2\n", "1\n"]);
    }

    #[test]
    fn a_line_that_cannot_be_ended_is_taken_back() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        let Output::File(open) = &mut log.output else { panic!("a file") };
        open.file.write_all(b"1\n2\nbeg").unwrap();
        open.bytes = 7;
        let (mut batch, mut done) = (b"1\n2\nbegun\n".to_vec(), 7);
        take_back(open, &mut batch, &mut done);
        assert_eq!((batch.as_slice(), done), (&b"begun\n"[..], 0));
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        // The rest goes to where the file is then.
        fs::remove_file(&path).unwrap();
        log.write(&mut batch).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "begun\n");
    }

    #[test]
    fn what_could_not_be_written_goes_to_where_the_file_is_then() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        log.break_file();
        let mut batch = b"1\n2\n".to_vec();
        assert!(log.write(&mut batch).is_err());
        assert_eq!(batch, b"1\n2\n");
        fs::rename(&path, path.with_file_name("theirs")).unwrap();
        log.write(&mut batch).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn a_line_that_was_torn_is_ended() {
        let dir = TempDir::new().unwrap();
        let (mut first, path) = log(&dir, 100);
        write(&mut first, "1\n2");
        write(&mut log(&dir, 100).0, "3\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
    }

    #[test]
    fn a_link_stays_where_it_is() {
        let dir = TempDir::new().unwrap();
        let (link, real) = (dir.path().join("audit.log"), dir.path().join("real/audit.log"));
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let settings = AuditSettings {
            log: AuditLog::File(link.clone()),
            policy_file: None,
            max_file_bytes: 2,
            max_files_aside: 2,
        };
        let mut log = LogFile::open(settings, Arc::new(System::default())).unwrap();
        write(&mut log, "1\n");
        write(&mut log, "2\n");
        assert_eq!(files(&real), ["1\n", "2\n"]);
        assert_eq!(fs::read_to_string(&link).unwrap(), "2\n");
    }

    #[test]
    fn a_file_that_cannot_be_put_aside_grows_on() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 2);
        // Under the name that it would get there is a directory that is not empty.
        let Output::File(_) = &log.output else { panic!("a file") };
        log.source = Arc::new(ResolvedKey);
        let taken = aside(&path, &ResolvedKey.now_micro().to_string());
        fs::create_dir_all(taken.join("x")).unwrap();
        write(&mut log, "1\n");
        write(&mut log, "2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        assert!(log.complained);
    }

    /// A clock that stands still.
    struct ResolvedKey;

    impl Source for ResolvedKey {
        fn now_micro(&self) -> postern_meta::time::MicroTimestamp {
            postern_meta::time::MicroTimestamp::from_unix_microseconds(0)
        }

        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
}
