//! The names of the protocol, and the version that both ends speak.

/// The versions of the protocol that this build knows, as WebSocket sub-protocols. The newest is first.
pub const PROTOCOLS: &[&str] = &["v1.tunnel.platform.sh"];

/// The header of the agent's request with the agent's name.
pub const AGENT_NAME: &str = "platform-agent-name";

/// The header of the agent's request with the uid of the Cluster that its configuration is for. The server refuses a
/// tunnel to a Cluster that was created again under the same name.
pub const CLUSTER_UID: &str = "platform-cluster-uid";

/// The header of the server's response with the server's name.
pub const SERVER_NAME: &str = "platform-server-name";

/// The header of the server's response with the server's version.
pub const SERVER_VERSION: &str = "platform-server-version";

/// The header of a request in the tunnel with the number of requests that wait for a free tunnel. The agent removes it.
pub const WAITING: &str = "platform-tunnel-waiting";

/// The maximum length of the name of an agent or a server, in bytes.
pub const MAX_NAME_BYTES: usize = 253;

/// The newest version that this build knows and the other end offers; `None` if there is none.
pub fn negotiate<'a>(offered: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let offered: Vec<&str> = offered.into_iter().collect();
    PROTOCOLS.iter().copied().find(|known| offered.contains(known))
}

/// Whether a text can be the name of an agent or a server: printable ASCII, without blanks and quotes.
pub fn is_name(text: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && text.bytes().all(is_of_name)
}
