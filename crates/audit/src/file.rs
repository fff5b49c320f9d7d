//! `LogFile`: the file of the log. It is appended to, rotated when it is full, and created again after another program
//! has moved it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postern_registry::clock::Source;

use super::settings::{AuditLog, AuditSettings};

/// The modes: only the server's user can read its files.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// The first bytes of every record.
const RECORD_START: &[u8] = b"{\"kind\":\"Event\",";

/// The maximum length of a record, in bytes: more than two bodies and the head of a request.
const MAX_LINE_BYTES: u64 = 4 * 1024 * 1024;

/// The file or stream to which lines are written.
pub(super) struct LogFile {
    settings: AuditSettings,
    source: Arc<dyn Source>,
    output: Output,
    /// The bytes of the current batch that are written.
    done: usize,
    /// Whether a failed rotation has been logged.
    rotation_error_logged: bool,
}

enum Output {
    Stdout(io::Stdout),
    File(OpenFile),
}

/// An open file, which can also be a pipe or a device.
struct OpenFile {
    file: File,
    /// The device and inode number of a regular file; `None` for others.
    identity: Option<(u64, u64)>,
    bytes: u64,
}

impl OpenFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = Self::open_or_create(path)?;
        let metadata = file.metadata()?;
        let identity = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
        let mut open = Self { file, identity, bytes: metadata.len() };
        if identity.is_some() {
            open.end_last_line(path)?;
        }
        Ok(open)
    }

    /// Opens the file for appending. An existing path can be a link or another file of the operator. A new file is
    /// private, and is created at the path itself, not at the target of a link.
    fn open_or_create(path: &Path) -> io::Result<File> {
        match OpenOptions::new().append(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(PRIVATE_FILE)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(path)
                .map_err(|error| match error.kind() {
                    ErrorKind::AlreadyExists => io::Error::new(
                        ErrorKind::NotFound,
                        "it is a link to a file that does not exist: create the file, or remove the link",
                    ),
                    _ => error,
                }),
            opened => opened,
        }
    }

    /// Removes a partial record after a crash, so that every line is JSON. Its request changed nothing, because a
    /// record is complete before its change is made. Any other last line without a newline is of another program, and
    /// gets a newline. The file is opened again for reading: a pipe that is open for both never reports that it has
    /// no reader.
    fn end_last_line(&mut self, path: &Path) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let start = self.bytes.saturating_sub(MAX_LINE_BYTES);
        let mut end = vec![0; usize::try_from(self.bytes - start).unwrap_or_default()];
        let file = File::open(path)?;
        file.read_exact_at(&mut end, start)?;
        let line = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let partial = &end[line..];
        if partial.is_empty() {
            return Ok(());
        }
        let common = partial.len().min(RECORD_START.len());
        // After a power failure, a file system may have zeros in place of the data.
        let is_empty = partial.iter().all(|byte| *byte == 0);
        if is_empty || partial[..common] == RECORD_START[..common] {
            self.bytes -= partial.len() as u64;
            self.file.set_len(self.bytes)?;
            tracing::warn!(
                bytes = partial.len(),
                "the last record of the audit log was incomplete after a crash, and was removed"
            );
        } else {
            self.file.write_all(b"\n")?;
            self.bytes += 1;
        }
        Ok(())
    }

    /// Whether the path still leads to this file. It also updates the length: another program may have truncated the
    /// file.
    fn is_at(&mut self, path: &Path) -> bool {
        let Some(identity) = self.identity else { return true };
        let Ok(metadata) = fs::metadata(path) else { return false };
        self.bytes = metadata.len();
        (metadata.dev(), metadata.ino()) == identity
    }
}

impl LogFile {
    /// Opens the log, and creates its directory if necessary.
    ///
    /// # Errors
    /// When a file cannot be opened; the error names it.
    pub(super) fn open(mut settings: AuditSettings, source: Arc<dyn Source>) -> io::Result<Self> {
        let output = match &settings.log {
            AuditLog::Stdout => Output::Stdout(io::stdout()),
            AuditLog::File(path) => Output::File(open(path)?),
        };
        // For a symbolic link, the file is rotated and not the link. A file that is not regular (a
        // pipe through /dev/stdout, for example) may have no other path.
        if let (AuditLog::File(path), Output::File(OpenFile { identity: Some(_), .. })) =
            (&mut settings.log, &output)
        {
            *path = fs::canonicalize(&*path)?;
        }
        Ok(Self { settings, source, output, done: 0, rotation_error_logged: false })
    }

