//! Backups and restores: the restored data equals the original, no corrupt file is restored, and the
//! restored store misleads no watcher of the lost store.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod timelines;

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use postern_store::backup::{
    self, BackupError, Progress, RestoreOptions, Restored, Summary, WriteOptions, Written,
};
use postern_store::memory::{Memory, MemoryRestore};
use postern_store::seal::{Keyring, Sealed};
use postern_store::{Change, Entry, Error, ListRequest, Options, Store, Txn, limits};
use tokio::io::{AsyncReadExt as _, duplex};

/// When the backups of these tests are made.
const MADE: Duration = Duration::from_secs(1_700_000_000);
/// When they are restored.
const RESTORED: Duration = Duration::from_secs(1_700_003_600);

fn time(since_1970: Duration) -> SystemTime {
    SystemTime::UNIX_EPOCH + since_1970
}

fn put(key: &str, value: impl Into<Bytes>) -> Change {
    Change::Put { key: key.into(), value: value.into() }
}

async fn commit(store: &dyn Store, changes: Vec<Change>) -> u64 {
    store.commit(Txn { conditions: Vec::new(), changes }).await.unwrap()
}

async fn entries(store: &dyn Store) -> Vec<Entry> {
    let page = store.list(ListRequest::default()).await.unwrap();
    assert_eq!(page.corrupt, []);
    page.entries
}

async fn on_file(path: &Path) -> Arc<dyn Store> {
    postern_store::open(path, Options::default()).await.unwrap()
}

/// Both engines: one in memory, one in a directory.
async fn engines(directory: &Path) -> [Arc<dyn Store>; 2] {
    [Arc::new(Memory::new()), on_file(&directory.join("db")).await]
}

async fn written(store: &Sealed, skip_corrupt: bool) -> Result<(Written, Vec<u8>), BackupError> {
    let options = WriteOptions { now: time(MADE), skip_corrupt };
    let mut file = Vec::new();
    let written = backup::write(store, options, &mut file, |_| ()).await?;
    Ok((written, file))
}

async fn backed_up(store: &Sealed) -> (Summary, Vec<u8>) {
    let (written, file) = written(store, false).await.unwrap();
    assert_eq!(written.omitted, []);
    (written.summary, file)
}

fn options() -> RestoreOptions {
    RestoreOptions { now: time(RESTORED), above: 0 }
}

fn restore_to(path: &Path, file: &[u8], keyring: &Keyring) -> Result<Restored, BackupError> {
    backup::restore_to(path, &mut Cursor::new(file), keyring, options(), |_| ())
}

/// Restores to memory.
async fn restored(file: &[u8], keyring: &Keyring, options: RestoreOptions) -> Sealed {
    let (store, restored) =
        backup::restore(&mut Cursor::new(file), keyring, options, MemoryRestore::begin, |_| ())
            .unwrap();
    let store = Sealed::open(Arc::new(store), keyring.clone()).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), restored.revision);
    store
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// More than one page, values of every size, keys that were deleted and changed, two at-rest keys.
async fn fill(store: &Sealed, keyring: &Keyring) -> Keyring {
    let large = vec![7; limits::VALUE_BYTES];
    commit(store, vec![put("/large", large), put("/empty", Bytes::new())]).await;
    for part in 0..6_u8 {
        let names = (0..100).map(|number| format!("/k{part}/{number:02}"));
        commit(store, names.map(|name| put(&name, vec![part; 300])).collect()).await;
    }
    let rotated = keyring.rotated().unwrap();
    store.use_keyring(rotated.clone()).await.unwrap();
    commit(store, vec![put("/k0/01", "new"), Change::Delete { key: "/k0/02".into() }]).await;
    rotated
}

