//! The fields of an access key that say where it comes from. Only the server writes them
//! (`docs/reference/access-keys.md#fields-of-the-server`).

use crate::owned_access_key::{CONNECTOR_DATA_PATH, Fields, OwnedAccessKey, SESSION_LABEL, Spec};
use crate::prelude::*;

/// Whether a write changes the data that the connector of a login needs later.
fn has_new_data(ctx: &Context<'_>) -> bool {
    ctx.new_secrets.contains(&CONNECTOR_DATA_PATH)
}

/// The right to write data of a single sign-on, which readers take for the provider's: every verb on access keys. The
/// owner of a key does not have it.
pub(crate) fn right_to_identify(
    new: &Draft<Fields>,
    old: Option<&Draft<Fields>>,
    ctx: &Context<'_>,
) -> Option<RequiredRight> {
    if old.is_some_and(is_of_login) {
        // [`check_server_fields`] refuses it to all callers.
        return None;
    }
    let spec = &new.fields.spec;
    let none = Spec::default();
    let before = old.map_or(&none, |old| &old.fields.spec);
    let is_same = spec.identity.clone().unwrap_or_default()
        == before.identity.clone().unwrap_or_default()
        && spec.identity_refresh == before.identity_refresh
        && spec.oidc_provider == before.oidc_provider;
    if is_same && !has_new_data(ctx) {
        return None;
    }
    let info = &OwnedAccessKey::INFO;
    let right = Right::cluster("*", info.version.group, info.plural, &new.metadata.name);
    let hint =
        "the server writes identity, identityRefresh and oidcProvider: leave them out".to_owned();
    Some(RequiredRight::from(right).by_role().because(hint))
}

/// Whether a key is of a login or of a session.
fn is_of_login(key: &Draft<Fields>) -> bool {
    key.fields.status.login.is_some() || key.fields.status.session.is_some()
}

/// Checks the fields that only the server writes: the label of sessions on every key, and on the key of a login or a
/// session everything that makes it one.
pub(crate) fn check_server_fields(
    new: &Draft<Fields>,
    old: Option<&Draft<Fields>>,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    let label = |key: &Draft<Fields>| key.metadata.labels.get(SESSION_LABEL).cloned();
    if label(new) != old.and_then(label) {
        let path = format!("metadata.labels[{SESSION_LABEL}]");
        errors.push(FieldError::forbidden(path, "only the server sets it"));
    }
    let Some(old) = old.filter(|old| is_of_login(old)) else { return };
    let (new, old) = (&new.fields.spec, &old.fields.spec);
    for (field, is_same) in [
        ("spec.key", !ctx.has_new_credential),
        ("spec.ttl", old.ttl == new.ttl),
        ("spec.ttlAfterLastActivity", old.ttl_after_last_activity == new.ttl_after_last_activity),
        ("spec.type", old.r#type == new.r#type),
        ("spec.groups", old.groups == new.groups),
        ("spec.identity", old.identity == new.identity && !has_new_data(ctx)),
        ("spec.identityRefresh", old.identity_refresh == new.identity_refresh),
        ("spec.oidcProvider", old.oidc_provider == new.oidc_provider),
    ] {
        if !is_same {
            let detail = "only the server sets it for a session and for the key of a login: log in again instead";
            errors.push(FieldError::forbidden(field, detail));
        }
    }
}
