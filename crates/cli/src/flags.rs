//! Flags and output formats that several commands share. Each command decides on their effect.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use postern_client::Selection;
use postern_kinds::SecretText;

use crate::parse;

/// Which server, with which access key and as whom.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectionFlags {
    #[command(flatten)]
    pub(crate) target: TargetFlags,

    #[command(flatten)]
    pub(crate) impersonation: ImpersonationFlags,
}

/// Which server, with which access key.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
pub(crate) struct TargetFlags {
    /// The kubeconfig to use [env: KUBECONFIG, several separated by colons]
    /// [default: ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context to use [env: POSTERN_CONTEXT] [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The server's URL, to do without a kubeconfig; needs an access key
    /// [env: POSTERN_SERVER]
    #[arg(long, value_name = "URL", conflicts_with_all = ["context", "kubeconfig"])]
    pub(crate) server: Option<String>,

    #[command(flatten)]
    pub(crate) credential: CredentialFlags,
}

/// Impersonation flags, as in kubectl.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ImpersonationFlags {
    /// Impersonate this user. The request has only the permissions of that user [default: as in the
    /// kubeconfig, or as the access key's owner]
    #[arg(id = "as", long, value_name = "USER", value_parser = parse::identity)]
    pub(crate) user: Option<String>,

    /// Impersonate this group. It replaces the groups of the user; may be repeated
    #[arg(id = "as-group", long, value_name = "GROUP", value_parser = parse::identity)]
    pub(crate) groups: Vec<String>,

    /// Act as the user with this uid
    #[arg(id = "as-uid", long, value_name = "UID", value_parser = parse::identity)]
    pub(crate) uid: Option<String>,
}

/// The access key, the trusted authorities, and the deadline.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
pub(crate) struct CredentialFlags {
    /// The access key; - reads it from the standard input. A key on the command line is visible in the
    /// process list [env: POSTERN_ACCESS_KEY]
    #[arg(long, value_name = "KEY", value_parser = parse::hidden)]
    pub(crate) access_key: Option<SecretText>,

    /// Trust only the certificate authorities in this PEM file. Use it with --server; a kubeconfig has its
    /// own authority [env: POSTERN_CA_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,

    /// How long one request may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse::timeout)]
    pub(crate) timeout: Duration,

    /// Print method, path and status code of each request on the standard error, never keys or values
    #[arg(long)]
    pub(crate) debug: bool,
}

impl CredentialFlags {
    /// Whether the standard input is the access key.
    pub(crate) fn reads_key_from_stdin(&self) -> bool {
        self.access_key.as_ref().is_some_and(|key| key.expose() == "-")
    }
}

/// The flag for one namespace.
#[derive(Args, Clone, Debug)]
pub struct NamespaceFlag {
    /// The namespace [default: that of the kubeconfig's context, or platform]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse::namespace)]
    pub(crate) namespace: Option<String>,
}

/// In which collections objects are: the server and the namespace.
#[derive(Args, Clone, Debug)]
pub(crate) struct CollectionFlags {
    #[command(flatten)]
    pub(crate) namespace: NamespaceFlag,

    #[command(flatten)]
    pub(crate) connection: ConnectionFlags,
}

/// The flag that selects objects of a collection.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabelFlag {
    /// Only objects with these labels: team=red,env!=test
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,
}

impl LabelFlag {
    /// The selected objects; all without the flag.
    pub(crate) fn selection(&self) -> Selection {
        Selection { labels: self.selector.clone().unwrap_or_default(), ..Selection::default() }
    }
}

/// Whether a command changes anything, as in kubectl.
#[derive(ValueEnum, Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum DryRun {
    /// The server makes the change.
    #[default]
    None,
    /// Nothing is sent to the server but a request for the object.
    Client,
    /// The server checks everything and stores nothing.
    Server,
}

impl DryRun {
    /// The text that follows the report of a change.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Client => " (dry run)",
            Self::Server => " (server dry run)",
        }
    }
}

/// The flag of commands that can do nothing. Without a value, it is `client`, as in kubectl.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DryRunFlag {
    /// Change nothing. With server: the server checks everything; with client: only whether the object exists
    #[arg(long, value_name = "MODE", default_value = "none", num_args = 0..=1, require_equals = true,
          default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
}

/// How an object is printed after a change.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObjectFormat {
    /// The object in JSON.
    Json,
    /// The object in YAML.
    Yaml,
    /// KIND/NAME, as kubectl takes it.
    Name,
}

/// How a part of a kubeconfig is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KubeconfigFormat {
    /// The kubeconfig in JSON.
    Json,
    /// The kubeconfig in YAML.
    Yaml,
    /// The name of the context.
    Name,
}

/// How a list is printed by `list`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableFormat {
    /// A table with more columns.
    Wide,
    /// The whole objects in JSON, values included.
    Json,
    /// The whole objects in YAML, values included.
    Yaml,
    /// KIND/NAME, one a line, as kubectl takes it.
    Name,
}

/// The flag of the commands that write a context.
#[derive(Args, Debug)]
pub(crate) struct CurrentFlag {
    /// Whether the new context becomes the current context
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value = "true", num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    pub(crate) set_current: bool,
}
