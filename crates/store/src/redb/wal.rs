//! The file of the write-ahead log: a ring of sectors, of a fixed length. Groups of bytes are added one after the
//! other, each with one write and one sync. The caller decides about the contents of a group. No threads
//! here.
//!
//! The unit is the sector, which a disk writes as a whole or not at all. Each sector has the number of its
//! group and a checksum, from the beginning on: there are no sectors without. So three states of a sector
//! can be told apart when a group is not whole. It was not written (it has an older group), it was written, or
//! it is corrupt. A group is added only when the one before is durable; so a later group proves that this one was
//! acknowledged.

use std::cmp::Ordering;

use ::redb::StorageBackend;

use super::layout::{CHECK_BYTES, Mark, checksum};
use super::read::corrupt_database;
use crate::{Error, Result};

/// Bytes of a sector.
const SECTOR: usize = 512;
/// The head of a sector: the number of its group, its index in it, and the number of the group's sectors.
const HEAD: usize = 8 + 4 + 4;
/// Bytes of a group in one sector.
const ROOM: usize = SECTOR - HEAD - CHECK_BYTES;
/// Groups have whole pages, so that no write touches a page that is durable already, and that one corrupt
/// sector never leaves it unknown whether there was a group.
const PAGE: usize = 4096;
const PAGE_SECTORS: usize = PAGE / SECTOR;
/// Where the first group begins: after the page with the head of the file.
const BEGIN: u64 = PAGE as u64;
/// The length of a group's bytes, at their start.
const LENGTH: usize = 4;
/// Bytes that are read or written at once, where much is.
const STEP: usize = 1024 * 1024;
/// The minimum length of the file.
const LEAST: u64 = 16 * PAGE as u64;
/// The first bytes of the file.
const MAGIC: [u8; 16] = *b"postern log v1\r\n";
/// The group of sectors that no group has been written to.
const NO_GROUP: u64 = 0;

/// The file of a write-ahead log.
pub(super) type File = Box<dyn StorageBackend>;

/// An open write-ahead log.
#[derive(Debug)]
pub(super) struct Wal {
    file: File,
    /// The length of the file: a page for its own head, and the groups.
    length: u64,
    /// Where the oldest group begins that is still needed.
    oldest: Mark,
    next: Mark,
}

/// The state of a sector, seen from the group that is expected.
#[derive(Clone, Copy)]
enum Sector {
    /// It was not written since.
    Older,
    /// It has a part of the group.
    Part { index: u32, count: u32 },
    /// It has a part of a later group.
    Later,
    /// Its checksum is wrong.
    Corrupt,
}

fn classify(sector: &[u8], group: u64) -> Sector {
    let Some((covered, check)) = sector.split_last_chunk::<CHECK_BYTES>() else {
        return Sector::Corrupt;
    };
    let Some(head) = covered.first_chunk::<HEAD>() else { return Sector::Corrupt };
    let [number @ .., i0, i1, i2, i3, c0, c1, c2, c3] = *head;
    let number = u64::from_le_bytes(number);
    if checksum(number, covered) != *check {
        return Sector::Corrupt;
    }
    match number.cmp(&group) {
        Ordering::Less => Sector::Older,
        Ordering::Greater => Sector::Later,
        Ordering::Equal => Sector::Part {
            index: u32::from_le_bytes([i0, i1, i2, i3]),
            count: u32::from_le_bytes([c0, c1, c2, c3]),
        },
    }
}

impl Wal {
    /// Creates an empty log with an id. All of it is written, so that a group needs no other write of the file
    /// system than its own. It is durable when this returns, and not a log before.
    pub(super) fn create(file: File, id: u128, length: u64) -> Result<Self> {
        let length = length.max(LEAST).next_multiple_of(BEGIN);
        let failed = |error| unavailable(&error);
        file.set_len(length).map_err(failed)?;
        // The former contents are no longer a log, however far this gets.
        file.write(0, &[0; PAGE]).and_then(|()| file.sync_data()).map_err(failed)?;
        let empty = empty_sector().repeat(STEP / SECTOR);
        let mut offset = BEGIN;
        while offset < length {
            let bytes = usize::try_from(length - offset).unwrap_or(STEP).min(STEP);
            file.write(offset, empty.get(..bytes).unwrap_or(&empty)).map_err(failed)?;
            offset += bytes as u64;
        }
        file.sync_data().map_err(failed)?;
        let head = head(id, length).repeat(PAGE_SECTORS);
        file.write(0, &head).and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(Self { file, length, oldest: Mark::START, next: Mark::START })
    }

