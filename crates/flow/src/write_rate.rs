//! The rate limit of writes to the disk, for each owner of access keys.

use std::sync::atomic::{AtomicU64, Ordering};

use postern_meta::status::ApiError;

use super::account::OwnerAccount;
use super::spent::MINUTE;

/// The bytes that a write counts in addition to its object: its other records, and its event.
const BYTES_PER_WRITE: usize = 512;

/// The source of written bytes. Each owner has one count for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WrittenBy {
    /// The owner's own requests.
    Requests,
    /// The server, for secret sync.
    SecretSync,
}

/// A rate limit in bytes per minute. Written bytes are forgiven evenly over the minute.
pub struct WriteRate {
    /// The rate on all servers together.
    total_bytes_per_minute: u64,
    /// The rate on this server.
    bytes_per_minute: AtomicU64,
    by: WrittenBy,
}

impl WriteRate {
    pub(super) fn new(by: WrittenBy, bytes_per_minute: usize) -> Self {
        let total = bytes_per_minute as u64;
        Self { total_bytes_per_minute: total, bytes_per_minute: AtomicU64::new(total), by }
    }

    /// Divides the rate among this many servers.
    pub(super) fn divide(&self, servers: usize) {
        let of_each = self.total_bytes_per_minute.div_ceil((servers as u64).max(1));
        self.bytes_per_minute.store(of_each, Ordering::Relaxed);
    }

    /// The bytes that an owner may write in a minute through this server.
    pub(super) fn bytes_per_minute(&self) -> u64 {
        self.bytes_per_minute.load(Ordering::Relaxed)
    }

    /// Checks that an owner is below the rate limit.
    ///
    /// # Errors
    /// 429 with the seconds until the owner may write again.
    pub fn check(&self, account: &OwnerAccount) -> Result<(), ApiError> {
        let limit = self.bytes_per_minute();
        let mut of_owner = account.spent[self.by as usize].lock();
        of_owner.forgive(limit);
        let Some(over) = of_owner.bytes.checked_sub(limit) else { return Ok(()) };
        let seconds = (over * MINUTE.as_secs()).div_ceil(limit);
        Err(ApiError::too_many_requests(
            format!(
                "the owner of this access key has reached the limit of {limit} written bytes per minute: \
                 retry later"
            ),
            u32::try_from(seconds.clamp(1, MINUTE.as_secs())).unwrap_or(1),
        ))
    }

    /// Counts an object that was written.
    pub fn count(&self, account: &OwnerAccount, bytes: usize) {
        let mut of_owner = account.spent[self.by as usize].lock();
        of_owner.forgive(self.bytes_per_minute());
        of_owner.add((bytes + BYTES_PER_WRITE) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_writes_so_much_in_a_minute_and_may_again_later() {
        let rate = WriteRate::new(WrittenBy::Requests, 60_000);
        let [a, b] = ["a", "b"].map(OwnerAccount::new);
        for _ in 0..6 {
            rate.check(&a).unwrap();
            rate.count(&a, 10_000);
        }
        let refused = rate.check(&a).unwrap_err();
        let seconds = refused.retry_after_seconds().unwrap();
        assert!((1..=60).contains(&seconds) && refused.code() == 429, "{seconds}");
        rate.check(&b).unwrap();
        tokio::time::advance(Duration::from_secs(seconds.into())).await;
        rate.check(&a).unwrap();
        tokio::time::advance(2 * MINUTE).await;
        rate.check(&a).unwrap();
        assert!(a.spent[0].lock().is_forgiven(60_000));
    }

    #[tokio::test(start_paused = true)]
    async fn servers_share_the_rate() {
        let rate = WriteRate::new(WrittenBy::Requests, 60_000);
        let account = OwnerAccount::new("a");
        rate.divide(3);
        rate.check(&account).unwrap();
        rate.count(&account, 20_000);
        assert!(rate.check(&account).unwrap_err().to_string().contains("20000 written bytes"));
        rate.divide(1);
        rate.check(&account).unwrap();
    }
}
