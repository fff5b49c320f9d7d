//! Label selectors: `=`, `==`, `!=`, `in`, `notin`, `key`, `!key`, `>`, `<`.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{label_value, qualified_name};

/// Maximum number of requirements of one selector.
const MAX_REQUIREMENTS: usize = 256;

/// Selects objects by their labels. An object matches when it meets all requirements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(BTreeSet<String>),
    /// An object without the label matches, too.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Parses a selector.
    ///
    /// # Errors
    /// The message for a 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let mut requirements = Vec::new();
        while !parser.is_done() {
            if requirements.len() == MAX_REQUIREMENTS {
                return Err(format!(
                    "a label selector has at most {MAX_REQUIREMENTS} requirements"
                ));
            }
            requirements.push(parser.requirement()?);
            if !parser.is_done() {
                parser.expect(&Token::Comma)?;
                if parser.is_done() {
                    return Err(unparsable("a requirement is missing after the last comma"));
                }
            }
        }
        Ok(Self { requirements })
    }

    /// Whether it matches every object.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels matches.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Comma,
    Open,
    Close,
    Not,
    Equal,
    NotEqual,
    Greater,
    Less,
}

fn unparsable(why: &str) -> String {
    format!("unable to parse requirement: {why}")
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            c if c.is_ascii_whitespace() => continue,
            ',' => Token::Comma,
            '(' => Token::Open,
            ')' => Token::Close,
            '>' => Token::Greater,
            '<' => Token::Less,
            '=' => {
                chars.next_if_eq(&'=');
                Token::Equal
            }
            '!' if chars.next_if_eq(&'=').is_some() => Token::NotEqual,
            '!' => Token::Not,
            c if is_word(c) => {
                let mut word = String::from(c);
                while let Some(more) = chars.next_if(|c| is_word(*c)) {
                    word.push(more);
                }
                Token::Word(word)
            }
            _ => return Err(unparsable("invalid character")),
        });
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn is_done(&self) -> bool {
        self.at == self.tokens.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), String> {
        match self.next() {
            Some(token) if token == *wanted => Ok(()),
            _ => Err(unparsable("expected a comma, a value or the end of a list of values")),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Some(&Token::Not);
        if absent {
            self.at += 1;
        }
        let Some(Token::Word(key)) = self.next() else {
            return Err(unparsable("expected a label's key"));
        };
        qualified_name(&key).map_err(|why| unparsable(&format!("key {key:?}: {why}")))?;
        let operator = if absent { Operator::DoesNotExist } else { self.operator()? };
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let Some(token) = self.peek().cloned() else { return Ok(Operator::Exists) };
        if token == Token::Comma {
            return Ok(Operator::Exists);
        }
        self.at += 1;
        match token {
            Token::Equal => Ok(Operator::In([self.value()?].into())),
            Token::NotEqual => Ok(Operator::NotIn([self.value()?].into())),
            Token::Greater => self.number().map(Operator::GreaterThan),
            Token::Less => self.number().map(Operator::LessThan),
            Token::Word(word) if word == "in" => self.values().map(Operator::In),
            Token::Word(word) if word == "notin" => self.values().map(Operator::NotIn),
            _ => Err(unparsable("expected =, ==, !=, in, notin, > or < after the key")),
        }
    }

    /// Parses a value, which may be empty: `key=` requires the label with an empty value.
    fn value(&mut self) -> Result<String, String> {
        let value = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            None | Some(Token::Comma | Token::Close) => return Ok(String::new()),
            Some(_) => return Err(unparsable("expected a label's value")),
        };
        self.at += 1;
        label_value(&value).map_err(|why| unparsable(&format!("value {value:?}: {why}")))?;
        Ok(value)
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        self.expect(&Token::Open)?;
        let mut values = BTreeSet::from([self.value()?]);
        while self.peek() == Some(&Token::Comma) {
            self.at += 1;
            values.insert(self.value()?);
        }
        self.expect(&Token::Close)?;
        Ok(values)
    }

    fn number(&mut self) -> Result<i64, String> {
        let value = self.value()?;
        value.parse().map_err(|_| unparsable("> and < require a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn matching_selectors() {
        let app = labels(&[("app", "web"), ("x.io/tier", "7"), ("empty", "")]);
        for (text, want) in [
            ("", true),
            (" ", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , x.io/tier = 7", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (web, api)", true),
            ("app in (api)", false),
            ("app notin (api)", true),
            ("other notin (api)", true),
            ("other in (api)", false),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("x.io/tier > 6", true),
            ("x.io/tier > 7", false),
            // Keys and values like any other word.
            ("gt,lt", false),
            ("gt!=lt", true),
            ("x.io/tier<8", true),
            ("app>6", false),
            ("empty=", true),
            ("app=", false),
            ("empty in (,a)", true),
            ("in in (in)", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(selector.matches(&app), want, "{text}");
        }
    }

    #[test]
    fn invalid_selectors_are_errors() {
        for text in [
            ",",
            "app=web,",
            "=web",
            "app in",
            "app in ()x",
            "app in (a",
            "app in a",
            "a b",
            "a/b/c",
            "app=web=x",
            "!",
            "app>x",
            // Upstream has the signs alone.
            "app gt 6",
            "app lt 6",
            "app={}",
            "app=a;b",
            "-=a",
            "app=-a",
            "(",
            "app in (a))",
        ] {
            let error = LabelSelector::parse(text).unwrap_err();
            assert!(error.starts_with("unable to parse requirement: "), "{text}: {error}");
        }
        let many = "a,".repeat(MAX_REQUIREMENTS) + "a";
        assert!(LabelSelector::parse(&many).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}", near in "[a-z=!,()<> ]{0,40}") {
            let _ = LabelSelector::parse(&text);
            let _ = LabelSelector::parse(&near);
        }

        #[test]
        fn equality_matches_the_same_value_only(key in "[a-z]{1,5}", value in "[a-z0-9]{0,5}", other in "[a-z0-9]{0,5}") {
            let selector = LabelSelector::parse(&format!("{key}={value}")).unwrap();
            prop_assert!(selector.matches(&labels(&[(&key, &value)])));
            prop_assert_eq!(selector.matches(&labels(&[(&key, &other)])), value == other);
        }
    }
}
