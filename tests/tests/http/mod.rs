//! The server's responses over HTTP, request by request, without a Kubernetes client.
//!
//! One file for each part of the contract. Each test starts its own server.

mod access_keys;
mod applied_values;
mod apply;
mod bad_requests;
mod console;
mod creates;
mod deletes;
mod discovery;
mod endpoint_tokens;
mod failures;
mod field_validation;
mod finalizers;
mod garbage;
mod health;
mod impersonation;
mod invitations;
mod key_parents;
mod key_ties;
mod limits;
mod lists;
mod login_links;
mod malformed_requests;
mod name_prefixes;
mod namespaces;
mod negotiation;
mod other_tools;
mod overload;
mod patches;
mod protobuf;
mod protocol;
mod proxies;
mod review_selectors;
mod secret_entries;
mod secret_readers;
mod selectors;
mod sessions;
mod tables;
mod updates;
mod versions;
mod watch_forms;
mod watches;
mod websockets;
