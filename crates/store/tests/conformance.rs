//! Every engine, plain and sealed, against the contract.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::{Arc, Mutex};

use common::{InMemory, OnFile, Seal};
use postern_store::conformance::Subject;
use postern_store::hostile::{Faults, Remote};
use postern_store::{Entry, Store, conformance};

/// A remote store that is slow and leaves out what it may. It has no other faults: cases expect that calls succeed.
#[derive(Default)]
struct OnHostile {
    /// The database that was created last.
    remote: Mutex<Option<Arc<Remote>>>,
}

const SLOW: Faults =
    Faults { delay_microseconds: 200, lost_watches: 0, refused_commits: 0, unknown_outcomes: 0 };

impl OnHostile {
    fn connect(&self, remote: Arc<Remote>) -> Arc<dyn Store> {
        let store = remote.connect();
        *self.remote.lock().unwrap() = Some(remote);
        store
    }
}

impl Subject for OnHostile {
    async fn create(&self) -> Arc<dyn Store> {
        self.connect(Remote::new(SLOW))
    }

    async fn restore(&self, revision: u64, entries: Vec<Entry>) -> Arc<dyn Store> {
        self.connect(Remote::restored(revision, entries, SLOW).unwrap())
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        store.close().await;
        Some(self.remote.lock().unwrap().as_ref().unwrap().connect())
    }
}

mod memory {
    use super::*;
    conformance!(InMemory);
    conformance!(exact last changes: InMemory);
}

mod hostile {
    use super::*;
    conformance!(OnHostile::default());
}

mod sealed_hostile {
    use super::*;
    conformance!(Seal::new(OnHostile::default()));
}

mod redb {
    use super::*;
    conformance!(OnFile::new());
    conformance!(exact last changes: OnFile::new());
}

mod redb_with_short_segments {
    use super::*;
    conformance!(OnFile::with_short_segments());
    conformance!(exact last changes: OnFile::with_short_segments());
}

mod sealed_memory {
    use super::*;
    conformance!(Seal::new(InMemory));
    conformance!(exact last changes: Seal::new(InMemory));
}

mod sealed_redb {
    use super::*;
    conformance!(Seal::new(OnFile::new()));
    conformance!(exact last changes: Seal::new(OnFile::new()));
}
