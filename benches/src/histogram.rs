//! A histogram of times, and its percentiles in microseconds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Longer times are counted as this one.
const LONGEST_MICROSECONDS: u64 = 120_000_000;

/// Times of one kind.
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// An empty histogram. Times are exact to three digits.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_MICROSECONDS, 3)?))
    }

    /// Adds a time.
    pub(crate) fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many times there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The 99th percentile, in microseconds.
    pub(crate) fn p99(&self) -> u64 {
        self.0.value_at_quantile(0.99)
    }

    /// The usual percentiles, in microseconds.
    pub(crate) fn percentiles(&self) -> Value {
        let at = |quantile| self.0.value_at_quantile(quantile);
        json!({
            "p50": at(0.50),
            "p90": at(0.90),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": self.0.max(),
            "mean": self.0.mean().round(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds() {
        let mut times = Times::new().unwrap();
        for milliseconds in 1..=100 {
            times.record(Duration::from_millis(milliseconds));
        }
        let percentiles = times.percentiles();
        assert_eq!(times.len(), 100);
        let p99 = percentiles["p99"].as_u64().unwrap();
        assert!((99_000..=99_200).contains(&p99), "{percentiles}");
    }
}
