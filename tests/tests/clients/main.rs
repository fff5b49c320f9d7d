//! The specification's requests (part 4) with common clients: the oldest supported kubectl, the
//! newest one, and curl; and the requests of clients that cannot be run here.
#![expect(clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod curl;
mod kubectl;
mod request_shapes;
