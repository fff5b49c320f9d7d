//! Postern with one more kind: what such a build takes. The kind is in one file, and is added in one
//! line; everything else (discovery, OpenAPI, tables, the command line, watches, garbage collection,
//! the audit log) follows from what it says about itself.

mod widget;

use std::process::ExitCode;

fn main() -> ExitCode {
    if postern_kinds::add(&widget::Widget).is_err() {
        return ExitCode::FAILURE;
    }
    postern::main()
}
