//! `Requester`: the owner of the slots and bytes that a request uses, and the 429 if none are left.

use std::sync::Arc;

use postern_meta::status::ApiError;

use super::account::OwnerAccount;

/// The seconds after which a rejected client may retry.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// The sender of a request that needs a slot or room for bytes.
#[derive(Clone)]
pub struct Requester {
    /// The account of the owner of the key, also when the request impersonates another user.
    pub account: Arc<OwnerAccount>,
    /// Whether the owner is a member of `system:masters`.
    pub is_system: bool,
}

/// The 429 of a request that gets no slot, or no bytes.
pub fn too_many_requests() -> ApiError {
    let message = "Too many requests, please try again later.";
    ApiError::too_many_requests(message, RETRY_AFTER_SECONDS)
}
