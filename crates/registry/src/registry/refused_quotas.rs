//! Quotas that were exceeded lately, until an event says so. The request that was refused does not wait for
//! that.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Projects that are remembered at once.
const MAX_PROJECTS: usize = 1024;

/// The last refusal of each project, by the project's name.
#[derive(Default)]
pub(crate) struct RefusedQuotas {
    last: Mutex<BTreeMap<String, String>>,
    added: Notify,
}

impl RefusedQuotas {
    /// Notes that a quota of a project was exceeded, in these words.
    pub(super) fn note(&self, project: &str, words: &str) {
        let mut last = self.last.lock();
        if last.len() < MAX_PROJECTS || last.contains_key(project) {
            last.insert(project.to_owned(), words.to_owned());
            self.added.notify_one();
        }
    }

    /// Waits for refusals. Returns them as projects and words.
    pub(crate) async fn taken(&self) -> BTreeMap<String, String> {
        loop {
            self.added.notified().await;
            let last = std::mem::take(&mut *self.last.lock());
            if !last.is_empty() {
                return last;
            }
        }
    }
}
