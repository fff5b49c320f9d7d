//! From `Acting` to `InFlightPermit`: is there a seat for this request?
//!
//! A seat is room for one request in flight. Reads and writes have seats of their own, and a request has its
//! seat until its response has gone. If no seat is free, the request waits in the queue of its owner
//! (`fair_queue`). If the queue is full, the request is rejected with 429 and `Retry-After`. This is as in
//! API Priority and Fairness of Kubernetes, but the flows are the owners of keys. A server knows them by name,
//! so nothing has to be hashed. Health checks are not counted.
//!
//! - **No owner has all seats**, and a free one goes to the owner who has the fewest. An owner who writes alone
//!   has more seats than next to others, and leaves some free for the next owner.
//! - **System seats.** Members of `system:masters` find seats of their own when the others are taken.
//! - **A body comes before the seat.** While a body comes in, only its bytes are counted ([`budget`]), so a
//!   slow sender does not keep others from writing.
//! - **A seat includes the wait for a thread.** Reads are served from memory without waiting for anything. So
//!   under overload the queue is one for threads, which the runtime keeps and which is not fair. When that
//!   queue is long, a read goes to its end once more with its seat. The seats are then taken, and the others
//!   wait where it is fair.
//! - **Other threads for owners who have waited.** An owner who has waited for a seat sends more than their
//!   share. While others send requests, those of this owner are carried out on separate threads (`queued`).
//!   All connections of this owner are served there as long as that goes on, so others do not queue for a
//!   thread behind them.
//! - **Requests to clusters** have seats of their own, until the head of the answer is there. The cluster
//!   decides how long the rest takes, so all requests under way are counted with the watches.
//! - **Delayed rejection.** A rejected client that comes again at once would cost as much as one that is
//!   served. So the response to it is delayed for a moment.

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

pub use self::account::{OwnerAccount, Seat as InFlightPermit};
pub use self::flow::{Flow, FlowCounts, Limits, WatchPermit};
pub use self::owner_requests::OwnerRequests;
pub use self::requester::{Requester, too_many_requests};
