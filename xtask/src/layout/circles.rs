//! No circles between the top-level modules of a crate: a reader
//! of one module is not sent back to it by those that it uses.
//!
//! Only what is directly below the crate's root counts as a module here. The root counts as one,
//! under the name of its file, if it has items of its own. Tests may look everywhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::Finding;
use super::modules::{Crate, SourceFile};
use super::references::{self, Reference, RootNames};

/// A file and a line.
type Site = (PathBuf, usize);

/// For each module, the modules that it uses, and all the lines on which it does.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<Site>>>;

/// How often a name may be exported again before its module is found.
const EXPORTS_MAX: usize = 8;

/// The circles in each of these crates.
pub(super) fn check(crates: &[Crate]) -> Vec<Finding> {
    crates.iter().flat_map(|one| check_files(&one.files)).collect()
}

/// The circles in the crate that is made of these files, the root first.
fn check_files(files: &[SourceFile]) -> Vec<Finding> {
    let arrows = arrows(files);
    circles(&arrows).iter().filter_map(|circle| finding(circle, &arrows)).collect()
}

/// The crate's root: the names that it has in scope, and the modules' items.
struct Root {
    /// The name of its file, as that of a module.
    name: String,
    has_items: bool,
    names: RootNames,
    /// The modules from which it exports everything again.
    globs: Vec<Vec<String>>,
    /// The items directly in each top-level module.
    items_of_modules: BTreeMap<String, BTreeSet<String>>,
}

impl Root {
    fn new(file: &SourceFile, files: &[SourceFile]) -> Self {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut names = RootNames::default();
        let (mut globs, mut has_items) = (Vec::new(), false);
        let mut items_of_modules: BTreeMap<_, _> = files
            .iter()
            .filter(|file| file.module.len() == 1)
            .map(|file| (file.module.concat(), item_names(&file.syntax.items)))
            .collect();
        for item in &file.syntax.items {
            match item {
                syn::Item::Mod(item) if !file.is_for_tests(item.ident.span()) => {
                    names.modules.insert(references::name_of(&item.ident));
                    if let Some((_, items)) = &item.content {
                        let name = references::name_of(&item.ident);
                        items_of_modules.insert(name, item_names(items));
                    }
                }
                syn::Item::Use(item) if !file.is_for_tests(item.use_token.span) => {
                    for (name, path) in references::imported(item) {
                        match name.as_str() {
                            "*" => globs.push(without_prefix(path)),
                            "_" => {}
                            _ => drop(names.imports.insert(name, without_prefix(path))),
                        }
                    }
                }
                syn::Item::Mod(_) | syn::Item::Use(_) | syn::Item::ExternCrate(_) => {}
                item if !file.is_for_tests(syn::spanned::Spanned::span(item)) => {
                    has_items = true;
                    names.items.extend(item_name(item));
                }
                _ => {}
            }
        }
        Self { name, has_items, names, globs, items_of_modules }
    }

    /// The top-level module that a path leads to; `None` when it leads out of the crate.
    fn module_of(&self, path: &[String], exports: usize) -> Option<&str> {
        let first = path.first()?;
        if first == "*" {
            return self.has_items.then_some(self.name.as_str());
        }
        if let Some(module) = self.names.modules.get(first) {
            return Some(module);
        }
        if self.names.items.contains(first) {
            return Some(&self.name);
        }
        if exports == EXPORTS_MAX {
            return None;
        }
        if let Some(target) = self.names.imports.get(first) {
            return self.module_of(&[target, &path[1..]].concat(), exports + 1);
        }
        let glob = self.globs.iter().find(|glob| {
            let items = glob.first().and_then(|module| self.items_of_modules.get(module));
            glob.len() > 2 || items.is_some_and(|items| items.contains(first))
        })?;
        self.module_of(glob, exports + 1)
    }
}

/// In the root, `crate::a` and `self::a` are `a`.
fn without_prefix(mut path: Vec<String>) -> Vec<String> {
    if path.first().is_some_and(|first| first == "crate" || first == "self") {
        path.remove(0);
    }
    path
}

