//! `Requester`: whose seats and bytes a request takes, and what a request gets that finds none.

use postern_meta::status::ApiError;

/// The seconds after which a rejected client may try again.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// The sender of a request that needs a seat.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    /// The owner of the key: seats are shared among owners, whomever they impersonate.
    pub owner: &'a str,
    /// Are they in `system:masters`?
    pub is_system: bool,
}

impl Requester<'_> {
    /// A client without a valid key.
    pub const STRANGER: Requester<'static> = Requester { owner: "", is_system: false };
}

/// The 429 of a request that finds no room.
pub fn too_many_requests() -> ApiError {
    let message = "Too many requests, please try again later.";
    ApiError::too_many_requests(message, RETRY_AFTER_SECONDS)
}
