//! The files of a crate, found as the compiler finds them: from the crate's root along its `mod`
//! declarations. Knows which parts are only built for tests. Nothing is checked here.

use std::ops::Range;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, TargetKind};
use proc_macro2::{LineColumn, Span, TokenStream};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Reads a file of the workspace; `None` when there is no such file.
pub(super) type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A source file of a crate, and its position in the crate's tree of modules.
pub(super) struct SourceFile {
    /// From the workspace's root.
    pub(super) path: PathBuf,
    /// The names of the modules from the crate's root to this file; empty for the root itself.
    pub(super) module: Vec<String>,
    /// The same code as `syntax`.
    pub(super) tokens: TokenStream,
    pub(super) syntax: syn::File,
    /// Where the items are that are only built for tests.
    for_tests: Vec<Range<LineColumn>>,
}

impl SourceFile {
    /// The file with this text. `None` when it does not parse: the check of files says
    /// so, and the others have nothing to look at.
    pub(super) fn parse(path: PathBuf, module: Vec<String>, text: &str) -> Option<Self> {
        let tokens: TokenStream = text.parse().ok()?;
        let syntax: syn::File = syn::parse2(tokens.clone()).ok()?;
        if is_for_tests(&syntax.attrs) {
            return None;
        }
        let mut for_tests = ForTests::default();
        for_tests.visit_file(&syntax);
        Some(Self { path, module, tokens, syntax, for_tests: for_tests.ranges })
    }

    /// Whether the code at `span` is only built for tests.
    pub(super) fn is_for_tests(&self, span: Span) -> bool {
        // The position in bytes would take a walk through the file.
        let start = span.start();
        self.for_tests.iter().any(|range| range.contains(&start))
    }

    /// The directory in which the files of this file's own modules are.
    fn directory(&self) -> PathBuf {
        let stem = self.path.file_stem().unwrap_or_default();
        let parent = self.path.parent().unwrap_or(Path::new(""));
        if self.module.is_empty() || stem == "mod" {
            parent.to_path_buf()
        } else {
            parent.join(stem)
        }
    }
}

/// A library or a program of the workspace.
pub(super) struct Crate {
    /// The root first.
    pub(super) files: Vec<SourceFile>,
}

/// The libraries and programs of the workspace at `root`.
pub(super) fn crates(root: &Path, metadata: &Metadata) -> Vec<Crate> {
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).ok();
    let packages = metadata.workspace_packages().into_iter();
    packages
        .flat_map(|package| &package.targets)
        .filter(|target| is_product(target))
        .map(|target| {
            let path = target.src_path.as_std_path();
            let path = path.strip_prefix(root).unwrap_or(path);
            Crate { files: files(path, &read) }
        })
        .collect()
}

/// Whether a target is part of the product or of a tool: a library or a program, no test.
fn is_product(target: &cargo_metadata::Target) -> bool {
    let product = [TargetKind::Lib, TargetKind::ProcMacro, TargetKind::Bin];
    target.kind.iter().any(|kind| product.contains(kind))
}

/// The files of the crate with this root, the root first. Modules that are only built for tests are
/// left out.
pub(super) fn files(root: &Path, read: Read) -> Vec<SourceFile> {
    let mut found = Vec::new();
    let text = read(root).unwrap_or_default();
    if let Some(file) = SourceFile::parse(root.to_path_buf(), Vec::new(), &text) {
        follow(file, read, &mut found);
    }
    found
}

/// Adds a file, and those of the modules that it declares.
fn follow(file: SourceFile, read: Read, found: &mut Vec<SourceFile>) {
    let mut declarations = Vec::new();
    let directory = file.directory();
    declared(&file.syntax.items, &file.module, &directory, &mut declarations);
    found.push(file);
    for Declaration { module, candidates } in declarations {
        let text = candidates.iter().find_map(|path| read(path).map(|text| (path.clone(), text)));
        // The compiler says when there is no such file.
        let Some((path, text)) = text else { continue };
        if let Some(file) = SourceFile::parse(path, module, &text) {
            follow(file, read, found);
        }
    }
}

/// A `mod name;`, and the paths at which its file may be.
struct Declaration {
    module: Vec<String>,
    candidates: Vec<PathBuf>,
}

fn declared(
    items: &[syn::Item],
    module: &[String],
    directory: &Path,
    found: &mut Vec<Declaration>,
) {
    for item in items {
        let syn::Item::Mod(item) = item else { continue };
        if is_for_tests(&item.attrs) {
            continue;
        }
        let name = item.ident.to_string().trim_start_matches("r#").to_owned();
        let below = directory.join(&name);
        let module = [module, &[name]].concat();
        match (&item.content, path_attribute(&item.attrs)) {
            (Some((_, items)), _) => declared(items, &module, &below, found),
            (None, Some(path)) => {
                found.push(Declaration { module, candidates: vec![directory.join(path)] });
            }
            (None, None) => {
                let candidates = vec![below.with_extension("rs"), below.join("mod.rs")];
                found.push(Declaration { module, candidates });
            }
        }
    }
}