fn item_names(items: &[syn::Item]) -> BTreeSet<String> {
    let imported = items.iter().filter_map(|item| match item {
        syn::Item::Use(item) => Some(references::imported(item)),
        _ => None,
    });
    let imported = imported.flatten().map(|(name, _)| name);
    items.iter().filter_map(item_name).chain(imported).collect()
}

fn item_name(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Mod(item) => &item.ident,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::TraitAlias(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(references::name_of(ident))
}

/// The top-level modules, each with those that it uses.
fn arrows(files: &[SourceFile]) -> Arrows {
    let mut arrows = Arrows::new();
    let Some(root_file) = files.first() else { return arrows };
    let root = Root::new(root_file, files);
    for file in files {
        let from = file.module.first().unwrap_or(&root.name);
        let mut add = |from: &str, found: Vec<Reference>| {
            for Reference { path, line } in found {
                let to = root.module_of(&path, 0).filter(|to| *to != from);
                let Some(to) = to else { continue };
                let sites = arrows.entry(from.to_owned()).or_default();
                sites.entry(to.to_owned()).or_default().insert((file.path.clone(), line));
            }
        };
        add(from, references::of_file(file, &root.names));
        for (from, found) in references::of_inline_modules(file) {
            add(&from, found);
        }
    }
    arrows
}

/// Circles that cover every arrow of a circle, short ones first.
fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let mut candidates: Vec<_> = arrows
        .iter()
        .flat_map(|(from, used)| used.keys().map(move |to| (from.as_str(), to.as_str())))
        .filter_map(|(from, to)| shortest_way(to, from, arrows))
        .map(from_least_name)
        .collect();
    candidates.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let mut covered = BTreeSet::new();
    candidates.retain(|circle| {
        let before = covered.len();
        covered.extend(around(circle));
        covered.len() > before
    });
    candidates
}

/// The modules of a shortest way along arrows, with both ends.
fn shortest_way<'a>(from: &'a str, to: &str, arrows: &'a Arrows) -> Option<Vec<&'a str>> {
    let mut queue = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = queue.pop_front() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for next in arrows.get(last).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(next) {
                queue.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

/// The same circle, begun at the name that is first in the alphabet.
fn from_least_name(mut circle: Vec<&str>) -> Vec<&str> {
    let least = circle.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(at, _)| at);
    circle.rotate_left(least);
    circle
}

/// The arrows of a circle.
fn around<'a>(circle: &[&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let next = circle.iter().cycle().skip(1);
    circle.iter().copied().zip(next.copied()).collect::<Vec<_>>().into_iter()
}

