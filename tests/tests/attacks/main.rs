//! Attacks on the availability of the server, each held to figures: while it runs, others are served.
//!
//! Every file is one family of attacks, from the side of a stranger or an ordinary user. The short
//! form checks what does not depend on the speed of the machine. `cargo xtask test --attacks` runs the
//! full form on a release build, and holds it to times as well.
#![expect(clippy::expect_used, reason = "test code: a panic is how it fails")]

mod form;
mod raw_http1;
mod scene;

mod refusals;
