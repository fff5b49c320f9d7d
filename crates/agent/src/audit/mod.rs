//! The agent's audit records: one for each request that it decides about, allowed or refused, at the level
//! `Metadata`. They are kept in the state directory ([`queue`]) until the central server has them ([`send`]).
//!
//! A change is forwarded only after the record of its request is in the file; otherwise it is
//! rejected. A read is forwarded in any case, and counted if there is no room for its record. The
//! next record has the number of missing records. Failed authentications are recorded up to a rate,
//! because any client can cause them.

mod own_write;
mod queue;
mod record;
mod send;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use postern_kinds::audit_event_list::AuditEvent;
use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;
use uuid::Uuid;

pub(crate) use self::own_write::OwnWrite;
use self::queue::{Line, LossCounter};
pub(crate) use self::queue::{MAX_BYTES, Queue};
pub(crate) use self::record::Record;
pub(crate) use self::send::send;

/// The most failed authentications that are recorded in a second.
const MAX_FAILURES_PER_SECOND: u32 = 10;

/// The annotation of a record before which others are missing.
const LEFT_OUT: &str = "platform.sh/records-left-out";

const RETRY_AFTER_SECONDS: u32 = 10;

/// The message while the queue cannot take the record of a change.
const UNRECORDED: &str = "the agent refuses what changes something, because its record cannot be written: its \
                          queue of audit records is full, or the disk does not take it. The queue empties when \
                          the central server is reached";

/// The agent's audit log.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) queue: Queue,
    /// The first id. Those that follow it are of no other run.
    first_id: u128,
    next: AtomicU64,
    /// Whether records contain the commands of exec and attach.
    has_commands: bool,
    failures: Mutex<Failures>,
    lost: Arc<LossCounter>,
}

/// The failed authentications of one second.
#[derive(Debug, Default)]
struct Failures {
    second: i64,
    count: u32,
}

impl Audit {
    /// A log that keeps its records in a queue. Ids count up from the first, which is random. With
    /// `has_commands`, its records have the commands of exec and attach.
    pub(crate) fn new(queue: Queue, first_id: u128, has_commands: bool) -> Arc<Self> {
        Arc::new(Self {
            queue,
            first_id,
            next: AtomicU64::new(0),
            has_commands,
            failures: Mutex::default(),
            lost: Arc::default(),
        })
    }

    /// Sets whether records have the commands of exec and attach.
    #[cfg(test)]
    pub(crate) fn set_has_commands(&mut self, has_commands: bool) {
        self.has_commands = has_commands;
    }

    /// How many records are missing since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.total()
    }

    fn next_id(&self) -> String {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        Uuid::from_u128(self.first_id.wrapping_add(next.into())).to_string()
    }

    /// Whether one more failed authentication is recorded.
    fn note_failure(&self, now: MicroTimestamp) -> bool {
        let second = now.unix_microseconds().div_euclid(1_000_000);
        let mut failures = self.failures.lock();
        if failures.second != second {
            *failures = Failures { second, count: 0 };
        }
        failures.count += 1;
        let is_recorded = failures.count <= MAX_FAILURES_PER_SECOND;
        drop(failures);
        if !is_recorded {
            self.lost.note(1);
        }
        is_recorded
    }

    /// Appends the record of what changes nothing.
    fn append(&self, event: AuditEvent) {
        let line = self.line_of(event);
        self.queue.append(line, &self.lost);
    }

    /// Appends the record of a change before it is made.
    ///
    /// # Errors
    /// 503 when that is not possible.
    async fn append_first(&self, event: AuditEvent) -> Result<(), ApiError> {
        let line = self.line_of(event);
        self.queue.append_first(line, &self.lost).await.map_err(|queue::Unrecorded| {
            ApiError::unavailable(UNRECORDED, Some(RETRY_AFTER_SECONDS))
        })
    }

    fn line_of(&self, mut event: AuditEvent) -> Line {
        let tells = self.lost.take();
        if tells > 0 {
            event.annotations.insert(LEFT_OUT.to_owned(), tells.to_string());
        }
        Line { text: queue::line_of(&event), tells }
    }
}
