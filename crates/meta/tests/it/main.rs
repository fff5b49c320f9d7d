//! Properties of the API machinery that need a crate from outside.

mod errors;
mod measured;
mod scaling;
mod schemas;
