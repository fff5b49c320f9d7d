//! The links between the pages of the reference: each leads to a file, and to a heading of it.

use std::fs;
use std::path::{Path, PathBuf};

/// The broken links of a page, one text for each link.
pub(crate) fn broken(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let targets = without_code(&text);
    let targets = targets.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_local = |target: &&str| !target.contains("://");
    let problems = targets.filter(is_local).filter_map(|target| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path =
            if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        let problem = problem(&path, anchor)?;
        Some(format!("{}: {target}: {problem}", page.display()))
    });
    problems.collect()
}

fn problem(path: &PathBuf, anchor: &str) -> Option<&'static str> {
    if !path.exists() {
        return Some("no such file");
    }
    let text = if anchor.is_empty() { return None } else { fs::read_to_string(path).unwrap() };
    let text = without_code(&text);
    let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor_of);
    (!headings.any(|heading| heading == anchor)).then_some("no such heading")
}

/// A page without its blocks of code.
fn without_code(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchor of a heading, as forges make it.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
