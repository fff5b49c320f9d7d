//! A store on etcd that is not open yet, as commands and settings name it.

use std::sync::Arc;

use async_trait::async_trait;
use postern_store::{
    Epoch, Limits, Member, MigrationMark, MigrationSource, MigrationTarget, RemoteEngine, Result,
    Store, StoreState,
};

use crate::layout::LIMITS;
use crate::source::{self, EtcdSource};
use crate::store::Etcd;
use crate::target::EtcdTarget;
use crate::url::{EtcdAccess, EtcdUrl};
use crate::{fleet, state};

/// A store at an address of etcd.
#[derive(Clone, Debug)]
pub struct EtcdEngine {
    /// Its address.
    pub url: EtcdUrl,
    /// How this process proves its identity to etcd.
    pub access: EtcdAccess,
}

#[async_trait]
impl RemoteEngine for EtcdEngine {
    fn url(&self) -> String {
        self.url.to_string()
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    async fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Etcd::open(&self.url, &self.access).await?))
    }

    async fn prepare(&self) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Etcd::prepare(&self.url, &self.access).await?))
    }

    async fn state(&self) -> Result<StoreState> {
        let shared = state::connect_checked(&self.url, &self.access).await?;
        Ok(state::read_state(&shared, &self.url).await?.0)
    }

    async fn members(&self) -> Result<Vec<Member>> {
        let shared = state::connect_checked(&self.url, &self.access).await?;
        fleet::read_members(&shared).await
    }

    async fn begin_target(&self, mark: &MigrationMark) -> Result<Box<dyn MigrationTarget>> {
        Ok(Box::new(EtcdTarget::begin(&self.url, &self.access, mark).await?))
    }

    async fn open_source(&self, to: &str) -> Result<Box<dyn MigrationSource>> {
        Ok(Box::new(EtcdSource::open(&self.url, &self.access, to).await?))
    }

    async fn begin_epoch(&self, above: Option<u64>) -> Result<Epoch> {
        source::begin_epoch(&self.url, &self.access, above).await
    }
}
