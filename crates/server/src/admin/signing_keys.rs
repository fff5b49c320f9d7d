//! A new key for endpoint tokens, and the end of an old one.

use postern_registry::registry::Registry;
use postern_registry::signing_keys;

use super::CommandOutput;

/// Makes a new key: one that is announced, or with `force` one that signs at once.
pub(super) async fn rotate(registry: &Registry, force: bool) -> anyhow::Result<CommandOutput> {
    let (now, policy) = (registry.source().now(), registry.token_policy());
    let next = signing_keys::rotate(registry.store(), now, policy, force).await?;
    let signing_keys::Rotation { kid, signs_from, was_announced } = next;
    Ok(CommandOutput::RotateSigningKey { kid, signs_from: signs_from.to_string(), was_announced })
}

/// Drops a key that does not sign any more, or not yet.
pub(super) async fn drop_key(registry: &Registry, kid: &str) -> anyhow::Result<CommandOutput> {
    signing_keys::drop_key(registry.store(), registry.source().now(), kid).await?;
    Ok(CommandOutput::DropSigningKey { kid: kid.to_owned() })
}
