//! The server: listen → request → authenticate → audit → impersonate → authorize → admit → registry → cache and store
//! → respond.
//!
//! [`open`] prepares everything from what is on disk, [`Running::serve`] answers requests until it
//! is told to stop. Stages are plain functions, each consuming the proof of the one before; see
//! ARCHITECTURE.md for the picture. What is *not* here: the rules of access (`auth`), what kinds
//! are (`kinds`), how bytes are kept (`store`).

mod actions;
pub mod admin;
mod audit;
mod cache;
mod clock;
mod controllers;
mod data_dir;
mod endpoints;
mod errors;
mod kubeconfig;
mod listen;
mod metrics;
mod pipeline;
mod protobuf;
mod registry;
mod stages;
mod start;
mod storage_key;
mod tls;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

pub use audit::{AuditLog, AuditSettings};
pub use clock::{Source, System};
pub use data_dir::DataDir;
pub use registry::KeyPolicy;
pub use stages::flow::Limits;
pub use start::{Running, Settings, Welcome, open};
pub use tls::GivenCertificate;

use crate::audit::Audit;
use crate::endpoints::health::Condition;
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::stages::flow::Flow;

/// What every request works with.
pub(crate) struct Server {
    registry: Arc<Registry>,
    source: Arc<dyn Source>,
    audit: Arc<Audit>,
    flow: Flow,
    metrics: Arc<Metrics>,
    unready: AtomicBool,
    draining: watch::Sender<bool>,
    storage_answers: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Server {
    fn new(
        registry: Arc<Registry>,
        source: Arc<dyn Source>,
        audit: Audit,
        limits: Limits,
        storage_answers: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new(source.now()));
        Self {
            registry,
            source,
            audit: Arc::new(audit),
            flow: Flow::new(limits),
            metrics,
            unready: AtomicBool::new(false),
            draining: watch::Sender::new(false),
            storage_answers,
        }
    }

    fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    fn source(&self) -> &dyn Source {
        &*self.source
    }

    fn audit(&self) -> &Arc<Audit> {
        &self.audit
    }

    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// The beginning of the end: load balancers look elsewhere, and everything is still served.
    fn fail_readiness(&self) {
        self.unready.store(true, Ordering::Release);
    }

    fn drain(&self) {
        self.draining.send_replace(true);
    }

    fn condition(&self) -> Condition {
        Condition {
            storage: (self.storage_answers)(),
            audit: self.audit.works(),
            draining: self.unready.load(Ordering::Acquire),
        }
    }
}
