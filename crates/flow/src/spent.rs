//! `Spent`: the bytes that an owner has written, which are forgiven over time.

use std::time::Duration;

use tokio::time::Instant;

/// The time after which all bytes of a rate are forgiven.
pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// The bytes that an owner has written and that are not forgiven yet.
#[derive(Default)]
pub(crate) struct Spent {
    pub(crate) bytes: u64,
    /// When bytes were last forgiven; `None` while nothing is spent.
    at: Option<Instant>,
}

impl Spent {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.at.get_or_insert_with(Instant::now);
    }

    /// Whether all bytes are forgiven.
    pub(crate) fn is_forgiven(&mut self, bytes_per_minute: u64) -> bool {
        self.forgive(bytes_per_minute);
        self.bytes == 0
    }

    /// Forgives the bytes for the time that has passed.
    pub(crate) fn forgive(&mut self, bytes_per_minute: u64) {
        let Some(at) = self.at else { return };
        let now = Instant::now();
        let elapsed = (now - at).min(MINUTE * 2).as_micros();
        let back = elapsed * u128::from(bytes_per_minute) / MINUTE.as_micros();
        // Below one byte, the time stays as it is. Otherwise many small steps would forgive nothing.
        if back > 0 {
            self.bytes = self.bytes.saturating_sub(u64::try_from(back).unwrap_or(u64::MAX));
            self.at = (self.bytes > 0).then_some(now);
        }
    }
}
