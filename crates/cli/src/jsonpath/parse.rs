//! From text to templates and paths.

use serde_json::{Value, json};

use super::{Filter, Operand, Operator, Part, Path, Step};

/// The longest template.
const TEMPLATE_MAX_BYTES: usize = 64 * 1024;
/// How deep ranges, filters and unions may be nested.
const NESTED_MAX: usize = 16;

/// Parses a template.
pub(super) fn template(text: &str) -> Result<Vec<Part>, String> {
    check_length(text)?;
    // The ranges that are open, each with its path and the parts before it.
    let mut open: Vec<(Path, Vec<Part>)> = Vec::new();
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        if at > 0 {
            parts.push(Part::Text(rest[..at].to_owned()));
        }
        let length = closed_at(&rest[at + 1..], '}').ok_or("unclosed {: a } is missing")?;
        let action = rest[at + 1..at + 1 + length].trim();
        rest = &rest[at + length + 2..];
        if action == "end" {
            let (path, before) = open.pop().ok_or("{end} without {range}")?;
            let body = std::mem::replace(&mut parts, before);
            parts.push(Part::Range(path, body));
        } else if let Some(path) = action.strip_prefix("range ") {
            if open.len() >= NESTED_MAX {
                return Err(format!("ranges are nested more than {NESTED_MAX} deep"));
            }
            open.push((parse_path(path.trim(), 0)?, std::mem::take(&mut parts)));
        } else {
            parts.push(action_part(action)?);
        }
    }
    if !open.is_empty() {
        return Err("{range} without {end}".to_owned());
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

/// Parses a path.
pub(super) fn path(text: &str) -> Result<Path, String> {
    check_length(text)?;
    parse_path(text.trim(), 0)
}

fn check_length(text: &str) -> Result<(), String> {
    if text.len() <= TEMPLATE_MAX_BYTES {
        return Ok(());
    }
    Err(format!("the template has more than {TEMPLATE_MAX_BYTES} bytes"))
}

/// The content of braces that is neither a range nor its end.
fn action_part(action: &str) -> Result<Part, String> {
    if action.is_empty() {
        return Err("the braces {} are empty".to_owned());
    }
    match literal(action) {
        Some(literal) => literal.map(|value| Part::Text(super::text_of(&value).to_string())),
        None => parse_path(action, 0).map(Part::Path),
    }
}

/// Where a bracket is closed, outside of quotes and of further brackets; `text` begins behind the opening one.
fn closed_at(text: &str, close: char) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0_usize;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (_, '\\') => drop(chars.next()),
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, c) if depth == 0 && c == close => return Some(at),
            (None, '[' | '(' | '{') => depth += 1,
            (None, ']' | ')' | '}') => depth = depth.checked_sub(1)?,
            _ => {}
        }
    }
    None
}

fn parse_path(text: &str, depth: usize) -> Result<Path, String> {
    if depth > NESTED_MAX {
        return Err(format!("paths are nested more than {NESTED_MAX} deep"));
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = match c {
            // The current object.
            '$' | '@' | ' ' => &rest[1..],
            '.' if rest.starts_with("..") => {
                steps.push(Step::Descend);
                let behind = &rest[2..];
                if behind.starts_with(['[', '.']) || behind.is_empty() {
                    behind
                } else {
                    field(behind, &mut steps)?
                }
            }
            '.' if rest.len() == 1 => "",
            '.' if rest[1..].starts_with('[') => &rest[1..],
            '.' => field(&rest[1..], &mut steps)?,
            '[' => {
                let unclosed = || format!("unclosed [ in {text}: a ] is missing");
                let length = closed_at(&rest[1..], ']').ok_or_else(unclosed)?;
                bracket(&rest[1..=length], depth, &mut steps)?;
                &rest[length + 2..]
            }
            _ => return Err(format!("unknown expression {rest}: a path begins with a dot")),
        };
    }
    Ok(Path { steps })
}

/// Reads the name of a field, and returns the text behind it. A backslash makes the next character a part of the name.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Result<&'a str, String> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' | '(' | ')' | ' ' | '\t' | '\n' => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    if name.is_empty() {
        return Err(format!("the name of a field is missing before {text:?}"));
    }
    steps.push(if name == "*" { Step::All } else { Step::Field(name) });
    Ok(&text[end..])
}

