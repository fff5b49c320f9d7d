//! Revocation records: when the permissions of a key, a user or a team change, older endpoint tokens are revoked.
//!
//! The record is written in the transaction of the change, if such tokens may exist. It is removed when all of them
//! have expired.

use std::collections::BTreeSet;
use std::sync::Arc;

use postern_auth::endpoint_token::keys_of;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::{AccessChange, TeamFacts};
use postern_kinds::{AnyKind as _, Owner, Principal, Principals};
use postern_meta::decode::decode_typed;
use postern_meta::status::ApiError;
use postern_store::{Change, Condition, Error, Position, Txn, limits};
use postern_telemetry::log_limited;
use serde::Deserialize;

use super::deciding::StoredMetadata;
use super::effects::{Conflict, Effects, Revoked, encoded};
use super::issued_tokens::as_read;
use super::side_records::RecordsOf;
use crate::cache::{Candidates, NotedImpersonation, RevocationRecord, Stored};
use crate::clock::new_uid;
use crate::errors::from_store;
use crate::registry::Registry;
use crate::storage_key;

/// The access keys that are checked before other tasks get the thread.
const KEYS_PER_STEP: usize = 512;

/// The maximum number of uids in one revocation record.
const MAX_UIDS: usize = 8192;

/// The maximum number of revocation records for the access keys of one owner. Agents get all records. If an owner has
/// more, one record replaces them, which revokes the tokens of all keys of the owner.
const MAX_RECORDS_PER_OWNER: usize = 512;

/// The uids that a change of a team concerns. The tokens of all members have the uid of the team.
fn changed_uids_of_team(
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
    let sso_groups = |team: &Option<TeamFacts>| -> BTreeSet<String> {
        team.iter().flat_map(|team| team.sso_groups.iter().cloned()).collect()
    };
    let groups = &sso_groups(&old) ^ &sso_groups(&new);
    let groups: Vec<String> = groups.into_iter().collect();
    let changed = &users(old) ^ &users(new);
    let listed = changed.iter().filter_map(|user| principals.uid(Principal::User(user)));
    listed.chain(principals.uids_with_sso_groups(&groups)).collect()
}

/// The part of an access key that identifies it.
#[derive(Deserialize)]
struct Identified {
    metadata: StoredMetadata,
}

