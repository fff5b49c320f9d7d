//! No circles between the files of a crate, nor between its top-level modules: a reader of one file
//! is not sent back to it by those that it uses.
//!
//! A file uses another file if it names an item of it, through any export. A declaration (`mod`)
//! and an export (`pub use`) are no use. Tests may use every file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::Finding;
use super::modules::{Crate, SourceFile};
use super::references::{self, Reference, Scope};

/// A file and a line.
type Site = (PathBuf, usize);

/// For each node, a file or a module, the nodes that it uses, and all the lines on which it does.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<Site>>>;

/// How often a name may be exported again before its file is found.
const EXPORTS_MAX: usize = 8;

/// The circles in each of these crates.
pub(super) fn check(crates: &[Crate]) -> Vec<Finding> {
    crates.iter().flat_map(|one| check_files(&one.files)).collect()
}

/// The circles in the crate that is made of these files, the root first.
fn check_files(files: &[SourceFile]) -> Vec<Finding> {
    let modules = modules(files);
    let (mut between_files, mut between_modules) = (Arrows::new(), Arrows::new());
    for file in files {
        let scope = scope(file, &modules);
        for Reference { path, line } in references::of_file(file, &scope) {
            let Some(to) = file_of(&path, &modules, 0).map(|at| &files[at]) else { continue };
            let add = |arrows: &mut Arrows, from: String, to: String| {
                if from != to {
                    let sites = arrows.entry(from).or_default().entry(to).or_default();
                    sites.insert((file.path.clone(), line));
                }
            };
            if !is_within(file, to) && !is_within(to, file) {
                add(
                    &mut between_files,
                    file.path.display().to_string(),
                    to.path.display().to_string(),
                );
            }
            add(&mut between_modules, top_module(file), top_module(to));
        }
    }
    let of_files = circles(&between_files);
    let of_files = of_files.iter().filter_map(|circle| finding(circle, &between_files));
    // A circle of two files in two modules is reported once.
    let of_modules = circles(&between_modules);
    let of_modules = of_modules.iter().filter_map(|circle| finding(circle, &between_modules));
    let mut found: Vec<_> = of_files.collect();
    found.extend(
        of_modules
            .filter(|one| {
                !found.iter().any(|other| other.line == one.line && other.path == one.path)
            })
            .collect::<Vec<_>>(),
    );
    found
}

/// Whether a file is a part of another one's module. A module and its parts are one thing: the parts may
/// use its types, and it calls them.
fn is_within(part: &SourceFile, whole: &SourceFile) -> bool {
    part.module.starts_with(&whole.module)
}

/// The name of the top-level module that a file is in; for the crate's root that of its file.
fn top_module(file: &SourceFile) -> String {
    let name = || file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    file.module.first().cloned().unwrap_or_else(name)
}

/// The contents of a module of a crate.
#[derive(Default)]
struct Module {
    /// The index of its file.
    file: usize,
    modules: BTreeSet<String>,
    items: BTreeSet<String>,
    /// The names that it imports or exports again, each with its path from the crate's root.
    imports: BTreeMap<String, Vec<String>>,
    /// The modules from which it has everything.
    globs: Vec<Vec<String>>,
}

/// The modules of a crate by their path from its root, also those that are written out in a file.
fn modules(files: &[SourceFile]) -> BTreeMap<Vec<String>, Module> {
    let mut found = BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        add_module(index, file, &file.module, &file.syntax.items, &mut found);
    }
    found
}

