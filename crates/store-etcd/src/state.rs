//! The connection to etcd and the state of the data under a prefix, before the store is opened.

use std::sync::Arc;

use aws_lc_rs::rand;
use postern_store::{Error, MigrationMark, Result, StoreState};
use tonic::Code;

use crate::layout::{FORMAT, Keys};
use crate::proto::{RangeRequest, StatusRequest, StatusResponse};
use crate::requests::one;
use crate::rpc::{self, Client};
use crate::shared::Shared;
use crate::url::{EtcdAccess, EtcdUrl};
use crate::versions;

/// Connects to etcd, and checks that its version can be used.
pub(crate) async fn connect_checked(url: &EtcdUrl, access: &EtcdAccess) -> Result<Arc<Shared>> {
    let shared = connect(url, access)?;
    check_version(&shared, access.allow_old).await?;
    Ok(shared)
}

fn connect(url: &EtcdUrl, access: &EtcdAccess) -> Result<Arc<Shared>> {
    let (client, watch_client) = (Client::new(url, access)?, Client::new(url, access)?);
    let mut id = [0; 8];
    rand::fill(&mut id)
        .map_err(|_| Error::Unavailable("the system has no random bytes".to_owned()))?;
    Ok(Arc::new(Shared::new(client, watch_client, Keys::new(&url.prefix), hex::encode(id))))
}

/// Refuses versions of etcd that lose events or data.
async fn check_version(shared: &Shared, allow_old: bool) -> Result<()> {
    let status: StatusResponse =
        shared.noted(shared.client.read(rpc::STATUS, StatusRequest {}).await)?;
    if !versions::DELIVERING.includes(&status.version) {
        shared.set_loses_deletions();
    }
    if versions::SAFE.includes(&status.version) {
        return Ok(());
    }
    let why = format!(
        "etcd {} has faults that lose events or data; they are fixed in {}",
        status.version,
        versions::SAFE
    );
    if allow_old {
        tracing::warn!("{why}");
        return Ok(());
    }
    Err(Error::Invalid(format!("{why}: upgrade etcd, or pass --allow-old-etcd for a trial")))
}

/// The state of the data under the prefix, and the revision of etcd of its mark.
///
/// # Errors
/// [`Error::Invalid`] for another format, and for data of something else.
pub(crate) async fn read_state(shared: &Shared, url: &EtcdUrl) -> Result<(StoreState, i64)> {
    let [format, migration] = ["format", "migration"].map(|name| one(shared.keys.own(name)));
    let (key, range_end) = shared.keys.everything();
    let any = RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
    // At one revision: another process may create the store meanwhile.
    let (read, _) = shared.ranges(vec![format, migration, any]).await?;
    let mut found = read.into_iter().map(|range| range.kvs.into_iter().next());
    let mut next = || found.next().flatten();
    let (format, mark, any) = (next(), next(), next());
    if let Some(format) = format {
        if *format.value == *FORMAT {
            return Ok((StoreState::InUse, 0));
        }
        return Err(Error::Invalid(format!(
            "the store {url} has the format {:?}, which a newer version of Postern has written, and this version \
             knows {:?}: upgrade this program",
            String::from_utf8_lossy(&format.value),
            String::from_utf8_lossy(FORMAT)
        )));
    }
    let Some(mark) = mark else {
        if let Some(kv) = any {
            return Err(Error::Invalid(format!(
                "the store {url} has data of something else, such as the key {:?}; choose another prefix",
                String::from_utf8_lossy(&kv.key)
            )));
        }
        check_not_inside(shared, url).await?;
        return Ok((StoreState::Unused, 0));
    };
    let text = String::from_utf8_lossy(&mark.value);
    let parsed = MigrationMark::parse(&text);
    let parsed = parsed.ok_or_else(|| {
        Error::Invalid(format!(
            "the store {url} has a mark of a migration that this version does not know: {text:?}"
        ))
    })?;
    Ok((StoreState::Marked(parsed), mark.mod_revision))
}

/// Checks that an unused prefix is not inside that of a store, which would take its keys for its own.
async fn check_not_inside(shared: &Shared, url: &EtcdUrl) -> Result<()> {
    for outer in url.outer() {
        let keys = Keys::new(&outer.prefix);
        for name in ["format", "migration"] {
            let request = RangeRequest { keys_only: true, ..one(keys.own(name)) };
            let found = match shared.range(request).await {
                Ok(found) => found,
                // The user has rights on the prefix only, so a store around it does not exist for it.
                Err(status) if status.code() == Code::PermissionDenied => continue,
                Err(status) => return shared.noted(Err(status)),
            };
            if !found.kvs.is_empty() {
                return Err(Error::Invalid(format!(
                    "the store {url} is inside the store {outer}; choose another prefix"
                )));
            }
        }
    }
    Ok(())
}
