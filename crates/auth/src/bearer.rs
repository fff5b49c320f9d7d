//! The credential in a request's `Authorization` header, and the reasons to reject one. This module
//! does not know the owner of a credential.

use std::fmt;

use postern_kinds::SecretText;
use zeroize::Zeroizing;

/// Maximum length of a credential, in bytes. A signed token may have 8 KiB
/// (`docs/reference/endpoint-tokens.md#content`).
pub const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Maximum length of a token that the central server issues for one request through the tunnel of an agent, in bytes. The
/// largest identity fits: 500 groups of 256 bytes, its teams, and the scopes of its key and of the keys that created it.
pub const MAX_TUNNEL_TOKEN_BYTES: usize = 1024 * 1024;

/// A bearer credential. It cannot be printed, and it is wiped when dropped.
pub struct BearerToken(Zeroizing<String>);

impl BearerToken {
    /// The credential that is the value of an access key.
    pub fn of_key(key: &SecretText) -> Self {
        Self(Zeroizing::new(key.expose().to_owned()))
    }

    /// The credential itself: for its digest, and for the one file that holds a new key.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

/// Why a request has no usable credential. Every one of them is a 401.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No `Authorization` header.
    Missing,
    /// More than one: it must not depend on the reader which of them counts.
    Doubled,
    /// Not `Bearer <token>`, or a token with characters that no token has.
    Malformed,
    /// No key has this value, or its owner no longer exists.
    Unknown,
    /// The key is disabled, or its owner is.
    Disabled,
    /// The key has expired.
    Expired,
    /// It was created under impersonation, and its maker may not impersonate so any more.
    ImpersonationEnded,
}

impl Refusal {
    /// The message of the Status: kube-apiserver's one word, or the reason where the key is
    /// known.
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing | Self::Doubled | Self::Malformed => "Unauthorized",
            Self::Unknown => "access key not found",
            Self::Disabled | Self::ImpersonationEnded => "access key disabled",
            Self::Expired => "access key expired",
        }
    }

    /// Advice for the caller: how to get a usable credential.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Missing => "no credential: send Authorization: Bearer <access key>",
            Self::Doubled => "there is more than one Authorization header",
            Self::Malformed => {
                "the Authorization header is malformed: send Authorization: Bearer <access key>"
            }
            Self::Unknown => "no such access key: it may have been deleted or rotated",
            Self::Disabled => {
                "the access key or its owner is disabled: ask an administrator to enable it"
            }
            Self::Expired => "the access key has expired: create a new one",
            Self::ImpersonationEnded => {
                "the access key was created under impersonation, and its creator may no longer \
                 impersonate: create a new one"
            }
        }
    }
}

/// Takes the credential out of the values of all `Authorization` headers. The scheme may be in
/// any case (RFC 9110 section 11.1); exactly one space follows it, as in kube-apiserver.
///
/// # Errors
/// [`Refusal::Missing`], [`Refusal::Doubled`] or [`Refusal::Malformed`].
pub fn parse<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Result<BearerToken, Refusal> {
    parse_within(MAX_TOKEN_BYTES, headers)
}

/// Like [`parse`], for a credential of at most `max_bytes`.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_within<'a>(
    max_bytes: usize,
    mut headers: impl Iterator<Item = &'a [u8]>,
) -> Result<BearerToken, Refusal> {
    let header = headers.next().ok_or(Refusal::Missing)?;
    if headers.next().is_some() {
        return Err(Refusal::Doubled);
    }
    let text = std::str::from_utf8(header).map_err(|_| Refusal::Malformed)?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(Refusal::Malformed)?;
    // Without an early return, the compiler compares many bytes at once.
    let printable = token.bytes().fold(true, |all, byte| all & byte.is_ascii_graphic());
    if !scheme.eq_ignore_ascii_case("bearer")
        || token.is_empty()
        || token.len() > max_bytes
        || !printable
    {
        return Err(Refusal::Malformed);
    }
    Ok(BearerToken(Zeroizing::new(token.to_owned())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(headers: &[&str]) -> Result<String, Refusal> {
        parse(headers.iter().map(|h| h.as_bytes())).map(|token| token.expose().to_owned())
    }

    #[test]
    fn headers_and_their_tokens() {
        let ok = |token: &str| Ok(token.to_owned());
        for (headers, want) in [
            (&["Bearer abc"][..], ok("abc")),
            (&["bearer abc"], ok("abc")),
            (&["BEARER abc "], ok("abc")),
            (&["Bearer  abc"], Err(Refusal::Malformed)),
            (&[], Err(Refusal::Missing)),
            (&["Bearer a", "Bearer a"], Err(Refusal::Doubled)),
            (&[""], Err(Refusal::Malformed)),
            (&["Bearer"], Err(Refusal::Malformed)),
            (&["Bearer "], Err(Refusal::Malformed)),
            (&["Basic abc"], Err(Refusal::Malformed)),
            (&["Bearer a b"], Err(Refusal::Malformed)),
            (&["Bearer a,Bearer b"], Err(Refusal::Malformed)),
            (&["Bearer a\u{e9}"], Err(Refusal::Malformed)),
        ] {
            assert_eq!(of(headers), want, "{headers:?}");
        }
    }

    #[test]
    fn a_token_that_is_too_long_is_malformed() {
        let header = format!("Bearer {}", "a".repeat(MAX_TOKEN_BYTES + 1));
        assert_eq!(of(&[&header]), Err(Refusal::Malformed));
    }

    proptest! {
        #[test]
        fn never_panics(header in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(token) = parse(std::iter::once(header.as_slice())) {
                prop_assert!(!token.expose().is_empty());
                prop_assert_eq!(format!("{:?}", token), "BearerToken(…)");
            }
        }
    }
}
