//! `postern delete KIND NAME…`: several objects of a kind. Of secrets, an error says how to delete
//! one key.

use clap::{Args, Subcommand};
use postern_client::{Collection, Error};
use postern_kinds::namespace::Namespace;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _, Verb};
use postern_meta::status::Reason;

use super::by_kind::{KindArgs, OfKind};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, NamespaceFlag};
use crate::process::Process;
use crate::session::Session;
use crate::{kinds, output, parse};

/// Objects to delete.
#[derive(Args, Debug)]
pub struct Delete {
    /// The objects' whole names
    #[arg(required = true, value_name = "NAME", value_parser = parse::name)]
    names: Vec<String>,

    /// Ask before anything is deleted
    #[arg(short, long)]
    interactive: bool,

    /// Print KIND/NAME of what was deleted
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// The effects of deleting an object on which others depend.
const CONSEQUENCES: [(&Info, &str); 4] = [
    (
        &User::INFO,
        "The access keys of the user stop working at once, and are deleted. A new user of the same \
         name does not get them back.",
    ),
    (
        &Team::INFO,
        "The access keys of the team stop working at once, and are deleted. Its users lose the \
         permissions of the team.",
    ),
    (
        &OwnedAccessKey::INFO,
        "The key stops working at once for all its holders, and its value cannot be restored. \
         `postern disable accesskey` can be undone.",
    ),
    (&Namespace::INFO, "Everything in the namespace is deleted with it."),
];

/// Delete commands that are written for one kind.
#[derive(Subcommand, Debug)]
pub enum SpecialDelete {
    /// Delete secrets, each with all its keys.
    #[command(
        name = kinds::name(&SharedSecret::INFO),
        visible_aliases = kinds::visible_aliases(&SharedSecret::INFO),
        aliases = kinds::hidden_aliases(&SharedSecret::INFO),
    )]
    Secret(DeleteSecrets),
}

/// Secrets to delete.
#[derive(Args, Debug)]
pub struct DeleteSecrets {
    #[command(flatten)]
    namespace: NamespaceFlag,

    #[command(flatten)]
    delete: Delete,
}

impl KindArgs for Delete {
    const VERB: Verb = Verb::Delete;
    type NamespaceArgs = NamespaceFlag;
    type Special = SpecialDelete;

    fn about(info: &Info) -> String {
        format!("Delete {} by name", kinds::plural_name(info))
    }

    fn consequence(info: &Info) -> Option<&'static str> {
        CONSEQUENCES.iter().find(|(of, _)| of.kind == info.kind).map(|(_, text)| *text)
    }
}

impl SpecialDelete {
    /// Deletes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let Self::Secret(DeleteSecrets { namespace, delete }) = self;
        let namespace_args = Some(namespace);
        let generic = OfKind { info: &SharedSecret::INFO, namespace_args, args: delete };
        generic.run_with_hint(process, one_key).await
    }
}

/// How to delete one key of a secret: `delete` takes whole names.
fn one_key(path: &str) -> Option<String> {
    let (secret, key) = path.split_once('.')?;
    Some(format!(
        "delete removes the whole secret; to remove only the key {key} of {secret}, run: kubectl \
         patch \
         sharedsecret {secret} --type=merge -p '{{\"spec\":{{\"data\":{{\"{key}\":null}}}}}}'"
    ))
}

impl OfKind<Delete> {
    /// Deletes.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        self.run_with_hint(process, |_| None).await
    }

    fn confirm(&self, process: &Process) -> Result<(), CliError> {
        if !process.stdin_is_terminal() {
            let text = "--interactive asks for confirmation, and there is no terminal";
            return Err(CliError::usage(text));
        }
        let kind = kinds::name(self.info);
        if process.confirm(&format!("Delete {kind} {}?", self.args.names.join(", ")))? {
            return Ok(());
        }
        Err(CliError::new("not confirmed, so nothing was done"))
    }

    /// Deletes one object after the other, also after an error. `hint` says what else a name may
    /// mean that does not exist.
    async fn run_with_hint(
        self,
        process: &Process,
        hint: fn(&str) -> Option<String>,
    ) -> Result<(), CliError> {
        if self.args.interactive {
            self.confirm(process)?;
        }
        let mut session = Session::open(&self.args.connection, process)?;
        session.load_namespace(self.namespace_args.as_ref()).await?;
        let namespace = self.namespace_args.as_ref().map(|flag| session.namespace_or(flag));
        let of = Collection::new(self.info, namespace.as_deref());
        let mut failed = false;
        for (done, name) in self.args.names.iter().enumerate() {
            let Err(error) = delete(&mut session, of, name, process).await else {
                if self.args.output.is_some() {
                    let name = output::full_name(self.info, name);
                    process.write_stdout(format!("{name}\n").as_bytes())?;
                }
                continue;
            };
            let mut explained = session.explain_named(of, name, &error).await;
            if error.reason() == Some(Reason::NotFound) {
                explained.hints.extend(hint(name));
            }
            if error.fails_all_requests() {
                return Err(explained.not_tried(&self.args.names[done + 1..]));
            }
            process.print_error(&explained);
            failed = true;
        }
        if failed { Err(CliError::reported()) } else { Ok(()) }
    }
}

async fn delete(
    session: &mut Session,
    of: Collection<'_>,
    name: &str,
    process: &Process,
) -> Result<(), Error> {
    let kind = kinds::name(of.info());
    let Some(left) = session.client.delete(of, name).await? else {
        process.print_status(&format!("{kind} {name} deleted"));
        return Ok(());
    };
    process.print_status(&format!("{kind} {name} is being deleted"));
    if !left.metadata.finalizers.is_empty() {
        let finalizers = output::escape(&left.metadata.finalizers.join(", "));
        process.print_note(&format!("it waits for its finalizers: {finalizers}"));
    }
    Ok(())
}
