//! Splits a file into its words, its names, and the first words of its doc comments. Which words
//! are retired is in [`super::words`].

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

/// A line, counted from 1, and a word on it.
type Word = (usize, String);

/// The words of a file.
#[derive(Default)]
pub(super) struct Text {
    /// Everything between spaces and punctuation marks: words of prose, and names.
    pub(super) words: Vec<Word>,
    /// Names in code: identifiers in Rust, and the text between backticks in prose.
    pub(super) names: Vec<Word>,
    /// The first word of each doc comment.
    pub(super) doc_comments: Vec<Word>,
}

impl Text {
    /// Splits a text, by the rules of the language that the extension of its file stands for.
    pub(super) fn new(path: &Path, text: &str) -> Self {
        let mut split = Self::default();
        let is_rust = path.extension().is_some_and(|extension| extension == "rs");
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        let mut marker_before = "";
        for (index, line) in text.lines().enumerate() {
            let words = words(line).map(|word| (index + 1, word.to_owned()));
            split.words.extend(words);
            let comment = line.trim_start().starts_with("//");
            if is_markdown || is_rust && comment {
                let names = code_spans(line).flat_map(self::words);
                split.names.extend(names.map(|name| (index + 1, name.to_owned())));
            }
            let marker = doc_marker(line);
            if is_rust && !marker.is_empty() && marker != marker_before {
                let first = line.trim_start()[marker.len()..].split_whitespace().next();
                split.doc_comments.extend(first.map(|word| (index + 1, word.to_owned())));
            }
            marker_before = marker;
        }
        // A file that does not parse is found by the check of files.
        if let Some(tokens) = is_rust.then(|| text.parse().ok()).flatten() {
            identifiers(tokens, &mut split.names);
        }
        split
    }
}

/// The words that a name is made of: `a_b`, `aB` and `A_B` have two.
pub(super) fn segments(name: &str) -> Vec<&str> {
    name.split('_').flat_map(camel_segments).filter(|part| !part.is_empty()).collect()
}

/// Splits before a capital letter that follows a small one, and before the last of several capital
/// letters if a small one follows: `HTTPServer` is `HTTP` and `Server`.
fn camel_segments(name: &str) -> Vec<&str> {
    let letters: Vec<_> = name.char_indices().collect();
    let mut segments = Vec::new();
    let mut start = 0;
    for (index, &(at, letter)) in letters.iter().enumerate().skip(1) {
        let before = letters[index - 1].1;
        let small_follows = letters.get(index + 1).is_some_and(|(_, next)| next.is_lowercase());
        if letter.is_uppercase() && (!before.is_uppercase() || small_follows) {
            segments.push(&name[start..at]);
            start = at;
        }
    }
    segments.push(&name[start..]);
    segments
}

/// The words of a line. Names of decision records are left out: they do not change any more.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '-')
        .filter(|run| !is_record_name(run))
        .flat_map(|run| run.split('-'))
        .filter(|word| !word.is_empty())
}

/// Whether it has the form of `0007-records-beside-objects`.
fn is_record_name(run: &str) -> bool {
    let Some((number, name)) = run.split_once('-') else { return false };
    number.len() == 4
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
}

/// The text between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// How a line begins that is documentation, empty for any other.
fn doc_marker(line: &str) -> &'static str {
    let line = line.trim_start();
    // Four slashes are an ordinary comment.
    let doc = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker));
    doc.filter(|_| !line.starts_with("////")).unwrap_or_default()
}

fn identifiers(tokens: TokenStream, found: &mut Vec<Word>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Ident(ident) => {
                let name = ident.to_string().trim_start_matches("r#").to_owned();
                found.push((ident.span().start().line, name));
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_lines(words: &[Word]) -> Vec<String> {
        words.iter().map(|(line, word)| format!("{line} {word}")).collect()
    }

    #[test]
    fn names_are_split_at_underscores_and_capitals() {
        for (name, expected) in [
            ("a_long_name", &["a", "long", "name"][..]),
            ("ALongName", &["A", "Long", "Name"]),
            ("A_LONG_NAME", &["A", "LONG", "NAME"]),
            ("HTTPServer", &["HTTP", "Server"]),
            ("sha256Sum", &["sha256", "Sum"]),
            ("__x", &["x"]),
            ("ÄhnlichÜber", &["Ähnlich", "Über"]),
        ] {
            assert_eq!(segments(name), expected);
        }
    }

    #[test]
    fn prose_and_names_of_rust_are_told_apart() {
        let text = "// Some `code x` here.\nfn r#try(a: B) {\n    m!(c, \"text\"); // prose\n}\n";
        let text = Text::new(Path::new("x.rs"), text);
        let names = ["1 code", "1 x", "2 fn", "2 try", "2 a", "2 B", "3 m", "3 c"];
        assert_eq!(on_lines(&text.names), names);
        let words = on_lines(&text.words);
        for word in ["1 Some", "2 B", "3 text", "3 prose"] {
            assert!(words.contains(&word.to_owned()), "{word}: {words:?}");
        }
    }

    #[test]
    fn names_of_documents_are_between_backticks() {
        let text = Text::new(Path::new("x.md"), "One `two_2` and-three.\n");
        assert_eq!(on_lines(&text.names), ["1 two_2"]);
        assert_eq!(on_lines(&text.words), ["1 One", "1 two_2", "1 and", "1 three"]);
        let text = Text::new(Path::new("x.yaml"), "one: `two`\n");
        assert_eq!(on_lines(&text.names), [""; 0]);
    }

    #[test]
    fn a_doc_comment_has_one_first_word() {
        let text =
            "//! Header.\n//! More.\n\n/// Doc.\n/// Lines.\nfn x() {}\n    /// Inner.\n//// No\n";
        let text = Text::new(Path::new("x.rs"), text);
        assert_eq!(on_lines(&text.doc_comments), ["1 Header.", "4 Doc.", "7 Inner."]);
    }

    #[test]
    fn names_of_decision_records_are_left_out() {
        let line = "docs/adr/0007-records-of-it.md, 2026-01-02, 123-x";
        let found: Vec<_> = words(line).collect();
        assert_eq!(found, ["docs", "adr", "md", "2026", "01", "02", "123", "x"]);
    }
}
