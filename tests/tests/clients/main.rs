//! The specification's requests (part 4) with common clients: the oldest supported kubectl, the
//! newest one, and curl.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod curl;
mod kubectl;