/// The content of square brackets.
fn bracket(text: &str, depth: usize, steps: &mut Vec<Step>) -> Result<(), String> {
    let text = text.trim();
    if let Some(condition) = text.strip_prefix('?') {
        let inner = condition.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let inner =
            inner.ok_or_else(|| format!("a filter looks like [?(@.a==\"b\")]: [{text}]"))?;
        steps.push(Step::Filter(filter(inner, depth + 1)?));
        return Ok(());
    }
    let several = split_outside(text, ',');
    if several.len() > 1 {
        let one = |part: &&str| parse_path(&format!("[{}]", part.trim()), depth + 1);
        steps.push(Step::Union(several.iter().map(one).collect::<Result<_, _>>()?));
        return Ok(());
    }
    if text == "*" {
        steps.push(Step::All);
        return Ok(());
    }
    for quote in ['\'', '"'] {
        let name = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        if let Some(name) = name.filter(|name| !name.contains(quote)) {
            let path = parse_path(&format!(".{name}"), depth + 1)?;
            steps.extend(path.steps);
            return Ok(());
        }
    }
    steps.push(index(text)?);
    Ok(())
}

/// A number, or two or three with colons between them.
fn index(text: &str) -> Result<Step, String> {
    let wrong = || format!("[{text}] is no index: write [0], [0:2], [*], ['name'] or [?(@.a==1)]");
    let number = |text: &str| -> Result<Option<i64>, String> {
        let text = text.trim();
        if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| wrong()) }
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [one] => number(one)?.map(Step::Index).ok_or_else(wrong),
        [start, end] => Ok(Step::Slice { start: number(start)?, end: number(end)?, step: 1 }),
        [start, end, step] => match number(step)?.unwrap_or(1) {
            step @ 1.. => Ok(Step::Slice { start: number(start)?, end: number(end)?, step }),
            _ => Err(format!("the step in [{text}] must be greater than zero")),
        },
        _ => Err(wrong()),
    }
}

/// Splits at a character that is neither in quotes nor in brackets.
fn split_outside(text: &str, at: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(length) = closed_at(rest, at) {
        parts.push(&rest[..length]);
        rest = &rest[length + at.len_utf8()..];
    }
    parts.push(rest);
    parts
}

fn filter(text: &str, depth: usize) -> Result<Filter, String> {
    let Some(at) = operator_at(text) else {
        return Ok(Filter { left: parse_path(text.trim(), depth)?, comparison: None });
    };
    let unknown = || format!("unknown operator in the filter {text}: use ==");
    let (operator, length) = operator(&text[at..]).ok_or_else(unknown)?;
    let (left, right) = (text[..at].trim(), text[at + length..].trim());
    if left.is_empty() || right.is_empty() {
        return Err(format!("the filter {text} needs a value on both sides of its ==, < or >"));
    }
    let right = match literal(right) {
        Some(value) => Operand::Literal(value?),
        None => Operand::Path(parse_path(right, depth)?),
    };
    Ok(Filter { left: parse_path(left, depth)?, comparison: Some((operator, right)) })
}

/// Where the first operator outside of quotes and brackets is.
fn operator_at(text: &str) -> Option<usize> {
    ['=', '!', '<', '>'].into_iter().filter_map(|c| closed_at(text, c)).min()
}

/// The operator that a text begins with, and its length.
fn operator(text: &str) -> Option<(Operator, usize)> {
    let known = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    let found = known.into_iter().find(|(sign, _)| text.starts_with(sign));
    found.map(|(sign, operator)| (operator, sign.len()))
}

/// A quoted text, a number, `true` or `false`; `None` for a path.
fn literal(text: &str) -> Option<Result<Value, String>> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        return Some(unquote(text, quote).map(Value::String));
    }
    match text {
        "true" => return Some(Ok(json!(true))),
        "false" => return Some(Ok(json!(false))),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(Ok(json!(number)));
    }
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let number = text.parse::<f64>().ok().filter(|number| is_number && number.is_finite());
    number.map(|number| Ok(json!(number)))
}

/// A quoted text, with the escapes of Go.
fn unquote(text: &str, quote: char) -> Result<String, String> {
    let wrong = || format!("unclosed or invalid quotes: {text}");
    let inner = text.get(1..).and_then(|text| text.strip_suffix(quote)).ok_or_else(wrong)?;
    let mut meaning = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == quote {
            return Err(wrong());
        }
        if c != '\\' {
            meaning.push(c);
            continue;
        }
        meaning.push(match chars.next().ok_or_else(wrong)? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'u' => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 4);
                code.and_then(char::from_u32).ok_or_else(wrong)?
            }
            same @ ('\\' | '"' | '\'') => same,
            other => return Err(format!("unknown escape \\{other} in {text}")),
        });
    }
    Ok(meaning)
}
