//! The reasons to reject a token, which is a JWT. They are for the log: the client learns only that
//! it was rejected.

use std::fmt;

/// Why a token is refused. `Display` is for a log: it has nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenRefusal {
    /// It is longer than a token may be.
    TooLong,
    /// It is not three parts in base64url (RFC 7515 section 7.1).
    Malformed,
    /// Its header is not that of Postern's tokens: a field occurs twice, or is none of `alg`, `typ`
    /// and `kid`.
    Header,
    /// Its header has `crit`: extensions that must be understood, and there are none.
    CriticalHeader,
    /// It has a token in it (`cty`).
    Nested,
    /// Its `alg` is not ES256.
    Algorithm,
    /// Its `typ` is not `at+jwt`.
    Type,
    /// No key has its `kid`: the key was dropped, or is not known yet.
    UnknownKey,
    /// The signature is not that of the key.
    Signature,
    /// The signed payload is not that of a token of this version.
    Claims,
    /// It is of another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
    /// It has expired.
    Expired,
    /// It does not count yet.
    NotYetValid,
    /// A key, a user or a team that it depends on has changed since it was issued.
    Revoked,
}

impl fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the token is too long",
            Self::Malformed => "the token is not three parts in base64url",
            Self::Header => {
                "the token header has an unknown or duplicate field: only alg, typ \
                             and kid are allowed"
            }
            Self::CriticalHeader => "the header has critical extensions",
            Self::Nested => "the token contains a nested token",
            Self::Algorithm => "the algorithm is not ES256",
            Self::Type => "the type is not at+jwt",
            Self::UnknownKey => "no signing key has this kid",
            Self::Signature => "the signature is wrong",
            Self::Claims => "the token payload is invalid",
            Self::Issuer => "the token is of another issuer",
            Self::Audience => "the token is for another audience",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token is not valid yet",
            Self::Revoked => {
                "the token was revoked: its access key, user or team has changed; \
                              request a new token"
            }
        })
    }
}

impl std::error::Error for TokenRefusal {}
