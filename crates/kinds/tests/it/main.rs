//! The kinds as clients see them: their fields, their rules, their limits and their reference pages.

mod access_keys;
mod access_rules;
mod all_kinds;
mod common;
mod foreign;
mod limits;
mod principals;
mod projects;
mod rbac;
mod reference;
mod scaling;
mod secret_sync;
mod ties;
