//! Checks the claims that an object accepts, against the type of its trusted issuer
//! (`docs/reference/workload-identity.md`). The type may change later; then no token is accepted.

use postern_auth::oidc::workload::{self, InvalidMatch, IssuerType};
use postern_kinds::trusted_issuer::{self, TrustedIssuer};
use postern_kinds::{AnyKind as _, RequiredRight, Right};
use postern_meta::field::{BadValue, FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize as _;

use super::view::AdmissionView;
use crate::permit::Permit;

/// Adds the errors in a new list of claims. A caller who may not see the trusted issuer learns nothing about it, not even
/// whether it exists: an exchange checks the same.
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
