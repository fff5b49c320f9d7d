//! How long the sentences of documents and comments are. Code, tables, headings and the targets of
//! links are not counted. Which words are used is checked in [`super::words`].

use std::path::Path;

use anyhow::Result;

use super::{Finding, files};

/// A reader with English as a second language follows this many. The aim is 25.
const SENTENCE_WORDS_MAX: usize = 35;

/// Words with a full stop that ends no sentence.
const ABBREVIATIONS: [&str; 2] = ["e.g.", "i.e."];

/// The first characters of a line that is no part of a paragraph: tables, headings, and HTML comments.
const NO_PROSE: [&str; 3] = ["|", "#", "<!--"];

/// Every sentence that is too long.
pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut paths = files::rust(root)?;
    paths.extend(files::documents(root)?);
    let mut findings = Vec::new();
    for path in paths {
        findings.extend(check_text(&path, &files::read(root, &path)?));
    }
    Ok(findings)
}

fn check_text(path: &Path, text: &str) -> Vec<Finding> {
    let is_rust = path.extension().is_some_and(|extension| extension == "rs");
    let paragraphs = if is_rust { in_comments(text) } else { in_markdown(1, text) };
    let sentences = paragraphs.iter().flat_map(Paragraph::sentences);
    let too_long = sentences.filter(|sentence| sentence.length() > SENTENCE_WORDS_MAX);
    too_long
        .map(|sentence| Finding {
            path: path.to_path_buf(),
            line: sentence.0.first().map_or(1, |word| word.line),
            message: format!(
                "a sentence of {} words, more than {SENTENCE_WORDS_MAX}: say it in two: {}",
                sentence.length(),
                sentence.text()
            ),
        })
        .collect()
}

/// Text without a blank line in it.
#[derive(Debug, PartialEq, Eq)]
struct Paragraph {
    /// The line of the first word.
    line: usize,
    text: String,
}

/// The paragraphs of the comments of a Rust file. A comment is a run of lines with the same marker.
fn in_comments(text: &str) -> Vec<Paragraph> {
    let mut paragraphs = Vec::new();
    let mut comment = String::new();
    let mut marker_before = "";
    let end = [(text.lines().count(), "")];
    for (index, line) in text.lines().enumerate().chain(end) {
        let (marker, rest) = comment_of(line.trim_start());
        if marker != marker_before {
            let first = index + 1 - comment.lines().count();
            paragraphs.extend(in_markdown(first, &comment));
            comment.clear();
        }
        if !marker.is_empty() {
            comment.push_str(rest.strip_prefix(' ').unwrap_or(rest));
            comment.push('\n');
        }
        marker_before = marker;
    }
    paragraphs
}

/// The marker of a line that is a comment, and its text. Four slashes are a line that is drawn.
fn comment_of(line: &str) -> (&'static str, &str) {
    let comment = ["////", "///", "//!", "//"].into_iter();
    let mut comment =
        comment.filter_map(|marker| line.strip_prefix(marker).map(|rest| (marker, rest)));
    comment.next().filter(|(marker, _)| *marker != "////").unwrap_or_default()
}

/// The paragraphs of a text in Markdown. The number of its first line is `first`. An item of a list
/// is a separate paragraph.
fn in_markdown(first: usize, text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut is_open, mut is_code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let words = line.trim_start();
        let is_fence = words.starts_with("```");
        let is_indented = line.starts_with("    ") && !is_open;
        let is_prose = !words.is_empty()
            && !is_fence
            && !is_code
            && !is_indented
            && !NO_PROSE.iter().any(|start| words.starts_with(start));
        is_code ^= is_fence;
        if !is_prose {
            is_open = false;
            continue;
        }
        let item = list_item(words);
        let words = item.unwrap_or(words);
        match paragraphs.last_mut().filter(|_| is_open && item.is_none()) {
            Some(paragraph) => {
                paragraph.text.push('\n');
                paragraph.text.push_str(words);
            }
            None => paragraphs.push(Paragraph { line: first + index, text: words.to_owned() }),
        }
        is_open = true;
    }
    paragraphs
}

/// The text of an item of a list, if the line begins one.
fn list_item(line: &str) -> Option<&str> {
    let (marker, text) = line.split_once(' ')?;
    let number = marker.strip_suffix('.').unwrap_or_default();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number || ["-", "*", "+"].contains(&marker)).then(|| text.trim_start())
}

/// A word with the punctuation around it. A code span is one word, and the target of a link is none.
#[derive(Debug)]
struct Word {
    line: usize,
    text: String,
}

impl Word {
    fn is_code(&self) -> bool {
        self.text.trim_start_matches(['(', '[', '"', '*']).starts_with('`')
    }

    fn ends_sentence(&self) -> bool {
        let text = self.text.trim_end_matches([')', ']', '"', '*', '_']);
        text.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&text)
    }

    fn is_conjunction(&self) -> bool {
        ["and", "or"].contains(&self.text.as_str())
    }
}

/// The words of a sentence.
struct Sentence(Vec<Word>);