#[tokio::test]
async fn what_is_restored_is_what_was_backed_up() {
    let directory = tempfile::tempdir().unwrap();
    for (number, engine) in engines(directory.path()).await.into_iter().enumerate() {
        let keyring = Keyring::generate().unwrap();
        let store = Sealed::open(engine, keyring.clone()).await.unwrap();
        let keyring = fill(&store, &keyring).await;
        let mut reports = Vec::new();
        let mut file = Vec::new();
        let write_options = WriteOptions { now: time(MADE), skip_corrupt: false };
        let written =
            backup::write(&store, write_options, &mut file, |progress| reports.push(progress));
        let summary = written.await.unwrap().summary;
        assert_eq!(reports.last(), Some(&Progress { entries: 602, total: 602 }));
        assert!(reports.len() > 2, "it is written page by page");
        assert_eq!((summary.entries, summary.omitted), (602, 0));
        assert_eq!((summary.bytes, summary.created), (file.len() as u64, time(MADE)));
        assert!(summary.key_ids.iter().copied().eq({
            let mut ids = keyring.ids();
            ids.sort();
            ids
        }));
        assert_eq!(backup::verify(&mut file.as_slice()).unwrap(), summary);

        let path = directory.path().join(format!("restored{number}"));
        let done = restore_to(&path, &file, &keyring).unwrap();
        assert_eq!(done.summary, summary);
        let on_file = Sealed::open(on_file(&path).await, keyring.clone()).await.unwrap();
        for restored in [on_file, restored(&file, &keyring, options()).await] {
            assert_eq!(entries(&restored).await, entries(&store).await);
            assert_eq!(entries(restored.inner().as_ref()).await, entries(&**store.inner()).await);
            assert_eq!(restored.revision().await.unwrap(), done.revision);
            assert_eq!(restored.key_ids_in_use().await.unwrap(), summary.key_ids);
            assert_eq!(commit(&restored, vec![put("/new", "1")]).await, done.revision + 1);
        }
    }
}

/// The backup is encrypted as the database is.
#[tokio::test]
async fn a_backup_contains_no_plaintext() {
    let secret = "correct horse battery staple";
    let store = Sealed::open(Arc::new(Memory::new()), Keyring::generate().unwrap()).await.unwrap();
    commit(&store, vec![put("/a", secret.repeat(100))]).await;
    let (_, file) = backed_up(&store).await;
    assert!(!file.windows(secret.len()).any(|window| window == secret.as_bytes()));
}

#[tokio::test]
async fn another_keyring_is_refused_with_what_is_missing() {
    let keyring = Keyring::generate().unwrap();
    let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
    let rotated = fill(&store, &keyring).await;
    let (_, file) = backed_up(&store).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    match restore_to(&path, &file, &keyring) {
        Err(BackupError::MissingKeys(ids)) => assert_eq!(ids, [rotated.current()]),
        other => panic!("{other:?}"),
    }
    assert!(is_empty(directory.path()));
}

#[tokio::test]
async fn a_database_that_exists_is_not_overwritten() {
    let keyring = Keyring::generate().unwrap();
    let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
    let (_, file) = backed_up(&store).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    restore_to(&path, &file, &keyring).unwrap();
    let error = restore_to(&path, &file, &keyring).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
}

async fn small_backup() -> (Vec<u8>, Keyring) {
    let keyring = Keyring::generate().unwrap();
    let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
    commit(&store, vec![put("/a", "1"), put("/b", "2")]).await;
    (backed_up(&store).await.1, keyring)
}

/// Checks that a file is refused, with a clear reason, before a store is even begun.
fn assert_refused(file: Vec<u8>, keyring: &Keyring, how: &str) {
    let begin = |_| -> postern_store::Result<MemoryRestore> { panic!("begun with {how}") };
    let result = backup::restore(&mut Cursor::new(file), keyring, options(), begin, |_| ());
    let error = result.map(|(_, restored)| restored).unwrap_err();
    let is_clear = matches!(
        error,
        BackupError::NotABackup | BackupError::UnknownFormat(_) | BackupError::CorruptBackup(_)
    );
    assert!(is_clear, "{how}: {error:?}");
}

#[tokio::test]
async fn every_flipped_bit_and_every_truncation_is_refused() {
    let (file, keyring) = small_backup().await;
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_refused(flipped, &keyring, &format!("bit {bit}"));
    }
    for length in 0..file.len() {
        assert_refused(file[..length].to_vec(), &keyring, &format!("{length} bytes"));
    }
    for at in 0..file.len() {
        let mut without = file.clone();
        without.remove(at);
        assert_refused(without, &keyring, &format!("without byte {at}"));
    }
    assert_refused([file.as_slice(), b"\n"].concat(), &keyring, "one byte more");
    assert_refused([file.as_slice(), &file].concat(), &keyring, "twice");
    assert_refused(vec![b'x'; 1000], &keyring, "another file");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    assert!(restore_to(&path, &file[..file.len() - 1], &keyring).is_err());
    assert!(is_empty(directory.path()));
    restore_to(&path, &file, &keyring).unwrap();
}

