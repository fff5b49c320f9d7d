//! The paths that need no credential. The page lists exactly the paths that the server serves
//! without one.

use proc_macro2::TokenTree;
use syn::visit::Visit;

use super::{Finding, Named, SourceFile, Sources, code_spans, differences};

pub(super) const PAGE: &str = "docs/reference/authentication.md";

/// The heading above the table of the page.
const HEADING: &str = "## Anonymous paths";

/// The function that answers these paths, and its file.
const DECISION: (&str, &str) = ("crates/server/src/pipeline/public.rs", "outcome");

/// The module that answers several paths, its file, and the function with their names.
const HEALTH: (&str, &str, &str) = ("health", "crates/server/src/endpoints/health.rs", "response");

/// The other modules that answer a path, each the value of its constant `PATH`.
const WITH_CONSTANT: &[(&str, &str)] = &[
    ("jwks", "crates/server/src/endpoints/jwks.rs"),
    ("console", "crates/server/src/endpoints/console.rs"),
];

/// This file.
const THIS: &str = "xtask/src/layout/pages/public_paths.rs";

/// Where the management API is served.
const BASE: &str = "/kubernetes/management";

/// Compares the page with the code.
pub(super) fn check(page: &str, sources: &Sources<'_>) -> Vec<Finding> {
    let mut of_code = Vec::new();
    let mut findings = Vec::new();
    for file in sources.below(DECISION.0) {
        let decision = function(file, DECISION.1);
        of_code.extend(decision.paths.iter().map(|(line, path)| named(file, *line, path)));
        let known = |module: &&(usize, String)| {
            module.1 != HEALTH.0 && !WITH_CONSTANT.iter().any(|(name, _)| *name == module.1)
        };
        findings.extend(decision.modules.iter().filter(known).map(|(line, module)| Finding {
            path: file.path.clone(),
            line: *line,
            message: format!("`{module}` answers without a credential: add it to {THIS}"),
        }));
    }
    for file in sources.below(HEALTH.1) {
        let names = function(file, HEALTH.2).matched;
        of_code.extend(names.iter().map(|(line, name)| named(file, *line, &format!("/{name}"))));
    }
    for file in WITH_CONSTANT.iter().flat_map(|(_, path)| sources.below(path)) {
        of_code.extend(constant_path(file).map(|(line, path)| named(file, line, &path)));
    }
    findings.extend(differences("anonymous path", PAGE, &of_page(page), &of_code));
    findings
}

fn named(file: &SourceFile, line: usize, path: &str) -> Named {
    Named { name: path.to_owned(), path: file.path.clone(), line }
}

/// The paths in the section of the page, without the base path.
fn of_page(page: &str) -> Vec<Named> {
    let Some(start) = page.find(HEADING) else { return Vec::new() };
    let before = page[..start].lines().count();
    let section = page[start + HEADING.len()..].split("\n## ").next().unwrap_or_default();
    let paths = code_spans(section).filter(|(_, span)| span.starts_with('/') && *span != BASE);
    let named = |(line, path): (usize, &str)| Named {
        name: path.strip_prefix(BASE).unwrap_or(path).to_owned(),
        path: PAGE.into(),
        line: before + line,
    };
    paths.map(named).collect()
}

/// The paths and modules that a function names, each with its line.
#[derive(Default)]
struct Answers {
    /// String literals that begin with a slash.
    paths: Vec<(usize, String)>,
    /// String literals in calls of `matches!`.
    matched: Vec<(usize, String)>,
    /// Modules with a call of their function `response`.
    modules: Vec<(usize, String)>,
}

fn function(file: &SourceFile, name: &str) -> Answers {
    let mut answers = Answers::default();
    for item in &file.syntax.items {
        if let syn::Item::Fn(item) = item
            && item.sig.ident == name
        {
            answers.visit_block(&item.block);
        }
    }
    answers
}

impl<'ast> Visit<'ast> for Answers {
    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        if text.value().starts_with('/') {
            self.paths.push((text.span().start().line, text.value()));
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if !call.path.is_ident("matches") {
            return;
        }
        for token in call.tokens.clone() {
            let TokenTree::Literal(literal) = token else { continue };
            let line = literal.span().start().line;
            if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                self.matched.push((line, text.value()));
            }
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func {
            let names: Vec<_> = function.path.segments.iter().map(|one| &one.ident).collect();
            if let [module, function] = names[..]
                && function == "response"
            {
                self.modules.push((module.span().start().line, module.to_string()));
            }
        }
        syn::visit::visit_expr_call(self, call);
    }
}

/// The value of the constant `PATH`, with its line.
fn constant_path(file: &SourceFile) -> Option<(usize, String)> {
    file.syntax.items.iter().find_map(|item| match item {
        syn::Item::Const(item) if item.ident == "PATH" => match &*item.expr {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
                Some((text.span().start().line, text.value()))
            }
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn a_function_answers_the_paths_that_it_names() {
        let text = "fn public(path: &str) {\n    if path == \"/version\" { version::document() }\n    \
                    else if path == jwks::PATH { jwks::response(a) }\n    \
                    else { health::response(path, || \"no path\") }\n}\n\
                    fn other() { \"/other\"; debug::response(); }\n";
        let found = function(&source("x.rs", text), "public");
        assert_eq!(found.paths, [(2, "/version".to_owned())]);
        assert_eq!(found.modules, [(3, "jwks".to_owned()), (4, "health".to_owned())]);
        let text = "fn response(a: &str) {\n    if !matches!(a, \"readyz\" | \"livez\") {}\n    \
                    let checks = [\"ping\"];\n}\n";
        let found = function(&source("x.rs", text), "response");
        assert_eq!(found.matched, [(2, "readyz".to_owned()), (2, "livez".to_owned())]);
    }

    #[test]
    fn a_path_can_be_a_constant() {
        let file = source("x.rs", "const A: u8 = 1;\npub const PATH: &str = \"/keys\";\n");
        assert_eq!(constant_path(&file), Some((2, "/keys".to_owned())));
    }

    #[test]
    fn the_section_of_the_page_has_paths() {
        let page = "# A\n\n`/before`\n\n## Anonymous paths\n\n| path |\n|---|\n| `/livez`, \
                    `/kubernetes/management/keys` | `word` |\n\n\
                    Below `/kubernetes/management`.\n\n## Next\n\n`/after`\n";
        let found = of_page(page);
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str())).collect();
        assert_eq!(found, [(9, "/livez"), (9, "/keys")]);
    }
}