    /// The settings of the log for agents' records, next to this one: `audit-agents.log` for `audit.log`. It is `None`
    /// if this log is not rotated: stdout, a pipe or a device.
    pub(super) fn of_agents(&self) -> Option<AuditSettings> {
        let path = path_of_agents(self.rotated()?);
        Some(AuditSettings { log: AuditLog::File(path), ..self.settings.clone() })
    }

    /// The path of the file, if it can be rotated.
    fn rotated(&self) -> Option<&Path> {
        match (&self.settings.log, &self.output) {
            (AuditLog::File(path), Output::File(OpenFile { identity: Some(_), .. })) => Some(path),
            _ => None,
        }
    }

    /// Logs a warning if the disk has less room than this log and that [of agents](Self::of_agents) can still use. When
    /// the disk is full, all requests are rejected.
    pub(super) fn warn_of_shortage(&self) {
        let Some(path) = self.rotated() else { return };
        match missing_bytes(path, &self.settings) {
            Ok(None) => {}
            Ok(Some(missing)) => tracing::warn!(
                missing_mib = missing / (1024 * 1024),
                "the disk of the audit log {} has too little room for the maximum size of this log and of the log \
                 of agents: lower --audit-log-maxsize or --audit-log-maxbackup, or free disk space",
                path.display()
            ),
            Err(error) => {
                tracing::debug!("cannot determine the free disk space for the audit log: {error}");
            }
        }
    }

    /// Writes a batch of complete lines, and empties the batch. After an error, call it again with the same batch: it
    /// continues where it stopped.
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
                    remove_partial_line(open, batch, &mut self.done);
                }
                written
            }
        };
        written?;
        self.done = 0;
        batch.clear();
        Ok(())
    }

    /// Makes sure that the file is at its path, and has room for a batch of this many bytes.
    fn prepare(&mut self, batch_bytes: usize) -> io::Result<()> {
        let (AuditLog::File(path), Output::File(open)) = (&self.settings.log, &mut self.output)
        else {
            return Ok(());
        };
        // A line must end in the file in which it began.
        if self.done > 0 {
            return Ok(());
        }
        if !open.is_at(path) {
            *open = self::open(path)?;
        }
        let full = open.bytes.saturating_add(batch_bytes as u64) > self.settings.max_file_bytes;
        if full && open.bytes > 0 && open.identity.is_some() {
            let time = self.source.now_micro().to_string();
            let rotated = rotate(path, &time).map(|new| *open = new);
            // The error is only logged: a file that is too large, or too many files, are better than no
            // log.
            let removed =
                rotated.and_then(|()| remove_oldest(path, self.settings.max_rotated_files));
            match removed {
                Err(error) if !self.rotation_error_logged => {
                    tracing::error!("cannot rotate the audit log: {error}");
                    self.rotation_error_logged = true;
                }
                Err(_) => {}
                Ok(()) => self.rotation_error_logged = false,
            }
        }
        Ok(())
    }
}

/// Renames the file, and returns a new one.
fn rotate(path: &Path, time: &str) -> io::Result<OpenFile> {
    fs::rename(path, rotated_path(path, time))?;
    open(path)
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let opened = (|| {
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)?;
        }
        OpenFile::open(path)
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

/// Truncates the file before a partially written line. So readers see only complete lines, and the line can go into
/// another file. If the file cannot be truncated, such as a pipe, the line is continued later.
fn remove_partial_line(open: &mut OpenFile, batch: &mut Vec<u8>, done: &mut usize) {
    let whole = batch[..*done].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let bytes = open.bytes.saturating_sub((*done - whole) as u64);
    let is_partial = whole < *done;
    if is_partial && (open.identity.is_none() || open.file.set_len(bytes).is_err()) {
        return;
    }
    open.bytes = bytes;
    batch.drain(..whole);
    *done = 0;
}

/// The path of a rotated file: `audit.log` becomes `audit-2006-01-02T15-04-05.000000.log`.
fn rotated_path(path: &Path, time: &str) -> PathBuf {
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

/// Removes the oldest rotated files, if there are more than `most`.
fn remove_oldest(path: &Path, most: usize) -> io::Result<()> {
    let rotated = rotated_files(path)?;
    let surplus = rotated.len().saturating_sub(most);
    let mut removed = Ok(());
    for file in rotated.iter().take(surplus) {
        // An error does not stop the removal of the others.
        removed = fs::remove_file(file).and(removed);
    }
    removed
}

/// The rotated files, oldest first.
fn rotated_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (stem, extension) = parts(path);
    let dir = directory(path);
    let mut rotated = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
        let time = time.and_then(|rest| rest.strip_suffix(&extension));
        if time.is_some_and(is_time) {
            rotated.push(dir.join(name));
        }
    }
    rotated.sort();
    Ok(rotated)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path of the log of agents, which is next to this one.
fn path_of_agents(path: &Path) -> PathBuf {
    let (stem, extension) = parts(path);
    path.with_file_name(format!("{stem}-agents{extension}"))
}

/// The bytes that the disk lacks for this log and the log of agents; `None` if the room is sufficient.
fn missing_bytes(path: &Path, settings: &AuditSettings) -> io::Result<Option<u64>> {
    let disk = rustix::fs::statvfs(directory(path))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(shortage(free, used_bytes(path)?, settings))
}

/// The bytes of this log and of the log of agents.
fn used_bytes(path: &Path) -> io::Result<[u64; 2]> {
    let of_one = |path: &Path| {
        let mut files = rotated_files(path)?;
        files.push(path.to_owned());
        let sizes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len());
        io::Result::Ok(sizes.sum())
    };
    Ok([of_one(path)?, of_one(&path_of_agents(path))?])
}

