//! Time and randomness: the only place that asks the system for either.
//!
//! Everything else gets them passed in, so that tests decide what time it is.

use std::cell::RefCell;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use postern_meta::time::{MicroTimestamp, Timestamp};

/// Where time and randomness come from.
pub trait Source: Send + Sync + 'static {
    /// The time, to the microsecond.
    fn now_micro(&self) -> MicroTimestamp;

    /// The time, to the second.
    fn now(&self) -> Timestamp {
        let microseconds = self.now_micro().unix_microseconds();
        Timestamp::from_unix_seconds(microseconds.div_euclid(1_000_000))
    }

    /// Fills a buffer with unpredictable bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// The system's clock and its generator.
#[derive(Debug, Default)]
pub struct System {
    random: SystemRandom,
}

impl Source for System {
    fn now_micro(&self) -> MicroTimestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
        let now = jiff::Timestamp::now();
        MicroTimestamp::from_unix_microseconds(now.as_microsecond())
    }

    fn fill(&self, bytes: &mut [u8]) {
        POOL.with_borrow_mut(|pool| {
            for byte in bytes {
                *byte = pool.next(&self.random);
            }
        });
    }
}

thread_local! {
    /// Each question to the generator costs as much as a whole page from it, and every request
    /// takes an id.
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_BYTES], used: POOL_BYTES }) };
}

/// Random bytes that are asked for at once.
const POOL_BYTES: usize = 256;

/// Random bytes that nobody has taken yet.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl Pool {
    fn next(&mut self, random: &SystemRandom) -> u8 {
        if self.used == POOL_BYTES {
            // aws-lc aborts by itself when the kernel gives no randomness; an error here would
            // mean keys that can be guessed, so there is nothing to go on with.
            assert!(random.fill(&mut self.bytes).is_ok(), "the system's random generator failed");
            self.used = 0;
        }
        let byte = std::mem::take(&mut self.bytes[self.used]);
        self.used += 1;
        byte
    }
}

/// A random version 4 UUID.
pub(crate) fn new_uid(source: &dyn Source) -> String {
    let mut bytes = [0; 16];
    source.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
