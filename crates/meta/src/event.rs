//! The types of watch events. Their framing is the server's.

/// What a watch event says has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WatchEventType {
    /// An object is there, or has come into the watcher's sight.
    Added,
    /// It has changed.
    Modified,
    /// It is gone, or has left the watcher's sight.
    Deleted,
    /// Everything up to the version in it has been told.
    Bookmark,
    /// The watch has failed; the object is a Status.
    Error,
}

impl WatchEventType {
    /// The word on the wire.
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
