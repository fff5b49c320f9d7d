//! Waiting for a condition with a deadline, and never for a time.

use std::time::{Duration, Instant};

/// How long anything may take before the test calls it lost. Generous: a slow machine is no
/// failure, and a condition that holds is seen at once.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks again and again until there is an answer; panics with `what` behind the deadline.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = look().await {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "gave up waiting for: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The future's value; panics with `what` when the deadline comes first.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.unwrap_or_else(|_| panic!("gave up waiting for: {what}"))
}
