//! The form of source files: how long, how they begin, and how long their functions are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Finding;

/// From the line of the signature's first word to that of the closing brace. A function that does
/// not fit on a screen is two.
const FUNCTION_LINES_MAX: usize = 70;

/// Tests included: a file is what one reads in one go.
const FILE_LINES_MAX: usize = 800;

/// Directories with source of ours, those that do not exist yet included.
const DIRECTORIES: &[&str] = &["crates", "tests", "xtask", "fuzz", "benches"];

/// Names of directories with generated or foreign files.
const SKIPPED: &[&str] = &["target", "corpus", "artifacts"];

/// How many files were looked at, and what is wrong with them.
pub(crate) fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        collect(&root.join(directory), &mut files)?;
    }
    files.sort();
    let mut findings = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let shown = path.strip_prefix(root).unwrap_or(path);
        findings.extend(check_text(shown, &text));
    }
    Ok((files.len(), findings))
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
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
            let mut functions = Functions::default();
            functions.visit_file(&file);
            for (line, name, length) in functions.too_long {
                let limit = FUNCTION_LINES_MAX;
                found(line, format!("fn {name} has {length} lines, more than {limit}: split it"));
            }
        }
        Err(error) => found(error.span().start().line, format!("does not parse: {error}")),
    }
    findings
}

/// Finds functions, also those inside of others, and measures them. Closures are part of the
/// function around them. What stands inside a macro call is not seen.
#[derive(Default)]
struct Functions {
    too_long: Vec<(usize, String, usize)>,
}

impl Functions {
    fn measure(&mut self, signature: &syn::Signature, end: proc_macro2::Span) {
        let start = signature.span().start().line;
        let length = end.end().line.saturating_sub(start) + 1;
        if length > FUNCTION_LINES_MAX {
            self.too_long.push((start, signature.ident.to_string(), length));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, function.block.span());
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, function.block.span());
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block.span());
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
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
