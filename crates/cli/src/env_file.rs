//! Files with `NAME=VALUE` lines, as `.env` files have them. It reads what `postern get secret -o dotenv` writes. Errors
//! name lines, and never their content.

use std::str::Chars;

use zeroize::Zeroizing;

use crate::parse;

/// The entries of a file, in their order.
pub(crate) type Entries = Vec<Entry>;

/// A name and its value.
type Entry = (String, Zeroizing<Vec<u8>>);

/// Parses a file.
///
/// - Empty lines and lines that begin with `#` do not count. `export ` may be before a name.
/// - A value in single quotes is taken as it is.
/// - In double quotes, `\n`, `\r`, `\"`, `\$`, `` \` `` and `\\` are escapes.
/// - Any other value ends with the line, without the spaces around it.
///
/// # Errors
/// The line that is no entry.
pub(crate) fn parse(bytes: &[u8]) -> Result<Entries, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let mut left = text.strip_prefix('\u{feff}').unwrap_or(text).chars();
    let mut entries = Entries::new();
    let mut line = 1;
    while !left.as_str().is_empty() {
        let before = left.as_str();
        let entry = entry(&mut left).map_err(|what| format!("line {line}: {what}"))?;
        if let Some((name, value)) = entry {
            if entries.iter().any(|(known, _)| *known == name) {
                return Err(format!("line {line}: the key of this line is in the file twice"));
            }
            entries.push((name, value));
        }
        let read = &before[..before.len() - left.as_str().len()];
        line += read.matches('\n').count();
    }
    Ok(entries)
}

/// Reads an entry with its line break; `None` for a line without an entry.
fn entry(left: &mut Chars<'_>) -> Result<Option<Entry>, &'static str> {
    let text = left.as_str();
    let line = text.split('\n').next().unwrap_or_default();
    let after_line = &text[(line.len() + 1).min(text.len())..];
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        *left = after_line.chars();
        return Ok(None);
    }
    let Some((name, value)) = line.split_once('=') else {
        return Err("it is not NAME=VALUE");
    };
    let name = name.trim();
    let name = name.strip_prefix("export ").map_or(name, str::trim_start);
    let name = parse::data_key(name).map_err(|_| "the text before = is no key of a secret")?;
    let quote = value.trim_start().chars().next().filter(|first| ['"', '\''].contains(first));
    let Some(quote) = quote else {
        let value = value.trim();
        if value.contains(" #") {
            return Err("the value contains \" #\": quote it, or remove the comment");
        }
        *left = after_line.chars();
        return Ok(Some((name, Zeroizing::new(value.as_bytes().to_vec()))));
    };
    // A value in quotes may have line breaks.
    let start = text.len() - text[line.len() - value.len()..].trim_start().len() + 1;
    *left = text[start..].chars();
    let value = quoted(left, quote)?;
    let rest = left.as_str().split('\n').next().unwrap_or_default();
    let after = rest.trim();
    if !after.is_empty() && !after.starts_with('#') {
        return Err("there is text after the closing quote");
    }
    *left = left.as_str()[rest.len()..].strip_prefix('\n').unwrap_or_default().chars();
    Ok(Some((name, value)))
}

/// Reads up to the closing quote, and past it.
fn quoted(left: &mut Chars<'_>, quote: char) -> Result<Zeroizing<Vec<u8>>, &'static str> {
    // With all its room from the start: a longer copy would leave a shorter one in memory.
    let mut value = Zeroizing::new(String::with_capacity(left.as_str().len()));
    while let Some(next) = left.next() {
        match next {
            _ if next == quote => return Ok(Zeroizing::new(value.as_bytes().to_vec())),
            '\\' if quote == '"' => match left.next() {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some(escaped @ ('"' | '\\' | '$' | '`')) => value.push(escaped),
                Some(other) => value.extend(['\\', other]),
                None => break,
            },
            next => value.push(next),
        }
    }
    Err("the closing quote is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<(String, String)>, String> {
        let text_of = |value: Zeroizing<Vec<u8>>| String::from_utf8(value.to_vec()).unwrap();
        let entries = parse(text.as_bytes())?.into_iter();
        Ok(entries.map(|(name, value)| (name, text_of(value))).collect())
    }

    #[test]
    fn values_are_plain_or_quoted() {
        for (line, wanted) in [
            ("a=b", "b"),
            ("export a = b c \r", "b c"),
            ("a=", ""),
            ("a='x # y'", "x # y"),
            ("a='x\\n' # comment", "x\\n"),
            ("a=\"x\\n\\\"\\$\\`\\\\\\d\"", "x\n\"$`\\\\d"),
            ("a='one\ntwo'", "one\ntwo"),
            ("a=\"it's\"", "it's"),
            ("a=b=c#d", "b=c#d"),
        ] {
            let text = format!("# about\n\n{line}\nnext=1\n");
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            assert_eq!(parsed(&text), Ok(vec![pair("a", wanted), pair("next", "1")]), "{line}");
        }
    }

    #[test]
    fn errors_name_the_line_and_no_content() {
        for (text, wanted) in [
            ("a=1\nhush\n", "line 2: it is not"),
            ("a='1\n2'\nhu sh=x\n", "line 3: the text before ="),
            ("\na='hush\n", "line 2: the closing quote"),
            ("a='hush' hush\n", "line 1: there is text"),
            ("a=hush # hush\n", "line 1: the value contains"),
            ("a=hush\n\na=hush\n", "line 3: the key of this line"),
        ] {
            let what = parsed(text).unwrap_err();
            assert!(what.starts_with(wanted) && !what.contains("hush"), "{what}");
        }
        assert!(parse(b"a=\xff").is_err());
    }
}
