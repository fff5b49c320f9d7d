//! How much each owner of keys may write to the disk in a minute.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use postern_meta::status::ApiError;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

/// The bytes that a write counts besides those of its object: records next to it, and its event.
const BYTES_PER_WRITE: usize = 512;

/// The bytes that each owner may still write. They come back evenly over a minute.
pub struct WriteRate {
    bytes_per_minute: u64,
    spent: Mutex<HashMap<String, Spent>>,
}

/// The bytes that an owner has written and not yet got back.
struct Spent {
    bytes: u64,
    at: Instant,
}

impl WriteRate {
    pub(super) fn new(bytes_per_minute: usize) -> Self {
        Self { bytes_per_minute: bytes_per_minute as u64, spent: Mutex::default() }
    }

    /// Checks that an owner may write.
    ///
    /// # Errors
    /// 429 that says when they may again.
    pub fn check(&self, owner: &str) -> Result<(), ApiError> {
        let mut spent = self.spent.lock();
        let Some(of_owner) = spent.get_mut(owner) else { return Ok(()) };
        of_owner.get_back(self.bytes_per_minute);
        if of_owner.bytes == 0 {
            spent.remove(owner);
            return Ok(());
        }
        let Some(over) = of_owner.bytes.checked_sub(self.bytes_per_minute) else { return Ok(()) };
        let seconds = (over * MINUTE.as_secs()).div_ceil(self.bytes_per_minute);
        Err(ApiError::too_many_requests(
            format!(
                "the owner of this access key has written {} bytes in the last minute, the most that \
                 they may write",
                self.bytes_per_minute
            ),
            u32::try_from(seconds.clamp(1, MINUTE.as_secs())).unwrap_or(1),
        ))
    }

    /// Counts an object that was written.
    pub fn count(&self, owner: &str, bytes: usize) {
        let bytes = (bytes + BYTES_PER_WRITE) as u64;
        let mut spent = self.spent.lock();
        if let Some(of_owner) = spent.get_mut(owner) {
            of_owner.get_back(self.bytes_per_minute);
            of_owner.bytes += bytes;
        } else {
            spent.insert(owner.to_owned(), Spent { bytes, at: Instant::now() });
        }
    }
}

impl Spent {
    fn get_back(&mut self, bytes_per_minute: u64) {
        let now = Instant::now();
        let elapsed = (now - self.at).min(MINUTE * 2).as_micros();
        let back = elapsed * u128::from(bytes_per_minute) / MINUTE.as_micros();
        // Not for less than a byte, or many small steps would give nothing back.
        if back > 0 {
            self.bytes = self.bytes.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX));
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_writes_so_much_in_a_minute_and_may_again_later() {
        let rate = WriteRate::new(60_000);
        for _ in 0..6 {
            rate.check("a").unwrap();
            rate.count("a", 10_000);
        }
        let refused = rate.check("a").unwrap_err();
        let seconds = refused.retry_after_seconds().unwrap();
        assert!((1..=60).contains(&seconds) && refused.code() == 429, "{seconds}");
        rate.check("b").unwrap();
        tokio::time::advance(Duration::from_secs(seconds.into())).await;
        rate.check("a").unwrap();
        tokio::time::advance(2 * MINUTE).await;
        rate.check("a").unwrap();
        assert!(rate.spent.lock().is_empty(), "who has not written lately is not remembered");
    }
}