    /// Opens a log by its id, and calls `each` with the groups from a mark on. A group that was not written to
    /// its end is removed. A partly corrupt group is handed over as it is, if it is known that all of it was
    /// written.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is another log, or none, and when the log is older than the mark. Also when a
    /// group is so corrupt that its end is not known, or one is missing before another. Those of `each`.
    pub(super) fn open(
        file: File,
        id: u128,
        from: Mark,
        mut each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<Self> {
        let length = file.len().map_err(|error| unavailable(&error))?;
        if length < LEAST {
            return Err(refused("it is missing, or not whole"));
        }
        let mut wal = Self { file, length, oldest: from, next: from };
        // One of the copies of the head is enough.
        let head = head(id, length);
        if !wal.read(0, PAGE)?.chunks(SECTOR).any(|copy| copy == head) {
            return Err(refused("it is that of another database, or corrupt"));
        }
        wal.check_before()?;
        while let Some(bytes) = wal.read_next()? {
            each(&bytes)?;
        }
        wal.remove_torn()?;
        Ok(wal)
    }

    /// Gives the log another id. It is durable when this returns.
    pub(super) fn rename(&mut self, id: u128) -> Result<()> {
        let head = head(id, self.length).repeat(PAGE_SECTORS);
        let written = self.file.write(0, &head).and_then(|()| self.file.sync_data());
        written.map_err(|error| unavailable(&error))
    }

    /// The bytes of the largest group that it is for: several of them must have room.
    pub(super) fn group_bytes(&self) -> usize {
        usize::try_from(self.length / 4).unwrap_or(usize::MAX)
    }

    /// The mark of the next group.
    pub(super) fn next(&self) -> Mark {
        self.next
    }

    /// Adds a group. It is durable when this returns. Returns false, and does nothing, when there is no room
    /// for it before older ones are released.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; whether the group is durable is not known then, and the log must be opened
    /// anew.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<bool> {
        let Some(offset) = self.find_room(encoded_length(bytes) as u64) else { return Ok(false) };
        let sectors = encode(self.next.group, bytes);
        self.file.write(offset, &sectors).map_err(|error| unavailable(&error))?;
        self.file.sync_data().map_err(|error| unavailable(&error))?;
        self.advance(offset, sectors.len() as u64);
        Ok(true)
    }

    /// Releases the groups before a mark. Their room is used again.
    pub(super) fn release(&mut self, oldest: Mark) {
        self.oldest = oldest;
    }

    /// The offset for a group of this many bytes; `None` when there is no room. The group before the
    /// oldest one stays as well: it proves that the log is not an older one.
    fn find_room(&self, bytes: u64) -> Option<u64> {
        let next = self.next.offset;
        let begin = if self.oldest.before == 0 { BEGIN } else { self.oldest.before };
        let is_empty = self.next == Mark::START;
        if next <= begin && !is_empty {
            return (next + bytes <= begin).then_some(next);
        }
        if next + bytes <= self.length {
            return Some(next);
        }
        (BEGIN + bytes <= begin).then_some(BEGIN)
    }

    fn advance(&mut self, offset: u64, bytes: u64) {
        self.next = Mark { group: self.next.group + 1, offset: offset + bytes, before: offset };
    }

    fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; bytes];
        self.file.read(offset, &mut out).map_err(|error| unavailable(&error))?;
        Ok(out)
    }

    /// Rejects a log that does not have the group before the mark. It stays until others take its room,
    /// and those come later.
    fn check_before(&self) -> Result<()> {
        let Mark { group, before, .. } = self.next;
        if before == 0 {
            return Ok(());
        }
        let page = self.read(before, PAGE)?;
        let mut sectors = page.chunks(SECTOR).map(|sector| classify(sector, group - 1));
        if sectors.any(|one| matches!(one, Sector::Part { .. } | Sector::Later)) {
            return Ok(());
        }
        Err(refused("it is older than the database, or corrupt"))
    }

    /// The bytes of the next group; `None` if it does not exist, or if a part of it was not
    /// written.
    fn read_next(&mut self) -> Result<Option<Vec<u8>>> {
        for offset in [self.next.offset, BEGIN] {
            if offset + BEGIN > self.length {
                continue;
            }
            if let Some(bytes) = self.read_at(offset)? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn read_at(&mut self, offset: u64) -> Result<Option<Vec<u8>>> {
        let Some(count) = self.sectors_at(offset)? else { return Ok(None) };
        let length = count * SECTOR as u64;
        if count == 0 || count % PAGE_SECTORS as u64 != 0 || offset + length > self.length {
            return Err(refused("a part of it is corrupt"));
        }
        let sectors = self.read(offset, usize::try_from(length).unwrap_or(0))?;
        let (mut bytes, mut corrupt) = (Vec::with_capacity(sectors.len()), 0);
        for (expected, sector) in (0..).zip(sectors.chunks(SECTOR)) {
            match classify(sector, self.next.group) {
                Sector::Part { index, count: its }
                    if index == expected && u64::from(its) == count => {}
                Sector::Corrupt => corrupt += 1,
                Sector::Older => return Ok(None),
                Sector::Part { .. } | Sector::Later => {
                    return Err(refused("a part of it is corrupt"));
                }
            }
            bytes.extend_from_slice(sector.get(HEAD..HEAD + ROOM).unwrap_or_default());
        }
        if corrupt > 0 {
            tracing::error!(sectors = corrupt, "a part of the write-ahead log is corrupt");
        }
        self.advance(offset, length);
        let (length, bytes) = bytes.split_first_chunk::<LENGTH>().ok_or_else(short)?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        bytes.get(..length).map(<[u8]>::to_vec).map(Some).ok_or_else(short)
    }

    /// The number of sectors of the group that begins at an offset; `None` when it does not begin there.
    fn sectors_at(&self, offset: u64) -> Result<Option<u64>> {
        let page = self.read(offset, PAGE)?;
        let (mut count, mut corrupt) = (None, 0);
        for sector in page.chunks(SECTOR) {
            match classify(sector, self.next.group) {
                Sector::Part { count: its, .. } => count = Some(u64::from(its)),
                Sector::Corrupt => corrupt += 1,
                Sector::Older | Sector::Later => {}
            }
        }
        if count.is_none() && corrupt == PAGE_SECTORS {
            return Err(refused("a part of it is corrupt"));
        }
        Ok(count)
    }

    /// Removes what there is of the group that is not whole, so that none of it is taken for a part of the
    /// next one. A later group would say that this one was acknowledged.
    fn remove_torn(&mut self) -> Result<()> {
        let mut torn = Vec::new();
        let mut offset = BEGIN;
        while offset < self.length {
            let bytes = usize::try_from(self.length - offset).unwrap_or(STEP).min(STEP);
            let part = self.read(offset, bytes)?;
            for (sector, at) in part.chunks(SECTOR).zip((offset..).step_by(SECTOR)) {
                match classify(sector, self.next.group) {
                    Sector::Part { .. } => torn.push(at),
                    Sector::Later => return Err(refused("a part of it is missing or corrupt")),
                    // Corruption of a released group has no effect.
                    Sector::Older | Sector::Corrupt => {}
                }
            }
            offset += bytes as u64;
        }
        if torn.is_empty() {
            return Ok(());
        }
        tracing::info!(
            sectors = torn.len(),
            "removed an incomplete write at the end of the write-ahead log"
        );
        let empty = empty_sector();
        for at in torn {
            self.file.write(at, &empty).map_err(|error| unavailable(&error))?;
        }
        self.file.sync_data().map_err(|error| unavailable(&error))
    }
}

/// The bytes that a group takes in the log.
fn encoded_length(bytes: &[u8]) -> usize {
    (LENGTH + bytes.len()).div_ceil(ROOM).next_multiple_of(PAGE_SECTORS) * SECTOR
}

fn encode(group: u64, bytes: &[u8]) -> Vec<u8> {
    let length = encoded_length(bytes);
    let count = u32::try_from(length / SECTOR).unwrap_or(u32::MAX);
    let own = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let (begin, rest) = bytes.split_at(bytes.len().min(ROOM - LENGTH));
    let first = [own.as_slice(), begin].concat();
    let parts = std::iter::once(first.as_slice()).chain(rest.chunks(ROOM));
    // The last page is filled with sectors that have nothing.
    let parts = parts.chain(std::iter::repeat([].as_slice()));
    let mut out = vec![0; length];
    for ((index, sector), part) in (0..count).zip(out.chunks_exact_mut(SECTOR)).zip(parts) {
        fill(sector, group, index, count, part);
    }
    out
}

/// A sector of no group.
fn empty_sector() -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    fill(&mut sector, NO_GROUP, 0, 0, &[]);
    sector
}

