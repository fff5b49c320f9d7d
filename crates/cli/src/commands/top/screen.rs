//! The lines of one picture in a window, and of the whole report outside of one.

use super::report::Report;
use super::text::{self, Table};
use crate::output::{self, escape};

/// How a line is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// As any text.
    Plain,
    /// A title, or the headings of a table.
    Heading,
    /// What an operator has to look at.
    Problem,
}

/// A line of the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    /// The text, without control characters.
    pub(super) text: String,
    /// How it is shown.
    pub(super) style: Style,
}

impl Line {
    fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style }
    }
}

/// The size of a window, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    /// The characters of a line.
    pub(super) columns: usize,
    /// The lines.
    pub(super) rows: usize,
}

/// The lines of a picture that fits into a window. `title` is its first line, `notes` are shown below it.
pub(super) fn picture(report: &Report, title: &str, notes: &[String], size: Size) -> Vec<Line> {
    let mut lines = vec![Line::new(Style::Heading, title)];
    let problems = notes.iter().chain(&report.problems);
    lines.extend(problems.map(|problem| Line::new(Style::Problem, escape(problem))));
    lines.extend(summary(&text::summary(report), size.columns));
    let tables = text::tables(report);
    let mut free = size.rows.saturating_sub(lines.len());
    for (at, table) in tables.iter().enumerate() {
        // What a table does not need is left to the next ones.
        let part = free / (tables.len() - at);
        let of_table = table_lines(table, part);
        free -= of_table.len();
        lines.extend(of_table);
    }
    lines.truncate(size.rows);
    for line in &mut lines {
        line.text = line.text.chars().take(size.columns).collect();
    }
    lines
}

/// The whole report as text.
pub(super) fn whole(report: &Report) -> String {
    let problems = report.problems.iter().map(|problem| format!("Problem: {}\n", escape(problem)));
    let mut text: String = problems.collect();
    text.push_str(&output::columns(&text::summary(report)));
    for table in text::tables(report) {
        for line in table_lines(&table, usize::MAX) {
            text.push_str(&line.text);
            text.push('\n');
        }
    }
    text
}

/// The figures above the tables: in columns if the window is wide enough, and else as many in a line as fit.
fn summary(rows: &[Vec<String>], columns: usize) -> Vec<Line> {
    let aligned = plain(&output::columns(rows));
    let width = |text: &str| text.chars().count();
    if aligned.iter().all(|line| width(&line.text) <= columns) {
        return aligned;
    }
    let names = rows.iter().filter_map(|row| row.first()).map(|name| width(name)).max();
    let indent = names.unwrap_or_default() + 2;
    let mut lines = Vec::new();
    for row in rows {
        let Some((name, figures)) = row.split_first() else { continue };
        let mut text = format!("{name:<indent$}");
        for (at, figure) in figures.iter().enumerate() {
            let is_first = at == 0 || width(&text) == indent;
            if !is_first && width(&text) + 2 + width(figure) > columns {
                lines.push(Line::new(Style::Plain, std::mem::take(&mut text)));
                text = " ".repeat(indent);
            } else if !is_first {
                text.push_str("  ");
            }
            text.push_str(figure);
        }
        lines.push(Line::new(Style::Plain, text));
    }
    lines
}

fn plain(text: &str) -> Vec<Line> {
    text.lines().map(|line| Line::new(Style::Plain, line)).collect()
}

/// An empty line, the headings, and as many rows as there is room for. A table without room for a row is left out.
fn table_lines(table: &Table, room: usize) -> Vec<Line> {
    let Some(rows) = room.checked_sub(2).filter(|rows| *rows > 0) else { return Vec::new() };
    let first = table.rows.iter().take(rows).cloned().collect();
    let mut lines = plain(&output::table(table.headings.clone(), first));
    if let Some(headings) = lines.first_mut() {
        headings.style = Style::Heading;
    }
    if table.rows.is_empty() {
        lines.push(Line::new(Style::Plain, table.empty.clone()));
    }
    lines.insert(0, Line::new(Style::Plain, ""));
    lines
}

/// The bytes that draw the picture over the one before it.
pub(super) fn draw(lines: &[Line], is_coloured: bool) -> String {
    let mut out = String::from("\x1b[H");
    for (at, line) in lines.iter().enumerate() {
        let (begin, end) = match line.style {
            Style::Heading if is_coloured => ("\x1b[1m", "\x1b[0m"),
            Style::Problem if is_coloured => ("\x1b[1;31m", "\x1b[0m"),
            Style::Plain | Style::Heading | Style::Problem => ("", ""),
        };
        // A line break behind the last line would scroll the window.
        let line_break = if at == 0 { "" } else { "\r\n" };
        // Erased first: behind a line that fills the window, the cursor is still on its last character.
        let erase = if at + 1 == lines.len() { "\x1b[J" } else { "\x1b[K" };
        out.extend([line_break, erase, begin, &line.text, end]);
    }
    out
}

#[cfg(test)]
mod tests;
