//! The engine on etcd, for several servers with one store.
//!
//! [`EtcdEngine`] is the [`RemoteEngine`](postern_store::RemoteEngine) for an address `etcd://…`, and [`Etcd`] is the
//! [`Store`](postern_store::Store) that it opens. The program maps the scheme of an address to this engine. The registry
//! and the server do not depend on this crate.
//!
//! Each transaction ends with a put of one key, the **head**. Its revision is the newest one, and
//! it marks the end of the transaction for watches. A revision of the store is the revision of etcd
//! of the head, unless etcd was restored: see `layout`. Values are stored with their index in the
//! transaction. `commit` finds out the outcome of a transaction when its answer is lost.

mod commit;
mod connection;
mod engine;
mod fleet;
mod freshness;
mod layout;
mod list;
mod observed;
mod peers;
mod presence;
mod proto;
mod requests;
mod rpc;
mod shared;
mod source;
mod state;
mod store;
mod target;
mod url;
mod versions;
mod watch;

pub use engine::EtcdEngine;
pub use store::Etcd;
pub use url::{EtcdAccess, EtcdUrl, Password};
