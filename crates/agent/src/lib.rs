//! The agent of a connected cluster (`docs/reference/clusters.md#agents`). It takes requests with an endpoint token,
//! decides like the gateway of the central server, and sends them to its cluster.
//!
//! `active_config` is the configuration from the central server, from which `state` decides. `config_sync` keeps it
//! current, and `state_dir` stores it. `upstream` and `service_account` have the credential for the cluster, and `readiness`
//! checks it. `tunnels` opens connections to the central server, `listen` takes connections, and `serve` answers a request. `virtual_clusters` has the routes to the virtual clusters of the cluster.
//! `secrets` fills native Secrets from project secrets. Decisions themselves are in `postern-auth`,
//! and forwarding is in `postern-proxy`.

mod active_config;
mod advertise;
mod answer;
mod audit;
mod certificate;
mod conditions;
mod config_sync;
mod endpoint;
mod flow;
mod issuer;
mod lifespan;
mod listen;
mod local;
mod metrics;
mod probe;
mod rare_line;
mod readiness;
mod review;
mod route;
mod run;
mod scrape;
mod secret_counts;
mod secrets;
mod serve;
mod server_token;
mod service_account;
mod session;
mod state;
mod state_dir;
#[cfg(test)]
mod testing;
mod tunnel_pool;
mod tunnels;
mod upstream;
mod virtual_clusters;

pub use postern_proxy::STREAM_STALL;

pub use local::{READY, SOCKET};
pub use run::{AdvertisedCa, MAX_SESSION, Settings, run};
pub use secrets::{SecretsMode, SecretsSettings, VIRTUAL_CLUSTER_INTERVAL};
pub use state::Clock;
pub use virtual_clusters::ClusterDomain;
