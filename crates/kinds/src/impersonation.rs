//! Acting as somebody else, as it is asked for: the same words for who asks and who answers.

use std::collections::BTreeMap;

/// As whom somebody wants to act, as in Kubernetes' headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// The user's name; never empty where it is asked for.
    pub user: String,
    /// The groups. When there are none, those that the user has.
    pub groups: Vec<String>,
    /// The uid; empty for the user's own.
    pub uid: String,
    /// Whatever else is to be said, by its key.
    pub extra: BTreeMap<String, Vec<String>>,
}
