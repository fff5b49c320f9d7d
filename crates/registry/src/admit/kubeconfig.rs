//! Checks the kubeconfig in a new reference of an object (`docs/reference/clusters.md#kubeconfigs`). If the Secret
//! exists, its kubeconfig must be usable. The Secret may change later; requests that use it then report the problem.

use postern_kinds::AnyKind;
use postern_kinds::kubeconfig::Kubeconfig;
use postern_kinds::secret::{self, Secret};
use postern_meta::field::{FieldError, FieldErrors};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize;

use super::view::AdmissionView;

/// Adds an error for a new reference to an existing Secret without a usable kubeconfig. An earlier check ensures that
/// the caller may read the Secret.
pub(super) fn check_kubeconfig(
    view: &AdmissionView<'_>,
    kind: &'static dyn AnyKind,
    new: &Object,
    old: Option<&Object>,
    errors: &mut FieldErrors,
) -> Result<(), ApiError> {
    let config = kind.kubeconfig(new);
    let Some(config) = config.filter(|one| errors.is_empty() && !one.secret_name.is_empty()) else {
        return Ok(());
    };
    if old.and_then(|old| kind.kubeconfig(old)).as_ref() == Some(&config) {
        return Ok(());
    }
    let namespace = config.namespace_in(&new.metadata.namespace);
    let Some(found) = view.read(&Secret, Some(namespace), &config.secret_name)? else {
        return Ok(());
    };
    let spec = secret::Spec::deserialize(&found.object.fields).unwrap_or_default();
    if let Err(why) = Kubeconfig::of_secret(&spec, config.key_or_default()) {
        let detail = format!("the Secret has no usable kubeconfig: {why}");
        errors.push(FieldError::invalid("spec.config", &config.secret_name, detail));
    }
    Ok(())
}
