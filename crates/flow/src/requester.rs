//! `Requester`: the owner whose seats and bytes a request uses, and the answer if there is no room.

use std::sync::Arc;

use postern_meta::status::ApiError;

use super::account::OwnerAccount;

/// The seconds after which a rejected client may try again.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// The sender of a request that needs a slot or room for bytes.
#[derive(Clone)]
pub struct Requester {
    /// The account of the owner of the key: slots are shared among owners, whomever they impersonate.
    pub account: Arc<OwnerAccount>,
    /// Whether the owner is a member of `system:masters`.
    pub is_system: bool,
}

/// The 429 of a request that finds no room.
pub fn too_many_requests() -> ApiError {
    let message = "Too many requests, please try again later.";
    ApiError::too_many_requests(message, RETRY_AFTER_SECONDS)
}