/// A file that changes between the two times it is read.
struct Changing {
    file: Cursor<Vec<u8>>,
    rewinds: usize,
    at: usize,
}

impl std::io::Read for Changing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        std::io::Read::read(&mut self.file, buffer)
    }
}

impl std::io::Seek for Changing {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.rewinds += 1;
        if self.rewinds == 2 {
            self.file.get_mut()[self.at] ^= 1;
        }
        self.file.seek(to)
    }
}

#[tokio::test]
async fn a_file_that_changes_while_it_is_read_leaves_nothing() {
    let (file, keyring) = small_backup().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    for at in 0..file.len() {
        let mut file = Changing { file: Cursor::new(file.clone()), rewinds: 0, at };
        let result = backup::restore_to(&path, &mut file, &keyring, options(), |_| ());
        assert!(result.is_err(), "byte {at}");
        assert!(is_empty(directory.path()), "byte {at}");
    }
}

/// Two keys that are always written together are equal in a backup that is made meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_the_state_of_one_revision() {
    const PAIRS: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    for engine in engines(directory.path()).await {
        let keyring = Keyring::generate().unwrap();
        let store = Sealed::open(engine, keyring.clone()).await.unwrap();
        // So that the two keys of a pair are on different pages.
        let pair = |number: usize, value: u64| {
            let value = Bytes::from(value.to_le_bytes().to_vec());
            let number = number % PAIRS;
            vec![put(&format!("/a/{number}"), value.clone()), put(&format!("/b/{number}"), value)]
        };
        for number in 0..PAIRS {
            commit(&store, pair(number, 0)).await;
        }
        let newest = store.revision().await.unwrap();
        let (mut writing, mut reading) = duplex(1000);
        let make = async {
            let options = WriteOptions { now: time(MADE), skip_corrupt: false };
            let written = backup::write(&store, options, &mut writing, |_| ()).await.unwrap();
            drop(writing);
            written.summary
        };
        let read = async {
            let (mut file, mut chunk, mut round) = (Vec::new(), vec![0; 1000], 0);
            loop {
                let length = reading.read(&mut chunk).await.unwrap();
                if length == 0 {
                    return file;
                }
                file.extend_from_slice(&chunk[..length]);
                round += 1;
                commit(&store, pair(usize::try_from(round).unwrap() * 7, round)).await;
            }
        };
        let (summary, file) = tokio::join!(make, read);
        assert_eq!(summary.revision, newest);
        assert!(store.revision().await.unwrap() > newest + 20, "writers wrote meanwhile");
        let restored = restored(&file, &keyring, options()).await;
        let all = entries(&restored).await;
        assert_eq!(all.len(), 2 * PAIRS);
        for (a, b) in all[..PAIRS].iter().zip(&all[PAIRS..]) {
            assert_eq!(a.value, b.value, "{} and {}", a.key, b.key);
            assert!(a.position.revision() <= newest);
        }
    }
}

#[tokio::test]
async fn a_backup_that_compaction_overtakes_says_so() {
    let directory = tempfile::tempdir().unwrap();
    for engine in engines(directory.path()).await {
        let store = Sealed::open(engine, Keyring::generate().unwrap()).await.unwrap();
        for part in 0..8 {
            let names = (0..100).map(|number| format!("/k{part}/{number:02}"));
            commit(&store, names.map(|name| put(&name, vec![0; 100])).collect()).await;
        }
        // The compacted revision itself can be backed up.
        let newest = store.revision().await.unwrap();
        store.compact(newest).await.unwrap();
        assert_eq!(backed_up(&store).await.0.revision, newest);
        let (mut writing, mut reading) = duplex(100);
        let options = WriteOptions { now: time(MADE), skip_corrupt: false };
        let make = async {
            let written = backup::write(&store, options, &mut writing, |_| ()).await;
            drop(writing);
            written
        };
        let read = async {
            reading.read_exact(&mut [0; 10]).await.unwrap();
            let later = commit(&store, vec![put("/a", "1")]).await;
            store.compact(later).await.unwrap();
            let mut rest = Vec::new();
            reading.read_to_end(&mut rest).await.unwrap();
        };
        match tokio::join!(make, read).0 {
            Err(BackupError::Overtaken { revision }) => assert_eq!(revision, newest),
            other => panic!("{other:?}"),
        }
    }
}

