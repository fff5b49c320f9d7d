//! The cookies with the states of logins that have begun. Each login has its own cookie, so that
//! several tabs of a browser do not disturb each other.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use postern_oidc::login::{LOGIN_SECONDS, Login, StateKey};

/// The prefix of the names. With `__Host-`, browsers take the cookie only from this host, with `Secure` and the path `/`.
const PREFIX: &str = "__Host-postern-login-";

/// The most logins of one browser at once.
const MAX_LOGINS: usize = 5;

/// The attributes. `SameSite=Lax`: the provider sends the browser back with a navigation.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";

/// The encrypted state of a login, if the browser has exactly one cookie for it.
pub(super) fn sealed<'a>(headers: &'a HeaderMap, suffix: &str) -> Option<&'a str> {
    let mut found = cookies(headers).filter(|(name, _)| *name == suffix);
    let (_, sealed) = found.next()?;
    found.next().is_none().then_some(sealed)
}

/// The headers that set the cookie of a new login, and remove those that are too many.
pub(super) fn begin(
    headers: &HeaderMap,
    key: &StateKey,
    login: &Login,
    sealed: &str,
    now: i64,
) -> Vec<HeaderValue> {
    let mut others: Vec<(i64, &str)> = cookies(headers)
        .map(|(name, sealed)| {
            // A state that cannot be read is the first to go.
            let ends = Login::open(key, sealed, now).map_or(0, |login| login.ends());
            (ends, name)
        })
        .collect();
    others.sort_unstable();
    let too_many = (others.len() + 1).saturating_sub(MAX_LOGINS);
    let gone = others.iter().take(too_many).filter_map(|(_, name)| removed(name));
    let text = format!(
        "{PREFIX}{}={sealed}; {ATTRIBUTES}; Max-Age={LOGIN_SECONDS}",
        login.cookie_suffix()
    );
    let set = HeaderValue::from_str(&text).ok().map(|mut set| {
        set.set_sensitive(true);
        set
    });
    gone.chain(set).collect()
}

/// The header that removes the cookie of a login.
pub(super) fn removed(suffix: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{PREFIX}{suffix}=; {ATTRIBUTES}; Max-Age=0")).ok()
}

/// Adds `Set-Cookie` headers.
pub(super) fn add(headers: &mut HeaderMap, cookies: impl IntoIterator<Item = HeaderValue>) {
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// The cookies of logins, by the ends of their names.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(name, value)| {
        let suffix = name.trim().strip_prefix(PREFIX)?;
        let is_suffix = suffix.len() <= 16
            && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        is_suffix.then_some((suffix, value.trim()))
    })
}
