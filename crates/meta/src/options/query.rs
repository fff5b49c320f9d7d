//! The query of a request, decoded once.

use percent_encoding::percent_decode_str;

use crate::status::ApiError;

/// Maximum number of parameters of one query.
const MAX_PARAMETERS: usize = 100;

/// Maximum bytes of one query, before decoding.
const MAX_QUERY_BYTES: usize = 16 * 1024;

/// The query's parameters, decoded, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    parameters: Vec<(String, String)>,
}

impl Query {
    /// Parses what follows the `?` of a URL.
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

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a parameter.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(known, _)| known == name).map(|(_, v)| v.as_str())
    }

    /// Returns the value of a boolean parameter; `?pretty` alone is true.
    ///
    /// # Errors
    /// 400 for anything but `true`, `false`, `1` and `0`.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some("" | "true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(ApiError::bad_request(format!(
                "query parameter {name} must be true, false, 1 or 0"
            ))),
        }
    }

    /// Returns the value of a parameter that is a number; empty counts as absent.
    ///
    /// # Errors
    /// 400 when it is not a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("query parameter {name} must be a whole number"))
        })
    }
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
        assert_eq!(query.number::<u64>("a").unwrap(), Some(1));
        assert_eq!(query.number::<u64>("b").unwrap_err().code(), 400);
        assert_eq!(Query::parse("a=%ff").unwrap_err().code(), 400);
        assert_eq!(Query::parse(&"a&".repeat(101)).unwrap_err().code(), 400);
        assert_eq!(Query::parse(&"a".repeat(20_000)).unwrap_err().code(), 400);
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
