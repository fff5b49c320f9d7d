//! Attacks on the availability of the server, each held to figures: while it runs, other clients
//! are served.
//!
//! Every file is one family of attacks, by an unauthenticated client or an ordinary user. The short
//! form checks the results that do not depend on the speed of the machine. `cargo xtask test
//! --attacks` runs the full form on a release build, and holds it to times as well.

mod frames;
mod load;
mod raw_http1;
mod scene;
mod trial;
mod victims;

mod connections;
mod fairness;
mod login_floods;
mod logins;
mod quotas;
mod refusals;
mod slow_readers;
mod tunnels;
mod unauthenticated;
mod work;