/// The bytes that the disk lacks for both logs to reach their maximum size.
fn shortage(free: u64, used: [u64; 2], settings: &AuditSettings) -> Option<u64> {
    let files = u64::try_from(settings.max_rotated_files).unwrap_or(u64::MAX).saturating_add(1);
    let bound = settings.max_file_bytes.saturating_mul(files);
    let more = used.iter().map(|used| bound.saturating_sub(*used));
    more.fold(0, u64::saturating_add).checked_sub(free).filter(|missing| *missing > 0)
}

/// Whether a text is a time in the format of rotated files' names. Files with other names do not belong to the log, and
/// are not removed.
fn is_time(text: &str) -> bool {
    let form = "0000-00-00T00-00-00.000000";
    let fits = |(c, form): (char, char)| if form == '0' { c.is_ascii_digit() } else { c == form };
    text.len() == form.len() && text.chars().zip(form.chars()).all(fits)
}

#[cfg(test)]
impl LogFile {
    /// Makes all writes fail until the file is opened again.
    pub(super) fn break_file(&mut self) {
        if let Output::File(open) = &mut self.output {
            // It is open for reading only.
            open.file = File::open("/dev/null").unwrap();
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks at its files")]
mod tests {
    use postern_registry::clock::System;
    use tempfile::TempDir;

    use super::*;

    fn log(dir: &TempDir, max_file_bytes: u64) -> (LogFile, PathBuf) {
        let path = dir.path().join("sub/audit.log");
        let settings = AuditSettings {
            log: AuditLog::File(path.clone()),
            policy_file: None,
            max_file_bytes,
            max_rotated_files: 2,
            before_answer: false,
            exec_commands: true,
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
    fn a_full_file_is_rotated_and_the_oldest_removed() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 4);
        for line in ["1\n", "2\n", "3\n", "4\n"] {
            write(&mut log, line);
        }
        assert_eq!(files(&path), ["1\n2\n", "3\n4\n"]);
        // A batch is never split, also when it is larger than a file may be.
        write(&mut log, "a long one\n");
        assert_eq!(files(&path), ["1\n2\n", "3\n4\n", "a long one\n"]);
        fs::write(path.with_file_name("audit-what-is-this-of-that-size-.log"), "mine").unwrap();
        write(&mut log, "5\n");
        assert_eq!(files(&path), ["3\n4\n", "a long one\n", "mine", "5\n"]);
    }

    #[test]
    fn the_missing_room_is_the_sum_of_both_logs() {
        let settings = AuditSettings {
            log: AuditLog::Stdout,
            policy_file: None,
            max_file_bytes: 100,
            max_rotated_files: 2,
            before_answer: false,
            exec_commands: true,
        };
        assert_eq!(shortage(600, [0, 0], &settings), None);
        assert_eq!(shortage(599, [0, 0], &settings), Some(1));
        assert_eq!(shortage(10, [250, 300], &settings), Some(40));
        assert_eq!(shortage(10, [300, 250], &settings), Some(40));
        assert_eq!(shortage(50, [250, 300], &settings), None);
        assert_eq!(shortage(0, [400, 300], &settings), None, "the logs grow no more");
        assert_eq!(
            shortage(0, [400, 290], &settings),
            Some(10),
            "the surplus of one log is no room for the other"
        );
        let unbounded = AuditSettings { max_file_bytes: u64::MAX, ..settings };
        assert!(shortage(0, [0, 0], &unbounded).is_some());
    }

    #[test]
    fn the_log_of_agents_takes_room_too() {
        let dir = TempDir::new().unwrap();
        let (mut own, path) = log(&dir, 4);
        for line in ["1\n", "2\n", "3\n"] {
            write(&mut own, line);
        }
        assert_eq!(used_bytes(&path).unwrap(), [6, 0], "nothing is reported yet");
        let mut of_agents =
            LogFile::open(own.of_agents().unwrap(), Arc::new(System::default())).unwrap();
        for line in ["one\n", "two\n", "four\n"] {
            write(&mut of_agents, line);
        }
        assert_eq!(used_bytes(&path).unwrap(), [6, 13]);
        // More bytes than any disk has.
        let settings = AuditSettings { max_file_bytes: u64::MAX / 4, ..own.settings.clone() };
        assert!(missing_bytes(&path, &settings).unwrap().is_some());
        assert_eq!(missing_bytes(&path, &own.settings).unwrap(), None);
    }

    #[test]
    fn a_link_to_a_missing_file_is_rejected() {
        let dir = TempDir::new().unwrap();
        let (link, elsewhere) = (dir.path().join("audit.log"), dir.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        let error = open(&link).err().unwrap().to_string();
        assert!(error.contains("a link to a file that does not exist"), "{error}");
        assert!(!elsewhere.exists(), "no file is created at the target of a link");
    }

    #[test]
    fn an_existing_file_is_continued() {
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
    fn a_file_that_was_moved_is_created_again() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        write(&mut log, "1\n");
        fs::rename(&path, path.with_file_name("moved.log")).unwrap();
        write(&mut log, "2\n");
        assert_eq!(files(&path), ["2\n", "1\n"]);
    }

    #[test]
    fn a_partial_line_is_removed_and_written_again() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        let Output::File(open) = &mut log.output else { panic!("a file") };
        open.file.write_all(b"1\n2\nbeg").unwrap();
        open.bytes = 7;
        let (mut batch, mut done) = (b"1\n2\nbegun\n".to_vec(), 7);
        remove_partial_line(open, &mut batch, &mut done);
        assert_eq!((batch.as_slice(), done), (&b"begun\n"[..], 0));
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        // The rest goes into the file that is then at the path.
        fs::remove_file(&path).unwrap();
        log.write(&mut batch).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "begun\n");
    }

    #[test]
    fn a_failed_batch_goes_into_the_file_at_the_path() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 100);
        log.break_file();
        let mut batch = b"1\n2\n".to_vec();
        assert!(log.write(&mut batch).is_err());
        assert_eq!(batch, b"1\n2\n");
        fs::rename(&path, path.with_file_name("moved.log")).unwrap();
        log.write(&mut batch).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
    }

