//! Whether the server asks a login to wait, and for how long (RFC 6585 section 4, RFC 8628 section 3.5).

use std::time::Duration;

use postern_client::FormResponse;
use postern_kinds::SecretText;
use serde_json::Value;

/// The longest wait that a server can name.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// How much longer each pause gets after `slow_down` (RFC 8628 section 3.5).
pub(super) const SLOWER: Duration = Duration::from_secs(5);

/// Whether the same request can be served later.
pub(super) fn is_busy(response: &FormResponse) -> bool {
    response.code == 429 || response.code == 503 || asks_to_slow_down(response)
}

/// A text of the response; empty if it has none.
pub(super) fn text<'a>(response: &'a FormResponse, name: &str) -> &'a str {
    response.body.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The access key in the response to a login.
pub(super) fn key_in(response: &FormResponse) -> Option<SecretText> {
    let key = response.body.get("access_token").and_then(Value::as_str);
    key.filter(|_| response.code == 200).map(|key| SecretText::from(key.to_owned()))
}

/// Whether the client asks too often.
pub(super) fn asks_to_slow_down(response: &FormResponse) -> bool {
    text(response, "error") == "slow_down"
}

/// How long the server asks to wait. A Status has the seconds of the header as well, which a proxy may have removed.
pub(super) fn retry_after(response: &FormResponse) -> Option<Duration> {
    let of_status = || {
        let seconds = response.body.get("details")?.get("retryAfterSeconds")?.as_u64()?;
        Some(Duration::from_secs(seconds))
    };
    let wait = response.retry_after.or_else(of_status);
    wait.map(|wait| wait.min(WAIT_MAX)).filter(|wait| !wait.is_zero())
}
