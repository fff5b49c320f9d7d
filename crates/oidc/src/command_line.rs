//! Logins of the command line: the requests of its one client. The browser is on the same machine
//! (RFC 8252) or on another machine (the shapes of RFC 8628).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::login::{StateKey, StateRefused, challenge};

/// The only client.
pub const CLIENT_ID: &str = "postern-cli";

/// How long a login on another machine may take, in seconds.
pub const DEVICE_SECONDS: i64 = 600;

/// The path at which the command line listens.
const CALLBACK_PATH: &str = "/callback";

/// The characters of a user code. Without vowels they form no words, and none looks like another one.
const USER_CODE_ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// Characters of a user code, of a challenge, of a verifier, of a state, and of the name of a machine.
const USER_CODE_CHARS: usize = 8;
const CHALLENGE_CHARS: usize = 43;
const MIN_VERIFIER_CHARS: usize = 43;
const MAX_VERIFIER_CHARS: usize = 128;
const MAX_STATE_CHARS: usize = 128;
const MAX_HOST_CHARS: usize = 64;

/// The longest lifetime that can be requested, in seconds.
const MAX_TTL_SECONDS: i64 = 10 * 365 * 86_400;

/// The purpose of the encrypted form of a [`Device`].
const DEVICE: &str = "device";

/// The part of a request that a login by browser and one on another machine have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The challenge of the verifier.
    pub challenge: String,
    /// The name of the machine, as the client sends it.
    pub host: String,
    /// The requested lifetime of the key in seconds; 0 for the lifetime of the session that
    /// consents.
    pub ttl_seconds: i64,
}

/// A request for a code that the browser brings to the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// What both kinds of requests have.
    pub asked: Asked,
    /// Where the browser brings the code.
    pub redirect_uri: String,
    /// The value that the client gets back with the code.
    pub state: String,
}

/// Why a request is invalid: the text for the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid(pub &'static str);

/// The fields of a request, by name. An empty one is absent.
pub trait Fields {
    /// The value of a field.
    fn get(&self, name: &str) -> Option<&str>;
}

impl Asked {
    /// Reads the fields of a request.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn read(fields: &impl Fields) -> Result<Self, Invalid> {
        if fields.get("client_id") != Some(CLIENT_ID) {
            return Err(Invalid("client_id must be postern-cli"));
        }
        if fields.get("code_challenge_method") != Some("S256") {
            return Err(Invalid("code_challenge_method must be S256"));
        }
        let ttl = fields.get("ttl").map_or(Some(0), seconds);
        let ttl_seconds = ttl.ok_or(Invalid("ttl must be a number of seconds"))?;
        let challenge = fields.get("code_challenge").unwrap_or_default().to_owned();
        Self { challenge, host: fields.get("host").unwrap_or_default().to_owned(), ttl_seconds }
            .checked()
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn checked(self) -> Result<Self, Invalid> {
        if self.challenge.len() != CHALLENGE_CHARS || !is_base64url(&self.challenge) {
            return Err(Invalid("code_challenge must have 43 characters of base64url"));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if self.host.len() > MAX_HOST_CHARS || !self.host.bytes().all(is_name) {
            return Err(Invalid("host must have at most 64 letters, digits, dots and dashes"));
        }
        if !(0..=MAX_TTL_SECONDS).contains(&self.ttl_seconds) {
            return Err(Invalid("ttl must be a number of seconds"));
        }
        Ok(self)
    }
}

impl Authorization {
    /// Reads the query of a request.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn read(fields: &impl Fields) -> Result<Self, Invalid> {
        if fields.get("response_type") != Some("code") {
            return Err(Invalid("response_type must be code"));
        }
        let asked = Asked::read(fields)?;
        let redirect_uri = fields.get("redirect_uri").unwrap_or_default().to_owned();
        let state = fields.get("state").unwrap_or_default().to_owned();
        Self { asked, redirect_uri, state }.checked()
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn checked(self) -> Result<Self, Invalid> {
        if !is_redirect_uri(&self.redirect_uri) {
            return Err(Invalid(
                "redirect_uri must be http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback",
            ));
        }
        if !(8..=MAX_STATE_CHARS).contains(&self.state.len()) || !is_base64url(&self.state) {
            return Err(Invalid("state must have 8 to 128 characters of base64url"));
        }
        Ok(Self { asked: self.asked.checked()?, ..self })
    }

