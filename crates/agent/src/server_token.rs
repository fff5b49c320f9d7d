//! Tokens of the central server itself: each is for one use at the agent, by its audience. No caller is given one.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use postern_auth::bearer;

use crate::state::State;

/// Whether the headers have a token of the central server. `audience` is that of its use, by the uid of the cluster.
pub(crate) fn is_in(state: &State, headers: &HeaderMap, audience: impl Fn(&str) -> String) -> bool {
    let values = headers.get_all(AUTHORIZATION).iter();
    let (Ok(token), Ok(config)) =
        (bearer::parse(values.map(HeaderValue::as_bytes)), state.config())
    else {
        return false;
    };
    let verifier = config.verifier_for(audience(&config.spec.cluster.uid));
    verifier.verify(token.expose(), state.now()).is_ok()
}
