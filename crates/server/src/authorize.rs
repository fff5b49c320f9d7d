//! From `Authenticated` to `Permit`: may they?

use std::sync::Arc;

use postern_auth::decide::{Attributes, Decision, decide, refusal_text};
use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_kinds::{AnyKind, Verb};
use postern_meta::status::ApiError;

use crate::authenticate::Authenticated;
use crate::request::{Parsed, ResourceTarget, Target};

/// The proof that somebody may do one thing. It carries what that thing is, and the registry
/// acts on nothing else: a permit for one object cannot be used on another. Only [`authorize`]
/// and [`Permit::for_server`] make one.
#[derive(Clone)]
pub(crate) struct Permit {
    target: ResourceTarget,
    identity: Arc<Identity>,
}

impl Permit {
    /// What may be done, and to what.
    pub(crate) fn target(&self) -> &ResourceTarget {
        &self.target
    }

    /// The kind that it is about.
    pub(crate) fn kind(&self) -> &'static dyn AnyKind {
        self.target.kind
    }

    /// Who may.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// For one object out of those that this permit is for, all of which it covers.
    pub(crate) fn narrowed(&self, verb: Verb, namespace: Option<&str>, name: &str) -> Self {
        let target = ResourceTarget {
            kind: self.target.kind,
            verb,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
        };
        Self { target, identity: self.identity.clone() }
    }

    /// For a whole collection, in tests.
    #[cfg(test)]
    pub(crate) fn without_name(mut self) -> Self {
        self.target.name = None;
        self
    }

    /// For the server's own controllers, which act for nobody.
    pub(crate) fn for_server(
        kind: &'static dyn AnyKind,
        verb: Verb,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let identity = Identity {
            name: "system:postern".to_owned(),
            uid: String::new(),
            groups: vec![MASTERS_GROUP.to_owned()],
            user: None,
            access_key: String::new(),
        };
        let target = ResourceTarget {
            kind,
            verb,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
        };
        Self { target, identity: Arc::new(identity) }
    }
}

/// What an authorised request leads to.
pub(crate) enum Authorized {
    /// Something done to a resource.
    Resource(Parsed, Permit),
    /// A document such as discovery.
    Document(Parsed),
}

/// Asks `auth`, and turns its answer into a permit.
///
/// # Errors
/// 403 in kube-apiserver's words; for a path that nothing is served at, 404, but only to those
/// who may know.
pub(crate) fn authorize(authenticated: Authenticated) -> Result<Authorized, ApiError> {
    let (parsed, identity) = authenticated.into_parts();
    match parsed.target() {
        Target::Resource(target) => {
            let attributes = attributes_of(target);
            if decide(&identity, &attributes) == Decision::Deny {
                let name = target.name.as_deref().unwrap_or_default();
                let text = refusal_text(&identity, &attributes);
                return Err(ApiError::forbidden(target.kind.info().group_resource(), name, &text));
            }
            let permit = Permit { target: target.clone(), identity };
            Ok(Authorized::Resource(parsed, permit))
        }
        Target::Document(_) | Target::Nothing => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            let attributes = Attributes::Path { verb: &verb, path: parsed.path() };
            if decide(&identity, &attributes) == Decision::Deny {
                return Err(ApiError::forbidden_path(&identity.name, &verb, parsed.path()));
            }
            Ok(Authorized::Document(parsed))
        }
    }
}

fn attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.kind.info();
    Attributes::Resource {
        verb: target.verb.as_str(),
        group: info.version.group,
        resource: info.plural,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}
