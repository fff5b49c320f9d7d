//! What the machine's own administrator can tell a server to do: a new key when all are lost, new
//! seal keys, a look over everything that is stored.
//!
//! A running server listens on `DIR/admin.sock` for that (`socket.rs`). [`call`] finds it there;
//! when no server runs, it does what concerns the database alone by itself. One line of JSON asks;
//! lines of JSON answer: any number of `{"progress": …}`, then `{"answer": …}` or `{"error": …}`.

mod check;
mod client;
pub(crate) mod reset_key;
pub(crate) mod socket;
mod storage;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use arc_swap::ArcSwap;
use postern_meta::decode::decode_typed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use client::call;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminCommand {
    /// A new access key for the user `admin`, written into the administrator's kubeconfig. Needs
    /// a running server.
    ResetKey,
    /// A new seal key, for everything that is written from now on.
    RotateKey,
    /// Everything that is stored under an older seal key is brought under the current one.
    Reseal,
    /// Everything that is stored is opened and decoded, to see whether it can be.
    Check,
}

impl AdminCommand {
    /// Its name, as the command line has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ResetKey => "reset-key",
            Self::RotateKey => "rotate-key",
            Self::Reseal => "reseal",
            Self::Check => "check",
        }
    }
}

/// How far a command has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Stored values that have been looked at.
    pub seen: u64,
    /// Stored values still to be looked at, as far as is known.
    pub remaining: u64,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandOutput {
    /// Of [`AdminCommand::ResetKey`].
    ResetKey {
        /// Where the new key is: in this file, and nowhere else.
        kubeconfig: PathBuf,
        /// The name of the new OwnedAccessKey.
        key_name: String,
        /// The user had to be made, enabled, or put into `system:masters` again.
        user_mended: bool,
        /// The user's other keys, which go on working: whoever has lost one should know.
        other_keys: Vec<String>,
    },
    /// Of [`AdminCommand::RotateKey`].
    RotateKey {
        /// The id of the new seal key, which is not secret.
        current: String,
        /// The ids of all seal keys, oldest first.
        all: Vec<String>,
    },
    /// Of [`AdminCommand::Reseal`].
    Reseal {
        /// Values that were looked at.
        seen: u64,
        /// Values that are under the current key now and were not before.
        rewritten: u64,
        /// Values that cannot be opened, and were left as they are.
        damaged: u64,
        /// The ids of the seal keys that something still needs, history among it; `None` when
        /// damage keeps that from being known.
        needed: Option<Vec<String>>,
    },
    /// Of [`AdminCommand::Check`].
    Check {
        /// Values that were looked at.
        seen: u64,
        /// What is damaged: at most [`MAX_REPORTED`] of them.
        damaged: Vec<Damage>,
        /// How many are damaged in all.
        damaged_total: u64,
    },
}

/// A stored value that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// Under which storage key it stands: for objects, group, plural, namespace and name.
    pub key: String,
    /// What is wrong. Never holds anything of the value.
    pub reason: String,
}

/// Damaged values that a check tells one by one.
pub const MAX_REPORTED: usize = 1000;

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Progress(Progress),
    #[serde(rename = "answer")]
    Output(CommandOutput),
    Error(String),
}

/// A line of the request.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    command: AdminCommand,
}

/// A line, decoded.
fn read_line<T: DeserializeOwned>(line: &[u8]) -> anyhow::Result<T> {
    decode_typed(line).map_err(|error| anyhow::anyhow!("{error}"))
}

/// A line, encoded.
fn to_line<T: Serialize>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// The administrator's kubeconfig, and what has to stand in it.
pub(crate) struct Access {
    /// Its path.
    pub(crate) kubeconfig: PathBuf,
    /// How clients on this machine reach the server.
    pub(crate) host: String,
    /// What they should trust, in PEM. A new certificate can change it.
    pub(crate) trust: ArcSwap<String>,
}
