//! The names of the platform in audit records: annotations, and extra fields of users. The page
//! names exactly the names that the code writes.

use std::path::PathBuf;

use super::{Finding, Named, SourceFile, Sources, code_spans, differences, literals};

pub(super) const PAGE: &str = "docs/reference/audit.md";

/// The sources that make records: the server, the agents, their common part, and the name of an
/// entry.
const SOURCES: [&str; 4] = [
    "crates/audit/src",
    "crates/agent/src/audit",
    "crates/auth/src/exec_command.rs",
    "crates/kinds/src/kinds/secret_entry.rs",
];

/// How the names begin.
const PREFIXES: [&str; 3] = ["platform.sh/", "authorization.k8s.io/", "audit.k8s.io/"];

/// Compares the page with the code.
pub(super) fn check(page: &str, sources: &Sources<'_>) -> Vec<Finding> {
    let of_code: Vec<_> = SOURCES.iter().flat_map(|path| sources.below(path)).collect();
    let of_code: Vec<_> = of_code.into_iter().flat_map(of_code_of).collect();
    differences("name in audit records", PAGE, &of_page(page), &of_code)
}

fn of_page(page: &str) -> Vec<Named> {
    let names = code_spans(page).filter_map(|(line, span)| Some((line, name_in(span)?)));
    names.map(|(line, name)| Named { name: name.to_owned(), path: PAGE.into(), line }).collect()
}

fn of_code_of(file: &SourceFile) -> Vec<Named> {
    let named = |(line, text): (usize, String)| {
        let is_name = PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        let name = name_in(&text).filter(|_| is_name)?.to_owned();
        Some(Named { name, path: PathBuf::clone(&file.path), line })
    };
    literals(file).into_iter().filter_map(named).collect()
}

/// The name in a text, which can have quotes around it. The version of a group is no name.
fn name_in(text: &str) -> Option<&str> {
    let start = PREFIXES.iter().find_map(|prefix| text.find(prefix))?;
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "./-".contains(letter);
    let name = &text[start..];
    let name = &name[..name.find(|letter| !is_part(letter)).unwrap_or(name.len())];
    (!name.ends_with("/v1")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn names_are_found_in_code_and_on_the_page() {
        let text = "const A: &str = \"platform.sh/a\";\n\
                    const V: &str = \"audit.k8s.io/v1\";\n\
                    const T: &str = \"see platform.sh/t\";\n\
                    fn f() { note(\"authorization.k8s.io/b-c\"); }\n";
        let found = of_code_of(&source("x.rs", text));
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str())).collect();
        assert_eq!(found, [(1, "platform.sh/a"), (4, "authorization.k8s.io/b-c")]);
        let page = "| `x[\"platform.sh/a\"]` | `platform.sh/b: \"true\"` |\nan `Event` of \
                    `audit.k8s.io/v1`, not platform.sh/c\n`audit.k8s.io/cut`\n";
        let found = of_page(page);
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str())).collect();
        assert_eq!(found, [(1, "platform.sh/a"), (1, "platform.sh/b"), (3, "audit.k8s.io/cut")]);
    }
}