fn finding(circle: &[&str], arrows: &Arrows) -> Option<Finding> {
    let mut uses = Vec::new();
    let mut first = None;
    for (from, to) in around(circle) {
        let sites = arrows.get(from)?.get(to)?;
        let (path, line) = sites.first()?;
        first.get_or_insert((path, *line));
        let more = match sites.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        uses.push(format!("{from} uses {to} at {}:{line}{more}", path.display()));
    }
    let (path, line) = first?;
    let names = circle.iter().chain(circle.first()).copied().collect::<Vec<_>>();
    let message = format!(
        "modules in a circle: {}. {}. Move what both need below, or pass it in",
        names.join(" → "),
        uses.join("; "),
    );
    Some(Finding { path: path.clone(), line, message })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::layout::modules;

    /// The messages for a crate that is made of these files, the root first.
    fn messages(sources: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &Path| {
            let source = sources.iter().find(|(name, _)| Path::new(name) == path);
            source.map(|(_, text)| (*text).to_owned())
        };
        let files = modules::files(Path::new(sources[0].0), &read);
        check_files(&files).iter().map(ToString::to_string).collect()
    }

    fn is_circle(sources: &[(&str, &str)]) -> bool {
        !messages(sources).is_empty()
    }

    #[test]
    fn a_finding_shows_the_circle_and_a_line_for_each_arrow() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
            ("src/a.rs", "mod deep;"),
            ("src/a/deep.rs", "\nuse crate::b::X;\nuse crate::b::Y;"),
            ("src/b.rs", "fn f() {\n    super::c::x()\n}"),
            ("src/c.rs", "use crate::{a, d};"),
            ("src/d.rs", ""),
        ];
        assert_eq!(
            messages(&sources),
            ["src/a/deep.rs:2: modules in a circle: a → b → c → a. a uses b at src/a/deep.rs:2 \
              and 1 more; b uses c at src/b.rs:2; c uses a at src/c.rs:1. Move what both need \
              below, or pass it in"]
        );
    }

    #[test]
    fn every_arrow_of_a_circle_is_in_a_finding_and_none_twice_over() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b; use crate::c;"),
            ("src/b.rs", "use crate::a;"),
            ("src/c.rs", "use crate::b;"),
        ];
        let found = messages(&sources);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("circle: a → b → a."), "{}", found[0]);
        assert!(found[1].contains("circle: a → c → b → a."), "{}", found[1]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; pub use a::X; pub use b::Y;"),
            ("src/a.rs", "mod one; mod two; use crate::b::Y;"),
            ("src/a/one.rs", "use super::two::X;"),
            ("src/a/two.rs", "use crate::a::one::Z;"),
            ("src/b.rs", "#[cfg(test)] mod tests;"),
            ("src/b/tests.rs", "use crate::a::X;"),
        ];
        assert_eq!(messages(&sources), [""; 0]);
    }

    #[test]
    fn a_name_that_the_root_exports_leads_to_its_module() {
        for export in [
            "pub use b::Y;",
            "pub(crate) use crate::b::Z as Y;",
            "use self::b::{inner::Y};",
            "pub use b::*;",
            "pub use Z as Y; pub use b::Z;",
        ] {
            let root = format!("mod a; mod b; {export}");
            let sources = [
                ("src/lib.rs", root.as_str()),
                ("src/a.rs", "use crate::Y;"),
                ("src/b.rs", "use crate::a::X; pub struct Y;"),
            ];
            assert!(is_circle(&sources), "{export}");
        }
        let sources = [
            ("src/lib.rs", "mod a; mod b; pub use std::Y;"),
            ("src/a.rs", "use crate::Y;"),
            ("src/b.rs", "use crate::a::X;"),
        ];
        assert!(!is_circle(&sources), "a name of another crate leads out of this one");
    }

    #[test]
    fn items_of_the_root_make_it_a_module() {
        let with_root = |root: &str| {
            let sources = [("src/lib.rs", root), ("src/a.rs", "use crate::Server;")];
            messages(&sources)
        };
        let found = with_root("mod a; use a::X; struct Server { x: X }");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("circle: a → lib.rs → a."), "{}", found[0]);
        assert_eq!(with_root("mod a; struct Server { x: a::X }").len(), 1);
        assert_eq!(with_root("mod a; struct Server; impl Server { fn f() { a::x!() } }").len(), 1);
        // Declarations and exports alone are no use of the module.
        assert_eq!(with_root("mod a; pub use a::X; pub struct Server;"), [""; 0]);
        assert_eq!(with_root("mod a; struct Server; #[cfg(test)] fn f() { a::x() }"), [""; 0]);
    }

    #[test]
    fn the_root_of_a_program_is_a_module_too() {
        let sources = [
            ("src/main.rs", "mod a; fn main() { a::run() }  fn help() {}"),
            ("src/a.rs", "pub fn run() { super::help() }"),
        ];
        let found = messages(&sources);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("circle: a → main.rs → a."), "{}", found[0]);
    }

    #[test]
    fn modules_inside_of_the_root_count_like_files() {
        let sources =
            [("src/lib.rs", "mod a { use crate::b::X; } mod b;"), ("src/b.rs", "use crate::a::Y;")];
        assert!(is_circle(&sources));
    }
}
