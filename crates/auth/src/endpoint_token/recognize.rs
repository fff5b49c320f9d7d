//! Whether a credential looks like an endpoint token of this server: for the text of an error, and for no decision.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use serde_json::Value;

use super::{MAX_TOKEN_BYTES, TYPE};

/// Whether a credential has the form of an endpoint token, and names this issuer. Nothing is verified.
pub fn looks_like_endpoint_token(credential: &str, issuer: &str) -> bool {
    if credential.len() > MAX_TOKEN_BYTES {
        return false;
    }
    let parts: Vec<&str> = credential.split('.').collect();
    let [header, claims, _] = parts.as_slice() else { return false };
    let field = |part: &str, name: &str| {
        let decoded = BASE64URL.decode(part).ok()?;
        let fields: Value = postern_meta::decode::decode_typed(&decoded).ok()?;
        fields.get(name)?.as_str().map(str::to_owned)
    };
    field(header, "typ").as_deref() == Some(TYPE) && field(claims, "iss").as_deref() == Some(issuer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_of_this_issuer_is_called_one() {
        let token = |header: &str, claims: &str| {
            format!("{}.{}.c2ln", BASE64URL.encode(header), BASE64URL.encode(claims))
        };
        let ours = r#"{"iss":"https://postern.test","sub":"ada"}"#;
        let is_one = |text: &str| looks_like_endpoint_token(text, "https://postern.test");
        assert!(is_one(&token(r#"{"typ":"at+jwt","alg":"ES256"}"#, ours)));
        assert!(!is_one(&token(r#"{"typ":"JWT"}"#, ours)));
        assert!(!is_one(&token(r#"{"typ":"at+jwt"}"#, r#"{"iss":"https://other.test"}"#)));
        for other in ["", "a.b", "a.b.c", "pst_AAAAAAAA_x", "....", &"a.".repeat(9000)] {
            assert!(!is_one(other), "{other}");
        }
    }
}