impl Registry {
    /// The subjects for which a change of an object revokes endpoint tokens. `old` and `new` are
    /// its JSON; `None` if the object does not exist.
    pub(super) fn revoked(
        &self,
        of: RecordsOf<'_>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Vec<Revoked> {
        let (Some(old), Some(new)) = (of.kind.access_change(old), of.kind.access_change(new))
        else {
            return Vec::new();
        };
        let principals = self.cache().principals();
        let principal = |uid| Revoked::Principal { uid };
        match (old, new) {
            (AccessChange::User(Some(old)), AccessChange::User(new))
                if !new.as_ref().is_some_and(|new| new.is_same_access(&old)) =>
            {
                vec![principal(old.uid)]
            }
            (AccessChange::Key(Some(old)), AccessChange::Key(new))
                if new.as_ref() != Some(&old) =>
            {
                vec![Revoked::key(old)]
            }
            (AccessChange::Connector(Some(old)), AccessChange::Connector(new))
                if new.as_ref() != Some(&old) =>
            {
                principals.uids_of_connector(of.name).into_iter().map(principal).collect()
            }
            (AccessChange::Workload(Some(old)), AccessChange::Workload(new))
                if new.as_ref() != Some(&old) =>
            {
                principals.uids_of_workload(of.name).into_iter().map(principal).collect()
            }
            (AccessChange::Team(old), AccessChange::Team(new)) => {
                changed_uids_of_team(old, new, &*principals).into_iter().map(principal).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The subjects for which the removal of a corrupt object revokes endpoint tokens. Its content
    /// is unknown. If no record has its uid, more tokens than necessary are revoked, and never
    /// fewer.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn revoked_with_corrupt(
        &self,
        of: RecordsOf<'_>,
    ) -> Result<Vec<Revoked>, ApiError> {
        let owner = match of.kind.access_change(None) {
            None => return Ok(Vec::new()),
            Some(AccessChange::Key(_)) => {
                let secrets = self.secret_record(of).await?;
                let (uid, owner_uid) = (secrets.uid, secrets.owner_uid);
                if uid.is_empty() {
                    return Ok(self.noted_keys(true).await);
                }
                let owner_uid = Some(owner_uid).filter(|uid| !uid.is_empty());
                return Ok(vec![Revoked::Key { uid, owner_uid }]);
            }
            Some(AccessChange::Connector(_)) => {
                let uids = self.cache().principals().uids_of_connector(of.name);
                return Ok(uids.into_iter().map(|uid| Revoked::Principal { uid }).collect());
            }
            Some(AccessChange::Workload(_)) => {
                let uids = self.cache().principals().uids_of_workload(of.name);
                return Ok(uids.into_iter().map(|uid| Revoked::Principal { uid }).collect());
            }
            Some(AccessChange::User(_)) => Owner::User(of.name.to_owned()),
            Some(AccessChange::Team(_)) => Owner::Team(of.name.to_owned()),
        };
        // The tokens of a team's members also depend on the team, and their keys do not name it.
        let has_members = matches!(owner, Owner::Team(_));
        let keys = self.cache().of(OwnedAccessKey.info());
        let candidates = Candidates { named: None, owners: vec![owner] };
        let owned_keys =
            keys.list_candidates(keys.prefix(), None, &candidates).map(|list| list.objects);
        let owned_keys = owned_keys.unwrap_or_default();
        let uids = owned_keys.iter().filter_map(|key| key.owner().map(|owner| owner.uid.clone()));
        let uids: BTreeSet<String> = uids.filter(|uid| !uid.is_empty()).collect();
        if uids.is_empty() {
            return Ok(self.noted_keys(!has_members).await);
        }
        Ok(uids.into_iter().map(|uid| Revoked::Principal { uid }).collect())
    }

    /// Whether endpoint tokens of a key may be valid, by the uid of the key.
    pub(crate) fn has_endpoint_tokens(&self, key_uid: &str) -> bool {
        let note = self.cache().issued_tokens(&storage_key::issued_tokens(key_uid));
        note.is_some_and(|(_, issued)| issued.until > self.source().now())
    }

    /// The access keys with an issued-token note, or only the corrupt ones.
    async fn noted_keys(&self, only_corrupt: bool) -> Vec<Revoked> {
        let notes = self.cache().all_issued_tokens();
        let of_all = [storage_key::ALL_ISSUED_TOKENS, storage_key::UNKNOWN_ISSUED_TOKENS];
        let of_keys = notes.iter().filter(|key| !of_all.contains(&&***key));
        let uids = of_keys.filter_map(|key| key.strip_prefix(storage_key::ISSUED_TOKENS));
        let mut uids: BTreeSet<String> = uids.map(str::to_owned).collect();
        let keys = self.cache().of(OwnedAccessKey.info());
        let intact = keys.list_intact(keys.prefix(), None, 0).objects;
        for some in intact.chunks(KEYS_PER_STEP).filter(|_| only_corrupt) {
            for key in some {
                if let Ok(Identified { metadata }) = decode_typed(&key.json()) {
                    uids.remove(&metadata.uid);
                }
            }
            tokio::task::yield_now().await;
        }
        // They are revoked like principals, because these share one record.
        uids.into_iter().map(|uid| Revoked::Principal { uid }).collect()
    }

    /// Revokes the tokens that depend on these subjects. If no token was issued, there is nothing to revoke.
    ///
    /// # Errors
    /// 500 if a record cannot be encoded.
    pub(super) fn revoke(
        &self,
        mut revoked: Vec<Revoked>,
        effects: &mut Effects,
    ) -> Result<(), ApiError> {
        // A removed user can occur once for each team.
        revoked.sort_unstable();
        revoked.dedup();
        let mut principals = Vec::new();
        for one in revoked {
            let (uid, owner_uid) = match one {
                Revoked::Principal { uid } => {
                    principals.push(uid);
                    continue;
                }
                Revoked::Key { uid, owner_uid } => (uid, owner_uid),
                Revoked::Impersonation { id } => (id, None),
            };
            let note = storage_key::issued_tokens(&uid);
            if self.revoke_noted(&note, &[uid], owner_uid.as_ref(), effects)? {
                // The next token needs a new note.
                effects.delete(note);
            }
        }
        if !principals.is_empty() {
            let all = storage_key::ALL_ISSUED_TOKENS.into();
            self.revoke_noted(&all, &principals, None, effects)?;
        }
        Ok(())
    }

    /// Adds a record if tokens may have been issued. Returns whether a note exists under this key.
    fn revoke_noted(
        &self,
        note: &Arc<str>,
        uids: &[String],
        owner_uid: Option<&String>,
        effects: &mut Effects,
    ) -> Result<bool, ApiError> {
        let issued = self.cache().issued_tokens(note);
        // If a token was issued in the meantime, it must be revoked as well.
        effects.require(as_read(note, issued.as_ref()), Conflict::Again(keeps_getting_tokens));
        let is_noted = issued.is_some();
        let unknown = self.cache().issued_tokens(storage_key::UNKNOWN_ISSUED_TOKENS);
        let unknown = unknown.filter(|(_, unknown)| unknown.until > self.source().now());
        let until = [issued, unknown].into_iter().flatten().map(|(_, record)| record.until).max();
        let Some(drop_after) = until else { return Ok(false) };
        for uids in uids.chunks(MAX_UIDS).map(<[String]>::to_vec) {
            let owner_uid = owner_uid.cloned();
            let put = self.record(&RevocationRecord { uids, drop_after, owner_uid })?;
            effects.changes.push(put);
        }
        Ok(is_noted)
    }

    fn record(&self, record: &RevocationRecord) -> Result<Change, ApiError> {
        let key = storage_key::revocation(&new_uid(self.source()));
        Ok(Change::Put { key, value: encoded(record)? })
    }

    /// Revokes the endpoint tokens of impersonations that are no longer permitted.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn revoke_ended_impersonations(&self) -> Result<(), ApiError> {
        self.cache().wait_until_current().await?;
        for (id, NotedImpersonation { key, key_uid, wanted }) in self.cache().impersonations() {
            let (policy, now) = (self.cache().policy(), self.source().now().unix_seconds());
            if self.cache().principals().may_impersonate(&key, &key_uid, &wanted, now, &policy) {
                continue;
            }
            let mut effects = Effects::default();
            self.revoke(vec![Revoked::Impersonation { id }], &mut effects)?;
            match self.store().commit(effects.txn()).await {
                Ok(_) => log_limited!(
                    info,
                    key,
                    "an impersonation is no longer permitted: its tokens are revoked"
                ),
                // Another server has revoked them, or one more token was issued. Its note is a change, which runs
                // this again.
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(from_store(error)),
            }
        }
        Ok(())
    }

    /// Removes the records that are no longer needed, and merges the records of owners that have too many.
    ///
    /// # Errors
    /// The errors of the store.
    pub(crate) async fn clean_up_token_records(&self) -> Result<(), ApiError> {
        let obsolete = self.cache().obsolete_token_records(self.source().now());
        for batch in obsolete.chunks(limits::CHANGES_PER_TXN) {
            self.replace_records(batch.iter(), None).await?;
        }
        for (owner, records) in self.cache().owners_over_limit(MAX_RECORDS_PER_OWNER) {
            for some in records.chunks(limits::CHANGES_PER_TXN - 1) {
                self.merge_records(&owner, some).await?;
            }
        }
        Ok(())
    }

    /// Replaces revocation records of an owner's access keys by one record for all of its keys. The new record
    /// revokes at least the same tokens. Tokens of a team's members stay valid.
    async fn merge_records(
        &self,
        owner: &str,
        records: &[Stored<RevocationRecord>],
    ) -> Result<(), ApiError> {
        let Some(drop_after) = records.iter().map(|(_, _, record)| record.drop_after).max() else {
            return Ok(());
        };
        let uids = vec![keys_of(owner)];
        let put = self.record(&RevocationRecord { uids, drop_after, owner_uid: None })?;
        let old: Vec<_> =
            records.iter().map(|(key, position, _)| (key.clone(), *position)).collect();
        self.replace_records(old.iter(), Some(put)).await
    }

    async fn replace_records(
        &self,
        old: impl Iterator<Item = &(Arc<str>, Position)> + Clone,
        new: Option<Change>,
    ) -> Result<(), ApiError> {
        let conditions =
            old.clone().map(|(key, position)| Condition::At(key.clone(), *position)).collect();
        let deletes = old.map(|(key, _)| Change::Delete { key: key.clone() });
        let changes = new.into_iter().chain(deletes).collect();
        match self.store().commit(Txn { conditions, changes }).await {
            // Another server has removed some of them. The next round removes the others.
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(from_store(error)),
        }
    }
}

/// The error for a change of an access key that gets a new endpoint token before each attempt.
fn keeps_getting_tokens() -> ApiError {
    ApiError::unavailable("the access key keeps getting new endpoint tokens: try again", Some(1))
}
