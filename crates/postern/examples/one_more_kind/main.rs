//! A build of Postern with one more kind. The kind is in one file, and one line adds it. Everything else (discovery,
//! OpenAPI, tables, the command line, watches, garbage collection, the audit log) follows from its declaration.

mod widget;

use std::process::ExitCode;

fn main() -> ExitCode {
    if postern_kinds::add(&widget::Widget).is_err() {
        return ExitCode::FAILURE;
    }
    postern::main()
}
