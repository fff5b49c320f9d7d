//! Flow control: decides which requests run now, by the owner of the access key.
//!
//! A slot is room for one request in flight. Reads and writes have separate slots. A request keeps its slot until
//! its response is sent. If no slot is free, the request waits in its owner's queue (`fair_queue`). If the queue is
//! full, the request is rejected with 429 and `Retry-After`. API Priority and Fairness of Kubernetes works in the
//! same way. Here the flows are the owners of access keys. The server knows the owners by name, so it hashes
//! nothing. Health checks are not counted.
//!
//! - **No owner has all slots.** A free slot goes to the owner with the fewest slots. An owner that
//!   writes alone has more slots than next to others, and leaves some free for the next owner.
//! - **System slots.** Members of `system:masters` have reserved slots for when the others are taken.
//! - **A request takes its slot after its body.** While a body comes in, only its bytes are counted ([`budget`]). So
//!   a slow sender does not keep others from writing.
//! - **A slot includes the wait for a thread.** Reads are served from memory and wait for nothing else. Under
//!   overload they wait in the runtime's queue for threads, which is not fair. When that queue is long, a read with
//!   a slot goes to its end once more. So the slots are taken, and other requests wait in the fair queues.
//! - **Low-priority threads.** If a request of an owner waited for a slot, the owner is above their
//!   share. While others send requests, this owner's requests and connections are served on
//!   low-priority threads (`queued`). So other owners do not wait for a thread behind them.
//! - **Requests to clusters** have separate slots, until the head of the response arrives. The cluster decides how
//!   long the rest takes. So all requests to clusters also count as watches.
//! - **Delayed rejection.** A rejected client that retries at once would cost as much as one that is served. So the
//!   server delays the rejection by up to a second.

mod account;
pub mod budget;
mod fair_queue;
mod flow;
pub mod large;
mod owner_requests;
mod priority;
mod queued;
mod recent_load;
mod requester;
mod spent;
pub mod write_rate;

pub use self::account::{OwnerAccount, OwnerLoad, Slot};
pub use self::flow::{BusiestOwners, Flow, FlowCounts, Limits, QueueTotals, WatchPermit};
pub use self::owner_requests::OwnerRequests;
pub use self::requester::{Requester, too_many_requests};
