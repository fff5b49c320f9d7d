//! The metrics of a server or an agent, as they are read once.

use std::collections::BTreeMap;

use postern_tests::http::Client;
use postern_tests::prometheus::plain_get;
use postern_tests::{Agent, wait};

/// Metrics in Prometheus's text format.
pub(crate) struct Metrics(String);

impl Metrics {
    /// Reads the metrics of a server.
    pub(crate) async fn of(admin: &Client) -> Self {
        Self(admin.get("/metrics").send().await.expect_text(200))
    }

    /// Reads the metrics of a server that name owners of access keys.
    pub(crate) async fn of_owners(admin: &Client) -> Self {
        Self(admin.get("/metrics/owners").send().await.expect_text(200))
    }

    /// Reads the metrics of an agent with `--metrics-listen`.
    pub(crate) async fn of_agent(agent: &Agent) -> Self {
        Self(plain_get(&agent.metrics_address(), "/metrics").await)
    }

    /// The samples of a metric that have these labels.
    fn samples(&self, name: &str, labels: &[&str]) -> impl Iterator<Item = &str> {
        self.0.lines().filter_map(move |line| {
            let (series, value) = line.rsplit_once(' ')?;
            let rest = series.strip_prefix(name)?;
            let is_it = rest.is_empty() || rest.starts_with('{');
            (is_it && labels.iter().all(|label| rest.contains(label))).then_some(value)
        })
    }

    /// The sum of all samples of a metric that have these labels; `None` when there is none.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let samples = self.samples(name, labels).map(|value| value.parse::<f64>().unwrap());
        samples.fold(None, |sum, value| Some(sum.unwrap_or_default() + value))
    }

    /// The value of a metric that has no labels and is a whole number. Panics when there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let value = self.samples(name, &[]).next();
        value.unwrap_or_else(|| panic!("no {name}: {}", self.0)).parse().unwrap()
    }

    /// The value of a metric that has no labels. Panics when there is none.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.sum(name, &[]).unwrap_or_else(|| panic!("no {name}: {}", self.0))
    }

    /// The types of all metrics, by name.
    pub(crate) fn types(&self) -> BTreeMap<String, String> {
        let types = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    }
}

/// Reads the metrics of a server until they are as wanted.
pub(crate) async fn until(what: &str, admin: &Client, is_so: impl Fn(&Metrics) -> bool) -> Metrics {
    wait::until(what, async || Some(Metrics::of(admin).await).filter(&is_so)).await
}