    /// The address of the command line with a result, such as a code.
    pub fn address(&self, (name, value): (&str, &str)) -> String {
        // A code and a state need no escapes.
        format!("{}?{name}={value}&state={}", self.redirect_uri, self.state)
    }

    /// The text for a code. Its digest is stored.
    pub fn stored(&self, code: &str) -> String {
        with_code(code, &self.asked.challenge, &self.redirect_uri)
    }
}

/// The text for a code, from the request that redeems it. Its digest is stored. `None` if the
/// verifier cannot be valid.
pub fn stored_by_verifier(code: &str, verifier: &str, redirect_uri: &str) -> Option<String> {
    is_verifier(verifier).then(|| with_code(code, &challenge(verifier), redirect_uri))
}

/// Joins a code and a hash of the challenge and the redirect URI. The hash gives the text a fixed
/// form for all values.
fn with_code(code: &str, of_verifier: &str, redirect_uri: &str) -> String {
    format!("{code}.{}", challenge(&format!("{of_verifier} {redirect_uri}")))
}

/// Whether a URI is that of a command line on the machine of the browser: exactly these two hosts and this path.
fn is_redirect_uri(uri: &str) -> bool {
    let rest =
        ["http://127.0.0.1:", "http://[::1]:"].iter().find_map(|host| uri.strip_prefix(host));
    let port = rest.and_then(|rest| rest.strip_suffix(CALLBACK_PATH));
    port.is_some_and(|port| {
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
        is_number && port.parse::<u16>().is_ok()
    })
}

fn is_base64url(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Whether a text can be a verifier (RFC 7636 section 4.1).
fn is_verifier(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (MIN_VERIFIER_CHARS..=MAX_VERIFIER_CHARS).contains(&text.len())
        && text.bytes().all(is_unreserved)
}

fn seconds(text: &str) -> Option<i64> {
    let is_number = text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// A login of a command line on a machine without the browser. It is in the link, encrypted: the
/// server stores nothing for a client that has not logged in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The characters that the terminal shows.
    user_code: String,
    challenge: String,
    host: String,
    ttl_seconds: i64,
    /// The address that the request came from.
    address: String,
    /// The end, in seconds since 1970.
    ends: i64,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Device {
    /// Begins a login.
    pub fn begin(random: &[u8; 32], asked: &Asked, address: &str, now: i64) -> Self {
        // With four bytes for each character, no character is noticeably more frequent than another one.
        let letters = random.chunks_exact(4).take(USER_CODE_CHARS).map(|bytes| {
            let number = bytes.iter().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
            let index = usize::try_from(number).unwrap_or_default() % USER_CODE_ALPHABET.len();
            char::from(USER_CODE_ALPHABET[index])
        });
        Self {
            user_code: letters.collect(),
            challenge: asked.challenge.clone(),
            host: asked.host.clone(),
            ttl_seconds: asked.ttl_seconds,
            address: address.to_owned(),
            ends: now.saturating_add(DEVICE_SECONDS),
        }
    }

    /// The encrypted form.
    pub fn seal(&self, key: &StateKey, random: [u8; 32]) -> Option<String> {
        key.seal(DEVICE, random, self)
    }

    /// Reads the encrypted form.
    ///
    /// # Errors
    /// See [`StateRefused`].
    pub fn open(key: &StateKey, sealed: &str, now: i64) -> Result<Self, StateRefused> {
        let device: Self = key.open(DEVICE, sealed)?;
        if device.ends <= now { Err(StateRefused::Expired) } else { Ok(device) }
    }

    /// The characters for the terminal, in two groups.
    pub fn user_code(&self) -> String {
        let (first, second) = self.user_code.split_at(self.user_code.len() / 2);
        format!("{first}-{second}")
    }

    /// Whether a person typed the characters that the terminal shows. Blanks, dashes and case do not count.
    pub fn is_typed(&self, typed: &str) -> bool {
        let typed = typed.chars().filter(char::is_ascii_alphanumeric).take(2 * USER_CODE_CHARS);
        let typed: String = typed.map(|letter| letter.to_ascii_uppercase()).collect();
        verify_slices_are_equal(self.user_code.as_bytes(), typed.as_bytes()).is_ok()
    }

    /// The address that the request came from.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The values that the command line sent.
    pub fn asked(&self) -> Asked {
        let (challenge, host) = (self.challenge.clone(), self.host.clone());
        Asked { challenge, host, ttl_seconds: self.ttl_seconds }
    }

    /// The text for a consent. Its digest is stored when a person consents. `sealed` is the
    /// encrypted form.
    pub fn stored(&self, sealed: &str) -> String {
        with_code(sealed, &self.challenge, "")
    }

    /// Whether a verifier is that of the client that began the login.
    pub fn is_begun_with(&self, verifier: &str) -> bool {
        is_verifier(verifier)
            && verify_slices_are_equal(challenge(verifier).as_bytes(), self.challenge.as_bytes())
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const VERIFIER: &str = "abcdefghijklmnopqrstuvwxyz-0123456789_ABCDEFG";

    struct Query(BTreeMap<&'static str, String>);

    impl Fields for Query {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
        }
    }

    fn with(changes: &[(&'static str, &str)]) -> Result<Authorization, Invalid> {
        let mut query = BTreeMap::from([
            ("response_type", "code".to_owned()),
            ("client_id", CLIENT_ID.to_owned()),
            ("redirect_uri", "http://127.0.0.1:40123/callback".to_owned()),
            ("state", "0123456789abcdef".to_owned()),
            ("code_challenge", challenge(VERIFIER)),
            ("code_challenge_method", "S256".to_owned()),
        ]);
        query.extend(changes.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Authorization::read(&Query(query))
    }

    #[test]
    fn a_redirect_goes_to_this_machine_alone() {
        for uri in ["http://127.0.0.1:1/callback", "http://[::1]:65535/callback"] {
            assert!(with(&[("redirect_uri", uri)]).is_ok(), "{uri}");
        }
        for uri in [
            "",
            "http://127.0.0.1/callback",
            "http://127.0.0.1:/callback",
            "http://127.0.0.1:0/callback",
            "http://127.0.0.1:080/callback",
            "http://127.0.0.1:65536/callback",
            "http://127.0.0.1:+80/callback",
            "http://127.0.0.1:80/callback/",
            "http://127.0.0.1:80/callback?x=1",
            "http://127.0.0.1:80/callback#x",
            "http://127.0.0.1:80/other",
            "http://127.0.0.1:80/x/../callback",
            "http://127.0.0.1:80//callback",
            "http://127.0.0.1:80@evil.example/callback",
            "http://127.0.0.1:80.evil.example/callback",
            "http://user@127.0.0.1:80/callback",
            "http://127.0.0.2:80/callback",
            "http://127.1:80/callback",
            "http://0x7f000001:80/callback",
            "http://2130706433:80/callback",
            "http://[::ffff:127.0.0.1]:80/callback",
            "http://[0:0:0:0:0:0:0:1]:80/callback",
            "http://localhost:80/callback",
            "https://127.0.0.1:80/callback",
            "HTTP://127.0.0.1:80/callback",
            "javascript:alert(1)//http://127.0.0.1:80/callback",
            " http://127.0.0.1:80/callback",
            "http://127.0.0.1:80/callback\n",
        ] {
            let invalid = with(&[("redirect_uri", uri)]).unwrap_err();
            assert!(invalid.0.starts_with("redirect_uri must be"), "{uri}");
        }
    }

    #[test]
    fn a_request_needs_the_client_and_a_challenge() {
        let long = "x".repeat(200);
        for (name, value, text) in [
            ("response_type", "token", "response_type"),
            ("client_id", "other", "client_id"),
            ("client_id", "", "client_id"),
            ("code_challenge_method", "plain", "code_challenge_method"),
            ("code_challenge_method", "", "code_challenge_method"),
            ("code_challenge", "", "code_challenge"),
            ("code_challenge", "short", "code_challenge"),
            ("code_challenge", "a+cdefghijklmnopqrstuvwxyz-0123456789_ABCDE", "code_challenge"),
            ("state", "", "state"),
            ("state", "short", "state"),
            ("state", "has blanks in it", "state"),
            ("state", &long, "state"),
            ("host", &long, "host"),
            ("host", "<b>", "host"),
            ("ttl", "-1", "ttl"),
            ("ttl", "1h", "ttl"),
            ("ttl", "99999999999", "ttl"),
        ] {
            let invalid = with(&[(name, value)]).unwrap_err();
            assert!(invalid.0.starts_with(text), "{name}={value}: {}", invalid.0);
        }
        let asked = with(&[("ttl", "3600"), ("host", "laptop-1.example")]).unwrap().asked;
        assert_eq!((asked.ttl_seconds, asked.host.as_str()), (3600, "laptop-1.example"));
    }

    #[test]
    fn a_code_is_found_only_with_its_verifier_and_redirect_uri() {
        let asked = with(&[]).unwrap();
        let (stored, uri) = (asked.stored("code"), asked.redirect_uri.as_str());
        assert_eq!(stored_by_verifier("code", VERIFIER, uri), Some(stored.clone()));
        let other = VERIFIER.replace('a', "b");
        assert_ne!(stored_by_verifier("code", &other, uri), Some(stored.clone()));
        assert_ne!(stored_by_verifier("edoc", VERIFIER, uri), Some(stored.clone()));
        assert_ne!(stored_by_verifier("code", VERIFIER, ""), Some(stored));
        for verifier in ["", "short", &VERIFIER.replace('a', " "), &VERIFIER.repeat(4)] {
            assert_eq!(stored_by_verifier("code", verifier, uri), None);
        }
        let address = asked.address(("code", "c"));
        assert_eq!(address, "http://127.0.0.1:40123/callback?code=c&state=0123456789abcdef");
    }

    #[test]
    fn a_device_is_read_until_its_end_and_by_its_key_alone() {
        let asked = with(&[("host", "build-7")]).unwrap().asked;
        let device = Device::begin(
            &std::array::from_fn(|n| u8::try_from(n * 7).unwrap()),
            &asked,
            "192.0.2.1",
            100,
        );
        let key = StateKey::new([1; 32]);
        let sealed = device.seal(&key, [2; 32]).unwrap();
        let opened = Device::open(&key, &sealed, 699).unwrap();
        assert_eq!((&opened, opened.asked(), opened.address()), (&device, asked, "192.0.2.1"));
        assert_eq!(Device::open(&key, &sealed, 700), Err(StateRefused::Expired));
        let other = StateKey::new([3; 32]);
        assert_eq!(Device::open(&other, &sealed, 100), Err(StateRefused::Forged));
        let mut changed = sealed.clone().into_bytes();
        let middle = changed.len() / 2;
        changed[middle] = if changed[middle] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert_eq!(Device::open(&key, &changed, 100), Err(StateRefused::Forged));
        // The state of another purpose is none.
        let login = super::super::login::Login::begin(&[[0; 32]; 3], "uid", None, 100);
        let login = login.seal(&key, [4; 32]).unwrap();
        assert_eq!(Device::open(&key, &login, 100), Err(StateRefused::Forged));
        assert!(opened.is_begun_with(VERIFIER));
        assert!(!opened.is_begun_with(&VERIFIER.replace('a', "b")));
        assert!(!format!("{opened:?}").contains(&opened.user_code));
    }

    #[test]
    fn typed_characters_are_compared_without_dashes_and_case() {
        let asked = with(&[]).unwrap().asked;
        let device = Device::begin(&[0; 32], &asked, "", 0);
        assert_eq!(device.user_code(), "BBBB-BBBB");
        for typed in ["BBBB-BBBB", "bbbbbbbb", " bb bb-bb bb "] {
            assert!(device.is_typed(typed), "{typed}");
        }
        for typed in ["", "BBBB-BBB", "BBBB-BBBC", "BBBB-BBBBB"] {
            assert!(!device.is_typed(typed), "{typed}");
        }
    }
}
