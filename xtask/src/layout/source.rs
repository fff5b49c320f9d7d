//! The form of source files: how long, how they begin, and how long their functions are.

use std::path::Path;

use anyhow::Result;

use super::{Finding, files, lengths};

/// From the line of the signature's first word to that of the closing brace. A function that does
/// not fit on a screen is two.
const FUNCTION_LINES_MAX: usize = 70;

/// Tests included: a file is what one reads in one go.
const FILE_LINES_MAX: usize = 800;

/// How many files were read, and what is wrong with them.
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
    match syn::parse_file(text) {
        Ok(file) => {
            let functions = lengths::functions(&file).into_iter();
            for function in functions.filter(|function| function.length > FUNCTION_LINES_MAX) {
                let lengths::Function { name, line, length, .. } = function;
                let limit = FUNCTION_LINES_MAX;
                found(line, format!("fn {name} has {length} lines, more than {limit}: split it"));
            }
        }
        Err(error) => found(error.span().start().line, format!("does not parse: {error}")),
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        check_text(Path::new("x.rs"), text).iter().map(ToString::to_string).collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_the_limit_passes_and_one_line_more_does_not() {
        let header = "//! Header.\n\n";
        assert!(messages(&format!("{header}{}", function_of(70))).is_empty());
        assert_eq!(
            messages(&format!("{header}{}", function_of(71))),
            ["x.rs:3: fn long has 71 lines, more than 70: split it"]
        );
    }

    #[test]
    fn methods_default_methods_and_nested_functions_are_measured() {
        let body = "        work();\n".repeat(70);
        for around in [
            format!("impl X {{\n    fn long() {{\n{body}    }}\n}}"),
            format!("trait X {{\n    fn long() {{\n{body}    }}\n}}"),
            format!("mod inner {{\n    fn long() {{\n{body}    }}\n}}"),
        ] {
            let found = messages(&format!("//! Header.\n{around}\n"));
            assert_eq!(found, ["x.rs:3: fn long has 72 lines, more than 70: split it"]);
        }
        let nested = format!("//! H.\nfn outer() {{\n    fn long() {{\n{body}    }}\n}}\n");
        assert_eq!(messages(&nested).len(), 2, "the inner function makes the outer one long too");
    }

    #[test]
    fn documentation_and_attributes_of_a_function_are_not_counted() {
        let text = format!("//! H.\n{}#[test]\n{}", "/// Doc.\n".repeat(80), function_of(70));
        assert!(messages(&text).is_empty());
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
