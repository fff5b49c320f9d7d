//! Checks everything that is stored: can it be opened, and is it what it should be?

use postern_kinds::{AnyKind, all};
use postern_meta::decode::{Format, decode};
use postern_meta::event::WatchEventType;
use postern_registry::cache::{CachedObject, stored_head};
use postern_registry::storage_key;
use postern_store::seal::Sealed;
use postern_store::{Entry, ListRequest, Store as _};

use super::{CommandOutput, Damage, MAX_REPORTED, Progress};

/// Checks every value. Returns what is corrupt.
pub(super) async fn run(
    sealed: &Sealed,
    report: &mut (dyn FnMut(Progress) + Send),
) -> anyhow::Result<CommandOutput> {
    let collections: Vec<(String, &dyn AnyKind)> =
        all().iter().map(|kind| (storage_key::collection(kind.info()), *kind)).collect();
    let (mut seen, mut damaged_total) = (0, 0);
    let mut damaged = Vec::new();
    let first = sealed.list(ListRequest { limit: 1, ..ListRequest::default() }).await?;
    let all = (first.entries.len() + first.corrupt.len()) as u64 + first.remaining;
    let mut after = None;
    loop {
        // A list with a limit would read all that comes after it, to count it.
        let page = sealed.next_page("", first.revision, after).await?;
        after = page.last_key().cloned();
        seen += (page.entries.len() + page.corrupt.len()) as u64;
        let unopened = page.corrupt.iter().map(|entry| (&entry.key, entry.reason.clone()));
        let unread = page.entries.iter().filter_map(|entry| {
            wrong_with(entry, &collections).map(|reason| (&entry.key, reason.to_owned()))
        });
        for (key, reason) in unopened.chain(unread) {
            damaged_total += 1;
            if damaged.len() < MAX_REPORTED {
                damaged.push(Damage { key: storage_key::display_name(key).to_owned(), reason });
            }
        }
        report(Progress { seen, remaining: all.saturating_sub(seen) });
        if after.is_none() {
            return Ok(CommandOutput::Check { seen, damaged, damaged_total });
        }
    }
}

/// The defect of a value that could be decrypted; `None` for an intact value.
fn wrong_with(entry: &Entry, collections: &[(String, &dyn AnyKind)]) -> Option<&'static str> {
    if entry.key.starts_with(storage_key::DIGESTS) {
        let readable = decode(&entry.value, Format::Json).is_ok();
        return (!readable).then_some("it is not a record of an access key");
    }
    let (_, kind) = collections.iter().find(|(prefix, _)| entry.key.starts_with(prefix))?;
    let head = stored_head(kind.info());
    let (key, position) = (entry.key.clone(), entry.position);
    let object =
        CachedObject::from_stored(&head, key, position, WatchEventType::Added, &entry.value);
    let Some(object) = object.and_then(|object| object.decode().ok()) else {
        return Some("it is not an object of its kind");
    };
    kind.blocks_deletion(&object).err().map(|_| "its fields are not those of its kind")
}
