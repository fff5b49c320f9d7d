//! Endpoints other than objects, and the operation of a server: `OpenAPI` 2, aggregated discovery,
//! metrics, certificates, the audit log, the administrator's socket.

mod admin_socket;
mod aggregated;
mod audit;
mod audit_values;
mod certificates;
mod describing;
mod documented;
mod gnostic;
mod metrics;
mod observing;
mod old_kubectl;
mod openapi_v2;
mod own_events;
mod reloading;
