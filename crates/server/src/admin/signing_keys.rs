//! The commands that create and remove signing keys of endpoint tokens.

use postern_registry::registry::Registry;
use postern_registry::signing_keys;

use super::CommandOutput;

/// Creates a key. It is published first, or with `force` it signs at once.
pub(super) async fn rotate(registry: &Registry, force: bool) -> anyhow::Result<CommandOutput> {
    let (now, policy) = (registry.source().now(), registry.token_policy());
    let next = signing_keys::rotate(registry.store(), now, policy, force).await?;
    let signing_keys::Rotation { kid, signs_from, was_announced } = next;
    Ok(CommandOutput::RotateSigningKey { kid, signs_from: signs_from.to_string(), was_announced })
}

/// Removes a key that is not the current signing key.
pub(super) async fn drop_key(registry: &Registry, kid: &str) -> anyhow::Result<CommandOutput> {
    signing_keys::drop_key(registry.store(), registry.source().now(), kid).await?;
    Ok(CommandOutput::DropSigningKey { kid: kid.to_owned() })
}
