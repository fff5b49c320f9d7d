//! The audit log: the caller, the impersonated user, and the result of each request (`docs/reference/audit.md`).
//!
//! Records have Kubernetes' format `audit.k8s.io/v1`, one line of JSON each. So programs for Kubernetes' audit log can
//! read them. A parsed request has an [`AuditContext`]. `policy.rs` decides how much is recorded, `event.rs` defines
//! the record, `log.rs` and `file.rs` write it to the disk.
//!
//! Three guarantees:
//! - A change is stored only after the record of its request is in the file, even if the policy
//!   omits the record ([`Audit::gate`]).
//! - No record contains a credential, or a body of a kind that has secrets.
//! - No record is dropped because the disk is slow or full. The server rejects requests instead.

mod audit;
mod command;
mod context;
mod event;
mod failures;
mod file;
mod line;
mod log;
mod policy;
mod report_limits;
mod reported;
mod settings;
mod sign_in;

pub use self::audit::{Audit, Counts, reload_policy};
pub use self::command::Command;
pub use self::context::{AuditContext, LastSender};
pub use self::event::clean;
pub use self::settings::{AuditLog, AuditSettings};
pub use self::sign_in::SignIn;
