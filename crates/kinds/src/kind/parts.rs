//! The meaning of a kind's objects for the rest of the server: the hooks that read typed fields.

use postern_meta::object::ObjectMeta;

use super::ownership::OwnershipPart;
use super::{Dependents, UniqueKey};
use crate::claim_match::ClaimMatch;
use crate::kubeconfig_ref::KubeconfigRef;
use crate::principal::{AccessRole, Owner};
use crate::rbac::PolicyPart;
use crate::scope::Scope;
use crate::ties::Ties;

/// The TrustedIssuer of the tokens that an object accepts, and the claims that these must have.
pub type ClaimMatches<Spec> = fn(&Spec) -> (&str, &[ClaimMatch]);

/// The hooks of a kind that read typed fields. A kind gives those in which it differs from [`Parts::DEFAULT`].
#[derive(Debug)]
pub struct Parts<Spec, Status> {
    /// The owner and the access rules of its objects.
    pub ownership: Option<OwnershipPart<Spec>>,
    /// Objects that are kept in step with one, beyond those of its access rules.
    pub dependents: Option<Dependents<Spec>>,
    /// The name of the cluster that an object is on; `None` from it for an object that is on none.
    /// It is for a kind with objects that a project allows on some clusters only.
    pub on_cluster: Option<fn(&Spec) -> Option<&str>>,
    /// The place of the kubeconfig by which an object is reached; `None` from it for an object that has none.
    pub kubeconfig: Option<fn(&Spec) -> Option<&KubeconfigRef>>,
    /// The keys that only one object of the kind may have, beyond its name.
    pub unique_keys: Option<fn(&ObjectMeta, &Spec) -> Vec<UniqueKey>>,
    /// The hooks of a kind of credentials.
    pub credential: Option<Credential<Spec, Status>>,
    /// The role of its objects in authentication.
    pub access_role: Option<AccessRole<Spec, Status>>,
    /// The role of its objects in the policy, which decides about permissions.
    pub policy: Option<PolicyPart<Spec>>,
    /// The tokens that its objects accept, for a kind with objects that do.
    pub claim_matches: Option<ClaimMatches<Spec>>,
}

impl<Spec, Status> Parts<Spec, Status> {
    /// The hooks of a kind that declares none.
    pub const DEFAULT: Self = Self {
        ownership: None,
        dependents: None,
        on_cluster: None,
        kubeconfig: None,
        unique_keys: None,
        credential: None,
        access_role: None,
        policy: None,
        claim_matches: None,
    };
}

/// The hooks of a kind of credentials. Rights on the owner count as rights on its objects: with `getkey` on the user `ada`, a
/// caller may read the access keys of `ada`. See `docs/reference/access-keys.md#permission`.
#[derive(Debug)]
pub struct Credential<Spec, Status> {
    /// The owner of an object.
    pub owner: fn(&Spec) -> Option<Owner>,
    /// Whether a create requires the right on the owner in any case. Otherwise the verb on the kind is enough.
    pub needs_right_on_owner: bool,
    /// The scope of an object; `None` for one without.
    pub scope: fn(&Spec) -> Option<&Scope>,
    /// The objects that an object ends with, by records of the server's. The garbage collector
    /// deletes it with the first of them, independently of its owner references.
    pub ties: for<'a> fn(&'a Status) -> Ties<'a>,
}
