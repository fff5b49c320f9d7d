//! What relates the log lines, the audit records and the traces of one request: its ids, the formats of the log,
//! and spans.
//!
//! A server wraps the work of a request in [`RequestIds::scope`]. Each log line that is written within it carries
//! the ids, and each [`span`] within it is a child of the request's span. Spans are sent to an OTLP receiver if the
//! crate is built with the feature `otel` and [`start_export`] was called; otherwise they do nothing.

mod ids;
mod log;
mod log_interval;
#[cfg(not(feature = "otel"))]
mod no_export;
#[cfg(feature = "otel")]
mod otlp;
mod span;
mod span_kind;
mod trace_context;

pub use self::ids::{RequestIds, current, in_current_request, sent_audit_id};
pub use self::log::{LogFormat, start_log};
pub use self::log_interval::LogInterval;
pub use self::span::{Export, Span, request_span, span, start_export};
pub use self::span_kind::SpanKind;
pub use self::trace_context::TraceContext;

/// For [`log_limited`].
#[doc(hidden)]
pub use tracing;
