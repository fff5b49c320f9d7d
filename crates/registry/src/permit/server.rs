//! The permits of the server itself.

use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_kinds::{AnyKind, Verb};

use super::{Coverage, Permit, ResourceTarget};
use crate::cache::PolicyAt;
use crate::credential::Credential;

impl Permit {
    /// A permit for work of the server itself, without a caller. `permit/tests.rs` lists every use, with its reason.
    pub fn for_server(
        kind: &'static dyn AnyKind,
        verb: Verb,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let identity = Identity {
            name: "system:postern".to_owned(),
            groups: vec![MASTERS_GROUP.to_owned()],
            ..Identity::default()
        };
        Self {
            target: ResourceTarget::object(kind, verb, namespace, name),
            credential: Credential::of_server(identity),
            policy: PolicyAt::built_in(),
            coverage: Coverage::All,
            as_of: None,
        }
    }
}
