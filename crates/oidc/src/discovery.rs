//! The document in which a provider describes itself (`OpenID` Connect Discovery 1.0).

use std::fmt;

use http::Uri;
use postern_meta::decode::{Format, decode};
use serde_json::Value;

use super::jwks::Algorithm;
use super::jwt::texts;

/// The path of the document of a Kubernetes cluster.
pub const OF_CLUSTER: &str = "/.well-known/openid-configuration";

/// Bytes of a document.
pub const MAX_BYTES: usize = 256 * 1024;

/// Bytes of an address.
const MAX_URL_BYTES: usize = 2048;

/// The field with the ways in which a client proves its identity.
const AUTHENTICATION: &str = "token_endpoint_auth_methods_supported";

/// The path of the document below the issuer.
const PATH: &str = "/.well-known/openid-configuration";

/// The addresses of a provider, and the features that it supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Where a login begins.
    pub authorization_endpoint: String,
    /// Where a code is redeemed.
    pub token_endpoint: String,
    /// Where the public keys are.
    pub jwks_uri: String,
    /// Where more claims are, if the provider has it.
    pub userinfo_endpoint: Option<String>,
    /// Where a logout begins, if the provider has it.
    pub end_session_endpoint: Option<String>,
    /// Whether each answer to a login names the issuer (RFC 9207).
    pub names_issuer_in_answers: bool,
    /// Whether the client secret is sent in the body: the provider lists this method, and not `client_secret_basic`.
    pub secret_in_body: bool,
}

/// Why a document is refused. A field is named as the document names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryRefused {
    /// It has more than [`MAX_BYTES`].
    TooLarge,
    /// It is no JSON object, or has a field twice.
    Malformed,
    /// It is that of another issuer. The issuer must be equal byte for byte.
    Issuer,
    /// An address is missing, or is none with https.
    Address(&'static str),
    /// The provider has no authorization code flow.
    NoCodeFlow,
    /// The provider lists methods of PKCE, and S256 is not among them.
    NoS256,
    /// The provider signs with none of the algorithms that are accepted.
    NoAlgorithm,
}

impl fmt::Display for DiscoveryRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the discovery document has more than 256 KiB"),
            Self::Malformed => f.write_str("the discovery document is not a JSON object"),
            Self::Issuer => f.write_str(
                "the discovery document names another issuer: set the issuer exactly as the provider writes it",
            ),
            Self::Address(field) => {
                write!(f, "the discovery document has no {field} that begins with https://")
            }
            Self::NoCodeFlow => f.write_str("the provider does not support response_type=code"),
            Self::NoS256 => f.write_str("the provider does not support PKCE with S256"),
            Self::NoAlgorithm => {
                f.write_str("the provider signs with none of RS256, PS256, ES256 and ES384")
            }
        }
    }
}

impl std::error::Error for DiscoveryRefused {}

/// The address of the document of an issuer; `None` if the issuer is no https URL without query and fragment.
pub fn address(issuer: &str) -> Option<String> {
    let uri = https(issuer)?;
    let is_plain = uri.query().is_none() && !issuer.contains('#');
    is_plain.then(|| format!("{}{PATH}", issuer.strip_suffix('/').unwrap_or(issuer)))
}

impl Discovery {
    /// Reads the document of an issuer.
    ///
    /// # Errors
    /// See [`DiscoveryRefused`].
    pub fn parse(bytes: &[u8], issuer: &str) -> Result<Self, DiscoveryRefused> {
        let document = &object(bytes)?;
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err(DiscoveryRefused::Issuer);
        }
        // If a field with a list exists, it must contain one of these.
        let lists = |field: &str, wanted: &[&str]| match document.get(field) {
            None => true,
            listed => texts(listed).iter().any(|text| wanted.contains(text)),
        };
        if !lists("response_types_supported", &["code"]) {
            return Err(DiscoveryRefused::NoCodeFlow);
        }
        if !lists("code_challenge_methods_supported", &["S256"]) {
            return Err(DiscoveryRefused::NoS256);
        }
        let algorithms = Algorithm::ALL.map(Algorithm::name);
        if !lists("id_token_signing_alg_values_supported", &algorithms) {
            return Err(DiscoveryRefused::NoAlgorithm);
        }
        let required = |field| -> Result<String, DiscoveryRefused> {
            optional(document, field)?.ok_or(DiscoveryRefused::Address(field))
        };
        Ok(Self {
            authorization_endpoint: required("authorization_endpoint")?,
            token_endpoint: required("token_endpoint")?,
            jwks_uri: required("jwks_uri")?,
            userinfo_endpoint: optional(document, "userinfo_endpoint")?,
            end_session_endpoint: optional(document, "end_session_endpoint")?,
            names_issuer_in_answers: document
                .get("authorization_response_iss_parameter_supported")
                .is_some_and(|supported| *supported == Value::Bool(true)),
            secret_in_body: !lists(AUTHENTICATION, &["client_secret_basic"])
                && lists(AUTHENTICATION, &["client_secret_post"]),
        })
    }

    /// Whether an answer to a login is of this issuer. `named` is its parameter `iss`. A provider that mixes up two
    /// logins of a browser would send the code of one issuer to the other (RFC 9207).
    pub fn is_answer_of(&self, issuer: &str, named: Option<&str>) -> bool {
        match named {
            Some(named) => named == issuer,
            None => !self.names_issuer_in_answers,
        }
    }
}

/// The issuer and the address of its keys, for an issuer that gives tokens to workloads. Its document need not have what
/// a login needs.
///
/// # Errors
/// See [`DiscoveryRefused`].
pub fn keys_of_issuer(bytes: &[u8], issuer: &str) -> Result<String, DiscoveryRefused> {
    let document = object(bytes)?;
    if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
        return Err(DiscoveryRefused::Issuer);
    }
    optional(&document, "jwks_uri")?.ok_or(DiscoveryRefused::Address("jwks_uri"))
}

/// A JSON object in which no field occurs twice.
fn object(bytes: &[u8]) -> Result<Value, DiscoveryRefused> {
    if bytes.len() > MAX_BYTES {
        return Err(DiscoveryRefused::TooLarge);
    }
    let decoded = decode(bytes, Format::Json).map_err(|_| DiscoveryRefused::Malformed)?;
    if decoded.duplicates.is_empty() && decoded.value.is_object() {
        Ok(decoded.value)
    } else {
        Err(DiscoveryRefused::Malformed)
    }
}

/// The address in a field, if the field exists.
fn optional(document: &Value, field: &'static str) -> Result<Option<String>, DiscoveryRefused> {
    let Some(found) = document.get(field).filter(|found| !found.is_null()) else {
        return Ok(None);
    };
    let address = found.as_str().filter(|address| https(address).is_some());
    let address = address.filter(|address| !address.contains('#'));
    address.map(|address| Some(address.to_owned())).ok_or(DiscoveryRefused::Address(field))
}

/// An https URL with a host, and without a user.
fn https(text: &str) -> Option<Uri> {
    if text.len() > MAX_URL_BYTES || !text.starts_with("https://") {
        return None;
    }
    let uri: Uri = text.parse().ok()?;
    let authority = uri.authority()?;
    (!authority.as_str().contains('@') && !authority.host().is_empty()).then_some(uri)
}
