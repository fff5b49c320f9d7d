//! From `Acting` to `Permit`: may they?

use postern_auth::decide::{Attributes, Decision, decide, may_reach_single_objects, refusal_text};
use postern_auth::identity::{Identity, MASTERS_GROUP};
use postern_kinds::{AnyKind, Caller, Right, Verb};
use postern_meta::object::Object;
use postern_meta::status::ApiError;

use crate::stages::authenticate::Credential;
use crate::stages::impersonate::Acting;
use crate::stages::parse::{Document, Parsed, ResourceTarget, Target};

/// The proof that somebody may do one thing. It carries what that thing is, and the registry
/// acts on nothing else: a permit for one object cannot be used on another. Only [`authorize`]
/// and [`Permit::for_server`] make one.
#[derive(Clone)]
pub(crate) struct Permit {
    target: ResourceTarget,
    credential: Credential,
    coverage: Coverage,
}

/// Which of the objects that a permit is for it reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coverage {
    /// All of them.
    All,
    /// Those on which the bearer holds the right that stands in for the verb; each is asked about.
    Each,
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
        self.credential.identity()
    }

    /// Who may, and what he showed to prove who he is.
    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Who may, as kinds see him.
    pub(crate) fn caller(&self) -> Caller {
        Caller { user: self.identity().user.clone(), team: self.identity().team.clone() }
    }

    /// Does it reach every object that it is for? Then none need be asked about.
    pub(crate) fn covers_all(&self) -> bool {
        self.coverage == Coverage::All
    }

    /// Does it reach this object?
    pub(crate) fn covers(&self, object: &Object) -> bool {
        self.covers_all()
            || self
                .kind()
                .delegated_right(self.target.verb, object)
                .is_some_and(|right| self.holds(&right))
    }

    /// As [`Permit::reaches`], for where it is refused.
    ///
    /// # Errors
    /// 403 in kube-apiserver's words.
    pub(crate) fn check(&self, object: &Object) -> Result<(), ApiError> {
        if self.covers(object) {
            return Ok(());
        }
        Err(refused(self.identity(), &self.target, &attributes_of(&self.target)))
    }

    /// Does its bearer hold a right that a write takes besides?
    ///
    /// # Errors
    /// 403 which names the right that is lacking.
    pub(crate) fn check_right(&self, right: &Right) -> Result<(), ApiError> {
        if self.holds(right) {
            return Ok(());
        }
        Err(refused(self.identity(), &self.target, &Attributes::from(right)))
    }

    fn holds(&self, right: &Right) -> bool {
        decide(self.identity(), &Attributes::from(right)) == Decision::Allow
    }

    /// For one object out of those that this permit is for.
    pub(crate) fn narrowed(&self, verb: Verb, namespace: Option<&str>, name: &str) -> Self {
        let target = ResourceTarget {
            kind: self.target.kind,
            verb,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            subresource: None,
        };
        Self { target, ..self.clone() }
    }

    /// For reading an object of another kind, that has no namespace, as its bearer may.
    ///
    /// # Errors
    /// 403, when he may read none.
    pub(crate) fn reading(&self, kind: &'static dyn AnyKind, name: &str) -> Result<Self, ApiError> {
        let target = ResourceTarget {
            kind,
            verb: Verb::Get,
            namespace: None,
            name: Some(name.to_owned()),
            subresource: None,
        };
        let coverage = coverage_of(self.identity(), &target)?;
        Ok(Self { target, credential: self.credential.clone(), coverage })
    }

    /// For a whole collection, where it was for one object.
    pub(crate) fn of_all(mut self) -> Self {
        self.target.name = None;
        self
    }

    /// For somebody with a key, in tests.
    #[cfg(test)]
    pub(crate) fn with_credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
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
            groups: vec![MASTERS_GROUP.to_owned()],
            ..Identity::default()
        };
        let target = ResourceTarget {
            kind,
            verb,
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            subresource: None,
        };
        Self { target, credential: Credential::of_server(identity), coverage: Coverage::All }
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
pub(crate) fn authorize(acting: Acting) -> Result<Authorized, ApiError> {
    let (parsed, credential) = acting.into_parts();
    let identity = credential.identity();
    match parsed.target() {
        Target::Resource(target) => {
            let coverage = coverage_of(identity, target)?;
            let permit = Permit { target: target.clone(), credential, coverage };
            Ok(Authorized::Resource(parsed, permit))
        }
        Target::Document(document) => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            check_path(identity, &path_attributes(*document, &verb, parsed.path()))?;
            Ok(Authorized::Document(parsed))
        }
        Target::Nothing => {
            let verb = parsed.method().as_str().to_ascii_lowercase();
            check_path(identity, &Attributes::Path { verb: &verb, path: parsed.path() })?;
            Ok(Authorized::Document(parsed))
        }
    }
}

fn coverage_of(identity: &Identity, target: &ResourceTarget) -> Result<Coverage, ApiError> {
    if let Some(right) = target.subresource.and_then(|_| right_behind(target)) {
        let attributes = Attributes::from(&right);
        if decide(identity, &attributes) == Decision::Allow {
            return Ok(Coverage::All);
        }
        return Err(refused(identity, target, &attributes));
    }
    let attributes = attributes_of(target);
    if decide(identity, &attributes) == Decision::Allow {
        return Ok(Coverage::All);
    }
    if target.kind.has_delegated_right() && may_reach_single_objects(identity) {
        return Ok(Coverage::Each);
    }
    Err(refused(identity, target, &attributes))
}

/// The right that a subresource takes: the keys of an owner take `getkey` on him (decision 3).
fn right_behind(target: &ResourceTarget) -> Option<Right> {
    let info = target.kind.info();
    let name = target.name.clone()?;
    Some(Right::cluster("getkey", info.version.group, info.plural, name))
}

/// What describes the API is open to everyone who has a key.
fn path_attributes<'a>(document: Document, verb: &'a str, path: &'a str) -> Attributes<'a> {
    if document.describes_the_api() {
        Attributes::Description { verb, path }
    } else {
        Attributes::Path { verb, path }
    }
}

fn check_path(identity: &Identity, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    if decide(identity, attributes) == Decision::Allow {
        return Ok(());
    }
    match attributes {
        Attributes::Description { verb, path } | Attributes::Path { verb, path } => {
            Err(ApiError::forbidden_path(&identity.name, verb, path))
        }
        Attributes::Resource { .. } => unreachable!("a path is no resource"),
    }
}

fn refused(identity: &Identity, target: &ResourceTarget, attributes: &Attributes<'_>) -> ApiError {
    let name = target.name.as_deref().unwrap_or_default();
    let text = refusal_text(identity, attributes);
    ApiError::forbidden(target.kind.info().group_resource(), name, &text)
}

fn attributes_of(target: &ResourceTarget) -> Attributes<'_> {
    let info = target.kind.info();
    Attributes::Resource {
        verb: target.verb.as_str(),
        group: info.version.group,
        resource: info.plural,
        subresource: target.subresource.unwrap_or_default(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    }
}
