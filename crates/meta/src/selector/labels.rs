//! Label selectors: `=`, `==`, `!=`, `in`, `notin`, `exists`, `!exists`, `gt`, `lt`.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{label_value, qualified_name};

/// Terms of one selector.
const MAX_TERMS: usize = 256;

/// Which objects are wanted, by their labels. All terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    key: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    In(BTreeSet<String>),
    /// An object without the label matches, too.
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// The message for a 400.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let mut terms = Vec::new();
        while !parser.is_done() {
            if terms.len() == MAX_TERMS {
                return Err(format!("a label selector has at most {MAX_TERMS} requirements"));
            }
            terms.push(parser.term()?);
            if !parser.is_done() {
                parser.expect(&Token::Comma)?;
                if parser.is_done() {
                    return Err(unparsable("a requirement is missing behind the last comma"));
                }
            }
        }
        Ok(Self { terms })
    }

    /// Does it want every object?
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Does an object with these labels match?
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match &term.rule {
                Rule::In(values) => value.is_some_and(|value| values.contains(value)),
                Rule::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Rule::Exists => value.is_some(),
                Rule::Absent => value.is_none(),
                Rule::Above(bound) => number().is_some_and(|number| number > *bound),
                Rule::Below(bound) => number().is_some_and(|number| number < *bound),
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
    Above,
    Below,
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
            '>' => Token::Above,
            '<' => Token::Below,
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
            _ => return Err(unparsable("it has a character that no selector has")),
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

    fn term(&mut self) -> Result<Term, String> {
        let absent = self.peek() == Some(&Token::Not);
        if absent {
            self.at += 1;
        }
        let Some(Token::Word(key)) = self.next() else {
            return Err(unparsable("expected a label's key"));
        };
        qualified_name(&key).map_err(|why| unparsable(&format!("key {key:?}: {why}")))?;
        let rule = if absent { Rule::Absent } else { self.rule()? };
        Ok(Term { key, rule })
    }

    fn rule(&mut self) -> Result<Rule, String> {
        let Some(token) = self.peek().cloned() else { return Ok(Rule::Exists) };
        if token == Token::Comma {
            return Ok(Rule::Exists);
        }
        self.at += 1;
        match token {
            Token::Equal => Ok(Rule::In([self.value()?].into())),
            Token::NotEqual => Ok(Rule::NotIn([self.value()?].into())),
            Token::Above => self.number().map(Rule::Above),
            Token::Below => self.number().map(Rule::Below),
            Token::Word(word) if word == "in" => self.values().map(Rule::In),
            Token::Word(word) if word == "notin" => self.values().map(Rule::NotIn),
            Token::Word(word) if word == "gt" => self.number().map(Rule::Above),
            Token::Word(word) if word == "lt" => self.number().map(Rule::Below),
            _ => Err(unparsable("expected =, ==, !=, in, notin, gt or lt behind the key")),
        }
    }

    /// A value may be empty: `key=` wants the label with nothing in it.
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
        value.parse().map_err(|_| unparsable("gt and lt compare with a whole number"))
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
    fn table() {
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
            ("x.io/tier gt 7", false),
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
    fn what_cannot_be_parsed_is_an_error() {
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
        let many = "a,".repeat(MAX_TERMS) + "a";
        assert!(LabelSelector::parse(&many).is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,80}", near in "[a-z=!,()<> ]{0,40}") {
            let _ = LabelSelector::parse(&text);
            let _ = LabelSelector::parse(&near);
        }

        #[test]
        fn equality_is_what_it_says(key in "[a-z]{1,5}", value in "[a-z0-9]{0,5}", other in "[a-z0-9]{0,5}") {
            let selector = LabelSelector::parse(&format!("{key}={value}")).unwrap();
            prop_assert!(selector.matches(&labels(&[(&key, &value)])));
            prop_assert_eq!(selector.matches(&labels(&[(&key, &other)])), value == other);
        }
    }
}
