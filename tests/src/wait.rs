//! Waiting for a condition with a deadline, and never for a fixed time.

use std::time::{Duration, Instant};

/// How long anything may take before the test fails. The time is generous: a slow machine is not a
/// failure, and a condition that holds is noticed at once.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// The time between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(20);

/// Calls `check` again and again until it has a value. Panics with `what` after the deadline.
pub async fn until<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "gave up waiting for: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The future's value. Panics with `what` if the deadline is first.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.unwrap_or_else(|_| panic!("gave up waiting for: {what}"))
}
