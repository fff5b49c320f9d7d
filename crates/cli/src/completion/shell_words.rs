//! Splits a line of a shell into words. bash itself also splits at `=` and `:`, so its own list of words does not have the
//! words that a program gets.

/// The words of a line up to the cursor, at least one. The last one is at the cursor, and is empty behind a blank. Variables
/// are not expanded.
pub(super) fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut is_open = false;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let Some(word) = words.last_mut() else { break };
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => word.extend(chars.next()),
            ('\'' | '"', None) => quote = Some(c),
            (c, None) if c.is_whitespace() => {
                if is_open {
                    words.push(String::new());
                }
                is_open = false;
                continue;
            }
            (c, _) => word.push(c),
        }
        is_open = true;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_a_program_gets() {
        for (line, wanted) in [
            ("postern get", &["postern", "get"][..]),
            ("postern get ", &["postern", "get", ""]),
            ("  postern   get  us", &["postern", "get", "us"]),
            ("postern --user=ad", &["postern", "--user=ad"]),
            ("postern grant platform:us", &["postern", "grant", "platform:us"]),
            ("postern set 'a b' \"c\\\"d\" e\\ f", &["postern", "set", "a b", "c\"d", "e f"]),
            ("postern set \"a", &["postern", "set", "a"]),
            ("postern set '' x", &["postern", "set", "", "x"]),
            ("", &[""]),
        ] {
            assert_eq!(split(line), wanted, "{line}");
        }
    }
}
