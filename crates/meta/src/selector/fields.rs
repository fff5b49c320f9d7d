//! Field selectors: `metadata.name=a,metadata.namespace!=b`, with backslash escapes.

/// Maximum number of terms of one selector.
const MAX_TERMS: usize = 64;

/// Selects objects by a few of their fields. An object matches when all terms do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses a selector over the fields that are `supported`.
    ///
    /// # Errors
    /// The message for a 400. An unknown field is an error: if it were ignored, objects would be
    /// returned that the client did not ask for.
    pub fn parse(text: &str, supported: &[&str]) -> Result<Self, String> {
        Self::parse_where(text, |field| supported.contains(&field))
    }

    /// Parses a selector of another API with unknown fields.
    ///
    /// # Errors
    /// The message for a 400.
    pub fn parse_any(text: &str) -> Result<Self, String> {
        Self::parse_where(text, |_| true)
    }

    fn parse_where(text: &str, is_supported: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut terms = Vec::new();
        for term in split(text)?.iter().filter(|term| !term.is_empty()) {
            if terms.len() == MAX_TERMS {
                return Err(format!("a field selector has at most {MAX_TERMS} terms"));
            }
            terms.push(parse_term(term, &is_supported)?);
        }
        Ok(Self { terms })
    }

    /// Whether it matches every object.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether an object with these fields matches. An absent field counts as empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms
            .iter()
            .all(|term| (field(&term.field).unwrap_or_default() == term.value) == term.equal)
    }

    /// Whether the selector has a term for a field.
    pub fn names(&self, field: &str) -> bool {
        self.terms.iter().any(|term| term.field == field)
    }

    /// The one value that a field may have, if the selector names it.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let mut terms = self.terms.iter().filter(|term| term.equal && term.field == field);
        terms.next().map(|term| term.value.as_str())
    }
}

/// Splits at commas that are not escaped; escapes are kept.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match c {
            ',' if !escaped => {
                terms.push(String::new());
                continue;
            }
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
        if let Some(term) = terms.last_mut() {
            term.push(c);
        }
    }
    if escaped {
        Err("invalid field selector: it ends in a backslash".to_owned())
    } else {
        Ok(terms)
    }
}

fn parse_term(text: &str, is_supported: impl Fn(&str) -> bool) -> Result<Term, String> {
    let invalid =
        || format!("invalid selector: {}; can't understand it", crate::quote::quote(text));
    let at = text.find(['=', '!']).ok_or_else(invalid)?;
    let (field, rest) = text.split_at(at);
    let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
        (false, value)
    } else if let Some(value) = rest.strip_prefix("==") {
        (true, value)
    } else {
        (true, rest.strip_prefix('=').ok_or_else(invalid)?)
    };
    if !is_supported(field) {
        return Err(format!("field label not supported: {}", crate::quote::cut(field, 128)));
    }
    Ok(Term { field: field.to_owned(), value: unescape(value)?, equal })
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => escaped,
                _ => {
                    return Err(
                        "invalid field selector: only \\\\, \\, and \\= are escapes".to_owned()
                    );
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: '{c}' in a value needs a backslash"));
            }
            other => other,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: &[&str] = &["metadata.name", "metadata.namespace"];

    fn selects(text: &str, name: &str) -> Result<bool, String> {
        let selector = FieldSelector::parse(text, FIELDS)?;
        Ok(selector.matches(|field| (field == "metadata.name").then_some(name)))
    }

    #[test]
    fn matching_and_invalid_selectors() {
        for (text, name, want) in [
            ("", "a", true),
            ("metadata.name=a", "a", true),
            ("metadata.name==a", "b", false),
            ("metadata.name!=a", "b", true),
            ("metadata.name=a,metadata.namespace=", "a", true),
            ("metadata.name=a,metadata.namespace=x", "a", false),
            ("metadata.name=a\\,b", "a,b", true),
            ("metadata.name=a\\=b", "a=b", true),
        ] {
            assert_eq!(selects(text, name), Ok(want), "{text}");
        }
        for wrong in
            ["x", "spec.user=a", "metadata.name", "metadata.name=a=b", "=a", "metadata.name=\\"]
        {
            assert!(selects(wrong, "a").is_err(), "{wrong}");
        }
    }

    #[test]
    fn exact_names() {
        let exact = |text| {
            let selector = FieldSelector::parse(text, FIELDS).unwrap();
            selector.exact("metadata.name").map(str::to_owned)
        };
        assert_eq!(exact("metadata.name=a"), Some("a".to_owned()));
        assert_eq!(exact("metadata.name!=a"), None);
        assert_eq!(exact(""), None);
        let other = FieldSelector::parse_any("spec.nodeName!=n,metadata.name=a").unwrap();
        assert_eq!(other.exact("metadata.name"), Some("a"));
        assert!(FieldSelector::parse_any("spec.nodeName").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}", near in "[a-z.=!,\\\\]{0,40}") {
            let _ = FieldSelector::parse(&text, FIELDS);
            let _ = FieldSelector::parse(&near, FIELDS);
        }
    }
}
