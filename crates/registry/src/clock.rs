//! Time and randomness. Only this module gets them from the system. All other code gets a [`Source`], so that tests
//! can set the time.

use std::cell::RefCell;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use postern_meta::time::{MicroTimestamp, Timestamp};

/// A source of time and randomness.
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

/// The clock and the random generator of the system.
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
    /// Random bytes in reserve. One byte from the generator costs as much as a whole buffer, and every request needs
    /// an id.
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOL_BYTES], used: POOL_BYTES }) };
}

/// The number of random bytes that are generated together.
const POOL_BYTES: usize = 256;

/// Random bytes; the first `used` bytes are already used.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl Pool {
    fn next(&mut self, random: &SystemRandom) -> u8 {
        if self.used == POOL_BYTES {
            // aws-lc itself aborts the process if the kernel has no randomness. After an error
            // here, keys could be guessed, so the process must not continue.
            assert!(random.fill(&mut self.bytes).is_ok(), "the system's random generator failed");
            self.used = 0;
        }
        let byte = std::mem::take(&mut self.bytes[self.used]);
        self.used += 1;
        byte
    }
}

/// A random version 4 UUID.
pub fn new_uuid(source: &dyn Source) -> uuid::Uuid {
    let mut bytes = [0; 16];
    source.fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// A random version 4 UUID as text.
pub fn new_uid(source: &dyn Source) -> String {
    new_uuid(source).to_string()
}
