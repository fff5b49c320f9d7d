//! Every engine of this crate, plain and encrypted, against the contract.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use crate::common::{InMemory, OnFile};
use postern_store::conformance::{Encrypted, Subject};
use postern_store::hostile::{Faults, Remote};
use postern_store::{Entry, Store, conformance};

/// A remote store that is slow and leaves out everything that it may. It has no other faults: cases
/// expect that calls succeed.
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
    conformance!(Encrypted::new(OnHostile::default()));
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
    conformance!(Encrypted::new(InMemory));
    conformance!(exact last changes: Encrypted::new(InMemory));
}

mod sealed_redb {
    use super::*;
    conformance!(Encrypted::new(OnFile::new()));
    conformance!(exact last changes: Encrypted::new(OnFile::new()));
}
