//! Reads of history: the changes of its segments, in order; the versions that keys had; the last changes;
//! and what there is to forget. Everything here works on one snapshot of the database.

use std::ops::{ControlFlow, RangeInclusive};

use ::redb::{ReadOnlyTable, ReadableTable, TableHandle};
use bytes::Bytes;

use super::layout::{self, Corruption, PUT, PreviousVersion, Record, SEGMENTS, TOMBSTONE};
use super::read::{Version, View, corrupt_database, corrupt_key, engine_error};
use crate::cursor::{Cursor, EventsPage};
use crate::last_change::{ChangeCollector, NotedChanges, Search};
use crate::{Batch, Entry, Event, Events, Position, Replaced, Result};

/// Changes that one read of history examines at most before it returns the events it has found.
const HISTORY_CHANGES: usize = 4096;
/// Bytes of values that one read of history collects before it stops at the next revision.
const HISTORY_BYTES: usize = 8 * 1024 * 1024;
/// Changes that one step of a compaction looks at. It ends at the next revision.
const STEP_CHANGES: usize = 1024;
/// Deleted keys that one step of a compaction forgets. It ends at the next revision.
const STEP_TOMBSTONES: usize = 256;

/// The table of a segment.
pub(super) type Segment = ReadOnlyTable<u64, &'static [u8]>;

/// One step of a compaction, made from a snapshot.
#[derive(Debug)]
pub(super) struct Forgetting {
    /// The revision up to which history is compacted when the step begins. For another one it must not be
    /// done.
    pub(super) from: u64,
    /// The revision up to which it is compacted afterwards.
    pub(super) to: u64,
    /// Keys that were deleted, with the packed positions of their tombstones.
    pub(super) deleted: Vec<(String, u64)>,
    /// The last changes that are to be noted.
    pub(super) noted: NotedChanges,
}

impl View {
    /// The first revisions of the segments, in order.
    pub(super) fn segments(&self) -> Result<&[u64]> {
        if let Some(segments) = self.segments.get() {
            return Ok(segments);
        }
        let table = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        let mut all = Vec::new();
        for item in table.iter().map_err(engine_error)? {
            all.push(item.map_err(engine_error)?.0.value());
        }
        Ok(self.segments.get_or_init(|| all))
    }

    /// The number of tables that are segments.
    pub(super) fn segment_tables(&self) -> Result<usize> {
        let tables = self.transaction.list_tables().map_err(engine_error)?;
        Ok(tables.filter(|table| table.name().starts_with(layout::SEGMENT_PREFIX)).count())
    }

    /// The sum of the heads of the records of a segment, as it is recorded; none when that is
    /// corrupt.
    pub(super) fn recorded_sum(&self, first: u64) -> Result<Option<u64>> {
        if first == self.state.segment {
            return Ok(Some(self.state.segment_sum));
        }
        let table = self.transaction.open_table(SEGMENTS).map_err(engine_error)?;
        let sum = table.get(first).map_err(engine_error)?;
        Ok(sum.and_then(|sum| layout::decode_sum(first, sum.value())))
    }

    /// Opens the table of a segment.
    pub(super) fn segment(&self, first: u64) -> Result<Segment> {
        let name = layout::segment_name(first);
        self.transaction.open_table(layout::segment_table(&name)).map_err(engine_error)
    }

    /// Opens the segment that has the changes of a revision.
    fn segment_of(&self, revision: u64) -> Result<Option<Segment>> {
        let segments = self.segments()?;
        let after = segments.partition_point(|first| *first <= revision);
        match after.checked_sub(1).and_then(|index| segments.get(index)) {
            Some(first) => self.segment(*first).map(Some),
            None => Ok(None),
        }
    }

