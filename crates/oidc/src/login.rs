//! The state of a login while the user is at the provider. It is in a cookie of the browser, encrypted. So the server
//! stores nothing for a client that has not logged in. Each server on a store can end a login that another one has begun.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use postern_meta::decode::decode_typed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// How long a login may take, in seconds.
pub const LOGIN_SECONDS: i64 = 600;

/// Bytes of a return path.
const MAX_PATH_BYTES: usize = 2048;

/// Bytes of an ID token in the address of a logout. Many servers accept lines of 8 KiB.
const MAX_HINT_BYTES: usize = 4096;

/// Where a login returns to if it names no other page.
pub const DEFAULT_RETURN_PATH: &str = "/ui/";

/// Bytes of a state key, and of the random bytes of one state.
const KEY_BYTES: usize = 32;

/// The version of the encrypted form.
const VERSION: u8 = 1;

/// Characters of an encrypted state.
const MAX_STATE_CHARS: usize = 8 * 1024;

/// The characters that a query parameter has unescaped (RFC 3986 section 2.3).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The key that encrypts states. All servers on a store have the same one. It cannot be printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct StateKey([u8; KEY_BYTES]);

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(…)")
    }
}

/// Why a state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateRefused {
    /// It was not encrypted with this key for this purpose, or was changed.
    Forged,
    /// It has ended.
    Expired,
}

impl StateKey {
    /// The key of these secret bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Encrypts a state for a purpose. `random` must be new for each state. `None` if it is too large, or if the
    /// cryptographic library fails.
    pub fn seal(
        &self,
        purpose: &'static str,
        random: [u8; KEY_BYTES],
        state: &impl Serialize,
    ) -> Option<String> {
        let mut sealed = Zeroizing::new(serde_json::to_vec(state).ok()?);
        self.key_of(&random)?
            .seal_in_place_append_tag(one_nonce(), Aad::from(purpose), &mut *sealed)
            .ok()?;
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&random);
        bytes.extend_from_slice(&sealed);
        let text = BASE64URL.encode(bytes);
        (text.len() <= MAX_STATE_CHARS).then_some(text)
    }

    /// Decrypts a state of a purpose.
    ///
    /// # Errors
    /// [`StateRefused::Forged`].
    pub fn open<T: DeserializeOwned>(
        &self,
        purpose: &'static str,
        sealed: &str,
    ) -> Result<T, StateRefused> {
        if sealed.len() > MAX_STATE_CHARS {
            return Err(StateRefused::Forged);
        }
        let bytes = BASE64URL.decode(sealed).map_err(|_| StateRefused::Forged)?;
        let Some((&VERSION, rest)) = bytes.split_first() else { return Err(StateRefused::Forged) };
        let (random, sealed) = rest.split_first_chunk().ok_or(StateRefused::Forged)?;
        let key = self.key_of(random).ok_or(StateRefused::Forged)?;
        let mut opened = Zeroizing::new(sealed.to_vec());
        let plain = key.open_in_place(one_nonce(), Aad::from(purpose), &mut opened);
        let plain = plain.map_err(|_| StateRefused::Forged)?;
        decode_typed(plain).map_err(|_| StateRefused::Forged)
    }

    /// The key of one state. Each state has its own, so no number of them weakens the key.
    fn key_of(&self, random: &[u8; KEY_BYTES]) -> Option<LessSafeKey> {
        let derived = Salt::new(HKDF_SHA256, random).extract(&self.0);
        let info: [&[u8]; 1] = [b"postern login state"];
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        derived.expand(&info, &AES_256_GCM).ok()?.fill(&mut *key).ok()?;
        Some(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).ok()?))
    }
}

/// The only nonce of a key that encrypts once.
fn one_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// A login at a provider that has begun. It cannot be printed, and it is wiped when dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Returned with the response of the provider.
    state: String,
    /// Returned in the ID token.
    nonce: String,
    /// The PKCE verifier with which the code is redeemed (RFC 7636).
    verifier: String,
    /// The uid of the connector.
    connector: String,
    /// The page that the browser is sent to.
    return_path: String,
    /// The end, in seconds since 1970.
    ends: i64,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("connector", &self.connector).finish_non_exhaustive()
    }
}

/// The purpose of the encrypted form of a [`Login`].
const LOGIN: &str = "login";

