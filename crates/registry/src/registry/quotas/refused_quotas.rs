//! Recently exceeded quotas, until an event reports them. The rejected request does not wait for the event.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The largest number of projects that are remembered.
const MAX_PROJECTS: usize = 1024;

/// The last rejection for each project, by the name of the project.
#[derive(Default)]
pub(crate) struct RefusedQuotas {
    last: Mutex<BTreeMap<String, String>>,
    added: Notify,
}

impl RefusedQuotas {
    /// Notes that a quota of a project was exceeded. `words` is the message of the rejection.
    pub(super) fn note(&self, project: &str, words: &str) {
        let mut last = self.last.lock();
        if last.len() < MAX_PROJECTS || last.contains_key(project) {
            last.insert(project.to_owned(), words.to_owned());
            self.added.notify_one();
        }
    }

    /// Waits for rejections and takes them: the message for each project.
    pub(crate) async fn take(&self) -> BTreeMap<String, String> {
        loop {
            self.added.notified().await;
            let last = std::mem::take(&mut *self.last.lock());
            if !last.is_empty() {
                return last;
            }
        }
    }
}