/// Fills an empty sector with a part of a group.
fn fill(sector: &mut [u8], group: u64, index: u32, count: u32, part: &[u8]) {
    let head = [&group.to_le_bytes()[..], &index.to_le_bytes(), &count.to_le_bytes(), part];
    let mut start = 0;
    for bytes in head {
        if let Some(room) = sector.get_mut(start..start + bytes.len()) {
            room.copy_from_slice(bytes);
        }
        start += bytes.len();
    }
    set_check(group, sector);
}

fn head(id: u128, length: u64) -> [u8; SECTOR] {
    let mut head = [0; SECTOR];
    let parts = MAGIC.into_iter().chain(id.to_le_bytes()).chain(length.to_le_bytes());
    for (to, from) in head.iter_mut().zip(parts) {
        *to = from;
    }
    set_check(NO_GROUP, &mut head);
    head
}

fn set_check(group: u64, sector: &mut [u8]) {
    if let Some((covered, check)) = sector.split_last_chunk_mut::<CHECK_BYTES>() {
        *check = checksum(group, covered);
    }
}

/// The error for a fault of the file.
pub(super) fn unavailable(error: &std::io::Error) -> Error {
    Error::Unavailable(format!("write-ahead log: {error}"))
}

fn refused(why: &str) -> Error {
    corrupt_database(format!(
        "the write-ahead log, which has the newest changes, cannot be used: {why}; restore the file \
         that belongs to the database, or restore both from a backup"
    ))
}

