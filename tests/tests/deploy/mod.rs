//! The files by which Postern is installed: charts, units, the Debian package and the Containerfile. No test here
//! has a cluster; `every_way/charts.rs` installs the charts.

mod charts;
mod containerfile;
mod debian;
mod helm;
mod pages;
mod pod_security;
mod systemd;
mod values;
