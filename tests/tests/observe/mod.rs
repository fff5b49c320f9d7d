//! What operators observe: the alerts, the dashboard and the runbooks. Each name of a metric in them is exported, and
//! five faults are provoked that the alerts find.

mod etcd;
mod faults;
mod names;
mod rules;
mod scrape;
