//! The gateway: forwards requests to connected clusters, virtual clusters and spaces
//! (`docs/reference/clusters.md#gateway`).
//!
//! `stages::authorize` and `auth` decide which requests are forwarded. The gateway finds the route to a target
//! (`target_state`), and its address and credential (`upstreams`, `agent`), or the tunnels of its agent
//! (`tunnels`). It limits the duration of a request
//! (`session`), and answers access reviews (`review`). `postern_proxy` sends the requests.

mod agent;
mod agent_route;
mod connected;
mod errors;
mod forward;
mod gateway;
mod long_heads;
mod members;
mod own_token;
mod probe;
pub mod relay;
mod review;
mod send;
mod session;
mod short_tokens;
mod target_state;
mod tunnels;
mod upstreams;

pub use self::connected::report as report_agents;
pub use self::forward::SendContext;
pub use self::gateway::{Gateway, GatewaySettings};
pub use self::members::MemberTrust;
pub use self::probe::attempt as probe_attempt;
pub use self::send::send;
pub use self::target_state::TargetState;
