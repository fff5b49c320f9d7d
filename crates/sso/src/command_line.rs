//! Logins of the command line (`docs/reference/single-sign-on.md#the-command-line`): the requests
//! of its client without a credential, the consent of a person, and the grants that give the key.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use postern_auth::bearer::Refusal;
use postern_kinds::SecretText;
use postern_kinds::command_line_consent::{ALLOW, DENY, Spec, Status};
use postern_listen::network;
use postern_meta::status::ApiError;
use postern_oidc::command_line::{
    Asked, Authorization, CLIENT_ID, DEVICE_SECONDS, Device, Fields, Invalid, stored_by_verifier,
};
use postern_oidc::login::StateRefused;
use postern_registry::actions::command_line::{allow, code_of, describe, redeem};
use postern_registry::actions::sessions::Login;
use postern_registry::permit::Permit;
use serde_json::{Value, json};

use super::browser::{BAD_QUERY, agent_of, redirect};
use super::device_polls::{INTERVAL_SECONDS, Pace};
use super::form::{Form, encode};
use super::refused::Refused;
use super::sso::Sso;
use super::token_error::{PENDING, TokenError};
use postern_audit::SignIn;
use postern_http::wire::body::Body;
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::respond;

/// The path at which a login with a browser on another machine begins.
pub(super) const DEVICE_PATH: &str = "/auth/device";

/// The pages of the console that ask the person.
const CONSENT_PAGE: &str = "/ui/authorize";
const DEVICE_PAGE: &str = "/ui/device";

/// The grant types (RFC 6749 section 4.1.3, RFC 8628 section 3.4).
pub(super) const AUTHORIZATION_CODE: &str = "authorization_code";
pub(super) const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// The error for a client that does not wait between two requests.
const SLOW_DOWN: &str = "slow_down";

impl Fields for Form {
    fn get(&self, name: &str) -> Option<&str> {
        self.get(name)
    }
}

/// A request for a person's consent.
enum Request {
    /// The browser brings the code to the command line.
    Browser(Authorization),
    /// The command line waits. The text is the encrypted form.
    Device(Device, SecretText),
}

/// Sends a browser to the page that asks the person. A request that is not from the command line goes nowhere.
///
/// # Errors
/// 400 for an invalid request.
pub(super) fn authorize(head: &Parts) -> Result<Response<Body>, Refused> {
    super::refused::allowed(&head.method, &Method::GET)?;
    let bad = |text: &str| Refused::new(StatusCode::BAD_REQUEST, text);
    let query = Form::parse(head.uri.query().unwrap_or_default()).ok();
    let query = query.ok_or_else(|| bad(BAD_QUERY))?;
    let Authorization { asked, redirect_uri, state } =
        Authorization::read(&query).map_err(|Invalid(text)| bad(text))?;
    let ttl = asked.ttl_seconds.to_string();
    let query = encode(&[
        ("redirect_uri", &redirect_uri),
        ("state", &state),
        ("code_challenge", &asked.challenge),
        ("host", &asked.host),
        ("ttl", &ttl),
    ]);
    redirect(&format!("{CONSENT_PAGE}?{query}"))
}

impl Sso {
    /// Begins a login with a browser on another machine. Nothing is stored, and success is not recorded.
    pub(super) async fn begin_device(
        &self,
        head: &Parts,
        body: IncomingBody,
        address: IpAddr,
        record: SignIn,
    ) -> Response<Body> {
        match self.device(head, body, address).await {
            Ok(answer) => respond::value(StatusCode::OK, &answer, false),
            Err(refused) => {
                record.end(refused.code, Some(&refused.reason));
                refused.response()
            }
        }
    }

    async fn device(
        &self,
        head: &Parts,
        body: IncomingBody,
        address: IpAddr,
    ) -> Result<Value, TokenError> {
        if head.method != Method::POST {
            let (code, reason) = (StatusCode::METHOD_NOT_ALLOWED, "use POST on this path");
            return Err(TokenError::of(code, "invalid_request", reason));
        }
        let form = self.arriving.form(head, body, network(address)).await?;
        let asked = Asked::read(&form).map_err(|Invalid(text)| TokenError::request(text))?;
        let device = Device::begin(&self.random(), &asked, &address.to_string(), self.now());
        let sealed = device.seal(&self.state_key, self.random());
        let sealed = sealed.ok_or_else(|| TokenError::request("the request is too large"))?;
        let page = format!("{}{DEVICE_PAGE}", self.own_url());
        Ok(json!({
            "verification_uri_complete": format!("{page}#{sealed}"),
            "device_code": sealed,
            "user_code": device.user_code(),
            "verification_uri": page,
            "expires_in": DEVICE_SECONDS,
            "interval": INTERVAL_SECONDS,
        }))
    }

