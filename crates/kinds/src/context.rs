//! What a kind may look at while it prepares, validates or acts: the caller, the time, the
//! principals, the operator's settings. No clock, no storage.

use postern_meta::time::Timestamp;

use crate::principal::Principals;

/// Who is writing, as far as a kind may care: for defaults such as an object's owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The User behind the request, if it is one.
    pub user: Option<String>,
    /// The Team behind it, if it is one.
    pub team: Option<String>,
}

/// What a kind may look at.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who is writing.
    pub caller: &'a Caller,
    /// The time of the write.
    pub now: Timestamp,
    /// Which users and teams there are.
    pub principals: &'a dyn Principals,
    /// The longest life of an access key, which then also is the default; `None` for no limit.
    pub access_key_max_ttl_seconds: Option<i64>,
}

impl<'a> Context<'a> {
    /// Returns a context without a limit to the life of access keys.
    pub fn of(caller: &'a Caller, now: Timestamp, principals: &'a dyn Principals) -> Self {
        Self { caller, now, principals, access_key_max_ttl_seconds: None }
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("caller", self.caller).field("now", &self.now).finish()
    }
}

/// What the server knows about an object beyond what is stored, when it answers with it.
pub trait Observations {
    /// Returns when the access key of a name and uid was used last; `None` for never.
    fn last_activity(&self, key: &str, uid: &str) -> Option<Timestamp>;

    /// May the caller do this to the object that is answered?
    fn caller_may(&self, verb: &str) -> bool;
}
