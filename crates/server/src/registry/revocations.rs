//! Revocation records: when a key, a user or a team gives something else than before, endpoint tokens from
//! before count no more. The record is written in the transaction of that change, and dropped when every
//! such token has expired.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use postern_auth::endpoint_token::SKEW_SECONDS;
use postern_kinds::principal::{AccessChange, TeamFacts};
use postern_kinds::{AnyKind, Principal, Principals};
use postern_meta::status::ApiError;
use postern_meta::time::Timestamp;
use postern_store::{Change, Condition, Error, Position, Txn, limits};

use super::Registry;
use crate::cache::RevocationRecord;
use crate::clock::new_uid;
use crate::errors::from_store;
use crate::storage_key;

/// Returns the uids of those that give something else after a change of an object than before. `old` and
/// `new` are its JSON; `None` for an object that is not there.
pub(super) fn revoked(
    kind: &dyn AnyKind,
    old: Option<&[u8]>,
    new: Option<&[u8]>,
    principals: &dyn Principals,
) -> Vec<String> {
    let (Some(old), Some(new)) = (kind.access_change(old), kind.access_change(new)) else {
        return Vec::new();
    };
    match (old, new) {
        (AccessChange::User(Some(old)), AccessChange::User(new)) if new.as_ref() != Some(&old) => {
            vec![old.uid]
        }
        (AccessChange::Key(Some(old)), AccessChange::Key(new)) if new.as_ref() != Some(&old) => {
            vec![old.uid]
        }
        (AccessChange::Team(old), AccessChange::Team(new)) => of_team(old, new, principals),
        _ => Vec::new(),
    }
}

/// Returns whom a change of a team concerns: the tokens of all of its members have its uid.
fn of_team(
    old: Option<TeamFacts>,
    new: Option<TeamFacts>,
    principals: &dyn Principals,
) -> Vec<String> {
    let is_same_for_all = match (&old, &new) {
        (Some(old), Some(new)) => old.groups == new.groups,
        (None, _) => true,
        (Some(_), None) => false,
    };
    if !is_same_for_all {
        return old.map(|old| old.uid).into_iter().collect();
    }
    let users = |team: Option<TeamFacts>| -> BTreeSet<String> {
        team.map(|team| team.users).unwrap_or_default().into_iter().collect()
    };
    let changed = &users(old) ^ &users(new);
    changed.iter().filter_map(|user| principals.uid(Principal::User(user))).collect()
}

impl Registry {
    /// Returns the change that revokes the tokens that depend on these uids; `None` for none.
    pub(super) fn revocation(&self, mut uids: Vec<String>) -> Result<Option<Change>, ApiError> {
        // Who leaves a hundred teams is there a hundred times.
        uids.sort_unstable();
        uids.dedup();
        if uids.is_empty() {
            return Ok(None);
        }
        // Tokens are of this server's clock, and are checked by that of an agent.
        let lifetime = self.token_policy().max_ttl_seconds.saturating_add(2 * SKEW_SECONDS);
        let end = self.source().now().unix_seconds().saturating_add(lifetime);
        let record = RevocationRecord { uids, drop_after: Timestamp::from_unix_seconds(end) };
        let value = serde_json::to_vec(&record)
            .map_err(|error| ApiError::internal("a record could not be encoded", error))?;
        let key = storage_key::revocation(&new_uid(self.source()));
        Ok(Some(Change::Put { key, value: Bytes::from(value) }))
    }

    /// Drops the records whose tokens have all expired.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn drop_old_revocations(&self) -> Result<(), ApiError> {
        let old = self.cache().old_revocations(self.source().now());
        for batch in old.chunks(limits::CHANGES_PER_TXN) {
            self.drop_revocations(batch).await?;
        }
        Ok(())
    }

    async fn drop_revocations(&self, batch: &[(Arc<str>, Position)]) -> Result<(), ApiError> {
        let conditions =
            batch.iter().map(|(key, position)| Condition::At(key.clone(), *position)).collect();
        let changes = batch.iter().map(|(key, _)| Change::Delete { key: key.clone() }).collect();
        match self.store().commit(Txn { conditions, changes }).await {
            // Another server has dropped some of them; the others go in the next round.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }
}
