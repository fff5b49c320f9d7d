//! Who may do what: access rules, roles and scopes, as callers meet them.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "test code: a panic is how it fails")]

mod bugs_of_others;
mod defaults;
mod granting;
mod informer;
mod model;
mod own_objects;
mod regressions;
mod revoking;
mod scene;
mod scoped_keys;
mod story;
mod who_can;
mod writing;
