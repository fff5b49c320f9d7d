//! Clients of vCluster Platform. The tests replay their requests in the same order with the same bodies, and check the
//! answers that their users see. The clients themselves are not run here.
//!
//! The requests use the API group and the annotations of this server. Everything else is as the client sends it. See
//! docs/how-to/clients-of-vcluster-platform.md.

mod direct_endpoint;
mod go;
mod javascript;
mod kept_fields;
mod loft_cli;
mod loft_cli_refusals;
mod scene;
mod team_story;
mod terraform;
mod typed;
mod vcluster_cli;
