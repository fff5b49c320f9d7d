//! Redeems the code of a login at the provider, and verifies the provider's claims about the user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use postern_kinds::SecretText;
use postern_kinds::connector;
use postern_kinds::secret::{self, Secret};
use postern_meta::decode::{Format, decode};
use postern_oidc::id_token::{Party, verify_id_token};
use postern_oidc::jwt::{Claims, MAX_TOKEN_BYTES};
use postern_registry::registry::Registry;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::fetch::Asked;
use super::form::{encode, escaped};
use super::providers::Provider;
use super::refused::{About, Refused};

/// The most bytes of a response with tokens, and of one with claims.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;

/// The most characters of a token that is kept.
const MAX_KEPT_CHARS: usize = MAX_TOKEN_BYTES;

/// The tokens that a provider has given. They cannot be printed.
#[expect(clippy::struct_field_names, reason = "these are the names of OpenID Connect")]
pub(super) struct Tokens {
    /// At a refresh, a provider may leave it out.
    pub(super) id_token: Option<SecretText>,
    pub(super) access_token: Option<SecretText>,
    pub(super) refresh_token: Option<SecretText>,
}

/// A client of a provider.
pub(super) struct Client<'a> {
    pub(super) registry: &'a Registry,
    pub(super) provider: &'a Provider,
    pub(super) spec: &'a connector::Spec,
    pub(super) now: i64,
}

