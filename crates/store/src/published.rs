//! The newest revision that watches may deliver: how an engine announces it, and how a watch waits
//! for it. The engine decides how the watch then reads.

use tokio::sync::watch;

use crate::types::{Error, Result};

/// The state that an engine publishes to its watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Published {
    /// The newest revision that watches may deliver.
    pub(crate) revision: u64,
    /// Whether the store is closed. No later revision follows then.
    pub(crate) closed: bool,
}

/// Waits until there is a later revision than the given one.
///
/// # Errors
/// [`Error::Unavailable`] when the store is closed or dropped.
pub(crate) async fn wait_for_revision_after(
    revision: u64,
    published: &mut watch::Receiver<Published>,
) -> Result<()> {
    loop {
        let newest = *published.borrow_and_update();
        if newest.closed {
            return Err(Error::closed());
        }
        if newest.revision > revision {
            return Ok(());
        }
        published.changed().await.map_err(|_| Error::closed())?;
    }
}
