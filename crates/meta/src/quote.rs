//! Quoting of text inside messages, as upstream's `%q` does.
//!
//! Clients compare some messages, so names are quoted as the reference
//! implementation quotes them. The messages themselves are elsewhere.

use std::fmt::Write as _;

/// Maximum bytes of a text that are quoted. Messages are read by humans: they
/// do not repeat a request body of megabytes.
pub const MAX_QUOTED_BYTES: usize = 1024;

/// Puts `text` in double quotes, with quotes, backslashes and unprintable characters escaped. The part beyond
/// [`MAX_QUOTED_BYTES`] becomes `...`.
pub fn quote(text: &str) -> String {
    let prefix = cut(text, MAX_QUOTED_BYTES);
    let mut out = String::with_capacity(prefix.len() + 2);
    out.push('"');
    for c in prefix.chars() {
        push_escaped(&mut out, c);
    }
    out.push('"');
    if prefix.len() < text.len() {
        out.push_str("...");
    }
    out
}

/// The longest prefix of `text` that has at most `max_bytes` and ends between characters.
pub(crate) fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{b}' => out.push_str("\\v"),
        '\u{c}' => out.push_str("\\f"),
        c if u32::from(c) < 0x20 || c == '\u{7f}' => push_hex(out, 'x', 2, c),
        c if is_unprintable(c) && u32::from(c) < 0x1_0000 => push_hex(out, 'u', 4, c),
        c if is_unprintable(c) => push_hex(out, 'U', 8, c),
        c => out.push(c),
    }
}

/// Control and format characters, and spaces other than the plain one. Such a character could hide
/// in a message, or reorder it.
fn is_unprintable(c: char) -> bool {
    if c.is_ascii() {
        return false;
    }
    c.is_control() || c.is_whitespace() || c.escape_debug().len() > 1
}

fn push_hex(out: &mut String, letter: char, width: usize, c: char) {
    // Writing to a String does not fail.
    let _ = write!(out, "\\{letter}{:0width$x}", u32::from(c));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_like_upstream() {
        for (text, want) in [
            ("s1", r#""s1""#),
            ("a b", r#""a b""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\t\r\u{7}\u{0}\u{7f}", r#""\n\t\r\a\x00\x7f""#),
            ("é日", "\"é日\""),
            ("\u{200b}\u{a0}\u{feff}", r#""\u200b\u00a0\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quote(text), want);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let quoted = quote(&"é".repeat(MAX_QUOTED_BYTES));
        assert!(quoted.ends_with("é\"..."));
        assert!(quoted.len() <= MAX_QUOTED_BYTES + 5);
    }
}