fn add_module(
    index: usize,
    file: &SourceFile,
    path: &[String],
    items: &[syn::Item],
    found: &mut BTreeMap<Vec<String>, Module>,
) {
    let mut module = Module { file: index, ..Module::default() };
    let mut imports = Vec::new();
    for item in items {
        if file.is_for_tests(syn::spanned::Spanned::span(item)) {
            continue;
        }
        match item {
            syn::Item::Mod(item) => {
                let name = references::name_of(&item.ident);
                if let Some((_, items)) = &item.content {
                    add_module(
                        index,
                        file,
                        &[path, std::slice::from_ref(&name)].concat(),
                        items,
                        found,
                    );
                }
                module.modules.insert(name);
            }
            syn::Item::Use(item) => imports.extend(references::imported(item)),
            item => module.items.extend(item_name(item)),
        }
    }
    let own: BTreeSet<String> = imports.iter().map(|(name, _)| name.clone()).collect();
    for (name, written) in imports {
        let relative = || {
            let first = written.first().filter(|first| **first != name)?;
            let is_own = module.modules.contains(first) || own.contains(first);
            is_own.then(|| [path, &written].concat())
        };
        let target = references::absolute(path, &written).or_else(relative);
        let Some(mut target) = target else { continue };
        if name == "*" {
            target.pop();
            module.globs.push(target);
        } else {
            module.imports.insert(name, target);
        }
    }
    found.insert(path.to_vec(), module);
}

/// The names in a file that need no prefix of its crate.
fn scope(file: &SourceFile, modules: &BTreeMap<Vec<String>, Module>) -> Scope {
    let mut scope = Scope::default();
    let Some(module) = modules.get(&file.module) else { return scope };
    scope.modules.clone_from(&module.modules);
    for item in &file.syntax.items {
        let syn::Item::Use(item) = item else { continue };
        let imports = references::imported(item).into_iter();
        let imports = imports.filter_map(|(name, _)| module.imports.get_key_value(&name));
        // An import of an item is itself a use, and an import of a module is not.
        let is_seen = |path: &[String]| !references::is_export(item) && !modules.contains_key(path);
        scope.exports.extend(
            imports
                .filter(|(_, path)| !is_seen(path))
                .map(|(name, path)| (name.clone(), path.clone())),
        );
    }
    for glob in &module.globs {
        let Some(from) = modules.get(glob) else { continue };
        scope.exports.extend(from.imports.clone());
        scope.exports.extend(
            from.items
                .iter()
                .map(|name| (name.clone(), [&glob[..], std::slice::from_ref(name)].concat())),
        );
    }
    scope
}

/// The index of the file that has the item to which a path leads; `None` if it leads to a module
/// alone, or out of the crate.
fn file_of(
    path: &[String],
    modules: &BTreeMap<Vec<String>, Module>,
    exports: usize,
) -> Option<usize> {
    if exports == EXPORTS_MAX || modules.contains_key(path) {
        return None;
    }
    let depth = (0..path.len()).rev().find(|&depth| modules.contains_key(&path[..depth]))?;
    let module = modules.get(&path[..depth])?;
    let (name, rest) = path[depth..].split_first()?;
    if module.items.contains(name) {
        return Some(module.file);
    }
    if let Some(target) = module.imports.get(name) {
        return file_of(&[target, rest].concat(), modules, exports + 1);
    }
    module
        .globs
        .iter()
        .find_map(|glob| file_of(&[&glob[..], &path[depth..]].concat(), modules, exports + 1))
}

