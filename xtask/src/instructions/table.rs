//! The committed table of instructions: how it is read, compared and written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A scenario may take this much more than the table says, in percent, if its row names no
/// tolerance.
pub(super) const TOLERANCE_PERCENT: f64 = 3.0;

/// A row of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) instructions: u64,
    /// The row's own tolerance, as it is written, and its reason.
    tolerance: String,
    reason: String,
}

impl Row {
    /// How much more the scenario may take, in percent.
    pub(super) fn tolerance_percent(&self) -> Result<f64> {
        if self.tolerance.is_empty() {
            return Ok(TOLERANCE_PERCENT);
        }
        let number = self.tolerance.trim_end_matches('%').trim();
        number.parse().with_context(|| format!("a tolerance is {:?}", self.tolerance))
    }

    /// The same row with another count.
    pub(super) fn with(&self, instructions: u64) -> Self {
        Self { instructions, ..self.clone() }
    }
}

/// The table: its rows by scenario, and the tools and the processor of the counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) counted_with: String,
    pub(super) rows: BTreeMap<String, Row>,
}

/// The text before the line that names the tools of the counts.
const COUNTED_WITH: &str = "Counted with: ";

const HEAD: &str = "# Instructions

Instructions of the server for each request, event or start. `cargo xtask instructions` counts them with callgrind
and compares. It fails if a scenario is more than its tolerance above this table; the tolerance is 3 % if none is given.

`cargo xtask instructions --write` writes the counts. Edit tolerances and reasons by hand. A commit that changes a
count says why.

";

const NOTES: &str = "
- The programs are release builds. Valgrind shows each program a processor without AVX-512 and SHA instructions. So
  counts of all processors with AVX2 agree, and SHA-256 takes about 900 instructions for 64 bytes. A processor with SHA
  instructions needs far fewer.
- The client is `postern-bench`: one connection, HTTP/1.1 over TLS, shared secrets of 1 KB, the audit log on.
- A count is the difference of two runs, divided by the difference of their lengths. The server has one processor.
- What the timers of an idle server take is measured for two seconds and left out.

| scenario | counts |
|---|---|
| bare-get | a GET of 1.4 KB from a server of hyper, rustls and tokio without Postern's code: the floor |
| get-scoped-key | a GET by a user with one Role, with a key that has a scope |
| list-1000-json, list-1000-table | a list of 1,000 shared secrets in one response |
| update | a PUT with the last resourceVersion |
| apply | a server-side apply of a whole object |
| event-100-watchers | a create, and its event to 100 watchers |
| get-gateway | a GET through the gateway to a cluster with a kubeconfig |
| get-agent | a GET through the cluster's agent; the agent's instructions |
| decision-10000-bindings | a GET by a user with 10,000 RoleBindings, directly and through 50 teams |
| start-10000-objects | from the start until ready with 10,000 shared secrets, without an empty server's start |
";

impl Table {
    /// Reads the table; an empty one if there is no file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is no table", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let counted_with = text.lines().find_map(|line| line.strip_prefix(COUNTED_WITH));
        let counted_with = counted_with.unwrap_or_default().to_owned();
        let mut rows = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            // The head, the line below it, and the table of explanations have no number there.
            let Some(Ok(instructions)) = cells.get(1).map(|cell| cell.parse()) else { continue };
            let [name, _, tolerance, reason] = cells[..] else {
                bail!("{line:?} has no four cells")
            };
            let (tolerance, reason) = (tolerance.to_owned(), reason.to_owned());
            rows.insert(name.to_owned(), Row { instructions, tolerance, reason });
        }
        Ok(Self { counted_with, rows })
    }

    /// Writes the table, with its rows in the order of `names`.
    pub(super) fn write(&self, path: &Path, names: &[&str]) -> Result<()> {
        std::fs::write(path, self.render(names))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn render(&self, names: &[&str]) -> String {
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut text = HEAD.to_owned();
        writeln!(text, "{COUNTED_WITH}{}\n", self.counted_with).ok();
        let heads = ["instructions", "tolerance", "reason"];
        writeln!(text, "| {:<width$} | {} | {} | {} |", "scenario", heads[0], heads[1], heads[2])
            .ok();
        writeln!(text, "|{:-<1$}|-------------:|----------:|---|", "", width + 2).ok();
        for name in names {
            let Some(row) = self.rows.get(*name) else { continue };
            let Row { instructions, tolerance, reason } = row;
            writeln!(text, "| {name:<width$} | {instructions:>12} | {tolerance:>9} | {reason} |")
                .ok();
        }
        text.push_str(NOTES);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut table = Table { counted_with: "valgrind-3".to_owned(), ..Table::default() };
        let own = Row { instructions: 7, tolerance: "5 %".to_owned(), reason: "timers".to_owned() };
        table.rows.insert("create".to_owned(), own.clone());
        table.rows.insert("get".to_owned(), Row::default().with(84_500));
        let text = table.render(&["get", "create"]);
        assert_eq!(Table::parse(&text).unwrap(), table, "{text}");
        assert!((own.tolerance_percent().unwrap() - 5.0).abs() < 1e-9);
        assert!((Row::default().tolerance_percent().unwrap() - TOLERANCE_PERCENT).abs() < 1e-9);
    }

    #[test]
    fn a_row_that_lacks_a_cell_is_an_error() {
        assert!(Table::parse("| get | 12 |\n").is_err());
    }
}