/// The value of `#[path = "…"]`.
fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Whether attributes say that an item is only built for tests: `#[cfg(test)]`, also within
/// `all(…)`, and `#[test]` in all its forms.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        let is_test = path.segments.last().is_some_and(|segment| segment.ident == "test");
        is_test
            || path.is_ident("cfg")
                && attribute.parse_args::<syn::Meta>().is_ok_and(|condition| needs_test(&condition))
    })
}

/// Whether a condition holds only in builds of tests.
fn needs_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            let parts = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parts) else { return false };
            let all = list.path.is_ident("all") && parts.iter().any(needs_test);
            let any = list.path.is_ident("any") && parts.iter().all(needs_test);
            all || any && !parts.is_empty()
        }
        syn::Meta::NameValue(_) => false,
    }
}

/// Collects the items that are only built for tests.
#[derive(Default)]
struct ForTests {
    ranges: Vec<Range<LineColumn>>,
}

impl ForTests {
    /// Notes the item if it is one of them; says whether to look inside.
    fn look_inside(&mut self, attributes: &[syn::Attribute], item: &impl Spanned) -> bool {
        let for_tests = is_for_tests(attributes);
        if for_tests {
            let span = item.span();
            self.ranges.push(span.start()..span.end());
        }
        !for_tests
    }
}

impl<'ast> Visit<'ast> for ForTests {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if self.look_inside(attributes(item), item) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if self.look_inside(&item.attrs, item) {
            syn::visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if self.look_inside(&item.attrs, item) {
            syn::visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if self.look_inside(&field.attrs, field) {
            syn::visit::visit_field(self, field);
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sources: &[(&str, &str)]) -> Vec<(String, String)> {
        let read = |path: &Path| {
            let source = sources.iter().find(|(name, _)| Path::new(name) == path);
            source.map(|(_, text)| (*text).to_owned())
        };
        files(Path::new(sources[0].0), &read)
            .iter()
            .map(|file| (file.path.display().to_string(), file.module.join("::")))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn files_are_found_along_declarations() {
        let sources = [
            ("src/lib.rs", "mod a; pub mod b; mod inline { mod deep; } mod missing;"),
            ("src/a.rs", "mod x;"),
            ("src/a/x.rs", ""),
            ("src/b/mod.rs", "mod y; #[path = \"other.rs\"] mod z;"),
            ("src/b/y.rs", ""),
            ("src/b/other.rs", ""),
            ("src/inline/deep.rs", ""),
            ("src/unused.rs", ""),
        ];
        let expected = [
            ("src/lib.rs", ""),
            ("src/a.rs", "a"),
            ("src/a/x.rs", "a::x"),
            ("src/b/mod.rs", "b"),
            ("src/b/y.rs", "b::y"),
            ("src/b/other.rs", "b::z"),
            ("src/inline/deep.rs", "inline::deep"),
        ];
        assert_eq!(found(&sources), pairs(&expected));
    }

    #[test]
    fn files_that_only_tests_reach_are_left_out() {
        let sources = [
            (
                "src/lib.rs",
                "#[cfg(test)] mod tests; #[cfg(all(unix, test))] mod more; mod a; \
                 #[cfg(not(test))] mod b; #[cfg(any(test, unix))] mod c;",
            ),
            ("src/tests.rs", "mod deep;"),
            ("src/tests/deep.rs", ""),
            ("src/more.rs", ""),
            ("src/a.rs", "#![cfg(test)]"),
            ("src/b.rs", ""),
            ("src/c.rs", ""),
        ];
        let expected = [("src/lib.rs", ""), ("src/b.rs", "b"), ("src/c.rs", "c")];
        assert_eq!(found(&sources), pairs(&expected));
    }

    #[test]
    fn items_for_tests_are_known_by_their_span() {
        let text = "fn a() {} #[cfg(test)] fn b() {} impl X { #[tokio::test] async fn c() {} }";
        let file = SourceFile::parse("x.rs".into(), Vec::new(), text).unwrap();
        let mut seen = Vec::new();
        for item in &file.syntax.items {
            match item {
                syn::Item::Fn(item) => seen.push(file.is_for_tests(item.sig.ident.span())),
                syn::Item::Impl(item) => {
                    let syn::ImplItem::Fn(method) = &item.items[0] else { panic!("no method") };
                    seen.push(file.is_for_tests(item.impl_token.span));
                    seen.push(file.is_for_tests(method.sig.ident.span()));
                }
                _ => panic!("no other item"),
            }
        }
        assert_eq!(seen, [false, true, false, true]);
    }
}
