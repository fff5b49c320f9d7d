//! Pages with facts that are in the sources of several crates, or in the form of a source. Each
//! check compares a page with these sources. For a page about values of one crate, a test of that
//! crate does this.

mod annotations;
mod constants;
mod hooks;
mod limits;
mod public_paths;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};

use super::modules::{Crate, SourceFile};
use super::{Finding, files};

/// Compares each page with its sources.
pub(super) fn check(root: &Path, crates: &[Crate]) -> Result<Vec<Finding>> {
    let sources = Sources(crates);
    let read = |page: &str| files::read(root, Path::new(page));
    let mut findings = annotations::check(&read(annotations::PAGE)?, &sources);
    findings.extend(hooks::check(&read(hooks::PAGE)?, &sources));
    findings.extend(public_paths::check(&read(public_paths::PAGE)?, &sources));
    let elsewhere = read(limits::OTHER_TEST)?;
    findings.extend(limits::check(&read(limits::PAGE)?, &elsewhere, &sources));
    Ok(findings)
}

/// The source files of the product.
struct Sources<'a>(&'a [Crate]);

impl<'a> Sources<'a> {
    /// The files below a path, or the file at this path.
    fn below(&self, path: &'static str) -> impl Iterator<Item = &'a SourceFile> {
        let files = self.0.iter().flat_map(|one| &one.files);
        files.filter(move |file| file.path.starts_with(path))
    }
}

/// A name, and where it is written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: String,
    path: PathBuf,
    line: usize,
}

/// The names that only the page or only the code has. `what` is the word for such a name.
fn differences(what: &str, page: &str, of_page: &[Named], of_code: &[Named]) -> Vec<Finding> {
    let names = |all: &[Named]| -> BTreeSet<String> {
        all.iter().map(|named| named.name.clone()).collect()
    };
    let (listed, written) = (names(of_page), names(of_code));
    let finding =
        |named: &Named, message| Finding { path: named.path.clone(), line: named.line, message };
    let missing = of_code.iter().filter(|named| !listed.contains(&named.name)).map(|named| {
        finding(named, format!("the {what} `{}` is not in {page}: add it there", named.name))
    });
    let unknown = of_page
        .iter()
        .filter(|named| !written.contains(&named.name))
        .map(|named| finding(named, format!("no code has the {what} `{}`: remove it", named.name)));
    missing.chain(unknown).collect()
}

/// The texts between backticks of a page, each with its line.
fn code_spans(page: &str) -> impl Iterator<Item = (usize, &str)> {
    page.lines().enumerate().flat_map(|(index, line)| {
        line.split('`').skip(1).step_by(2).map(move |span| (index + 1, span))
    })
}

/// The string literals of a file that are not only built for tests, each with its line.
fn literals(file: &SourceFile) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    collect_literals(file.tokens.clone(), file, &mut found);
    found
}

fn collect_literals(tokens: TokenStream, file: &SourceFile, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_literals(group.stream(), file, found),
            TokenTree::Literal(literal) if !file.is_for_tests(literal.span()) => {
                let line = literal.span().start().line;
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push((line, text.value()));
                }
            }
            TokenTree::Literal(_) | TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn source(path: &str, text: &str) -> SourceFile {
        SourceFile::parse(path.into(), Vec::new(), text).unwrap()
    }

    #[test]
    fn names_of_one_side_alone_are_found() {
        let named =
            |name: &str, path: &str, line| Named { name: name.to_owned(), path: path.into(), line };
        let of_page = [named("both", "p.md", 1), named("page", "p.md", 2)];
        let of_code = [named("code", "c.rs", 3), named("both", "c.rs", 4)];
        let found = differences("word", "p.md", &of_page, &of_code);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "c.rs:3: the word `code` is not in p.md: add it there",
                "p.md:2: no code has the word `page`: remove it",
            ]
        );
    }

    #[test]
    fn literals_of_tests_are_left_out() {
        let text = "const A: &str = \"a\";\nfn f() { g(r\"b\", [\"c\"]); m!(\"d\"); }\n\
                    #[cfg(test)]\nmod tests { const E: &str = \"e\"; }\n";
        let found = literals(&source("x.rs", text));
        let found: Vec<_> = found.iter().map(|(line, text)| (*line, text.as_str())).collect();
        assert_eq!(found, [(1, "a"), (2, "b"), (2, "c"), (2, "d")]);
    }
}
