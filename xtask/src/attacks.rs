//! The full form of the attacks in `tests/tests/attacks`: a release build, one attack after the other,
//! and a table of the measurements. The attacks, and the figures that must hold, are defined there.

use std::path::Path;

use anyhow::{Context, Result};

use crate::build::{Profile, build_server};
use crate::shell;

/// The columns of a line of figures.
const COLUMNS: [&str; 8] = [
    "attack",
    "/livez, max",
    "admin's GET, max",
    "others' reads, p99 (usual)",
    "others' writes, p99 (usual)",
    "not served",
    "memory, peak",
    "held",
];

/// Runs all attacks, prints the table, and fails if one attack did.
pub(crate) fn run(root: &Path) -> Result<()> {
    std::env::set_current_dir(root).context("cannot go to the workspace's directory")?;
    let binary = build_server(root, Profile::Release)?;
    let figures = shell::target_directory(root)?.join("attacks.tsv");
    std::fs::write(&figures, "").with_context(|| format!("cannot write {}", figures.display()))?;
    let mut command = shell::cargo();
    let nextest = shell::succeeds("cargo", &["nextest", "--version"]);
    command.args(if nextest { &["nextest", "run", "--no-fail-fast"][..] } else { &["test"] });
    command.args(["--release", "--workspace", "--test", "systems"]);
    if nextest {
        command.args(["--test-threads", "1", "-E", "test(/^attacks::/)"]);
    } else {
        command.args(["--", "--test-threads", "1", "attacks::"]);
    }
    command
        .env("POSTERN_TEST_BIN", binary)
        .env("POSTERN_TEST_FIGURES", "full")
        .env("POSTERN_TEST_FIGURES_FILE", &figures);
    let result = shell::run(&mut command);
    println!("\n{}", table(&std::fs::read_to_string(&figures)?));
    result
}

/// Lays out lines with columns that are separated by tabs.
fn table(lines: &str) -> String {
    let figures = lines.lines().map(|line| line.split('\t').collect());
    let rows: Vec<Vec<_>> = std::iter::once(COLUMNS.to_vec()).chain(figures).collect();
    let width = |column: usize| {
        let lengths =
            rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        lengths.max().unwrap_or(0)
    };
    let lines = rows.iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, text)| {
            let width = width(column);
            // Names begin in one column, figures end in one.
            if column == 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_below_their_heads() {
        let text = table("PING flood\t1.0 ms\t2.0 ms\t3 (1)\t4 (2)\t0\t33 MB\tyes\n");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("attack      /livez, max  admin's GET, max"), "{text}");
        assert!(lines[1].starts_with("PING flood       1.0 ms            2.0 ms"), "{text}");
        assert!(lines.iter().all(|line| line.len() == lines[0].len() || line.ends_with("yes")));
    }
}
