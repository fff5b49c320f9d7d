//! The start of a database that was closed, or that was not: its layout is brought up to date, all of it is verified,
//! and it gets what only its log has.

use ::redb::Database;
use aws_lc_rs::rand;
use bytes::Bytes;

use super::file::Opener;
use super::layout::{LogState, Mark, State};
use super::read::{View, is_in_use};
use super::shared::catch_panic;
use super::verify::{Verification, verify};
use super::wal::Wal;
use super::wal_group;
use super::write::{self, Durable};
use crate::{Error, Result};

/// A database that has just been opened.
pub(super) struct Start {
    pub(super) database: Database,
    pub(super) wal: Wal,
    pub(super) begin: Begin,
    /// Where its keys can be split into ranges: see [`View::scan`].
    pub(super) splits: Vec<Bytes>,
}

/// A database without its log, and the results of its verification.
pub(super) struct Verified {
    pub(super) database: Database,
    pub(super) state: State,
    splits: Vec<Bytes>,
}

/// Opens a database with its log.
///
/// # Errors
/// [`Error::Unavailable`] when one of the two files cannot be opened; [`Error::Corrupt`] when one of them is corrupt,
/// or they do not belong together and the log is needed.
pub(super) fn open(opener: &Opener) -> Result<Start> {
    catch_panic(|| {
        let Verified { database, state: before, splits } = database(opener)?;
        let (wal, revision) = if before.log.is_closed {
            (new_log(opener, &database, before.log)?, before.revision)
        } else {
            replay(opener, &database)?
        };
        let log_state = LogState { mark: wal.next(), ..View::open(&database)?.state.log };
        let begin = Begin {
            revision,
            log: log_state,
            is_undurable: revision != before.revision,
            segment_revisions: opener.segment_revisions,
        };
        Ok(Start { database, wal, begin, splits })
    })
    .inspect_err(|error| {
        // Another process that has it open is no fault.
        if matches!(error, Error::Unavailable(_)) && !is_in_use(error) {
            opener.fault.set();
        }
    })
}

/// Opens a database without its log, and verifies it.
pub(super) fn database(opener: &Opener) -> Result<Verified> {
    let database = (opener.database)()?;
    write::prepare(&database)?;
    let view = View::open(&database)?;
    let (Verification { sum, splits }, state) = (verify(&view)?, view.state);
    drop(view);
    if let Some(sum) = sum {
        write::record_sum(&database, sum)?;
    }
    Ok(Verified { database, state, splits })
}

/// An empty log for a database that needs none: the one that it had, if that is there and has nothing more.
fn new_log(opener: &Opener, database: &Database, known: LogState) -> Result<Wal> {
    let more = |_: &[u8]| {
        Err(super::read::corrupt_database("the write-ahead log has more than the database"))
    };
    let same = match Wal::open((opener.log)()?, known.id, known.mark, more) {
        Ok(wal) => Some(wal),
        Err(Error::Corrupt { .. }) => None,
        Err(Error::Unavailable(reason)) => {
            // Nothing in it is needed: a disk that cannot read it must not keep the database from being served.
            tracing::warn!(
                reason,
                "the write-ahead log cannot be read and is not needed: creating a new one"
            );
            None
        }
        Err(error) => return Err(error),
    };
    // A new one each time, so that two copies of a database that both go on do not have one log.
    let id = new_id()?;
    let wal = if let Some(mut wal) = same {
        wal.rename(id)?;
        wal
    } else {
        (opener.put_log_aside)();
        Wal::create((opener.log)()?, id, opener.log_bytes)?
    };
    // While this snapshot lives, redb cannot free the pages of the state before. It would do so in
    // a separate commit that is not durable. As long as there is such a commit, each page that is
    // read and has no room in the cache costs a search through all parts of the write buffer. Such
    // searches take a fifth of the time of a scan.
    let before = View::open(database)?;
    write::note_log(database, LogState { id, mark: wal.next(), is_closed: false })?;
    drop(before);
    Ok(wal)
}

fn new_id() -> Result<u128> {
    let mut id = [0; 16];
    rand::fill(&mut id)
        .map_err(|_| Error::Unavailable("the system has no random numbers".to_owned()))?;
    // None is 0.
    Ok(u128::from_le_bytes(id).max(1))
}

/// Lets the database have what only the log has. Returns the log, and the newest revision.
fn replay(opener: &Opener, database: &Database) -> Result<(Wal, u64)> {
    let state = View::open(database)?.state;
    let (mut revision, mut txns) = (state.revision, Vec::new());
    let wal = Wal::open((opener.log)()?, state.log.id, state.log.mark, |bytes| {
        let group = wal_group::decode(bytes, revision + 1)?;
        revision += group.len() as u64;
        txns.extend(group);
        Ok(())
    })?;
    if !txns.is_empty() {
        // Not made durable here: a start must work on a disk that is full.
        let mark: Mark = wal.next();
        write::apply(database, opener.segment_revisions, &txns, mark, Durable::Later)?;
        tracing::info!(revisions = txns.len(), "replayed the write-ahead log into the database");
    }
    Ok((wal, revision))
}

/// The state that the applier begins with.
pub(super) struct Begin {
    /// The newest revision of the database.
    pub(super) revision: u64,
    /// The log that goes with it, and where it goes on.
    pub(super) log: LogState,
    /// Whether the database has something that is not durable in it.
    pub(super) is_undurable: bool,
    /// Revisions in one segment of history.
    pub(super) segment_revisions: u64,
}
