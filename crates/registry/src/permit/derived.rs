//! Permits that follow from another permit of the same caller: by another decision, or because the first decision
//! covers them.

use std::sync::Arc;

use postern_auth::policy::Decision;
use postern_kinds::action::Action;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::principal::AccessChange;
use postern_kinds::{OwnedBy, Owner, Verb};
use postern_meta::status::ApiError;

use super::coverage::{KeysOf, attributes_of, refused_uniformly};
use super::{Coverage, Permit, ResourceTarget};
use crate::cache::CachedObject;
use crate::storage_key;

impl Permit {
    /// The caller's permit for a second target of this request, such as the object in a review.
    ///
    /// # Errors
    /// The errors of [`Permit::decide`].
    pub(crate) fn decide_for(&self, target: ResourceTarget) -> Result<Self, ApiError> {
        let coverage = Coverage::of(&self.policy, self.identity(), &target)?;
        Ok(Self { target, coverage, ..self.clone() })
    }

    /// The caller's permit to create the object of this permit, for an apply to an object that does not exist. Unlike
    /// a POST, it is authorized with the name, as in kube-apiserver.
    ///
    /// # Errors
    /// The errors of [`Permit::decide`].
    pub(crate) fn decide_create(&self) -> Result<Self, ApiError> {
        self.decide_for(ResourceTarget { verb: Verb::Create, ..self.target.clone() })
    }

    /// The caller's permit for a second target of an action.
    ///
    /// # Errors
    /// 403 with the missing permission. It is the same for every name, whether the object exists or not.
    pub(crate) fn decide_uniformly(&self, target: ResourceTarget) -> Result<Self, ApiError> {
        if self.policy.decide(self.identity(), &attributes_of(&target)) != Decision::Allow {
            return Err(refused_uniformly(&self.policy, self.identity(), &target));
        }
        Ok(Self { target, coverage: Coverage::All, ..self.clone() })
    }

    /// The permit to delete one object of the collection of this permit. It covers the object if this permit does.
    ///
    /// # Errors
    /// 500 if this permit is not for deleting a collection, or if the object is not in the collection. Both are bugs.
    pub(crate) fn one_of(&self, object: &CachedObject) -> Result<Self, ApiError> {
        let ResourceTarget { kind, verb, namespace, name, action, .. } = &self.target;
        let collection = storage_key::collection(kind.info());
        let is_of_kind = object.key().starts_with(&collection);
        let (of_object, its_name) = storage_key::split(&collection, object.key());
        let is_within = is_of_kind
            && namespace.as_deref().is_none_or(|namespace| Some(namespace) == of_object)
            && name.as_deref().is_none_or(|name| name == its_name);
        if *verb != Verb::DeleteCollection || action.is_some() || !is_within {
            return Err(not_covered("one object"));
        }
        let target = ResourceTarget::object(*kind, Verb::Delete, of_object, its_name);
        Ok(Self { target, ..self.clone() })
    }

    /// The permit to list the access keys of the user or team of this permit. It covers nothing else.
    ///
    /// # Errors
    /// 500 if this permit is not for that action, or `owner` is not the object of this permit. Both are bugs.
    pub(crate) fn keys_of(&self, owner: &CachedObject) -> Result<Self, ApiError> {
        let ResourceTarget { kind, namespace, name, action, .. } = &self.target;
        let name = name.as_deref().unwrap_or_default();
        let is_it = **owner.key() == *storage_key::object(kind.info(), namespace.as_deref(), name);
        if !is_it || !action.is_some_and(Action::lists_access_keys) || !self.covers(owner) {
            return Err(not_covered("the access keys of an owner"));
        }
        let uid = owner.decode()?.metadata.uid;
        let owner = match kind.access_change(None) {
            Some(AccessChange::Team(_)) => Owner::Team(name.to_owned()),
            _ => Owner::User(name.to_owned()),
        };
        let keys = KeysOf { owner: OwnedBy { owner, uid }, action: self.target.clone() };
        let target = ResourceTarget {
            kind: &OwnedAccessKey,
            verb: Verb::List,
            namespace: None,
            name: None,
            action: None,
            version: None,
        };
        Ok(Self { target, coverage: Coverage::KeysOf(Arc::new(keys)), ..self.clone() })
    }

    /// The permit for the whole collection of its object, in tests.
    #[cfg(test)]
    pub(crate) fn of_all(mut self) -> Self {
        self.target.name = None;
        self
    }

    /// The permit with another credential, in tests.
    #[cfg(test)]
    pub(crate) fn with_credential(mut self, credential: crate::credential::Credential) -> Self {
        self.credential = credential;
        self
    }

    /// The permit of a caller that only has permissions on owners, in tests.
    #[cfg(test)]
    pub(crate) fn of_own(mut self) -> Self {
        self.coverage = Coverage::Some(Arc::new(super::coverage::Covered::nothing_named()));
        self
    }
}

fn not_covered(what: &str) -> ApiError {
    ApiError::internal("the request needs a permission that was not checked", what)
}