    /// Describes, allows or denies a login of the command line. The request comes from `address`.
    ///
    /// # Errors
    /// 400 for an invalid request; those of [`allow`].
    pub async fn consent(
        &self,
        permit: &Permit,
        spec: Spec,
        address: IpAddr,
    ) -> Result<Status, ApiError> {
        let decision = spec.decision.clone();
        if !["", ALLOW, DENY].contains(&decision.as_str()) {
            return Err(ApiError::bad_request("spec.decision must be Allow or Deny"));
        }
        let request = self.request_of(spec)?;
        let (asked, from) = match &request {
            Request::Browser(request) => (request.asked.clone(), address.to_string()),
            Request::Device(device, _) => (device.asked(), device.address().to_owned()),
        };
        let described = describe(&self.registry, permit, &asked)?;
        let mut status = Status {
            user_name: described.user,
            host: asked.host.clone(),
            address: from,
            expires_at: described.expires_at,
            is_scoped: described.is_scoped,
            redirect_to: SecretText::default(),
        };
        let address = match (&request, decision.as_str()) {
            (Request::Browser(request), DENY) => request.address(("error", "access_denied")),
            (Request::Browser(request), ALLOW) => {
                let code = BASE64URL.encode(self.random());
                let stored = SecretText::from(request.stored(&code));
                allow(&self.registry, permit, &asked, stored).await?;
                request.address(("code", &code))
            }
            (Request::Device(device, sealed), ALLOW) => {
                let stored = SecretText::from(device.stored(sealed.expose()));
                allow(&self.registry, permit, &asked, stored).await?;
                String::new()
            }
            _ => String::new(),
        };
        status.redirect_to = SecretText::from(address);
        Ok(status)
    }

    fn request_of(&self, spec: Spec) -> Result<Request, ApiError> {
        if spec.device_code.expose().is_empty() {
            let asked = Asked {
                challenge: spec.code_challenge,
                host: spec.host,
                ttl_seconds: spec.ttl_seconds,
            };
            let request =
                Authorization { asked, redirect_uri: spec.redirect_uri, state: spec.state };
            let checked = request.checked().map(Request::Browser);
            return checked.map_err(|Invalid(text)| ApiError::bad_request(text));
        }
        let sealed = spec.device_code;
        let device = Device::open(&self.state_key, sealed.expose(), self.now());
        let device = device.map_err(|refused| {
            ApiError::bad_request(match refused {
                StateRefused::Forged => "the link is incomplete: open the whole link again",
                StateRefused::Expired => "the login has ended: begin it again in the terminal",
            })
        })?;
        if !device.is_typed(spec.user_code.expose()) {
            let text = "these are not the characters that the terminal shows";
            return Err(ApiError::bad_request(text));
        }
        Ok(Request::Device(device, sealed))
    }

    /// The key for the code that a browser has brought to the command line.
    pub(super) async fn given_for_code(
        &self,
        form: &Form,
        head: &Parts,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Value, TokenError> {
        let code = required(form, "code")?;
        let verifier = required(form, "code_verifier")?;
        let stored = stored_by_verifier(code, verifier, required(form, "redirect_uri")?);
        check_client(form)?;
        let stored = stored.ok_or_else(|| TokenError::grant("the verifier has another form"))?;
        self.given_for_stored(
            stored,
            "there is no such code, or it was used",
            head,
            address,
            record,
        )
        .await
    }

    /// The key for a login to which a person has consented with a browser on another machine.
    pub(super) async fn given_for_device(
        &self,
        form: &Form,
        head: &Parts,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Value, TokenError> {
        let (sealed, verifier) = (required(form, "device_code")?, required(form, "code_verifier")?);
        check_client(form)?;
        let device =
            Device::open(&self.state_key, sealed, self.now()).map_err(|refused| match refused {
                StateRefused::Forged => TokenError::grant("the device code was not made here"),
                StateRefused::Expired => expired(),
            })?;
        if !device.is_begun_with(verifier) {
            return Err(TokenError::grant("the verifier is another one"));
        }
        if self.device_polls.note(sealed, network(address), self.now()) == Pace::TooFast {
            let reason = "wait for the interval between two requests";
            return Err(TokenError::of(StatusCode::BAD_REQUEST, SLOW_DOWN, reason));
        }
        let given =
            self.given_for_stored(device.stored(sealed), PENDING, head, address, record).await?;
        self.device_polls.forget(sealed);
        Ok(given)
    }

    /// The key for a code by its stored text. `missing` says why there is none.
    async fn given_for_stored(
        &self,
        stored: String,
        missing: &str,
        head: &Parts,
        address: IpAddr,
        record: &mut SignIn,
    ) -> Result<Value, TokenError> {
        let unavailable = |error: ApiError| TokenError::unavailable(&error.status().message);
        let code = code_of(&self.registry, &SecretText::from(stored)).await;
        let code = code.map_err(unavailable)?.map_err(|refusal| match refusal {
            Refusal::Unknown if missing == PENDING => TokenError::pending(),
            Refusal::Unknown => TokenError::grant(missing),
            Refusal::Expired if missing == PENDING => expired(),
            other => TokenError::grant(other.message()),
        })?;
        record.set_connector(CLIENT_ID);
        record.admit(Some(&code.identity.name)).map_err(unavailable)?;
        let login = Login { address: address.to_string(), user_agent: agent_of(head) };
        let (value, left) =
            redeem(&self.registry, &code, login).await.map_err(|error| match error.code() {
                401 => TokenError::grant("the code was used"),
                _ => unavailable(error),
            })?;
        record.set_user(&code.identity.name, &code.identity.access_key);
        let mut answer = json!({ "access_token": value.expose(), "token_type": "Bearer" });
        if let Some(left) = left {
            answer["expires_in"] = Value::from(left);
        }
        Ok(answer)
    }
}

fn expired() -> TokenError {
    TokenError::of(StatusCode::BAD_REQUEST, "expired_token", "the login has ended: begin it again")
}

fn required<'a>(form: &'a Form, name: &str) -> Result<&'a str, TokenError> {
    form.get(name).ok_or_else(|| TokenError::request(&format!("{name} is missing")))
}

fn check_client(form: &Form) -> Result<(), TokenError> {
    if required(form, "client_id")? == CLIENT_ID {
        return Ok(());
    }
    Err(TokenError::of(StatusCode::BAD_REQUEST, "invalid_client", "client_id must be postern-cli"))
}
