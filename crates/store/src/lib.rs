//! A store of revisioned bytes: get, list, transactions, watch, compaction.
//!
//! [`Store`] is the contract that every engine fulfils. The engines are [`memory`], [`redb`] and [`etcd`];
//! [`fn@open`] and [`RemoteStore`] choose one. [`seal`] is a store that encrypts another
//! store at rest. [`backup`] copies an encrypted store to a file and makes a new one from it. [`migrate`] copies one
//! to another engine.
//! [`mod@conformance`] is the suite that each of them has to pass. JSON, kinds, access rights and
//! any knowledge of the meaning of the bytes are *not* here.

pub mod backup;
pub mod conformance;
pub mod etcd;
#[doc(hidden)]
pub mod hostile;
pub mod memory;
pub mod migrate;
pub mod redb;
pub mod seal;

mod age;
mod check;
mod contract;
mod cursor;
mod engine;
mod figures;
mod fleet;
mod last_change;
mod mark;
mod published;
mod shared_call;
mod types;

pub use age::HISTORY_STEPS;
pub use contract::{Gate, RestoreTarget, Store, Visitor, Watch};
pub use engine::{OPEN_WAIT, RemoteStore, open, open_within};
pub use etcd::{EtcdSource as RemoteSource, EtcdTarget as RemoteTarget, StoreState};
pub use figures::{CommitTimes, Figures, MemberFigures, RemoteFigures};
pub use fleet::{
    ClockOffset, Fleet, Introduction, Lease, Member, Peer, UnixClock, clock_deviation,
};
pub use mark::MigrationMark;
pub use shared_call::SharedCall;
pub use types::{
    Batch, Change, Condition, CorruptEntry, Entry, Epoch, Error, Event, Events, Limits,
    ListRequest, Options, Page, Position, Replaced, Result, Snapshot, Txn, WithOld, limits,
};