fn short() -> Error {
    refused("a part of it is corrupt")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    const LENGTH: u64 = 64 * 1024;
    const ID: u128 = 7;

    /// A file in memory, which keeps each write.
    #[derive(Clone, Debug, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl StorageBackend for Memory {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.lock().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let start = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.0.lock()[start..start + out.len()]);
            Ok(())
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.0.lock().resize(usize::try_from(length).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let start = usize::try_from(offset).unwrap();
            self.0.lock()[start..start + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn group(number: u64) -> Vec<u8> {
        let length = usize::try_from(number * 7919 % 9000).unwrap();
        vec![number.to_le_bytes()[0]; length]
    }

    fn read(memory: &Memory, from: Mark) -> Result<(Wal, Vec<Vec<u8>>)> {
        let mut all = Vec::new();
        let wal = Wal::open(Box::new(memory.clone()), ID, from, |bytes| {
            all.push(bytes.to_vec());
            Ok(())
        })?;
        Ok((wal, all))
    }

    fn new() -> (Memory, Wal) {
        let memory = Memory::default();
        let wal = Wal::create(Box::new(memory.clone()), ID, LENGTH).unwrap();
        (memory, wal)
    }

    fn copy(memory: &Memory) -> Memory {
        Memory(Arc::new(Mutex::new(memory.0.lock().clone())))
    }

    #[test]
    fn what_was_added_is_there_over_many_laps() {
        let (memory, mut wal) = new();
        let mut marks = vec![wal.next()];
        for number in 1..200 {
            assert!(wal.append(&group(number)).unwrap());
            marks.push(wal.next());
            let oldest = marks[marks.len().saturating_sub(3)];
            wal.release(oldest);
            let (reopened, all) = read(&memory, oldest).unwrap();
            let first = number + 1 - all.len() as u64;
            assert_eq!(first, oldest.group);
            assert!((first..=number).map(group).eq(all));
            assert_eq!(reopened.next(), wal.next());
        }
    }

    #[test]
    fn a_full_ring_says_so_and_loses_nothing() {
        let (memory, mut wal) = new();
        let mut count = 0;
        while wal.append(&[1; 5000]).unwrap() {
            count += 1;
        }
        assert_eq!(read(&memory, Mark::START).unwrap().1.len(), count);
        let (mut reopened, _) = read(&memory, Mark::START).unwrap();
        assert!(!reopened.append(&[1; 5000]).unwrap());
        reopened.release(reopened.next());
        assert!(reopened.append(&[1; 5000]).unwrap());
    }

    /// Of the sectors of the last write, any may be there or not.
    #[test]
    fn a_torn_end_is_cut_and_written_over() {
        let (memory, mut wal) = new();
        for number in 1..5 {
            wal.append(&group(number)).unwrap();
        }
        let next = wal.next();
        let before = memory.0.lock().clone();
        wal.append(&[9; 3000]).unwrap();
        let after = memory.0.lock().clone();
        let start = usize::try_from(next.offset).unwrap();
        for kept in 0..255_u32 {
            let mut torn = before.clone();
            for sector in 0..PAGE_SECTORS {
                if kept & (1 << sector) != 0 {
                    let at = start + sector * SECTOR..start + (sector + 1) * SECTOR;
                    torn[at.clone()].copy_from_slice(&after[at]);
                }
            }
            let torn = Memory(Arc::new(Mutex::new(torn)));
            let (mut wal, all) = read(&torn, Mark::START).unwrap();
            assert_eq!((all.len(), wal.next()), (4, next), "{kept:b}");
            // No part of the torn group is taken for a part of the next one, if that is torn as
            // well.
            assert_eq!(*torn.0.lock(), before, "{kept:b}");
            wal.append(&[8; 3000]).unwrap();
            assert_eq!(read(&torn, Mark::START).unwrap().1[4], [8; 3000]);
        }
    }

    /// Also in the last group, which nothing follows. The reader of the group has checksums of its
    /// own.
    #[test]
    fn a_damaged_sector_takes_no_group_away() {
        let (memory, mut wal) = new();
        for number in 1..4 {
            wal.append(&[number; 5000]).unwrap();
        }
        let begins = [1, 3, 5].map(|page| page * PAGE);
        for (begin, number) in begins.into_iter().zip(1..) {
            for sector in 0..11 {
                for lost in [0..SECTOR, 100..101, 3..4] {
                    let corrupt = copy(&memory);
                    let at = begin + sector * SECTOR;
                    corrupt.0.lock()[at + lost.start..at + lost.end].fill(0xEE);
                    let (_, all) = match read(&corrupt, Mark::START) {
                        Ok(read) => read,
                        // The group's own length is there.
                        Err(_) if sector == 0 => continue,
                        Err(error) => panic!("{number}, {sector}: {error}"),
                    };
                    assert_eq!(all.len(), 3, "{number}, {sector}");
                    for (index, bytes) in (1..).zip(&all) {
                        assert!(index == number || *bytes == [index; 5000], "{number}, {sector}");
                    }
                }
            }
        }
    }

    #[test]
    fn damage_to_what_is_released_harms_nobody_and_one_copy_of_the_head_is_enough() {
        let (memory, mut wal) = new();
        for number in 1..20 {
            wal.append(&group(number)).unwrap();
            wal.release(wal.next());
        }
        let from = wal.next();
        for at in (0..usize::try_from(LENGTH).unwrap()).step_by(SECTOR) {
            let corrupt = copy(&memory);
            corrupt.0.lock()[at..at + SECTOR].fill(0);
            let (mut wal, all) = read(&corrupt, from).unwrap();
            assert!(all.is_empty());
            assert!(wal.append(b"next").unwrap());
            assert_eq!(read(&corrupt, from).unwrap().1, [b"next"]);
        }
    }

    #[test]
    fn a_missing_group_an_older_ring_and_anothers_are_refused() {
        let (memory, mut wal) = new();
        wal.append(b"one").unwrap();
        let older = copy(&memory);
        wal.append(b"two").unwrap();
        let second = wal.next();
        wal.append(b"three").unwrap();
        for (memory, from) in [(&older, wal.next()), (&older, second)] {
            assert!(matches!(read(memory, from), Err(Error::Corrupt { .. })));
        }
        // The contents of a disk that has lost a write, and of one that has lost a page.
        let lost = copy(&memory);
        let (begin, end) = (2 * PAGE, 3 * PAGE);
        lost.0.lock()[begin..end].copy_from_slice(&older.0.lock()[begin..end]);
        assert!(matches!(read(&lost, Mark::START), Err(Error::Corrupt { .. })));
        memory.0.lock()[begin..end].fill(0);
        assert!(matches!(read(&memory, Mark::START), Err(Error::Corrupt { .. })));
        let other = Wal::open(Box::new(older), 8, Mark::START, |_| Ok(()));
        assert!(matches!(other, Err(Error::Corrupt { .. })));
        let none = Wal::open(Box::new(Memory::default()), ID, Mark::START, |_| Ok(()));
        assert!(matches!(none, Err(Error::Corrupt { .. })));
    }
}
