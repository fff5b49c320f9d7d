//! Tests of the secret sync with a cluster and a central server of the test's own.

mod fakes;
mod rules;
mod scenes;
mod virtual_cluster;
