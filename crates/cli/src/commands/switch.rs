//! `postern disable` and `postern enable`: access keys and users. A disabled one gives no access, and can be enabled
//! again.

use clap::{Args, Subcommand};
use postern_client::Collection;
use postern_kinds::owned_access_key::OwnedAccessKey;
use postern_kinds::user::User;
use postern_kinds::{Info, Kind as _};
use serde_json::json;

use super::lockout::{self, Ending, LockoutFlags};
use crate::error::CliError;
use crate::flags::{ConnectionFlags, DryRun, ObjectFormat};
use crate::process::Process;
use crate::session::Session;
use crate::{kinds, output, parse};

/// The objects that can be disabled.
#[derive(Subcommand, Debug)]
pub enum Disable {
    /// Disable an access key, at once; `enable` enables it again.
    #[command(
        name = kinds::name(&OwnedAccessKey::INFO),
        visible_aliases = kinds::visible_aliases(&OwnedAccessKey::INFO),
        aliases = kinds::hidden_aliases(&OwnedAccessKey::INFO),
    )]
    AccessKey(DisableObject),
    /// Disable a user with all access keys and sessions, at once; `enable` enables the user again.
    #[command(alias = "users")]
    User(DisableObject),
}

/// The objects that can be enabled.
#[derive(Subcommand, Debug)]
pub enum Enable {
    /// Enable an access key again.
    #[command(
        name = kinds::name(&OwnedAccessKey::INFO),
        visible_aliases = kinds::visible_aliases(&OwnedAccessKey::INFO),
        aliases = kinds::hidden_aliases(&OwnedAccessKey::INFO),
    )]
    AccessKey(SwitchedObject),
    /// Enable a user again. The access keys of the user work again, except those that are disabled themselves.
    #[command(alias = "users")]
    User(SwitchedObject),
}

/// An object to disable.
#[derive(Args, Debug)]
pub struct DisableObject {
    #[command(flatten)]
    object: SwitchedObject,

    #[command(flatten)]
    lockout: LockoutFlags,
}

/// An object to disable or to enable.
#[derive(Args, Debug)]
pub struct SwitchedObject {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    /// Output format of the object, without secret values [default: no output]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Whether an object gives access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Disabled,
    Enabled,
}

impl Disable {
    /// Disables.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let (info, DisableObject { object, lockout }) = match self {
            Self::AccessKey(command) => (&OwnedAccessKey::INFO, command),
            Self::User(command) => (&User::INFO, command),
        };
        let mut session = Session::open(&object.connection, process)?;
        let objects = [(info, object.name.clone())];
        lockout::check(&mut session, &objects, Ending::Disable(DryRun::None), lockout, process)
            .await?;
        object.switch(&mut session, info, State::Disabled, process).await
    }
}

impl Enable {
    /// Enables.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let (info, object) = match self {
            Self::AccessKey(command) => (&OwnedAccessKey::INFO, command),
            Self::User(command) => (&User::INFO, command),
        };
        let mut session = Session::open(&object.connection, process)?;
        object.switch(&mut session, info, State::Enabled, process).await
    }
}

impl SwitchedObject {
    async fn switch(
        self,
        session: &mut Session,
        info: &'static Info,
        state: State,
        process: &Process,
    ) -> Result<(), CliError> {
        let of = Collection::new(info, None);
        let patch = json!({ "spec": { "disabled": state == State::Disabled } });
        let patched = session.client.merge_patch(of, &self.name, &patch).await;
        let object = session.answer(of, &self.name, patched).await?;
        let word = if state == State::Disabled { "disabled" } else { "enabled" };
        process.print_status(&format!("{} {} {word}", lockout::word(info), self.name));
        output::print_object(object, info, self.output, process)
    }
}
