//! A requested impersonation, as the client sends it and the server reads it. What it grants is
//! decided in `auth`.

use std::collections::BTreeMap;

/// The identity that a caller wants to impersonate: the content of Kubernetes' `Impersonate-` headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impersonation {
    /// The user's name; never empty in a valid request.
    pub user: String,
    /// The groups; if there are none, the user's own.
    pub groups: Vec<String>,
    /// The uid; if it is empty, the user's own.
    pub uid: String,
    /// Extra fields, by their keys.
    pub extra: BTreeMap<String, Vec<String>>,
}
