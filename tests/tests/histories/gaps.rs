//! How long a client that tries again gets no answer while parts of the fleet fail. It is measured and printed, and not
//! judged: the time depends on the machine.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postern_tests::http::{Client, Connection};
use postern_tests::objects::secret_path;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::checker::GUARDED;
use super::clients::Addresses;

/// An attempt takes at most this long. Then the client asks another server.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(400);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// The reads of a client that were answered.
#[derive(Clone, Default)]
pub(crate) struct Gaps(Arc<Mutex<Longest>>);

struct Longest {
    last: Instant,
    gap: Duration,
}

impl Default for Longest {
    fn default() -> Self {
        Self { last: Instant::now(), gap: Duration::ZERO }
    }
}

impl Gaps {
    /// Begins a measurement.
    pub(crate) fn restart(&self) {
        *self.0.lock().unwrap() = Longest::default();
    }

    /// The longest time without an answer since the measurement began.
    pub(crate) fn longest(&self) -> Duration {
        let longest = self.0.lock().unwrap();
        longest.gap.max(longest.last.elapsed())
    }

    fn answered(&self) {
        let mut longest = self.0.lock().unwrap();
        longest.gap = longest.gap.max(longest.last.elapsed());
        longest.last = Instant::now();
    }

    /// Reads over a connection until a read fails.
    async fn read_on(&self, client: &Client, mut open: Connection) {
        loop {
            let path = secret_path(GUARDED);
            let read = client.get(&path).try_send_on(&mut open);
            match timeout(ATTEMPT_TIMEOUT, Box::pin(read)).await {
                Ok(Ok(response)) if response.status == 200 => self.answered(),
                _ => return,
            }
            sleep(PAUSE).await;
        }
    }

    /// A client that reads one object until it is dropped. After each failure, it asks the next server over a new
    /// connection.
    pub(crate) fn measure(&self, addresses: &Arc<Addresses>, servers: usize) -> JoinSet<()> {
        let (gaps, addresses) = (self.clone(), Arc::clone(addresses));
        let mut client = JoinSet::new();
        client.spawn(async move {
            let mut server = 0;
            loop {
                if let Some(client) = addresses.of(server)
                    && let Ok(Ok(open)) = timeout(ATTEMPT_TIMEOUT, client.connect()).await
                {
                    gaps.read_on(&client, open).await;
                }
                server = (server + 1) % servers;
                sleep(PAUSE).await;
            }
        });
        client
    }
}