fn item_name(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
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
        "a circle: {}. {}. Move what both need below, or pass it in",
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
            ("src/a/deep.rs", "\nuse crate::b::X;\nuse crate::b::Y; pub struct Z;"),
            ("src/b.rs", "pub struct X; pub struct Y; fn f() {\n    super::c::x()\n}"),
            ("src/c.rs", "use crate::a::deep; pub fn x() -> deep::Z {}"),
            ("src/d.rs", ""),
        ];
        assert_eq!(
            messages(&sources),
            ["src/a/deep.rs:2: a circle: src/a/deep.rs → src/b.rs → src/c.rs → src/a/deep.rs. \
              src/a/deep.rs uses src/b.rs at src/a/deep.rs:2 and 1 more; src/b.rs uses src/c.rs at src/b.rs:2; \
              src/c.rs uses src/a/deep.rs at src/c.rs:1. Move what both need below, or pass it in"]
        );
    }

    #[test]
    fn every_arrow_of_a_circle_is_in_a_finding_and_none_twice_over() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::B; use crate::c::C; pub struct A;"),
            ("src/b.rs", "use crate::a::A; pub struct B;"),
            ("src/c.rs", "use crate::b::B; pub struct C;"),
        ];
        let found = messages(&sources);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("circle: src/a.rs → src/b.rs → src/a.rs."), "{}", found[0]);
        let longer = "circle: src/a.rs → src/c.rs → src/b.rs → src/a.rs.";
        assert!(found[1].contains(longer), "{}", found[1]);
    }

    #[test]
    fn one_direction_is_no_circle() {
        let sources = [
            ("src/lib.rs", "mod a; mod b; pub use a::X; pub use b::Y;"),
            ("src/a.rs", "mod one; mod two; use crate::b::Y; pub struct X;"),
            ("src/a/one.rs", "use super::two::X; pub struct Z;"),
            ("src/a/two.rs", "pub struct X;"),
            ("src/b.rs", "#[cfg(test)] mod tests; pub struct Y;"),
            ("src/b/tests.rs", "use crate::a::X;"),
        ];
        assert_eq!(messages(&sources), [""; 0]);
    }

    #[test]
    fn files_of_one_module_make_circles_too() {
        let sources = [
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod one; mod two;"),
            ("src/a/one.rs", "use super::two::X; pub struct Z;"),
            ("src/a/two.rs", "use crate::a::one::Z; pub struct X;"),
        ];
        assert!(is_circle(&sources));
    }

    #[test]
    fn a_module_and_its_parts_are_one() {
        let sources = [
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod one; pub struct X; fn f() { one::f() }"),
            ("src/a/one.rs", "use super::X; pub fn f() {}"),
        ];
        assert_eq!(messages(&sources), [""; 0]);
    }

    #[test]
    fn modules_without_a_circle_of_files_make_one() {
        let sources = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a/mod.rs", "mod one; mod two;"),
            ("src/a/one.rs", "use crate::b::one::B;"),
            ("src/a/two.rs", "pub struct A;"),
            ("src/b/mod.rs", "pub mod one; mod two;"),
            ("src/b/one.rs", "pub struct B;"),
            ("src/b/two.rs", "use crate::a::two::A;"),
        ];
        let found = messages(&sources);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("circle: a → b → a."), "{}", found[0]);
    }

    #[test]
    fn a_name_that_is_exported_again_leads_to_its_file() {
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
                ("src/a.rs", "use crate::Y; pub struct X;"),
                (
                    "src/b.rs",
                    "use crate::a::X; pub struct Y; pub struct Z; mod inner { pub struct Y; }",
                ),
            ];
            assert!(is_circle(&sources), "{export}");
        }
        let sources = [
            ("src/lib.rs", "mod a; mod b; pub use std::Y;"),
            ("src/a.rs", "use crate::Y; pub struct X;"),
            ("src/b.rs", "use crate::a::X;"),
        ];
        assert!(!is_circle(&sources), "a name of another crate leads out of this one");
    }

    #[test]
    fn the_root_is_a_module_too() {
        let with_root = |root: &str| {
            let a = "use crate::Server; pub struct X; pub fn run() { super::help() }";
            messages(&[("src/main.rs", root), ("src/a.rs", a)])
        };
        for root in [
            "mod a; use a::X; struct Server { x: X }",
            "mod a; struct Server { x: a::X }",
            "mod a; struct Server; impl Server { fn f() { run!(a::X) } }",
            "mod a; fn main() { a::run() }  fn help() {}",
        ] {
            let found = with_root(root);
            assert_eq!(found.len(), 1, "{root}");
            assert!(found[0].contains("circle: a → main.rs → a."), "{}", found[0]);
        }
        // Declarations and exports alone are no use of the module.
        assert_eq!(with_root("mod a; pub use a::X; pub struct Server;"), [""; 0]);
        assert_eq!(with_root("mod a; struct Server; #[cfg(test)] fn f() { a::run() }"), [""; 0]);
    }
}
