//! Time and randomness: the only place that asks the system for either.
//!
//! Everything else gets them passed in, so that tests decide what time it is.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use postern_meta::time::Timestamp;

/// Where time and randomness come from.
pub trait Source: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Fills a buffer with unpredictable bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's clock and its generator.
#[derive(Debug, Default)]
pub struct System {
    random: SystemRandom,
}

impl Source for System {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
        let now = jiff::Timestamp::now();
        Timestamp::from_unix_seconds(now.as_second())
    }

    fn fill(&self, bytes: &mut [u8]) {
        // aws-lc aborts by itself when the kernel gives no randomness; an error here would mean
        // keys that can be guessed, so there is nothing to go on with.
        assert!(self.random.fill(bytes).is_ok(), "the system's random generator failed");
    }
}

/// A random version 4 UUID.
pub(crate) fn new_uid(source: &dyn Source) -> String {
    let mut bytes = [0; 16];
    source.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
