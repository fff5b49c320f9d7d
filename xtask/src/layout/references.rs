//! The references of a file to its own crate: every `crate::…`, `self::…` and `super::…` path, as a
//! path from the crate's root. The file that such a path leads to is found in [`super::circles`].

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::visit::Visit;

use super::modules::SourceFile;

/// A path from the crate's root, and the line that it is on. The last segment is `*` for a glob
/// import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// The names that a file can use without `crate::`, `self::` or `super::`.
#[derive(Default)]
pub(super) struct Scope {
    /// The module's own modules, which are not only built for tests.
    pub(super) modules: BTreeSet<String>,
    /// The names that the module exports again or has by a glob import, each with its path from the crate's root.
    pub(super) exports: BTreeMap<String, Vec<String>>,
}

/// The references of a file. An export (`pub use`) is none: it is one where the name is used.
pub(super) fn of_file(file: &SourceFile, scope: &Scope) -> Vec<Reference> {
    let mut visitor = References { file, module: file.module.clone(), scope, found: Vec::new() };
    visitor.visit_file(&file.syntax);
    visitor.found
}

/// The names that a `use` brings into scope, each with the path that it is for, as it is
/// written. A glob has the name `*`.
pub(super) fn imported(item: &syn::ItemUse) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    if item.leading_colon.is_none() {
        flatten(&item.tree, &mut Vec::new(), &mut |name, path, _| found.push((name, path)));
    }
    found
}

/// Whether a `use` makes its names visible outside of its module.
pub(super) fn is_export(item: &syn::ItemUse) -> bool {
    !matches!(item.vis, syn::Visibility::Inherited)
}

/// The path from the crate's root of one that begins with `crate`, `self` or `super` in a module.
pub(super) fn absolute(module: &[String], written: &[String]) -> Option<Vec<String>> {
    let (first, mut rest) = written.split_first()?;
    let mut base = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while let Some((_, more)) = rest.split_first().filter(|(first, _)| *first == "super") {
        base.pop()?;
        rest = more;
    }
    Some([&base, rest].concat())
}

/// An identifier without the mark of a raw one.
pub(super) fn name_of(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

/// Calls `leaf` for each name that a tree of imports ends in: with the name in scope, the path,
/// and the span of the first segment.
fn flatten(
    tree: &syn::UseTree,
    prefix: &mut Vec<(String, Span)>,
    leaf: &mut dyn FnMut(String, Vec<String>, Span),
) {
    let mut end = |name: String, last: Option<(String, Span)>| {
        let segments: Vec<_> = prefix.iter().cloned().chain(last).collect();
        let span = segments.last().map_or_else(Span::call_site, |(_, span)| *span);
        leaf(name, segments.into_iter().map(|(name, _)| name).collect(), span);
    };
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push((name_of(&path.ident), path.ident.span()));
            flatten(&path.tree, prefix, leaf);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaf);
            }
        }
        syn::UseTree::Glob(glob) => {
            end("*".to_owned(), Some(("*".to_owned(), glob.star_token.spans[0])));
        }
        // `use a::{self}` is `use a`.
        syn::UseTree::Name(name) if name.ident == "self" && !prefix.is_empty() => {
            end(prefix.last().map(|(name, _)| name.clone()).unwrap_or_default(), None);
        }
        syn::UseTree::Rename(rename) if rename.ident == "self" && !prefix.is_empty() => {
            end(name_of(&rename.rename), None);
        }
        syn::UseTree::Name(name) => {
            end(name_of(&name.ident), Some((name_of(&name.ident), name.ident.span())));
        }
        syn::UseTree::Rename(rename) => {
            end(name_of(&rename.rename), Some((name_of(&rename.ident), rename.ident.span())));
        }
    }
}

/// Collects the references in the code, with the module at each point.
struct References<'a> {
    file: &'a SourceFile,
    module: Vec<String>,
    scope: &'a Scope,
    found: Vec<Reference>,
}

impl References<'_> {
    /// Notes a path as it is written in the current module, if it is one into the own crate.
    fn add(&mut self, written: &[String], span: Span) {
        if self.file.is_for_tests(span) {
            return;
        }
        let Some(path) = self.path_from_root(written) else { return };
        if !path.is_empty() {
            self.found.push(Reference { path, line: span.start().line });
        }
    }

    /// The path from the crate's root; `None` for a path that does not go through it.
    fn path_from_root(&self, written: &[String]) -> Option<Vec<String>> {
        absolute(&self.module, written).or_else(|| {
            let (first, rest) = written.split_first()?;
            if let Some(path) = self.scope.exports.get(first) {
                return Some([path, rest].concat());
            }
            // A module alone is no value and no type: it is only a name before `::`.
            let is_module = !rest.is_empty() && self.scope.modules.contains(first);
            is_module.then(|| [&self.file.module, written].concat())
        })
    }

    /// Finds paths in the tokens of a macro call or a macro's rules.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut index = 0;
        while index < tokens.len() {
            match &tokens[index] {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(first) if !follows_path_or_dot(&tokens[..index]) => {
                    let (path, end) = path_at(&tokens, index);
                    if let Some(TokenTree::Group(group)) = tokens.get(end)
                        && is_path_separator(&tokens[..end])
                    {
                        for name in first_of_each(group.stream()) {
                            self.add(&[&path[..], &[name]].concat(), first.span());
                        }
                    } else if path.len() > 1 || !is_field_name(&tokens[index + 1..]) {
                        self.add(&path, first.span());
                    }
                    index = end.max(index + 1);
                    continue;
                }
                _ => {}
            }
            index += 1;
        }
    }
}

