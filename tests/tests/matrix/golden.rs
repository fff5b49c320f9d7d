//! The files in `golden/`: written as Markdown, and compared row by row.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use postern_tests::kubectl::repository;

use crate::matrix::answer::Answer;
use crate::matrix::tables::Answered;
use crate::matrix::world::{Identity, World};

/// The variable that accepts the changes, as for the other snapshots.
const ACCEPT: &str = "INSTA_UPDATE";

const LEGEND: &str = "\
Made by the test `matrix` from a running server; each cell is what the server answered. Do not edit it by hand.

A cell has the status code of the answer, and sometimes a word:

| word | means |
|---|---|
| all | a list or watch showed everything that the administrator was shown |
| some: … | it showed these, and nothing else |
| none | it showed nothing |
| hidden | the object exists, and the answer is the one for a name that does not |
| ? | not settled yet, and not checked |
| AlreadyExists, Invalid, … | the reason that the answer gives |

*200* and *201* are success, *401* is a key that is not valid, *403* a refusal, *404* not found.

The column *on* says what the request is about: an object of the user `owner` (*own*), one that has been shared
with the team `red` (*shared*), one that belongs to another user (*theirs*), such a one in another namespace
(*elsewhere*), or a name that does not exist there or there (*absent*, *absent elsewhere*).
";

fn path(name: &str) -> PathBuf {
    repository().join("tests/tests/matrix/golden").join(format!("{name}.md"))
}

/// The whole file of a kind.
pub(crate) fn render(world: &World, table: &[Answered]) -> String {
    let fixture = &world.fixture;
    let group = if fixture.group.is_empty() { "the core group" } else { fixture.group };
    render_as(&format!("{} ({group})", fixture.plural), world, table)
}

/// A whole file with a title.
pub(crate) fn render_as(title: &str, world: &World, table: &[Answered]) -> String {
    let mut text = format!("# Who may do what: {title}\n\n{LEGEND}\n");
    text.push_str("| who | is |\n|---|---|\n");
    for identity in &world.identities {
        writeln!(text, "| {} | {} |", identity.code, identity.words).unwrap();
    }
    let mut section = "";
    for answered in table {
        let operation = &answered.row.operation;
        if section != operation.path {
            section = &operation.path;
            let heads = world.identities.iter().map(|identity| identity.code).collect::<Vec<_>>();
            let line = "---|".repeat(heads.len() + 2);
            write!(text, "\n## `{section}`\n\n| request | on | {} |\n|{line}\n", heads.join(" | "))
                .unwrap();
        }
        writeln!(text, "{}", row(world, answered)).unwrap();
    }
    text
}

fn row(world: &World, answered: &Answered) -> String {
    let row = &answered.row;
    let method = if row.how == "HEAD" { "GET" } else { &row.operation.method };
    let how = if row.how.is_empty() { String::new() } else { format!(" {}", row.how) };
    let on = row.target.map_or("", |target| target.word());
    let all = &answered.answers[0];
    let cell =
        |(answer, _): (&Answer, &Arc<Identity>)| answer.cell(&world.fixture, row.target, all);
    let cells = answered.answers.iter().zip(&world.identities).map(cell);
    format!("| {method}{how} | {on} | {} |", cells.collect::<Vec<_>>().join(" | "))
}

/// Compares a file with the one in the repository, or writes it when changes are accepted.
pub(crate) fn check(name: &str, new: &str) {
    let path = path(name);
    if std::env::var(ACCEPT).is_ok_and(|value| value == "always") {
        std::fs::write(&path, new).unwrap();
        return;
    }
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    let differences = differences(&old, new);
    assert!(
        differences.is_empty(),
        "{} differs from what the server answers:\n{differences}\nIf each of these is right, accept them \
         with {ACCEPT}=always, and review the diff.",
        path.display()
    );
}

/// The rows that differ, with the section that they are in and the cells that are others.
fn differences(old: &str, new: &str) -> String {
    if old == new {
        return String::new();
    }
    let (before, after) = (in_sections(old), in_sections(new));
    let mut text = String::new();
    for (section, line) in before.difference(&after) {
        writeln!(text, "- {section}: {line}").unwrap();
    }
    for (section, line) in after.difference(&before) {
        writeln!(text, "+ {section}: {line}").unwrap();
        let start = row_start(line);
        let same_row = |(of, other): &&(&str, &str)| of == section && row_start(other) == start;
        if let Some((_, other)) = before.difference(&after).find(same_row) {
            writeln!(text, "  that is: {}", changed_cells(new, other, line)).unwrap();
        }
    }
    if text.is_empty() { "the same rows in another order".to_owned() } else { text }
}

/// The cells that say which request a row is about.
fn row_start(line: &str) -> Vec<&str> {
    line.split('|').take(3).collect()
}

/// The cells that differ between two rows of a file, by the heads of their columns.
fn changed_cells(text: &str, old: &str, new: &str) -> String {
    let heads = text.lines().find(|line| line.starts_with("| request |")).unwrap_or_default();
    let cells = heads.split('|').zip(old.split('|').zip(new.split('|')));
    let changed = cells.filter(|(_, (old, new))| old != new);
    let words = changed
        .map(|(head, (old, new))| format!("{}: {} is now {}", head.trim(), old.trim(), new.trim()));
    words.collect::<Vec<_>>().join("; ")
}

fn in_sections(text: &str) -> BTreeSet<(&str, &str)> {
    let mut section = "";
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        section = line.strip_prefix("## ").unwrap_or(section);
        lines.insert((section, line));
    }
    lines
}

/// The operations that a file has rows for: path and method.
pub(crate) fn operations(name: &str) -> BTreeSet<(String, String)> {
    let text = std::fs::read_to_string(path(name)).unwrap_or_default();
    let rows = in_sections(&text).into_iter();
    rows.filter_map(|(section, line)| {
        let method = line.strip_prefix("| ")?.split(' ').next()?;
        let is_method = method.bytes().all(|byte| byte.is_ascii_uppercase());
        let path = section.strip_prefix('`')?.strip_suffix('`')?;
        is_method.then(|| (path.to_owned(), method.to_owned()))
    })
    .collect()
}
