//! The limits of a caller's access key, for reviews. Even with wider permissions, the key may
//! create or change only certain keys and workload identities. `postern_kinds::key_attenuation` has
//! the rules.

use postern_auth::identity::Identity;
use postern_auth::policy::Policy;
use postern_kinds::key_attenuation::check_any_change;
use postern_kinds::principal::Maker;
use postern_kinds::{CallerKey, Owner, Principals as _, Verb};
use serde::Deserialize;

use crate::permit::ResourceTarget;
use crate::registry::Registry;
use crate::registry::deciding::StoredMetadata;

/// The limits of a key with a scope or a maker. Other keys have none.
pub(super) struct KeyLimits {
    key: CallerKey,
}

/// The part of a key or of a workload identity that says which key created it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Made {
    metadata: StoredMetadata,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    maker: Option<Maker>,
}

impl KeyLimits {
    /// The limits of the key of an identity, if they matter for the target. An identity without the name of a key, but
    /// with scopes, is one of a key that does not exist yet.
    pub(super) fn of(
        registry: &Registry,
        policy: &Policy,
        identity: &Identity,
        target: &ResourceTarget,
    ) -> Option<Self> {
        let is_write = matches!(target.verb, Verb::Create | Verb::Update | Verb::Patch);
        if !is_write || target.action.is_some() || !target.kind.is_delegated() {
            return None;
        }
        let key = if identity.access_key.is_empty() {
            let user = identity.user.clone().map(Owner::User);
            let owner = user.or_else(|| identity.team.clone().map(Owner::Team));
            CallerKey { owner, ..CallerKey::default() }
        } else {
            let now = registry.source().now().unix_seconds();
            let principals = registry.cache().principals();
            let key = principals.identify_by_name(&identity.access_key, now, policy).ok()?;
            key.as_caller_key(None)
        };
        let key = CallerKey { is_scoped: identity.is_scoped(), ..key };
        (key.is_scoped || key.has_maker).then_some(Self { key })
    }

    /// The only owner for which the key may create an object; `None` if it may create objects for
    /// any owner.
    pub(super) fn only_owner(&self) -> Option<&Owner> {
        self.key.owner.as_ref().filter(|_| self.key.is_scoped)
    }

    /// The reason if the key may not change the object of the target, regardless of the change.
    pub(super) fn refusal(&self, registry: &Registry, target: &ResourceTarget) -> Option<String> {
        let name = target.name.as_deref().filter(|_| target.verb != Verb::Create)?;
        let stored = registry.read_to_decide(target.kind, target.namespace.as_deref(), name);
        let stored = stored.ok().flatten()?;
        let made: Made = stored.part().ok()?;
        let maker = made.status.maker.as_ref();
        let is_made = maker.is_some_and(|maker| maker.uid == self.key.uid)
            || registry.cache().principals().is_made_by(&made.metadata.uid, &self.key.uid);
        let cached = stored.into_cached();
        let owner = cached.owner().map(|owned| &owned.owner);
        check_any_change(&self.key, owner, maker, is_made).err()
    }
}
