//! The proxy against an upstream that can do anything, byte by byte.

mod forwarding;
mod support;
