//! The limits on what one owner has, as conditions of the transaction that creates one more
//! (`docs/reference/access-keys.md#limits`).
//!
//! Each create under a limit writes a record, on condition that no other write has changed the record since the objects
//! were counted. So if two servers create objects at once, one of them counts again. All limits share a fixed number of records:
//! none has to be removed with an owner, and owners rarely share one.

use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::{AnyKind as _, Owner};
use postern_meta::status::ApiError;

use crate::admit::Counted;
use crate::registry::Registry;
use crate::registry::effects::Effects;
use crate::registry::stage::StagedChange;
use crate::storage_key;

/// The number of records. Servers of all versions must agree on it.
pub(in crate::registry) const RECORDS: u32 = 64;

impl Registry {
    /// Checks the limits of the owner of a new object, and adds the conditions that keep them.
    ///
    /// # Errors
    /// 403 if there are as many as allowed.
    pub(in crate::registry) async fn limit_owner(
        &self,
        one: &StagedChange,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        let mut records: Vec<u32> = one.limits.iter().map(|limit| record(&limit.counted)).collect();
        records.sort_unstable();
        records.dedup();
        for record in records {
            let key = storage_key::count(OwnedAccessKey.info(), &record.to_string());
            self.add_count(key, effects).await?;
        }
        let now = self.source().now().unix_seconds();
        one.limits.iter().try_for_each(|limit| limit.check(&one.name, self.cache(), now))
    }
}

/// The number of the record of a limit.
fn record(counted: &Counted) -> u32 {
    let text = match counted {
        Counted::Owned(_, owner)
        | Counted::Keys(owner)
        | Counted::AllSessions(owner)
        | Counted::Logins(owner, _) => match owner {
            Owner::User(name) | Owner::Team(name) | Owner::Subject(name) => name,
        },
        Counted::Sessions(uid) | Counted::WorkloadKeys(uid) | Counted::CommonSecrets(uid) => uid,
    };
    // Not the hash of the standard library: it may differ between versions.
    text.bytes().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % RECORDS
}
