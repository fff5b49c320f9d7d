//! `docs/reference/kinds`: a page for each kind, and their index. Each page has a head that is
//! written by hand. The text below the marker is generated, and compared with the file here.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "the pages are files")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use postern_kinds::{AnyKind, MANAGEMENT_V1, Verb};

mod examples;
mod fields;
mod links;
mod pages;
mod promises;
mod specified;

/// The line above the generated part of a page.
const MARKER: &str = "<!-- generated from the schema -->\n";

/// What to do when a page differs.
const HOW_TO_UPDATE: &str = "write the generated parts again with\n    \
     POSTERN_UPDATE_REFERENCE=1 cargo nextest run -p postern-kinds reference\nand review the changes";

fn reference() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference")
}

fn page(name: &str) -> PathBuf {
    reference().join("kinds").join(name).with_extension("md")
}

/// One row of a table.
fn row(cells: &[String]) -> String {
    let cells = cells.iter().map(|cell| cell.replace('|', "\\|"));
    let cells = cells.map(|cell| if cell.is_empty() { String::new() } else { format!(" {cell}") });
    format!("|{} |\n", cells.collect::<Vec<_>>().join(" |"))
}

/// The head of a page, which is written by hand.
fn head(name: &str) -> Result<String, String> {
    let text = fs::read_to_string(page(name)).map_err(|_| {
        format!("kinds/{name}.md is missing: write its head, and end it with {MARKER}")
    })?;
    let head = text.split(MARKER).next().filter(|head| head.len() < text.len());
    head.map(str::to_owned).ok_or_else(|| format!("kinds/{name}.md has no line {MARKER}"))
}

/// Compares a page with its head and this generated part, or writes it.
fn compare(name: &str, generated: &str) -> Result<(), String> {
    let expected = format!("{}{MARKER}\n{generated}", head(name)?);
    let found = fs::read_to_string(page(name)).unwrap();
    if found == expected {
        return Ok(());
    }
    if std::env::var_os("POSTERN_UPDATE_REFERENCE").is_some() {
        fs::write(page(name), expected).unwrap();
        return Ok(());
    }
    let mut lines = expected.lines().zip(found.lines());
    let first = lines.find(|(expected, found)| expected != found);
    let (expected, found) = first.unwrap_or(("another number of lines", ""));
    Err(format!(
        "kinds/{name}.md differs, first here:\n    expected {expected}\n    found    {found}"
    ))
}

#[test]
fn the_reference_of_each_kind_is_as_generated() {
    let pages = pages::pages();
    let generated = pages.iter().map(|(name, kinds)| (*name, pages::generated(kinds)));
    let generated = generated.chain([("README", pages::index())]);
    let stale: Vec<_> = generated.filter_map(|(name, text)| compare(name, &text).err()).collect();
    assert!(stale.is_empty(), "{}\n\n{HOW_TO_UPDATE}", stale.join("\n"));
}

#[test]
fn no_page_of_the_reference_is_for_a_kind_that_is_not_served() {
    let pages = pages::pages();
    let expected: BTreeSet<_> = pages
        .iter()
        .map(|(name, _)| *name)
        .chain(["README"])
        .map(|name| format!("{name}.md"))
        .collect();
    let entries = fs::read_dir(reference().join("kinds")).unwrap();
    let found: BTreeSet<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let unknown: Vec<_> = found.difference(&expected).collect();
    assert!(unknown.is_empty(), "no kind has this plural, remove the page: {unknown:?}");
}

/// How many sentences an introduction has.
fn sentences(introduction: &str) -> usize {
    let ends = introduction.split_whitespace().filter(|word| word.ends_with(['.', ':']));
    ends.count()
}

#[test]
fn each_page_of_the_reference_introduces_its_kind_and_has_an_example() {
    for (name, kinds) in pages::pages() {
        let head = head(name).unwrap();
        let kind = kinds[0];
        let info = kind.info();
        let title = format!("# {}\n\n", info.kind);
        let body =
            head.strip_prefix(&title).unwrap_or_else(|| panic!("{name}: begin with {title}"));
        let introduction = body.split("\n```").next().unwrap();
        let is_ours = kinds.iter().all(|kind| kind.info().version == MANAGEMENT_V1);
        let allowed = if is_ours { 3..=8 } else { 2..=8 };
        let count = sentences(introduction);
        assert!(allowed.contains(&count), "{name}: {count} sentences, not {allowed:?}");
        assert!(introduction.contains("](../"), "{name} links to no page that says more");
        let objects = examples::objects_in(&head);
        let is_of = |kind: &dyn AnyKind| {
            let is_it = |value: &serde_json::Value| value["kind"] == kind.info().kind;
            objects.iter().any(|object| object.as_ref().is_ok_and(is_it))
        };
        assert!(is_of(kind) || !info.serves(Verb::Create), "{name} has no example");
        let requests = info.actions.iter().filter_map(|action| action.request);
        for body in requests.filter(|body| body.info().version == MANAGEMENT_V1) {
            assert!(is_of(body), "{name} has no example of {:?}", body.info().kind);
        }
    }
}

/// All pages of the reference.
fn all_pages() -> Vec<PathBuf> {
    let directories = [reference(), reference().join("kinds")];
    let entries = directories.into_iter().flat_map(|directory| fs::read_dir(directory).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn the_links_of_the_reference_lead_to_files_and_headings() {
    let broken: Vec<_> = all_pages().iter().flat_map(|page| links::broken(page)).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_examples_of_the_reference_are_valid() {
    let mut checked = 0;
    for page in all_pages() {
        for object in examples::objects_in(&fs::read_to_string(&page).unwrap()) {
            let verdict = object.and_then(examples::check);
            assert!(verdict.is_ok(), "{}: {}", page.display(), verdict.unwrap_err());
            checked += 1;
        }
    }
    assert!(checked > 25, "only {checked} examples were found");
}
