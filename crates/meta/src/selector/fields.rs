//! Field selectors: `metadata.name=a,metadata.namespace!=b`, with backslash escapes. `metadata.name^=a` selects the
//! names that begin with `a`.

/// Maximum number of terms of one selector.
const MAX_TERMS: usize = 64;

/// The field that can also be selected by the beginning of its value.
const NAME: &str = "metadata.name";

/// Selects objects by a few of their fields. An object matches when all terms do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    field: String,
    operator: Operator,
    value: String,
}

/// How the value of a field is compared with the value of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// `=` and `==`.
    Equals,
    /// `!=`.
    DiffersFrom,
    /// `^=`, which Kubernetes does not have.
    BeginsWith,
}

impl Term {
    fn matches(&self, value: &str) -> bool {
        match self.operator {
            Operator::Equals => value == self.value,
            Operator::DiffersFrom => value != self.value,
            Operator::BeginsWith => value.starts_with(&self.value),
        }
    }
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
        self.terms.iter().all(|term| term.matches(field(&term.field).unwrap_or_default()))
    }

    /// Whether the selector has a term for a field.
    pub fn names(&self, field: &str) -> bool {
        self.terms.iter().any(|term| term.field == field)
    }

    /// The one value that a field may have, if the selector names it.
    pub fn exact(&self, field: &str) -> Option<&str> {
        let is_exact = |term: &&Term| term.operator == Operator::Equals && term.field == field;
        self.terms.iter().find(is_exact).map(|term| term.value.as_str())
    }

    /// Takes the first term `metadata.name^=` out of the selector, and returns its value.
    pub fn take_name_prefix(&mut self) -> Option<String> {
        let at = self.terms.iter().position(|term| term.operator == Operator::BeginsWith)?;
        Some(self.terms.remove(at).value)
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
    let (field, operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (field, Operator::DiffersFrom, value)
    } else if let Some(value) = rest.strip_prefix("==") {
        (field, Operator::Equals, value)
    } else {
        let value = rest.strip_prefix('=').ok_or_else(invalid)?;
        match field.strip_suffix('^') {
            Some(NAME) => (NAME, Operator::BeginsWith, value),
            _ => (field, Operator::Equals, value),
        }
    };
    if !is_supported(field) {
        let hint = if field.ends_with('^') { " (^= is for metadata.name alone)" } else { "" };
        return Err(format!("field label not supported: {}{hint}", crate::quote::cut(field, 128)));
    }
    Ok(Term { field: field.to_owned(), operator, value: unescape(value)? })
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
            ("metadata.name^=a", "ab", true),
            ("metadata.name^=a", "a", true),
            ("metadata.name^=ab", "a", false),
            ("metadata.name^=a", "ba", false),
            ("metadata.name^=", "a", true),
            ("metadata.name^=a,metadata.name^=ab", "abc", true),
            ("metadata.name^=a,metadata.name!=ab", "ab", false),
            ("metadata.name^=a\\=b", "a=bc", true),
            ("metadata.name=^a", "a", false),
        ] {
            assert_eq!(selects(text, name), Ok(want), "{text}");
        }
        for wrong in [
            "x",
            "spec.user=a",
            "metadata.name",
            "metadata.name=a=b",
            "=a",
            "^=a",
            "metadata.name=\\",
            "metadata.name^a",
            "metadata.name^==a",
            "metadata.name^!=a",
            "metadata.name^^=a",
            "metadata.name ^=a",
            "metadata.name!^=a",
            "metadata.name^=a=b",
            "metadata.namespace^=a",
            "spec.user^=a",
        ] {
            assert!(selects(wrong, "a").is_err(), "{wrong}");
        }
        let error = selects("metadata.namespace^=a", "a").unwrap_err();
        let text = "field label not supported: metadata.namespace^ (^= is for metadata.name alone)";
        assert_eq!(error, text);
    }

    #[test]
    fn a_prefix_of_names_is_no_name() {
        let mut selector = FieldSelector::parse("metadata.name^=a", FIELDS).unwrap();
        assert_eq!(selector.exact("metadata.name"), None);
        assert!(selector.names("metadata.name"));
        assert_eq!(selector.take_name_prefix(), Some("a".to_owned()));
        assert!(selector.is_everything());
        assert_eq!(selector.take_name_prefix(), None);
        let both = FieldSelector::parse("metadata.name^=a,metadata.name=b", FIELDS).unwrap();
        assert_eq!(both.exact("metadata.name"), Some("b"));
        assert!(FieldSelector::parse("metadata.name^=a", &["metadata.namespace"]).is_err());
        // The selector of another API goes to that API as it is, and names no object.
        let other = FieldSelector::parse_any("metadata.name^=a,spec.nodeName^=n").unwrap();
        assert_eq!(other.exact("metadata.name"), None);
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
        fn never_panics(text in ".{0,80}", near in "[a-z.=!^,\\\\]{0,40}") {
            let _ = FieldSelector::parse(&text, FIELDS);
            let _ = FieldSelector::parse(&near, FIELDS);
        }

        #[test]
        fn a_prefix_selects_what_starts_with_it(prefix in "[a-c,=.\\\\-]{0,4}", name in "[a-c,=.\\\\-]{0,6}") {
            let escaped: String = prefix
                .chars()
                .flat_map(|c| [Some('\\').filter(|_| matches!(c, ',' | '=' | '\\')), Some(c)])
                .flatten()
                .collect();
            let found = selects(&format!("metadata.name^={escaped}"), &name);
            prop_assert_eq!(found, Ok(name.starts_with(&prefix)));
        }
    }
}
