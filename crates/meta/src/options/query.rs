//! The query of a request, decoded once.

use percent_encoding::percent_decode_str;

use crate::status::ApiError;

/// Maximum number of parameters of one query.
pub const MAX_PARAMETERS: usize = 100;

/// Maximum bytes of one query, before decoding.
pub const MAX_QUERY_BYTES: usize = 16 * 1024;

/// The query's parameters, decoded, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Parses the text after the `?` of a URL.
    ///
    /// # Errors
    /// 400 when it is too long, or has too many parameters, or is not UTF-8 once decoded.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(ApiError::bad_request(format!(
                "the query is longer than {MAX_QUERY_BYTES} bytes"
            )));
        }
        let mut parameters = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == MAX_PARAMETERS {
                return Err(ApiError::bad_request(format!(
                    "the query has more than {MAX_PARAMETERS} parameters"
                )));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parameters.push((decode(name)?, decode(value)?));
        }
        Ok(Self { parameters })
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(known, _)| known == name).map(|(_, v)| v.as_str())
    }

    /// The value of a parameter that has one value.
    ///
    /// # Errors
    /// 400 when it occurs again with another value: upstream takes the first, and ignores what else
    /// the client asked for.
    pub fn single(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let first = self.get(name);
        let differs = |(known, value): &(String, String)| known == name && Some(&**value) != first;
        if self.parameters.iter().any(differs) { Err(repeated(name)) } else { Ok(first) }
    }

    /// The value of a boolean parameter, in any case; `?pretty` alone is true, as upstream.
    ///
    /// # Errors
    /// 400 for anything but `true`, `false`, `1` and `0`, and for values that contradict each other.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        let mut flag = None;
        for (_, value) in self.parameters.iter().filter(|(known, _)| known == name) {
            let value = match value.to_ascii_lowercase().as_str() {
                "" | "true" | "1" => true,
                "false" | "0" => false,
                _ => {
                    return Err(ApiError::bad_request(format!(
                        "query parameter {name} must be true, false, 1 or 0"
                    )));
                }
            };
            if flag.replace(value).is_some_and(|before| before != value) {
                return Err(repeated(name));
            }
        }
        Ok(flag)
    }

    /// The value of a parameter that is a number.
    ///
    /// # Errors
    /// 400 when it is not a number, as the empty value, or occurs with different values.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.single(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("query parameter {name} must be a whole number"))
        })
    }

    /// The names of the parameters, in their order, with repetitions.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|(name, _)| name.as_str())
    }
}

fn repeated(name: &str) -> ApiError {
    ApiError::bad_request(format!("query parameter {name} has more than one value"))
}

fn decode(text: &str) -> Result<String, ApiError> {
    // In a query, a plus is a space.
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    let decoded =
        decoded.map_err(|_| ApiError::bad_request("the query is not UTF-8 once decoded"))?;
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_and_their_values() {
        let query = Query::parse("a=1&b=x%3Dy+z&a=2&c&=d").unwrap();
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get_all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(query.get("b"), Some("x=y z"));
        assert_eq!(query.flag("c").unwrap(), Some(true));
        assert_eq!(query.flag("none").unwrap(), None);
        assert_eq!(query.flag("b").unwrap_err().code(), 400);
        assert_eq!(query.number::<u64>("a").unwrap_err().code(), 400);
        assert_eq!(query.number::<u64>("b").unwrap_err().code(), 400);
        assert_eq!(Query::parse("a=%ff").unwrap_err().code(), 400);
        assert_eq!(Query::parse(&"a&".repeat(101)).unwrap_err().code(), 400);
        assert_eq!(Query::parse(&"a".repeat(20_000)).unwrap_err().code(), 400);
    }

    #[test]
    fn repeated_parameters_must_agree() {
        let query = Query::parse("a=1&a=1&b=1&b=2&w=1&w=true&v=1&v=False&e=").unwrap();
        assert_eq!(query.single("a").unwrap(), Some("1"));
        assert_eq!(query.single("none").unwrap(), None);
        assert_eq!(query.single("b").unwrap_err().code(), 400);
        assert_eq!(query.number::<u64>("a").unwrap(), Some(1));
        assert_eq!(query.number::<u64>("e").unwrap_err().code(), 400);
        assert_eq!(query.flag("w").unwrap(), Some(true));
        assert_eq!(query.flag("v").unwrap_err().code(), 400);
        assert_eq!(query.flag("e").unwrap(), Some(true));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,200}") {
            if let Err(error) = Query::parse(&text) {
                prop_assert_eq!(error.code(), 400);
            }
        }
    }
}
