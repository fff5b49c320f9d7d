//! The pages about installing: each is complete and listed, its links lead somewhere, and the owner of the repository
//! is named in one place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use postern_tests::kubectl::repository;

use super::helm::{CHARTS, chart};
use super::values::flags;

/// The pages.
const PAGES: [&str; 7] = [
    "install-from-archive.md",
    "install-container.md",
    "install-helm.md",
    "run-three-servers.md",
    "run-three-servers-helm.md",
    "install-systemd.md",
    "upgrade.md",
];

fn how_to(page: &str) -> PathBuf {
    repository().join("docs/how-to").join(page)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variables of `postern agent`.
pub(crate) fn agent_variables() -> BTreeSet<String> {
    let name = |flag: String| format!("POSTERN_AGENT_{}", flag.to_uppercase().replace('-', "_"));
    flags("Agent").into_iter().map(name).collect()
}

#[test]
fn a_page_has_prerequisites_steps_a_check_and_a_clean_up_and_is_listed() {
    let list = read(&how_to("README.md"));
    for page in PAGES {
        assert!(list.contains(&format!("({page})")), "{page} is not in docs/how-to/README.md");
        let text = read(&how_to(page));
        let headings: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings.first(), Some(&"Before you begin"), "{page}");
        assert_eq!(headings.last(), Some(&"Clean up"), "{page}");
        assert!(headings.contains(&"Check") && headings.len() > 3, "{page}: {headings:?}");
    }
}

/// The targets of the links in a page that are files.
fn links(text: &str) -> Vec<&str> {
    let rest = text.split("](").skip(1);
    let targets = rest.map(|rest| rest.split([')', '#']).next().unwrap());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

#[test]
fn each_link_leads_to_a_file() {
    let pages = PAGES.map(how_to).into_iter().chain([repository().join("SECURITY.md")]);
    for page in pages.chain(CHARTS.map(|name| chart(name).join("README.md"))) {
        let text = read(&page);
        for link in links(&text) {
            let target = page.parent().unwrap().join(link);
            assert!(target.exists(), "{} links to {link}", page.display());
        }
    }
}

/// `repository` in the workspace's Cargo.toml is the one place. Everything else refers to it.
#[test]
fn the_address_of_the_repository_is_in_one_place() {
    let manifest = read(&repository().join("Cargo.toml"));
    let fields: Vec<_> =
        manifest.lines().filter(|line| line.starts_with("repository = ")).collect();
    assert_eq!(fields.len(), 1);
    let security = read(&repository().join("SECURITY.md"));
    assert!(security.contains("`repository`") && security.contains("(Cargo.toml)"));
    for name in CHARTS {
        let text = read(&chart(name).join("Chart.yaml"));
        let named =
            text.lines().find(|line| line.starts_with("home:") || line.starts_with("sources:"));
        assert_eq!(named, None, "the address would be in two places");
    }
}

/// A variable in a page is one of a setting that exists.
#[test]
fn each_variable_in_a_page_is_one_of_a_setting() {
    let name = |flag: String| format!("POSTERN_{}", flag.to_uppercase().replace('-', "_"));
    let mut known: BTreeSet<String> = flags("Server").into_iter().map(name).collect();
    known.extend(agent_variables());
    known.insert("POSTERN_CONFIG".to_owned());
    let files = ["Containerfile", "systemd/agent.env.example", "systemd/postern.yaml"];
    let files = files.map(|name| repository().join("deploy").join(name));
    for file in PAGES.map(how_to).into_iter().chain(files) {
        let text = read(&file);
        let words = text.split(|one: char| !one.is_ascii_uppercase() && one != '_');
        for word in words.filter(|word| word.starts_with("POSTERN_")) {
            assert!(known.contains(word), "{} names {word}", file.display());
        }
    }
}
