//! A simulated disk with faults: a volatile write cache above durable sectors. It has two files,
//! that of the database and that of its log. The disk does not interpret the written bytes.
//!
//! A write is visible at once, and durable after a sync. When the power is cut before that, each
//! sector of each write since the last sync is durable or not, in any order. When a sync fails, the
//! same holds, and reads still return the cached writes, as from a kernel's page cache. Opening the
//! disk again drops the writes that were lost, as the engine does when it opens a file.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

/// The unit that a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;
/// Bytes of the log: few, so that it is full every few transactions, and goes round many times.
pub(crate) const LOG_BYTES: usize = 64 * 1024;
/// The numbers of the files.
const DATABASE: usize = 0;
const LOG: usize = 1;

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// The faults from now on. Operations are counted from the creation of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// The operation at which the power is cut.
    pub(crate) power_cut_at: Option<u64>,
    /// The first operation with a failing sync; syncs work again after it.
    pub(crate) sync_fails_at: Option<u64>,
    /// No byte of the database after this one can be written.
    pub(crate) full_after: Option<usize>,
    /// Reads fail.
    pub(crate) reads_fail: bool,
    /// Reads of the log fail.
    pub(crate) log_reads_fail: bool,
}

/// A disk. Clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<State>>);

/// The bytes of both files.
type Files = [Vec<u8>; 2];

#[derive(Debug)]
struct State {
    /// The contents after a power cut.
    durable: Files,
    /// The contents that reads return.
    view: Files,
    /// The operations since the last sync of their file.
    pending: Vec<(usize, Pending)>,
    faults: Faults,
    operations: u64,
    is_off: bool,
    /// Handles of earlier generations no longer work.
    generation: u64,
    rng: Rng,
}

#[derive(Clone, Debug)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

/// An open file, as the engine sees it.
#[derive(Debug)]
pub(crate) struct Handle {
    disk: Disk,
    file: usize,
    generation: u64,
}

impl Disk {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, Vec::new())
    }

    /// A disk with these durable bytes: those of the database, and then those of the log.
    pub(crate) fn with(seed: u64, mut image: Vec<u8>) -> Self {
        let log = image.split_off(image.len().saturating_sub(LOG_BYTES));
        let durable = [image, log];
        Self(Arc::new(Mutex::new(State {
            view: durable.clone(),
            durable,
            pending: Vec::new(),
            faults: Faults::default(),
            operations: 0,
            is_off: false,
            generation: 0,
            rng: Rng::new(seed),
        })))
    }

    /// Opens the database; earlier handles no longer work then.
    pub(crate) fn open(&self) -> io::Result<Handle> {
        let mut state = self.0.lock();
        if state.is_off {
            return Err(io::Error::other("the power is off"));
        }
        state.generation += 1;
        let mut view = state.durable.clone();
        for (file, pending) in &state.pending {
            apply(&mut view[*file], pending);
        }
        state.view = view;
        Ok(Handle { disk: self.clone(), file: DATABASE, generation: state.generation })
    }

    /// Opens the log that goes with the database that was opened last.
    pub(crate) fn open_log(&self) -> io::Result<Handle> {
        let state = self.0.lock();
        if state.is_off {
            return Err(io::Error::other("the power is off"));
        }
        Ok(Handle { disk: self.clone(), file: LOG, generation: state.generation })
    }

    pub(crate) fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    pub(crate) fn inject(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    /// Cuts the power if that has not happened yet, and turns it on again.
    pub(crate) fn cut_power(&self) {
        let mut state = self.0.lock();
        state.lose_pending(|_| true);
        let State { view, durable, .. } = &mut *state;
        view.clone_from(durable);
        state.faults = Faults::default();
        state.is_off = false;
        state.generation += 1;
    }

    /// The durable bytes: those of the database, and then those of the log.
    pub(crate) fn image(&self) -> Vec<u8> {
        self.0.lock().durable.concat()
    }

    /// The durable bytes of the database and of the log.
    pub(crate) fn files(&self) -> Files {
        self.0.lock().durable.clone()
    }
}

impl State {
    /// Counts an operation. Fails when the power is off or the handle is old.
    fn count(&mut self, generation: u64) -> io::Result<u64> {
        if self.is_off || generation != self.generation {
            return Err(io::Error::other("the power is off"));
        }
        self.operations += 1;
        Ok(self.operations)
    }

    fn power(&mut self, operation: u64) -> io::Result<()> {
        if self.faults.power_cut_at == Some(operation) {
            self.is_off = true;
            return Err(io::Error::other("the power went off"));
        }
        Ok(())
    }

