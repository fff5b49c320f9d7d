//! Reading the kubeconfig that the server writes, as far as the harness needs it, and writing others.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// How to reach the server, as the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// `https://HOST:PORT/kubernetes/management`
    pub server: String,
    /// The certificate authority, in PEM.
    pub authority: Vec<u8>,
    /// The access key.
    pub token: String,
    /// The namespace of the context.
    pub namespace: String,
}

impl Kubeconfig {
    /// Reads the current context of a kubeconfig.
    ///
    /// # Errors
    /// If the file is incomplete or not a kubeconfig. The error names the missing part.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let file: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
        let current = text_at(&file, "/current-context")?;
        let context = named(&file, "contexts", &current)?;
        let cluster = named(&file, "clusters", &text_at(context, "/context/cluster")?)?;
        let user = named(&file, "users", &text_at(context, "/context/user")?)?;
        let authority = text_at(cluster, "/cluster/certificate-authority-data")?;
        Ok(Self {
            server: text_at(cluster, "/cluster/server")?,
            authority: STANDARD.decode(authority).map_err(|error| error.to_string())?,
            token: text_at(user, "/user/token")?,
            namespace: text_at(context, "/context/namespace")?,
        })
    }

    /// Writes a file that leads there, for kubectl or for an agent, and returns its path.
    #[must_use]
    pub fn write(&self, path: &Path) -> PathBuf {
        let context = json!({ "cluster": "x", "user": "x", "namespace": self.namespace });
        let cluster = json!({
            "server": self.server,
            "certificate-authority-data": STANDARD.encode(&self.authority),
        });
        let file = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{ "name": "x", "context": context }],
            "clusters": [{ "name": "x", "cluster": cluster }],
            "users": [{ "name": "x", "user": { "token": self.token } }],
        });
        std::fs::write(path, file.to_string()).unwrap();
        path.to_path_buf()
    }

    /// `HOST:PORT`
    #[must_use]
    pub fn authority_of_server(&self) -> &str {
        let rest = self.server.strip_prefix("https://").unwrap_or(&self.server);
        rest.split('/').next().unwrap_or(rest)
    }
}

fn text_at(value: &Value, pointer: &str) -> Result<String, String> {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.map(str::to_owned).ok_or_else(|| format!("the kubeconfig has no {pointer}"))
}

fn named<'a>(file: &'a Value, list: &str, name: &str) -> Result<&'a Value, String> {
    let entries = file[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let entry = entries.iter().find(|entry| entry["name"] == name);
    entry.ok_or_else(|| format!("the kubeconfig has no {name} in {list}"))
}
