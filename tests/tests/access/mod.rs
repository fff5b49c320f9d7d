//! Who may do what: access rules, roles and scopes, as callers meet them.

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
