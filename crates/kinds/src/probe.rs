//! The last attempt of the server to reach a cluster or an instance. See `docs/reference/projects.md#phase`.

use postern_meta::object::Object;

use crate::prelude::*;

/// The route to a target, and whether a request of the server got there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "sh.platform.management.v1.Probe")]
pub struct Probe {
    /// A digest of the route: the version of its kubeconfig, or its agent. If the route changes, the server tries it again.
    pub route: String,
    /// `Reached`, `Failed` or `Unknown`.
    pub result: ProbeResult,
}

/// The result of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProbeResult {
    /// The server has not tried the route, or the result is too old.
    #[default]
    Unknown,
    /// The request got there.
    Reached,
    /// The request did not get there.
    Failed,
}

impl Probe {
    /// The probe in the status of an object; `None` if the object has no route.
    pub fn of(object: &Object) -> Option<Self> {
        let probe = object.fields.get("status")?.get("probe")?;
        Self::deserialize(probe).ok()
    }
}
