//! The agent of a connected cluster (`docs/reference/clusters.md#agents`). It takes requests with an endpoint token,
//! decides like the gateway of the central server, and sends them to its cluster.
//!
//! A `feed` is the input of its decisions: the configuration that the central server has for it. `follow` keeps it
//! current, `state_dir` stores the last one, `state` decides from it. `listen` takes connections, and `serve` answers a
//! request. `virtual_clusters` knows the routes to those of the cluster. Decisions themselves are in `postern-auth`,
//! and forwarding is in `postern-proxy`.

mod answer;
mod audit;
mod certificate;
mod endpoint;
mod feed;
mod flow;
mod follow;
mod lifespan;
mod listen;
mod metrics;
mod reach;
mod review;
mod run;
mod scrape;
mod serve;
mod session;
mod state;
mod state_dir;
#[cfg(test)]
mod testing;
mod upstream;
mod virtual_clusters;
mod way;

pub use run::{AdvertisedCa, MAX_SESSION, Settings, run};
pub use state::Clock;
pub use virtual_clusters::ClusterDomain;
