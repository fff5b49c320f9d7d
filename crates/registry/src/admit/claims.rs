//! Checks the claims that an object accepts, against the type of its trusted issuer
//! (`docs/reference/workload-identity.md`). The type may change later; then no token is accepted.
//!
//! The uid of the trusted issuer is in the record of bound names, since the writer may not see the issuer.

use postern_kinds::trusted_issuer::{self, TrustedIssuer};
use postern_kinds::{AnyKind, BoundGrant, RequiredRight, Right};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_oidc::workload::{self, InvalidMatch, IssuerType};
use serde::Deserialize as _;

use super::view::{AdmissionView, key_of_names};
use super::write::ObjectNames;
use crate::cache::BoundNames;
use crate::permit::Permit;

/// The [`BoundGrant::what`] of the trusted issuer of an object.
const TRUSTED_ISSUER: &str = "issuer:";

/// Adds the errors in a new list of claims. A caller that may not see the trusted issuer learns
/// nothing about it, not even whether it exists: an exchange checks the same.
pub(super) fn check_claims(
    view: &AdmissionView<'_>,
    permit: &Permit,
    new: &Object,
    old: Option<&Object>,
    errors: &mut FieldErrors,
) -> Result<(), ApiError> {
    let kind = permit.kind();
    let Some((issuer, list)) = kind.claim_matches(new).filter(|_| errors.is_empty()) else {
        return Ok(());
    };
    if old.and_then(|old| kind.claim_matches(old)).as_ref() == Some(&(issuer.clone(), list.clone()))
    {
        return Ok(());
    }
    let info = TrustedIssuer.info();
    let right = |verb| Right::cluster(verb, info.version.group, info.plural, issuer.as_str());
    if !permit.credential().is_server()
        && !permit.has(&RequiredRight::from(right("get")).or(right("use")))
    {
        return Ok(());
    }
    let Some(found) = view.read(&TrustedIssuer, None, &issuer)? else {
        errors.push(FieldError::not_found("spec.issuer", issuer.as_str()));
        return Ok(());
    };
    let fields = trusted_issuer::Fields::deserialize(&found.object.fields);
    let of = fields.ok().and_then(|fields| IssuerType::named(&fields.spec.r#type));
    let Some(of) = of else {
        let detail = "the TrustedIssuer has no known type";
        errors.push(FieldError::invalid("spec.issuer", issuer.as_str(), detail));
        return Ok(());
    };
    for problem in workload::problems(of, &workload::list_of(&list)) {
        let detail = problem.to_string();
        errors.push(match problem {
            InvalidMatch::Missing(_) => FieldError::required("spec.match", detail),
            InvalidMatch::Claim(index, _) => {
                FieldError::invalid(format!("spec.match[{index}]"), BadValue::Omitted, detail)
            }
            InvalidMatch::Value(index, value, _) => {
                let path = format!("spec.match[{index}].values[{value}]");
                FieldError::invalid(path, BadValue::Omitted, detail)
            }
        });
    }
    Ok(())
}

/// The trusted issuer of an object that accepts claims, with the uid that the issuer had when the object first named it.
/// An issuer that did not exist then is bound by the next write, or by the first exchange.
pub(super) fn bound_issuer(
    view: &AdmissionView<'_>,
    kind: &dyn AnyKind,
    new: &Object,
) -> Result<Option<ObjectNames>, ApiError> {
    let Some((issuer, _)) = kind.claim_matches(new) else { return Ok(None) };
    let key = key_of_names(kind, &new.metadata);
    let known = view.cache.bound_names(&key).filter(|names| names.uid == new.metadata.uid);
    let uid = match known.and_then(|names| names.issuer_uid(&issuer).map(str::to_owned)) {
        Some(uid) => Some(uid),
        None => view.read(&TrustedIssuer, None, &issuer)?.map(|found| found.object.metadata.uid),
    };
    let what = TRUSTED_ISSUER.to_owned();
    let grant = uid.map(|uid| BoundGrant { what, group: issuer, uid });
    let names = BoundNames { uid: new.metadata.uid.clone(), grants: grant.into_iter().collect() };
    Ok(Some(ObjectNames { key, names }))
}

impl BoundNames {
    /// The uid of the trusted issuer of this name; `None` if the object was not bound to it yet.
    pub(crate) fn issuer_uid(&self, name: &str) -> Option<&str> {
        let is_it = |grant: &&BoundGrant| grant.what == TRUSTED_ISSUER && grant.group == name;
        self.grants.iter().find(is_it).map(|grant| grant.uid.as_str())
    }
}
