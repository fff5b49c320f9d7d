//! Checks whether a text from a client may contain a credential. Such a text is not recorded. The
//! functions are pure.

use percent_encoding::percent_decode_str;
use postern_kinds::access_key;

/// Whether a text may contain an access key, also with percent-encoded characters.
pub fn may_have_access_key(text: &str) -> bool {
    let decoded = || percent_decode_str(text).decode_utf8_lossy();
    text.contains(access_key::PREFIX)
        || (text.contains('%') && decoded().contains(access_key::PREFIX))
}

/// Whether a text contains something like a JWT: an object of JSON in base64, and a dot (RFC 7519).
pub fn has_jwt(text: &str) -> bool {
    let is_base64 = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '_';
    text.split("eyJ").skip(1).any(|rest| rest.trim_start_matches(is_base64).starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_keys_and_jwts_are_found() {
        for text in ["/x/pst_1", "%70st_1", "eyJhbGciOiJFUzI1NiJ9.eyJzdWIi", "curl eyJeyJ.x.y"] {
            assert!(may_have_access_key(text) || has_jwt(text), "{text}");
        }
        for text in ["/api/v1/pods", "/keyJ/a.b", "eyJ", "100%"] {
            assert!(!may_have_access_key(text) && !has_jwt(text), "{text}");
        }
    }
}
