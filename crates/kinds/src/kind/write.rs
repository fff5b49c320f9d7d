//! The write of an object, as the hooks of its kind see it.

use crate::context::Context;
use crate::fields::{Draft, Fields};

/// The write of a prepared object, with the fields of its kind.
#[derive(Debug)]
pub struct Write<'a, F> {
    /// The prepared object.
    pub new: &'a Draft<F>,
    /// The stored object, on an update.
    pub old: Option<&'a Draft<F>>,
    /// The caller, the time, the principals, and the operator's settings.
    pub ctx: &'a Context<'a>,
}

impl<'a, Spec, Status> Write<'a, Fields<Spec, Status>> {
    /// The spec of the prepared object.
    pub fn spec(&self) -> &'a Spec {
        &self.new.fields.spec
    }

    /// The spec of the stored object, on an update.
    pub fn old_spec(&self) -> Option<&'a Spec> {
        self.old.map(|old| &old.fields.spec)
    }
}
