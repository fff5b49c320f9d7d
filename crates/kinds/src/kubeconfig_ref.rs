//! The reference to a kubeconfig: the core Secret and the key in it. The content of a kubeconfig is in `kubeconfig`.
//! See `docs/reference/clusters.md#kubeconfigs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The key of the Secret, where a reference names none.
const DEFAULT_KEY: &str = "config";

/// The kubeconfig by which something is reached: a key of a core Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.KubeconfigRef")]
pub struct KubeconfigRef {
    /// The name of the Secret. Required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_name: String,
    /// The namespace of the Secret. For an instance it is the instance's own namespace, which is the default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_namespace: String,
    /// The key of the Secret; `config` if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
}

impl KubeconfigRef {
    /// The namespace of the Secret, for an object in a namespace.
    pub fn namespace_in<'a>(&'a self, namespace: &'a str) -> &'a str {
        if self.secret_namespace.is_empty() { namespace } else { &self.secret_namespace }
    }

    /// The key of the Secret under which the kubeconfig is.
    pub fn key_or_default(&self) -> &str {
        if self.key.is_empty() { DEFAULT_KEY } else { &self.key }
    }
}