    /// The segments that may have changes in a range of packed positions.
    fn segments_in(&self, packed: &RangeInclusive<u64>) -> Result<&[u64]> {
        let [from, to] =
            [packed.start(), packed.end()].map(|packed| Position::from_packed(*packed).revision());
        let segments = self.segments()?;
        let begin = segments.partition_point(|first| *first <= from).saturating_sub(1);
        let end = segments.partition_point(|first| *first <= to);
        Ok(segments.get(begin..end).unwrap_or_default())
    }

    /// Calls `see` with the record of a packed position; it gets none when there is none.
    fn with_record<T>(
        &self,
        packed: u64,
        see: impl FnOnce(std::result::Result<Record<'_>, Corruption>) -> T,
    ) -> Result<T> {
        const NONE: Corruption = "a change of its history does not exist";
        let Some(segment) = self.segment_of(Position::from_packed(packed).revision())? else {
            return Ok(see(Err(NONE)));
        };
        let found = segment.get(packed).map_err(engine_error)?;
        Ok(match &found {
            Some(bytes) => see(layout::decode_record(packed, bytes.value())),
            None => see(Err(NONE)),
        })
    }

    /// Checks that the change that set a value is intact, unless it is forgotten. The inner error is corruption.
    pub(super) fn check_record(&self, packed: u64) -> Result<std::result::Result<(), Corruption>> {
        if self.segment_of(Position::from_packed(packed).revision())?.is_none() {
            return Ok(Ok(()));
        }
        self.with_record(packed, |record| record.map(drop))
    }

    /// The version of a key at the packed position `newest`, which the change at `packed` came
    /// after; `None` when it did not exist then.
    pub(super) fn replaced_version(
        &self,
        key: &str,
        packed: u64,
        newest: u64,
    ) -> Result<Option<Version<'static>>> {
        let mut by = packed;
        loop {
            let before = self.with_record(by, |record| {
                let head = record?.head;
                let is_older = head.before.packed() < by;
                if head.key == key && is_older { Ok(head.before) } else { Err(OTHER) }
            })?;
            match before {
                Err(reason) => return Ok(Some(Version::Corrupt { packed: by, reason })),
                Ok(before) if before.packed() > newest => by = before.packed(),
                Ok(PreviousVersion::Value(packed)) => {
                    return Ok(Some(Version::Replaced { packed, by }));
                }
                Ok(PreviousVersion::Nothing | PreviousVersion::Tombstone(_)) => return Ok(None),
                Ok(PreviousVersion::Corrupt) => {
                    return Ok(Some(Version::Corrupt { packed: 0, reason: WAS_CORRUPT }));
                }
            }
        }
    }