impl Sentence {
    /// The number of words. Code spans one after the other are one word: a list of names.
    fn length(&self) -> usize {
        let mut length = 0;
        let mut is_list = false;
        for (index, word) in self.0.iter().enumerate() {
            let continues =
                word.is_conjunction() && self.0.get(index + 1).is_some_and(Word::is_code);
            let is_name = word.is_code() || continues;
            let is_counted = word.text.contains(|letter: char| letter.is_alphanumeric());
            if is_counted && !(is_list && is_name) {
                length += 1;
            }
            is_list = is_name && (is_list || word.is_code());
        }
        length
    }

    fn text(&self) -> String {
        let words: Vec<_> = self.0.iter().map(|word| word.text.as_str()).collect();
        words.join(" ")
    }
}

impl Paragraph {
    fn sentences(&self) -> Vec<Sentence> {
        let mut sentences = vec![Sentence(Vec::new())];
        for word in self.words() {
            let ends = word.ends_sentence();
            if let Some(sentence) = sentences.last_mut() {
                sentence.0.push(word);
            }
            if ends {
                sentences.push(Sentence(Vec::new()));
            }
        }
        sentences
    }

    fn words(&self) -> Vec<Word> {
        let mut words = Vec::new();
        let mut line = self.line;
        let mut word = Word { line, text: String::new() };
        let (mut in_code, mut in_target) = (false, false);
        for letter in self.text.chars().chain(['\n']) {
            in_code ^= letter == '`' && !in_target;
            in_target |= letter == '(' && !in_code && word.text.ends_with(']');
            line += usize::from(letter == '\n');
            if in_target {
                in_target = letter != ')';
            } else if letter.is_whitespace() && !in_code {
                if !word.text.is_empty() {
                    words.push(word);
                }
                word = Word { line, text: String::new() };
            } else {
                word.text.push(if letter == '\n' { ' ' } else { letter });
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences of a file, each with its line and length.
    fn lengths(path: &str, text: &str) -> Vec<(usize, usize, String)> {
        let paragraphs =
            if path.ends_with("rs") { in_comments(text) } else { in_markdown(1, text) };
        let sentences = paragraphs.iter().flat_map(Paragraph::sentences);
        let described = sentences.filter(|sentence| !sentence.0.is_empty());
        described.map(|sentence| (sentence.0[0].line, sentence.length(), sentence.text())).collect()
    }

    #[test]
    fn a_sentence_of_the_limit_passes_and_one_word_more_does_not() {
        let of = |words: usize| format!("{}end.\n", "word ".repeat(words - 1));
        for path in ["docs/x.md", "crates/x.rs"] {
            let start = if path.ends_with("rs") { "/// " } else { "" };
            let found = |words| check_text(Path::new(path), &format!("{start}{}", of(words)));
            assert_eq!(found(35), []);
            let message = found(36)[0].to_string();
            let expected =
                format!("{path}:1: a sentence of 36 words, more than 35: say it in two:");
            assert!(message.starts_with(&expected) && message.ends_with("word end."), "{message}");
        }
    }

    #[test]
    fn sentences_end_at_stops_and_paragraphs() {
        for (text, expected) in [
            ("One two. Three\nfour! Five?", &[(1, 2), (1, 2), (2, 1)][..]),
            ("One (two.) Three \"four.\" *Five.*", &[(1, 2), (1, 2), (1, 1)]),
            ("One, e.g. two; three: four.", &[(1, 5)]),
            ("Since 1.2 of x.y, kube-apiserver\nhas it. nginx too.", &[(1, 7), (2, 2)]),
            ("One two\n\nthree", &[(1, 2), (3, 1)]),
            ("One:\n- two\n  three\n* four\n10. five", &[(1, 1), (2, 2), (4, 1), (5, 1)]),
            (
                "One\n# Heading of it\ntwo\n| a | table |\n<!-- no -->\nthree",
                &[(1, 1), (3, 1), (6, 1)],
            ),
            ("One\n```sh\nno prose here\n```\ntwo", &[(1, 1), (5, 1)]),
            ("One\n\n    code of it\n\ntwo\n    and more", &[(1, 1), (5, 3)]),
        ] {
            let found: Vec<_> =
                lengths("x.md", text).iter().map(|(line, length, _)| (*line, *length)).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn code_links_and_signs_count_as_they_are_read() {
        for (text, length) in [
            ("Run `cargo xtask\ncheck-layout` now.", 3),
            ("See [the map](../a.md#c d) here.", 4),
            ("See [`a`](a.md), [`b`](b.md), and [`c`](c.md) too.", 3),
            ("`a`, `b` or `c` and more", 3),
            ("One and `a`", 3),
            ("a → b — c", 3),
            ("`one.` two", 2),
        ] {
            let found = lengths("x.md", text);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].1, length, "{found:?}");
        }
    }

    #[test]
    fn comments_are_read_and_code_is_not() {
        let text = "//! Header\n//! of it.\n\n/// Doc.\n// Plain.\nfn f() {\n    // Inner\n    //\n    \
                    // two.\n    \"// none\"; // Trailing.\n}\n//// Drawn.\n/// ```\n/// code;\n/// ```\n";
        let found = lengths("x.rs", text);
        let found: Vec<_> = found.iter().map(|(line, _, text)| (*line, text.as_str())).collect();
        assert_eq!(
            found,
            [(1, "Header of it."), (4, "Doc."), (5, "Plain."), (7, "Inner"), (9, "two.")]
        );
    }
}
