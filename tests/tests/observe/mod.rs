//! The tools of operators: the alerts, the dashboard and the runbooks. Each name of a metric in
//! them is exported, and the tests provoke five faults that the alerts find.

mod etcd;
mod faults;
mod names;
mod rules;
mod scrape;
