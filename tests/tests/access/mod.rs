//! Authorization, as callers meet it: access rules, roles and scopes.

mod bugs_of_others;
mod defaults;
mod granting;
mod informer;
mod model;
mod own_objects;
mod previews;
mod regressions;
mod revoking;
mod scene;
mod scoped_keys;
mod sharing;
mod story;
mod who_can;
mod writing;
