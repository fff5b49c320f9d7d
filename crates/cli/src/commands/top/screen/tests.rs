//! Tests of pictures: what is shown in windows of different sizes, and how it is drawn.

use std::fmt::Write as _;

use super::*;
use crate::commands::top::report::Reading;
use crate::commands::top::scrape::Scrape;

fn reading(at_seconds: f64, requests: u32) -> Reading {
    let mut text = "process_start_time_seconds 1\npostern_corrupt_objects 2\n".to_owned();
    for resource in ["users", "teams", "projects", "secrets", "clusters", "tasks", "spaces"] {
        let labels = format!("verb=\"GET\",resource=\"{resource}\",code=\"200\"");
        writeln!(text, "apiserver_request_total{{{labels}}} {requests}").unwrap();
    }
    let mut owners = String::new();
    for n in 0..9 {
        let count = requests * (n + 1);
        writeln!(owners, "postern_owner_requests_total{{owner=\"o{n}\"}} {count}").unwrap();
    }
    Reading {
        at_seconds,
        server: Scrape::parse(&text).unwrap(),
        owners: Ok(Scrape::parse(&owners).unwrap()),
    }
}

fn report() -> Report {
    Report::new(Some(&reading(1.0, 10)), &reading(3.0, 30))
}

#[test]
fn a_picture_fits_into_its_window() {
    let report = report();
    for (columns, rows) in [(80, 24), (200, 60), (40, 12), (10, 3), (1, 1), (0, 0), (80, 9)] {
        let lines = picture(&report, "title", &["a note".to_owned()], Size { columns, rows });
        assert!(lines.len() <= rows, "{columns}×{rows}: {} lines", lines.len());
        assert!(lines.iter().all(|line| line.text.chars().count() <= columns), "{columns}×{rows}");
    }
}

#[test]
fn the_most_important_lines_are_first() {
    let report = report();
    let size = Size { columns: 80, rows: 24 };
    let lines = picture(&report, "title", &["a note".to_owned()], size);
    assert_eq!(lines[0], Line::new(Style::Heading, "title"));
    assert_eq!(lines[1], Line::new(Style::Problem, "a note"));
    assert_eq!(lines[2], Line::new(Style::Problem, "2 corrupt objects are stored"));
    assert!(lines[3].text.starts_with("Requests"), "{lines:?}");
    let begins = |word: &str| lines.iter().position(|line| line.text.starts_with(word));
    let (owners, requests) = (begins("OWNER").unwrap(), begins("VERB").unwrap());
    assert!(owners < requests && lines[owners].style == Style::Heading, "{lines:?}");
    assert!(lines[owners + 1].text.starts_with("o8"), "the busiest owner is first: {lines:?}");
    // In a larger window, all rows are there.
    let lines = picture(&report, "title", &[], Size { columns: 80, rows: 60 });
    assert_eq!(lines.iter().filter(|line| line.text.starts_with("GET")).count(), 7);
}

#[test]
fn a_picture_replaces_the_one_before_it() {
    let lines = [
        Line::new(Style::Heading, "title"),
        Line::new(Style::Problem, "bad"),
        Line::new(Style::Plain, "end"),
    ];
    assert_eq!(draw(&lines, false), "\x1b[H\x1b[Ktitle\r\n\x1b[Kbad\r\n\x1b[Jend");
    assert_eq!(
        draw(&lines, true),
        "\x1b[H\x1b[K\x1b[1mtitle\x1b[0m\r\n\x1b[K\x1b[1;31mbad\x1b[0m\r\n\x1b[Jend"
    );
}

#[test]
fn text_of_the_server_controls_no_terminal() {
    let text =
        "kubernetes_healthcheck{name=\"\u{1b}[2J\"} 0\npostern_build_info{version=\"\u{1b}x\"} 1\n";
    let owners =
        Scrape::parse("postern_owner_requests_total{owner=\"a\u{1b}[2J\\nb\"} 1\n").unwrap();
    let reading =
        Reading { at_seconds: 1.0, server: Scrape::parse(text).unwrap(), owners: Ok(owners) };
    let report = Report::new(None, &reading);
    let lines = picture(&report, "title", &[], Size { columns: 80, rows: 60 });
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    assert!(texts.join("\n").contains("a\\u{1b}[2J\\nb"), "{texts:?}");
    assert!(!texts.concat().contains(char::is_control), "{texts:?}");
    assert!(!whole(&report).replace('\n', "").contains(char::is_control));
}

#[test]
fn the_whole_report_has_every_row() {
    let text = whole(&report());
    assert!(text.starts_with("Problem: 2 corrupt objects are stored\nRequests"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("GET")).count(), 7, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with('o')).count(), 9, "{text}");
    assert!(text.contains("no watches\n"), "{text}");
}

#[test]
fn no_figure_is_cut_off_in_a_narrow_window() {
    let report = report();
    let figures: Vec<String> = text::summary(&report).concat();
    for columns in [60, 80, 100, 250] {
        let lines = picture(&report, "title", &[], Size { columns, rows: 50 });
        let all: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert!(all.iter().all(|line| line.chars().count() <= columns), "{columns}: {all:?}");
        for figure in &figures {
            assert!(all.iter().any(|line| line.contains(figure)), "{columns}: {figure}: {all:?}");
        }
    }
}
