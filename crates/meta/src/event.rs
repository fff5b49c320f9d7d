//! The types of watch events. How events are framed is decided by the server.

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchEventType {
    /// An object exists, or matches the watch's selectors now.
    Added,
    /// An object has changed.
    Modified,
    /// An object was deleted, or no longer matches the watch's selectors.
    Deleted,
    /// Every change up to the `resourceVersion` in it has been sent.
    Bookmark,
    /// The watch has failed; the object is a Status.
    Error,
}

impl WatchEventType {
    /// The `type` that is sent to clients.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}
