//! Escapes for the characters of text of others that would control the terminal of the reader.

use zeroize::Zeroizing;

/// Writes text of others as one line, with an escape for each character that controls a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if controls_terminal(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes lines of text as `escape` does, with their line breaks and tabs.
pub fn escape_lines(text: &str) -> Zeroizing<String> {
    let mut out = Zeroizing::new(String::with_capacity(text.len()));
    for c in text.chars() {
        if controls_terminal(c) && !matches!(c, '\n' | '\t') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a character does something to a terminal, or to the order of the text there.
pub(crate) fn controls_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        let text = "a\u{1b}]0;x\u{7}\tb\n\u{9b}2J\r\u{202e}é";
        assert_eq!(escape(text), "a\\u{1b}]0;x\\u{7}\\tb\\n\\u{9b}2J\\r\\u{202e}é");
        assert_eq!(*escape_lines(text), "a\\u{1b}]0;x\\u{7}\tb\n\\u{9b}2J\\r\\u{202e}é");
    }
}
