//! The agent of a connected cluster (decision 6): it takes requests with an endpoint token, decides like
//! the gateway of the central server, and sends them to its cluster.
//!
//! What it decides from is a `feed`: the configuration that the central server has for it. `follow` asks
//! for it again and again, `state_dir` keeps the last one, `state` decides from it. `listen` takes
//! connections, and `serve` answers a request. `virtual_clusters` knows where those of the cluster are. Decisions themselves are in `postern-auth`, and sending is
//! `postern-proxy`'s.

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
