//! Every engine, plain and sealed, against the contract.

mod common;

use common::{InMemory, OnFile, Seal};
use postern_store::conformance;

mod memory {
    use super::*;
    conformance!(InMemory);
}

mod redb {
    use super::*;
    conformance!(OnFile::new());
}

mod redb_with_short_segments {
    use super::*;
    conformance!(OnFile::with_short_segments());
}

mod sealed_memory {
    use super::*;
    conformance!(Seal::new(InMemory));
}

mod sealed_redb {
    use super::*;
    conformance!(Seal::new(OnFile::new()));
}
