//! A store of revisioned bytes: get, list, transactions, watch, compaction.
//!
//! [`Store`] is the contract that every engine fulfils. The engines in this crate are [`memory`] and
//! [`redb`]; [`fn@open`] opens a database file. An engine on other machines is a crate of its own, and
//! is used through [`RemoteEngine`]. [`age`], [`check`] and [`cursor`] are parts that engines have in
//! common. The module [`seal`] is a store that encrypts another store at rest. [`backup`] copies an
//! encrypted store to a file and makes a new one from it. [`migrate`] copies a store to another engine.
//! [`mod@conformance`] is the suite that each of them has to pass. JSON, kinds, access rights and any
//! knowledge of the meaning of the bytes are *not* here.

pub mod age;
pub mod backup;
pub mod check;
pub mod conformance;
pub mod cursor;
#[doc(hidden)]
pub mod hostile;
pub mod memory;
pub mod migrate;
pub mod redb;
pub mod seal;

mod contract;
mod engine;
mod figures;
mod fleet;
mod last_change;
mod mark;
mod published;
mod remote;
mod shared_call;
mod types;

pub use age::HISTORY_STEPS;
pub use contract::{Gate, RestoreTarget, Store, Visitor, Watch};
pub use engine::{OPEN_WAIT, open, open_within};
pub use figures::{CommitCounters, CommitTimes, Figures, MemberFigures, RemoteFigures};
pub use fleet::{
    ClockOffset, Fleet, Introduction, Lease, Member, Peer, UnixClock, clock_deviation,
};
pub use mark::MigrationMark;
pub use remote::{MigrationSource, MigrationTarget, RemoteEngine, StoreState, TargetChange};
pub use shared_call::SharedCall;
pub use types::{
    Batch, Change, Condition, CorruptEntry, Entry, Epoch, Error, Event, Events, Limits,
    ListRequest, Options, Page, Position, Replaced, Result, Snapshot, Txn, WithOld, limits,
};