impl<'ast> Visit<'ast> for References<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.module.push(name_of(&item.ident));
            syn::visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() && !is_export(item) {
            flatten(&item.tree, &mut Vec::new(), &mut |_, path, span| self.add(&path, span));
        }
        self.visit_visibility(&item.vis);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let written: Vec<_> =
                path.segments.iter().map(|segment| name_of(&segment.ident)).collect();
            if let Some(first) = path.segments.first() {
                self.add(&written, first.ident.span());
            }
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.tokens(tokens.clone());
    }

    /// Attributes are not checked: the documentation may name any item.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}

/// Whether tokens end in `::`.
fn is_path_separator(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [.., TokenTree::Punct(a), TokenTree::Punct(b)]
        if a.as_char() == ':' && b.as_char() == ':')
}

fn follows_path_or_dot(before: &[TokenTree]) -> bool {
    let dot = matches!(before.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '.');
    dot || is_path_separator(before)
}

/// Whether the tokens after a name make it the name of a field: one colon, and not two.
fn is_field_name(behind: &[TokenTree]) -> bool {
    matches!(behind, [TokenTree::Punct(colon), ..] if colon.as_char() == ':')
}

/// The path that begins at `start`, and the index behind it and its last `::`.
fn path_at(tokens: &[TokenTree], start: usize) -> (Vec<String>, usize) {
    let mut path = Vec::new();
    let mut index = start;
    while let Some(TokenTree::Ident(ident)) = tokens.get(index) {
        path.push(name_of(ident));
        index += 1;
        if !tokens.get(index..index + 2).is_some_and(is_path_separator) {
            break;
        }
        index += 2;
    }
    (path, index)
}

/// The first name of each part of an import's group: `a` and `b` of `{a::X, b}`.
fn first_of_each(group: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    let mut begins = true;
    for token in group {
        match token {
            TokenTree::Ident(ident) if begins => {
                names.push(name_of(&ident));
                begins = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => begins = true,
            _ => begins = false,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths_in(module: &[&str], text: &str) -> Vec<String> {
        let module: Vec<_> = module.iter().map(|&name| name.to_owned()).collect();
        let file = SourceFile::parse("src/x.rs".into(), module, text).unwrap();
        let scope = Scope {
            modules: ["audit", "tls"].map(str::to_owned).into(),
            exports: [("Log".to_owned(), vec!["audit".to_owned(), "Log".to_owned()])].into(),
        };
        of_file(&file, &scope).iter().map(|reference| reference.path.join("::")).collect()
    }

    #[test]
    fn imports_are_found_in_nested_groups() {
        let text =
            "use crate::{a::X, b, c::{self, d::Y as Z}, e::*}; use std::fmt; use ::crate2::q;";
        assert_eq!(paths_in(&["m"], text), ["a::X", "b", "c", "c::d::Y", "e::*"]);
    }

    #[test]
    fn relative_paths_are_resolved_from_their_module() {
        let text = "use super::a; use super::super::b; use self::c; use x::y;\n\
                    mod inner { use super::d; use super::super::e; }\n\
                    fn f() { super::super::g::h() }";
        let expected = ["m::a", "b", "m::n::c", "m::n::d", "m::e", "g::h"];
        assert_eq!(paths_in(&["m", "n"], text), expected);
    }

    #[test]
    fn code_outside_of_imports_is_read() {
        for text in [
            "fn f() { let x = crate::a::x(); }",
            "struct S { x: Vec<crate::a::x> }",
            "impl crate::a::x for S {}",
            "fn f(x: X) { match x { crate::a::x => {} } }",
            "pub(in crate::a::x) fn f() {}",
            "fn f() { crate::a::x!(); }",
            "fn f() -> impl Fn(<T as crate::a::x>::Y) { }",
            "fn f() { println!(\"{}\", crate::a::x(1)) }",
            "fn f() { vec![[(crate::a::x)]] }",
            "macro_rules! m { () => { $crate::a::x() } }",
            "fn f() { select! { use crate::{a::x}; } }",
            "fn f() { println!(\"{}\", super::a::x) }",
        ] {
            let found = paths_in(&["m"], text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(["a", "a::x", "a::x::Y"].contains(&found[0].as_str()), "{text}: {found:?}");
        }
    }

    #[test]
    fn what_is_not_code_is_not_read() {
        for text in [
            "/// See [`crate::a`].\nfn f() {}",
            "// crate::a::x\nfn f() {}",
            "fn f() { g(\"crate::a::x\") }",
            "#[cfg(test)] mod tests { use crate::a; }",
            "#[cfg(test)] use crate::a;",
            "#[test] fn f() { crate::a::x() }",
            "pub(crate) fn f(crate_: u8) { a::x() }",
        ] {
            assert_eq!(paths_in(&["m"], text), [""; 0], "{text}");
        }
    }

    #[test]
    fn names_in_scope_need_no_prefix() {
        let text = "mod audit; pub use audit::Log; use tls::T; struct Server { log: Log }\n\
                    fn f(audit: u8) { tls::x(audit); println!(\"{}\", tls::y); g!(tls: 1) }";
        assert_eq!(paths_in(&[], text), ["tls::T", "audit::Log", "tls::x", "tls::y"]);
        assert_eq!(paths_in(&["m"], "fn f() { tls::x() }"), ["m::tls::x"]);
    }

    #[test]
    fn an_export_alone_is_no_use() {
        assert_eq!(paths_in(&["m"], "pub(crate) use self::tls::T; pub use crate::a::B;"), [""; 0]);
    }
}