    /// Each sector of the pending writes to some files becomes durable or does not, in any order.
    fn lose_pending(&mut self, of: impl Fn(usize) -> bool) {
        let (lost, kept) = self.pending.drain(..).partition(|(file, _)| of(*file));
        self.pending = kept;
        let lost: Vec<_> = lost;
        let pieces = lost.into_iter();
        let pieces =
            pieces.flat_map(|(file, one)| sectors(one).into_iter().map(move |one| (file, one)));
        let mut pieces: Vec<(usize, Pending)> = pieces.collect();
        for index in (1..pieces.len()).rev() {
            pieces.swap(index, self.rng.below(index + 1));
        }
        // From almost nothing to almost everything, so that both are seen often.
        let keep = self.rng.below(101);
        for (file, piece) in pieces {
            if self.rng.below(100) < keep {
                apply(&mut self.durable[file], &piece);
            }
        }
    }
}

fn sectors(pending: Pending) -> Vec<Pending> {
    let Pending::Write { offset, bytes } = pending else { return vec![pending] };
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let to_boundary = SECTOR_BYTES - (offset + start) % SECTOR_BYTES;
        let end = (start + to_boundary).min(bytes.len());
        pieces.push(Pending::Write { offset: offset + start, bytes: bytes[start..end].to_vec() });
        start = end;
    }
    pieces
}

fn apply(bytes: &mut Vec<u8>, pending: &Pending) {
    match pending {
        Pending::Length(length) => bytes.resize(*length, 0),
        Pending::Write { offset, bytes: written } => {
            let end = offset + written.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(written);
        }
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().view[self.file].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.0.lock();
        if state.is_off || state.generation != self.generation {
            return Err(io::Error::other("the power is off"));
        }
        let is_log = self.file == LOG;
        if state.faults.reads_fail || (is_log && state.faults.log_reads_fail) {
            return Err(io::Error::other("the disk cannot be read"));
        }
        let wanted = state.view[self.file].get(size(offset)..size(offset) + out.len());
        out.copy_from_slice(wanted.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operation = state.count(self.generation)?;
        let pending = Pending::Length(size(length));
        apply(&mut state.view[self.file], &pending);
        state.pending.push((self.file, pending));
        state.power(operation)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operation = state.count(self.generation)?;
        state.power(operation)?;
        if state.faults.sync_fails_at.is_some_and(|first| operation >= first) {
            state.faults.sync_fails_at = None;
            state.lose_pending(|file| file == self.file);
            return Err(io::Error::other("the disk cannot be synced"));
        }
        let (synced, others) =
            state.pending.drain(..).partition::<Vec<_>, _>(|(file, _)| *file == self.file);
        state.pending = others;
        for (file, pending) in &synced {
            apply(&mut state.durable[*file], pending);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.0.lock();
        let operation = state.count(self.generation)?;
        let end = size(offset) + data.len();
        let limit = state.faults.full_after.filter(|_| self.file == DATABASE);
        if limit.is_some_and(|limit| end > limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let pending = Pending::Write { offset: size(offset), bytes: data.to_vec() };
        apply(&mut state.view[self.file], &pending);
        state.pending.push((self.file, pending));
        state.power(operation)
    }
}

#[test]
fn a_sync_makes_durable_and_a_power_cut_takes_the_rest() {
    let disk = Disk::new(7);
    let handle = disk.open().unwrap();
    handle.write(0, &[1; 2048]).unwrap();
    handle.sync_data().unwrap();
    handle.write(0, &[2; 2048]).unwrap();
    disk.cut_power();
    assert!(handle.write(0, &[3]).is_err(), "the handle is from before");
    let image = disk.image();
    assert_eq!(image.len(), 2048);
    for sector in image.chunks(SECTOR_BYTES) {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "sectors are not torn");
    }
    assert!(image.iter().all(|byte| matches!(byte, 1 | 2)));
}

#[test]
fn a_failed_sync_is_forgotten_by_the_disk_but_not_by_the_cache() {
    let mut lost = 0;
    for seed in 0..20 {
        let disk = Disk::new(seed);
        let handle = disk.open().unwrap();
        handle.write(0, &[1; 512]).unwrap();
        disk.inject(Faults { sync_fails_at: Some(0), ..Faults::default() });
        assert!(handle.sync_data().is_err());
        handle.sync_data().unwrap();
        let mut seen = [0; 512];
        handle.read(0, &mut seen).unwrap();
        assert_eq!(seen, [1; 512], "the cache shows it");
        lost += usize::from(disk.image().is_empty());
    }
    assert!((1..20).contains(&lost), "{lost} of 20 lost");
}