/// A rotation of the at-rest key in the middle of a backup: values of both keys are in it.
#[tokio::test]
async fn a_backup_goes_on_while_values_are_sealed_anew() {
    let directory = tempfile::tempdir().unwrap();
    for engine in engines(directory.path()).await {
        let keyring = Keyring::generate().unwrap();
        let store = Sealed::open(engine, keyring.clone()).await.unwrap();
        for part in 0..8 {
            let names = (0..100).map(|number| format!("/k{part}/{number:02}"));
            commit(&store, names.map(|name| put(&name, vec![part; 100])).collect()).await;
        }
        let before = entries(&store).await;
        let rotated = keyring.rotated().unwrap();
        let (mut writing, mut reading) = duplex(100);
        let options = WriteOptions { now: time(MADE), skip_corrupt: false };
        let make = async {
            let written = backup::write(&store, options, &mut writing, |_| ()).await;
            drop(writing);
            written.unwrap().summary
        };
        let read = async {
            let mut file = vec![0; 10];
            reading.read_exact(&mut file).await.unwrap();
            store.use_keyring(rotated.clone()).await.unwrap();
            store.rewrap(|_| ()).await.unwrap();
            reading.read_to_end(&mut file).await.unwrap();
            file
        };
        let (summary, file) = tokio::join!(make, read);
        assert!(summary.key_ids.contains(&rotated.current()));
        let restored = restored(&file, &rotated, self::options()).await;
        assert_eq!(entries(&restored).await, before);
    }
}

#[tokio::test]
async fn corrupt_values_are_named_or_left_out_on_demand() {
    let keyring = Keyring::generate().unwrap();
    let store = Sealed::open(Arc::new(Memory::new()), keyring.clone()).await.unwrap();
    commit(&store, vec![put("/a", "1"), put("/b", "2"), put("/c", "3"), put("/z", "4")]).await;
    commit(store.inner().as_ref(), vec![put("/b", "not sealed"), put("/z", "neither")]).await;
    match written(&store, false).await {
        Err(error @ BackupError::CorruptValues { count: 2, .. }) => {
            let text = error.to_string();
            assert!(text.contains("/b (") && text.contains("/z ("), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let (done, file) = written(&store, true).await.unwrap();
    let named: Vec<_> = done.omitted.iter().map(|corrupt| &*corrupt.key).collect();
    assert_eq!((named.as_slice(), done.summary.omitted), (["/b", "/z"].as_slice(), 2));
    assert_eq!(backup::verify(&mut file.as_slice()).unwrap().omitted, 2);
    let restored = restored(&file, &keyring, options()).await;
    let keys: Vec<_> = entries(&restored).await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), ["/a", "/c"]);
    // Without the marker of the encryption there is no backup.
    let all = entries(store.inner().as_ref()).await;
    let marker = all.iter().find(|entry| entry.key.starts_with("/postern/")).unwrap();
    commit(store.inner().as_ref(), vec![put(&marker.key, "not sealed")]).await;
    assert!(matches!(written(&store, true).await, Err(BackupError::CorruptValues { .. })));
}

#[tokio::test]
async fn an_output_that_fails_is_an_error() {
    let store = Sealed::open(Arc::new(Memory::new()), Keyring::generate().unwrap()).await.unwrap();
    let (mut writing, reading) = duplex(16);
    drop(reading);
    let options = WriteOptions { now: time(MADE), skip_corrupt: false };
    let written = backup::write(&store, options, &mut writing, |_| ()).await;
    assert!(matches!(written, Err(BackupError::Io { action: "write", .. })));
    store.close().await;
    let written = backup::write(&store, options, &mut Vec::new(), |_| ()).await;
    assert!(matches!(written, Err(BackupError::Store(Error::Unavailable(_)))));
}