    /// The value of the version at `packed`, which the change at `by` replaced.
    pub(super) fn replaced_value(
        &self,
        key: &str,
        packed: u64,
        by: u64,
    ) -> Result<std::result::Result<Bytes, Corruption>> {
        let of = |record: Record<'_>| {
            let value = record.replaced.map(|body| body.check().map(Bytes::copy_from_slice));
            if record.head.key == key { Ok(value) } else { Err(OTHER) }
        };
        match self.with_record(by, |record| record.and_then(of))? {
            Ok(Some(value)) => Ok(value),
            Err(reason) => Ok(Err(reason)),
            Ok(None) => self.with_record(packed, |record| {
                let record = record?;
                if record.head.key != key || record.head.mark != PUT {
                    return Err(OTHER);
                }
                record.body.check().map(Bytes::copy_from_slice)
            }),
        }
    }

    /// The next batches for a cursor, as many as one read may return. The last batch may
    /// have no events: it then reports up to where the history was read.
    pub(super) fn history(&self, cursor: &Cursor) -> Result<Vec<Batch>> {
        let mut reading = Reading { through: self.state.revision, ..Reading::default() };
        self.visit_changes(cursor, |packed, record| {
            if reading.is_full_at(packed) {
                return Ok(ControlFlow::Break(()));
            }
            if let Some((event, _)) = self.event(cursor, packed, record)? {
                reading.add(event);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(reading.finish())
    }

    /// The next changes for a cursor: see [`crate::Store::next_events`].
    pub(super) fn next_events(&self, cursor: &Cursor, until: Position) -> Result<Events> {
        let mut page = EventsPage::new(cursor, self.state.revision, until);
        self.visit_changes(cursor, |packed, record| {
            let next = page.see(packed);
            if next.is_continue()
                && let Some((event, replaced)) = self.event(cursor, packed, record)?
            {
                replaced.map_err(|reason| corrupt_key(&event.key, reason))?;
                page.add(event);
            }
            Ok(next)
        })?;
        Ok(page.finish())
    }

    /// Calls `visit` with the packed position and the record of each change that a cursor has not delivered, in
    /// order, until it breaks.
    fn visit_changes(
        &self,
        cursor: &Cursor,
        mut visit: impl FnMut(u64, &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        cursor.check_not_compacted(self.state.compacted)?;
        let Some(first) = cursor.first_packed() else { return Ok(()) };
        let range = first..=u64::MAX;
        for segment in self.segments_in(&range)? {
            let segment = self.segment(*segment)?;
            for item in segment.range(range.clone()).map_err(engine_error)? {
                let (packed, record) = item.map_err(engine_error)?;
                if visit(packed.value(), record.value())?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The event of a change that a cursor covers, and whether the replaced value is intact.
    fn event(
        &self,
        cursor: &Cursor,
        packed: u64,
        record: &[u8],
    ) -> Result<Option<(Event, std::result::Result<(), Corruption>)>> {
        let position = Position::from_packed(packed);
        let record = layout::decode_record(packed, record)
            .map_err(|reason| corrupt_database(format!("change {position}: {reason}")))?;
        let key = record.head.key;
        if !cursor.covers(key) {
            return Ok(None);
        }
        let value = record.body.check().map_err(|reason| corrupt_key(key, reason))?;
        let value = (record.head.mark == PUT).then(|| Bytes::copy_from_slice(value));
        let (replaced, is_intact) = match self.previous(packed, &record)? {
            Ok(None) => (Replaced::New, Ok(())),
            Ok(previous) => (Replaced::Old(previous), Ok(())),
            // That does not keep a watch from being told of the change.
            Err(reason) => {
                tracing::warn!(%key, reason, "a replaced value is corrupt; its event is without it");
                (Replaced::Old(None), Err(reason))
            }
        };
        Ok(Some((Event { key: key.into(), position, value, replaced }, is_intact)))
    }

    /// The entry that a change replaced; `None` when there was none. The inner error is corruption of
    /// that entry.
    fn previous(
        &self,
        packed: u64,
        record: &Record<'_>,
    ) -> Result<std::result::Result<Option<Entry>, Corruption>> {
        let key = record.head.key;
        let previous = match record.head.before {
            PreviousVersion::Value(previous) => previous,
            PreviousVersion::Corrupt => return Ok(Err(WAS_CORRUPT)),
            PreviousVersion::Nothing | PreviousVersion::Tombstone(_) => return Ok(Ok(None)),
        };
        let value = match record.replaced {
            Some(body) => body.check().map(Bytes::copy_from_slice),
            None => self.replaced_value(key, previous, packed)?,
        };
        let position = Position::from_packed(previous);
        Ok(value.map(|value| Some(Entry { key: key.into(), value, position })))
    }

    /// The last change under each prefix: see [`crate::Store::last_changes`].
    pub(super) fn last_changes(&self, prefixes: &[String], at: u64) -> Result<Vec<Position>> {
        self.check_kept(at)?;
        let compacted = self.state.compacted;
        let mut search = Search::new(prefixes);
        let range = Position::end_of(compacted).packed() + 1..=Position::end_of(at).packed();
        'all: for segment in self.segments_in(&range)?.iter().rev() {
            let segment = self.segment(*segment)?;
            for item in segment.range(range.clone()).map_err(engine_error)?.rev() {
                let (packed, record) = item.map_err(engine_error)?;
                let packed = packed.value();
                let record = layout::decode_record(packed, record.value());
                if search.see(record.ok().map(|record| record.head.key), packed).is_break() {
                    break 'all;
                }
            }
        }
        Ok(search.finish(&self.noted()?, compacted))
    }

    /// The next step of a compaction up to a revision, which must exist; `None` when there is
    /// nothing left to do. The step ends with a segment at the latest, so that one step drops one.
    pub(super) fn forgetting(
        &self,
        target: u64,
        prefixes: &[String],
    ) -> Result<Option<Forgetting>> {
        let from = self.state.compacted;
        if target <= from {
            return Ok(None);
        }
        let mut collector = ChangeCollector::new(prefixes, &self.noted()?, from);
        let (mut deleted, mut to) = (Vec::new(), target);
        let segments = self.segments()?;
        if let Some(next) = segments.get(segments.partition_point(|first| *first <= from + 1)) {
            to = to.min(next - 1);
        }
        if let Some(segment) = self.segment_of(to)? {
            to = collect(&segment, from, to, &mut collector, &mut deleted)?;
        }
        Ok(Some(Forgetting { from, to, deleted, noted: collector.finish(to) }))
    }
}

/// Notes the changes after one revision up to another, and collects the tombstones among them. Returns the
/// revision up to which it has.
fn collect(
    segment: &Segment,
    from: u64,
    to: u64,
    collector: &mut ChangeCollector<'_>,
    deleted: &mut Vec<(String, u64)>,
) -> Result<u64> {
    let (mut seen, mut current) = (0, from);
    let range = Position::end_of(from).packed() + 1..=Position::end_of(to).packed();
    for item in segment.range(range).map_err(engine_error)? {
        let (packed, record) = item.map_err(engine_error)?;
        let packed = packed.value();
        let revision = Position::from_packed(packed).revision();
        let is_long = seen >= STEP_CHANGES || deleted.len() >= STEP_TOMBSTONES;
        if revision != current && is_long {
            return Ok(current);
        }
        (seen, current) = (seen + 1, revision);
        match layout::decode_record(packed, record.value()) {
            Ok(Record { head, .. }) => {
                collector.see(Some(head.key), packed);
                if head.mark == TOMBSTONE {
                    deleted.push((head.key.to_owned(), packed));
                }
            }
            // If it was a deletion, its tombstone stays, and takes room. It has no other effect.
            Err(reason) => {
                collector.see(None, packed);
                tracing::warn!(packed, reason, "compaction skipped a corrupt record");
            }
        }
    }
    Ok(to)
}

const WAS_CORRUPT: Corruption = "it was corrupt when it was replaced";
const OTHER: Corruption = "its history is another key's";

/// The batches that one read of history collects.
#[derive(Default)]
struct Reading {
    batches: Vec<Batch>,
    seen: usize,
    bytes: usize,
    current: u64,
    /// The revision up to which history is read.
    through: u64,
}

impl Reading {
    /// Counts a change. Returns whether the read ends before it.
    fn is_full_at(&mut self, packed: u64) -> bool {
        let revision = Position::from_packed(packed).revision();
        let is_long = self.seen >= HISTORY_CHANGES || self.bytes >= HISTORY_BYTES;
        if revision != self.current && is_long {
            self.through = self.current;
            return true;
        }
        self.current = revision;
        self.seen += 1;
        false
    }

    fn add(&mut self, event: Event) {
        self.bytes += event.bytes();
        match self.batches.last_mut() {
            Some(batch) if batch.revision == self.current => batch.events.push(event),
            _ => self.batches.push(Batch { events: vec![event], revision: self.current }),
        }
    }

    fn finish(mut self) -> Vec<Batch> {
        if self.batches.last().is_none_or(|batch| batch.revision < self.through) {
            self.batches.push(Batch { events: Vec::new(), revision: self.through });
        }
        self.batches
    }
}