    #[test]
    fn a_partial_record_is_removed() {
        let dir = TempDir::new().unwrap();
        let whole = "{\"kind\":\"Event\",\"level\":\"Metadata\"}\n";
        for before in ["", whole] {
            for length in 1..whole.len() {
                let (mut first, path) = log(&dir, 1000);
                write(&mut first, &format!("{before}{}", &whole[..length]));
                write(&mut log(&dir, 1000).0, "3\n");
                assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}3\n"));
                fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn a_partial_line_of_another_program_gets_a_newline() {
        let dir = TempDir::new().unwrap();
        let (mut first, path) = log(&dir, 100);
        write(&mut first, "1\n2");
        write(&mut log(&dir, 100).0, "3\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
    }

    #[test]
    fn a_symbolic_link_is_not_rotated() {
        let dir = TempDir::new().unwrap();
        let (link, real) = (dir.path().join("audit.log"), dir.path().join("real/audit.log"));
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let settings = AuditSettings {
            log: AuditLog::File(link.clone()),
            policy_file: None,
            max_file_bytes: 2,
            max_rotated_files: 2,
            before_answer: false,
            exec_commands: true,
        };
        let mut log = LogFile::open(settings, Arc::new(System::default())).unwrap();
        write(&mut log, "1\n");
        write(&mut log, "2\n");
        assert_eq!(files(&real), ["1\n", "2\n"]);
        assert_eq!(fs::read_to_string(&link).unwrap(), "2\n");
    }

    #[test]
    fn a_file_that_cannot_be_rotated_grows() {
        let dir = TempDir::new().unwrap();
        let (mut log, path) = log(&dir, 2);
        // The path of the rotated file is a directory that is not empty.
        let Output::File(_) = &log.output else { panic!("a file") };
        log.source = Arc::new(FrozenClock);
        let taken = rotated_path(&path, &FrozenClock.now_micro().to_string());
        fs::create_dir_all(taken.join("x")).unwrap();
        write(&mut log, "1\n");
        write(&mut log, "2\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n2\n");
        assert!(log.rotation_error_logged);
    }

    /// A clock that always shows the same time.
    struct FrozenClock;

    impl Source for FrozenClock {
        fn now_micro(&self) -> postern_meta::time::MicroTimestamp {
            postern_meta::time::MicroTimestamp::from_unix_microseconds(0)
        }

        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }
}
