//! Warnings of the server, in `Warning` headers. How they are printed is the caller's matter.

use http::HeaderMap;
use http::header::WARNING;

/// How many different warnings one client passes on; a server that has more is not believed.
const WARNINGS_MAX: usize = 100;

/// The code of the only warnings that an API server sends, in RFC 7234: miscellaneous persistent
/// warning.
const CODE: &str = "299";

/// Handles a warning's text, which may hold anything.
pub type WarningHandler = Box<dyn FnMut(&str) + Send + Sync>;

/// Passes each warning on once, however many answers carry it.
#[derive(Default)]
pub(crate) struct Warnings {
    handler: Option<WarningHandler>,
    passed_on: Vec<String>,
}

impl Warnings {
    /// Sets the handler of further warnings.
    pub(crate) fn set_handler(&mut self, handler: WarningHandler) {
        self.handler = Some(handler);
    }

    /// Passes on the warnings of an answer that were not in an earlier one.
    pub(crate) fn receive(&mut self, headers: &HeaderMap) {
        let Some(handler) = &mut self.handler else { return };
        for value in headers.get_all(WARNING) {
            let value = String::from_utf8_lossy(value.as_bytes());
            for text in parse(&value) {
                if self.passed_on.len() < WARNINGS_MAX && !self.passed_on.contains(&text) {
                    handler(&text);
                    self.passed_on.push(text);
                }
            }
        }
    }
}

/// The texts of a header's warnings: `299 AGENT "TEXT"`, more after commas. Text of another form ends the header, and
/// other codes are left out.
fn parse(header: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = header.trim_start();
    while let Some((code, behind)) = rest.split_once(' ') {
        let Some((_agent, behind)) = behind.split_once(' ') else { break };
        let Some((text, behind)) = quoted_string(behind) else { break };
        if code == CODE {
            texts.push(text);
        }
        // A date may follow, which says nothing here.
        let behind = quoted_string(behind.trim_start()).map_or(behind, |(_, behind)| behind);
        let Some(next) = behind.trim_start().strip_prefix(',') else { break };
        rest = next.trim_start();
    }
    texts
}

/// Reads a quoted string: its content, and the text after it.
fn quoted_string(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut meaning = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((meaning, &inner[at + 1..])),
            '\\' => meaning.push(chars.next()?.1),
            c => meaning.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_text_of_a_warning() {
        for (header, texts) in [
            (r#"299 - "unknown field \"spec.x\"""#, &[r#"unknown field "spec.x""#][..]),
            (r#"299 agent "a\\b""#, &[r"a\b"]),
            (r#"299 - "a, b", 299 - "c""#, &["a, b", "c"]),
            (r#"299 - "a" "Sun, 06 Nov 1994 08:49:37 GMT", 299 - "b""#, &["a", "b"]),
            (r#"199 - "not for us", 299 - "b""#, &["b"]),
            ("299 - \"\u{e9}\"", &["\u{e9}"]),
            (r#"299 - "no end"#, &[]),
            (r#"299 - "no end\"#, &[]),
            ("299", &[]),
            ("", &[]),
        ] {
            assert_eq!(parse(header), texts, "{header}");
        }
    }

    #[test]
    fn each_warning_is_passed_on_once_and_not_without_end() {
        let passed_on = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&passed_on);
        let mut warnings = Warnings::default();
        warnings.set_handler(Box::new(move |text| sink.lock().unwrap().push(text.to_owned())));
        let mut headers = HeaderMap::new();
        for text in ["299 - \"a\"", "299 - \"b\"", "299 - \"a\""] {
            headers.append(WARNING, HeaderValue::from_static(text));
        }
        warnings.receive(&headers);
        warnings.receive(&headers);
        assert_eq!(*passed_on.lock().unwrap(), ["a", "b"]);
        for number in 0..2 * WARNINGS_MAX {
            let value = HeaderValue::from_str(&format!("299 - \"{number}\"")).unwrap();
            warnings.receive(&HeaderMap::from_iter([(WARNING, value)]));
        }
        assert_eq!(passed_on.lock().unwrap().len(), WARNINGS_MAX);
    }
}
