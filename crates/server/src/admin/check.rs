//! The check of all stored values: whether each can be decrypted, and decoded as its kind.

use postern_kinds::{AnyKind, all};
use postern_meta::decode::{Format, decode};
use postern_meta::event::WatchEventType;
use postern_registry::cache::{CachedObject, stored_head};
use postern_registry::storage_key;
use postern_store::seal::Sealed;
use postern_store::{Entry, ListRequest, Store as _};

use super::{CommandOutput, CorruptValue, MAX_REPORTED, Progress};

/// Checks every stored value. Returns the corrupt ones.
pub(super) async fn run(
    sealed: &Sealed,
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let collections: Vec<(String, &dyn AnyKind)> =
        all().iter().map(|kind| (storage_key::collection(kind.info()), *kind)).collect();
    let (mut seen, mut corrupt_total) = (0, 0);
    let mut corrupt = Vec::new();
    let first = sealed.list(ListRequest { limit: 1, ..ListRequest::default() }).await?;
    let all = (first.entries.len() + first.corrupt.len()) as u64 + first.remaining;
    let mut after = None;
    loop {
        // A list with a limit would count all later values, and so read them.
        let page = sealed.next_page("", first.revision, after).await?;
        after = page.last_key().cloned();
        seen += (page.entries.len() + page.corrupt.len()) as u64;
        let undecrypted = page.corrupt.iter().map(|entry| (&entry.key, entry.reason.clone()));
        let undecoded = page.entries.iter().filter_map(|entry| {
            defect_of(entry, &collections).map(|reason| (&entry.key, reason.to_owned()))
        });
        for (key, reason) in undecrypted.chain(undecoded) {
            corrupt_total += 1;
            if corrupt.len() < MAX_REPORTED {
                corrupt
                    .push(CorruptValue { key: storage_key::display_name(key).to_owned(), reason });
            }
        }
        report(Progress { seen, remaining: all.saturating_sub(seen) });
        if after.is_none() {
            return Ok(CommandOutput::Check { seen, corrupt, corrupt_total });
        }
    }
}

/// The defect of a value that could be decrypted; `None` for an intact value.
fn defect_of(entry: &Entry, collections: &[(String, &dyn AnyKind)]) -> Option<&'static str> {
    if entry.key.starts_with(storage_key::DIGESTS) {
        let readable = decode(&entry.value, Format::Json).is_ok();
        return (!readable).then_some("the value is not a record of an access key");
    }
    let (_, kind) = collections.iter().find(|(prefix, _)| entry.key.starts_with(prefix))?;
    let head = stored_head(kind.info());
    let (key, position) = (entry.key.clone(), entry.position);
    let object =
        CachedObject::from_stored(&head, key, position, WatchEventType::Added, &entry.value);
    let Some(object) = object.and_then(|object| object.decode().ok()) else {
        return Some("the value is not an object of its kind");
    };
    kind.blocks_deletion(&object).err().map(|_| "the fields do not match the schema of the kind")
}
