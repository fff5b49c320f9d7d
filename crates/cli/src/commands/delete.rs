//! Deleting.

use clap::{Args, Subcommand};
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::shared_secret::SharedSecret;
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _};
use postern_meta::status::Reason;

use super::explain_named;
use crate::connect::Session;
use crate::failure::Failure;
use crate::flags::{Connection, Namespace};
use crate::output;
use crate::parse;
use crate::surroundings::Surroundings;

/// What can be deleted.
#[derive(Subcommand, Debug)]
pub enum Delete {
    /// Delete a shared secret with all its keys.
    #[command(alias = "secrets")]
    Secret(Secret),
    /// Delete an access key, which stops working at once.
    #[command(name = "accesskey", visible_alias = "key", alias = "accesskeys")]
    AccessKey(Named),
    /// Delete a user, whose access keys stop working at once.
    #[command(alias = "users")]
    User(Named),
    /// Delete a team, whose access keys stop working at once.
    #[command(alias = "teams")]
    Team(Named),
}

/// A secret to delete.
#[derive(Args, Debug)]
pub struct Secret {
    #[command(flatten)]
    namespace: Namespace,

    #[command(flatten)]
    named: Named,
}

/// Something to delete.
#[derive(Args, Debug)]
pub struct Named {
    /// Its whole name
    #[arg(value_parser = parse::name)]
    name: String,

    /// Print KIND/NAME of what was deleted
    #[arg(short, long, value_name = "FORMAT", value_parser = ["name"])]
    output: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

impl Delete {
    /// Deletes.
    pub(crate) async fn run(self, surroundings: &Surroundings) -> Result<(), Failure> {
        match self {
            Self::Secret(Secret { namespace, named }) => {
                let session = Session::open(&named.connection, surroundings)?;
                let namespace = namespace.namespace.unwrap_or_else(|| session.namespace.clone());
                named.run(session, &SharedSecret::INFO, Some(&namespace), surroundings).await
            }
            Self::AccessKey(named) => named.open(&OwnedAccessKey::INFO, surroundings).await,
            Self::User(named) => named.open(&User::INFO, surroundings).await,
            Self::Team(named) => named.open(&Team::INFO, surroundings).await,
        }
    }
}

impl Named {
    async fn open(self, info: &'static Info, surroundings: &Surroundings) -> Result<(), Failure> {
        let session = Session::open(&self.connection, surroundings)?;
        self.run(session, info, None, surroundings).await
    }

    async fn run(
        self,
        mut session: Session,
        info: &'static Info,
        namespace: Option<&str>,
        surroundings: &Surroundings,
    ) -> Result<(), Failure> {
        let of = Collection::new(info, namespace);
        let (name, kind) = (&self.name, info.singular);
        match session.client.delete(of, name).await {
            Ok(None) => surroundings.say(&format!("{kind} {name} deleted")),
            Ok(Some(left)) => {
                let finalizers = left.metadata.finalizers.join(", ");
                surroundings.say(&format!("{kind} {name} is being deleted"));
                if !finalizers.is_empty() {
                    let finalizers = output::tame(&finalizers);
                    surroundings.note(&format!("it waits for its finalizers: {finalizers}"));
                }
            }
            Err(error) => {
                let failure = explain_named(&mut session, of, name, &error).await;
                let one_key = info.kind == SharedSecret::INFO.kind
                    && error.reason() == Some(Reason::NotFound);
                return Err(match name.split_once('.').filter(|_| one_key) {
                    Some((secret, key)) => failure.hint(one_key_only(secret, key)),
                    None => failure,
                });
            }
        }
        match self.output {
            None => Ok(()),
            Some(_) => surroundings.out(format!("{}\n", output::full_name(info, name)).as_bytes()),
        }
    }
}

/// Deleting takes a whole name; one key goes by a patch.
fn one_key_only(secret: &str, key: &str) -> String {
    format!(
        "secrets are deleted whole; to take the key {key} out of {secret}: kubectl patch \
         sharedsecret {secret} --type=merge -p '{{\"spec\":{{\"data\":{{\"{key}\":null}}}}}}'"
    )
}