impl Client<'_> {
    /// Asks for tokens with these fields.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn tokens(&self, fields: &[(&str, &str)]) -> Result<Tokens, Refused> {
        let discovery = self.provider.discovery().await.map_err(unavailable)?;
        let secret = self.secret()?;
        let mut fields = fields.to_vec();
        fields.push(("client_id", &self.spec.client_id));
        let mut authorization = None;
        match &secret {
            Some(secret) if discovery.secret_in_body => {
                fields.push(("client_secret", secret.expose()));
            }
            Some(secret) => authorization = Some(basic(&self.spec.client_id, secret)?),
            None => {}
        }
        let asked = Asked {
            address: &discovery.token_endpoint,
            authorization,
            form: Some(encode(&fields)),
            max_bytes: MAX_RESPONSE_BYTES,
        };
        let fetched = self.provider.at.route.fetch(asked).await;
        let (status, bytes) =
            fetched.map_err(|failed| unavailable(self.provider.at.reported(failed)))?;
        let answer = object(&bytes);
        if !status.is_success() {
            let error = answer.as_ref().and_then(|answer| answer.get("error")?.as_str());
            return Err(match error {
                Some("invalid_grant") if !status.is_server_error() => {
                    Refused::of_user(INVALID_GRANT)
                }
                Some("invalid_client" | "unauthorized_client") => unavailable(
                    "the provider does not accept the client: check clientId and clientSecret of the connector"
                        .to_owned(),
                ),
                Some("invalid_scope") => Refused::forbidden(
                    "the provider does not know a scope, or does not allow it: check scopes of the connector",
                ),
                _ => {
                    let text =
                        format!("the provider gave no tokens, but status {}", status.as_u16());
                    let about =
                        if status.is_server_error() { About::Provider } else { About::Login };
                    Refused { about, ..unavailable(text) }
                }
            });
        }
        let answer = answer.ok_or_else(|| {
            Refused::forbidden("the token response is not a JSON object, or has a field twice")
        })?;
        let text = |name: &str| {
            let text = answer.get(name)?.as_str().filter(|text| !text.is_empty())?;
            (text.len() <= MAX_KEPT_CHARS).then(|| SecretText::from(text.to_owned()))
        };
        let is_bearer = answer.get("token_type").is_none_or(|kind| {
            kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"))
        });
        if !is_bearer {
            return Err(Refused::forbidden(
                "the token response has another token_type than Bearer",
            ));
        }
        Ok(Tokens {
            id_token: text("id_token"),
            access_token: text("access_token"),
            refresh_token: text("refresh_token"),
        })
    }

    /// The claims of the ID token. If it is signed with a key that is not known, the keys are fetched again.
    ///
    /// # Errors
    /// Why the token is refused.
    pub(super) async fn claims(
        &self,
        tokens: &Tokens,
        nonce: Option<&str>,
    ) -> Result<Claims, Refused> {
        let party = Party {
            issuer: &self.provider.at.issuer,
            client_id: &self.spec.client_id,
            now: self.now,
        };
        let access_token = tokens.access_token.as_ref().map(SecretText::expose);
        let id_token = tokens.id_token.as_ref();
        let id_token =
            id_token.ok_or_else(|| Refused::forbidden("the token response has no ID token"))?;
        let verify =
            |keys: &_| verify_id_token(id_token.expose(), keys, party, nonce, access_token);
        let keys = self.provider.keys().await.map_err(unavailable)?;
        let verified = match verify(&keys) {
            Err(refused) if refused.may_need_newer_keys() => {
                verify(&*self.provider.newest_keys().await.map_err(unavailable)?)
            }
            verified => verified,
        };
        verified.map_err(Refused::forbidden)
    }

    /// Whether the provider can be asked for more claims.
    ///
    /// # Errors
    /// If the discovery document cannot be fetched.
    pub(super) async fn has_user_info(&self, tokens: &Tokens) -> Result<bool, Refused> {
        let discovery = self.provider.discovery().await.map_err(unavailable)?;
        Ok(discovery.userinfo_endpoint.is_some() && tokens.access_token.is_some())
    }

    /// The claims of the UserInfo endpoint.
    ///
    /// # Errors
    /// If there are none, or they are about another user.
    pub(super) async fn user_info(
        &self,
        tokens: &Tokens,
        subject: &str,
    ) -> Result<Map<String, Value>, Refused> {
        let discovery = self.provider.discovery().await.map_err(unavailable)?;
        let address = discovery.userinfo_endpoint.as_ref();
        let address =
            address.ok_or_else(|| Refused::forbidden("the provider has no UserInfo endpoint"))?;
        let token = tokens.access_token.as_ref();
        let token = token.ok_or_else(|| {
            Refused::forbidden("the token response has no access token for the UserInfo endpoint")
        })?;
        let bearer = Zeroizing::new(format!("Bearer {}", token.expose()));
        let asked = Asked {
            address,
            authorization: Some(sensitive(&bearer)?),
            form: None,
            max_bytes: MAX_RESPONSE_BYTES,
        };
        let fetched = self.provider.at.route.fetch(asked).await;
        let (_, bytes) =
            fetched.map_err(|failed| unavailable(self.provider.at.reported(failed)))?;
        let claims = object(&bytes).ok_or_else(|| {
            Refused::forbidden("the UserInfo response is not a JSON object, or has a claim twice")
        })?;
        if claims.get("sub").and_then(Value::as_str) != Some(subject) {
            return Err(Refused::forbidden("the UserInfo response is about another user"));
        }
        Ok(claims)
    }

    /// The client secret, as the Secret has it now.
    pub(super) fn secret(&self) -> Result<Option<SecretText>, Refused> {
        let Some(at) = &self.spec.client_secret else { return Ok(None) };
        let missing = || {
            Refused::new(
                http::StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "the client secret must be in the key {:?} of the Secret {:?} in the namespace {:?}",
                    at.key_or_default(),
                    at.secret_name,
                    at.secret_namespace
                ),
            )
        };
        let namespace = Some(at.secret_namespace.as_str());
        let found = self.registry.read_to_decide(&Secret, namespace, &at.secret_name)?;
        let found: secret::Spec = found.ok_or_else(missing)?.part()?;
        let encoded = found.data.get(at.key_or_default()).ok_or_else(missing)?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded.expose()).map_err(|_| missing())?);
        let text = std::str::from_utf8(&bytes).map_err(|_| missing())?;
        // Files with one value often end with a new line.
        Ok(Some(SecretText::from(text.trim_end_matches(['\r', '\n']).to_owned())))
    }
}

/// The text for a code or a refresh token that the provider does not accept.
pub(super) const INVALID_GRANT: &str = "the provider does not accept the code";

/// The refusal if the provider cannot be used now.
pub(super) fn unavailable(text: String) -> Refused {
    Refused { about: About::Provider, ..Refused::new(http::StatusCode::BAD_GATEWAY, text) }
}

/// A JSON object in which no field occurs twice.
fn object(bytes: &[u8]) -> Option<Map<String, Value>> {
    let decoded = decode(bytes, Format::Json).ok()?;
    match decoded.value {
        Value::Object(object) if decoded.duplicates.is_empty() => Some(object),
        _ => None,
    }
}

/// The value of `Authorization` for a client with a secret (RFC 6749 section 2.3.1).
fn basic(id: &str, secret: &SecretText) -> Result<HeaderValue, Refused> {
    let mut pair = Zeroizing::new(String::new());
    pair.extend(escaped(id));
    pair.push(':');
    pair.extend(escaped(secret.expose()));
    let value = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    sensitive(&value)
}

fn sensitive(value: &str) -> Result<HeaderValue, Refused> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| Refused::forbidden("the provider gave a token with invalid characters"))?;
    value.set_sensitive(true);
    Ok(value)
}
