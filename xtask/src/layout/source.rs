//! The form of source files: how long they are, and how they begin.

use std::path::Path;

use anyhow::Result;

use super::{Finding, files};

/// Tests included, because a reader reads a whole file.
const FILE_LINES_MAX: usize = 800;

/// The number of files, and their findings.
pub(super) fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let paths = files::rust(root)?;
    let mut findings = Vec::new();
    for path in &paths {
        findings.extend(check_text(path, &files::read(root, path)?));
    }
    Ok((paths.len(), findings))
}

fn check_text(path: &Path, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut found = |line: usize, message: String| {
        findings.push(Finding { path: path.to_path_buf(), line, message });
    };
    let header = text.lines().find(|line| !line.trim().is_empty());
    if !header.is_some_and(|line| line.starts_with("//!")) {
        found(1, "no header: begin with `//!`, what lives here and what does not".to_owned());
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines, more than {FILE_LINES_MAX}: split the file");
        found(FILE_LINES_MAX + 1, message);
    }
    if let Err(error) = syn::parse_file(text) {
        found(error.span().start().line, format!("does not parse: {error}"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check_text(Path::new("x.rs"), text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_begins_with_its_header() {
        assert_eq!(messages("\n//! Header.\n"), [""; 0]);
        for text in ["", "#![expect(x)]\n//! Late.\n", "// Plain.\n", "/// Outer.\nfn x() {}\n"] {
            assert!(messages(text)[0].contains("no header"), "{text:?}");
        }
    }

    #[test]
    fn a_file_over_the_limit_is_found_at_the_line_behind_it() {
        let text = |lines: usize| format!("//! H.\n{}", "\n".repeat(lines - 1));
        assert!(messages(&text(800)).is_empty());
        assert_eq!(messages(&text(801)), ["x.rs:801: 801 lines, more than 800: split the file"]);
    }

    #[test]
    fn what_does_not_parse_is_said_and_not_passed_over() {
        assert!(messages("//! H.\nfn x( {\n")[0].contains("does not parse"));
    }
}