impl Login {
    /// Begins a login.
    pub fn begin(
        random: &[[u8; 32]; 3],
        connector_uid: &str,
        return_path: Option<&str>,
        now: i64,
    ) -> Self {
        let [state, nonce, verifier] = random.each_ref().map(|bytes| BASE64URL.encode(bytes));
        let asked = return_path.filter(|path| is_return_path(path));
        Self {
            state,
            nonce,
            verifier,
            connector: connector_uid.to_owned(),
            return_path: asked.unwrap_or(DEFAULT_RETURN_PATH).to_owned(),
            ends: now.saturating_add(LOGIN_SECONDS),
        }
    }

    /// The encrypted form, for a cookie.
    pub fn seal(&self, key: &StateKey, random: [u8; KEY_BYTES]) -> Option<String> {
        key.seal(LOGIN, random, self)
    }

    /// Reads the encrypted form.
    ///
    /// # Errors
    /// See [`StateRefused`].
    pub fn open(key: &StateKey, sealed: &str, now: i64) -> Result<Self, StateRefused> {
        let login: Self = key.open(LOGIN, sealed)?;
        if login.ends <= now { Err(StateRefused::Expired) } else { Ok(login) }
    }

    /// Whether an answer of the provider is to this login.
    pub fn is_answered_by(&self, state: &str) -> bool {
        verify_slices_are_equal(self.state.as_bytes(), state.as_bytes()).is_ok()
    }

    /// The characters by which the cookie is named, so that several logins of a browser do not disturb each other. They
    /// are also the first ones of the state.
    pub fn cookie_suffix(&self) -> &str {
        self.state.get(..8).unwrap_or_default()
    }

    /// The end, in seconds since 1970.
    pub fn ends(&self) -> i64 {
        self.ends
    }

    /// The nonce that the ID token must have.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The PKCE verifier with which the code is redeemed.
    pub fn verifier(&self) -> &str {
        &self.verifier
    }

    /// The uid of the connector.
    pub fn connector(&self) -> &str {
        &self.connector
    }

    /// The page that the browser is sent to.
    pub fn return_path(&self) -> &str {
        &self.return_path
    }

    /// The address at the provider that the browser is sent to.
    pub fn address(&self, endpoint: &str, client: &Client<'_>) -> String {
        let challenge = challenge(&self.verifier);
        let parameters = [
            ("response_type", "code"),
            ("client_id", client.id),
            ("redirect_uri", client.redirect_uri),
            ("scope", client.scope),
            ("state", &self.state),
            ("nonce", &self.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        with_parameters(endpoint, parameters)
    }
}

/// The address at the provider where a browser ends its session there (OpenID Connect RP-Initiated Logout 1.0).
/// `return_to` is where the provider may send the browser afterwards. An ID token of more than 4 KiB is left
/// out: then the provider asks the person.
pub fn logout_address(endpoint: &str, id_token: &str, client_id: &str, return_to: &str) -> String {
    let hint = (id_token.len() <= MAX_HINT_BYTES).then_some(("id_token_hint", id_token));
    let parameters = [("client_id", client_id), ("post_logout_redirect_uri", return_to)];
    with_parameters(endpoint, hint.into_iter().chain(parameters))
}

fn with_parameters<'a>(
    endpoint: &str,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut address = endpoint.to_owned();
    for (name, value) in parameters {
        address.push(if address.contains('?') { '&' } else { '?' });
        address.push_str(name);
        address.push('=');
        address.extend(utf8_percent_encode(value, QUERY));
    }
    address
}

/// The client of a connector at its provider.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// The client id.
    pub id: &'a str,
    /// Where the provider sends the browser back to.
    pub redirect_uri: &'a str,
    /// The scopes, separated by blanks.
    pub scope: &'a str,
}

/// The challenge of a verifier (PKCE with S256).
pub fn challenge(verifier: &str) -> String {
    BASE64URL.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Whether a login may return to a path. The path is a page of the console, the consent to a login
/// of the command line, or the page of a trial login.
pub fn is_return_path(path: &str) -> bool {
    let (page, _) = path.split_once('?').unwrap_or((path, ""));
    let is_known = page.starts_with("/ui/") || ["/auth/authorize", "/auth/trial"].contains(&page);
    is_known
        && path.len() <= MAX_PATH_BYTES
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#')
        && !page.contains("//")
        && !page.split('/').any(|segment| matches!(segment, "." | ".."))
        && !page.contains('%')
}
