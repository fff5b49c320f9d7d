//! The commands. Verbs for all kinds have a file each (`get/`, `list.rs`, `create.rs`, `delete.rs`
//! and others). The common parts of some of them are in `by_kind.rs`. The others are for one thing.

mod access;
mod access_keys;
mod access_reviews;
mod apply;
mod busy;
mod by_kind;
mod clusters;
mod connect;
mod console;
mod create;
mod delete;
mod describe;
mod docs;
mod edit;
mod get;
mod grant;
mod invite;
mod list;
mod lockout;
mod login;
mod login_browser;
mod login_workload;
mod migrate;
mod offboard;
mod principals;
mod projects;
mod readers;
mod roles;
mod rotate;
mod run;
mod secret_names;
mod secret_read;
mod secret_watch;
mod secret_write;
mod secrets;
mod share;
mod status;
mod switch;
mod test_connector;
mod token;
mod version;
mod ways_in;
mod whoami;

use std::pin::Pin;

use clap::Subcommand;
use postern_kinds::{Fields, Kind};
use postern_meta::object::{Object, ObjectMeta};
use serde_json::Value;

use crate::completion::Complete;
use crate::error::CliError;
use crate::process::Process;
pub use console::Link;
pub(crate) use login::login_command;

use access_keys::OfAccessKey;
use by_kind::ByKind;

/// Everything that is done with a server.
#[derive(Subcommand, Debug)]
#[expect(clippy::doc_markdown, reason = "this is the text of --help")]
pub enum Command {
    /// Log in: check an access key and write it into the kubeconfig.
    ///
    /// The key is checked against the server before anything is written. The command writes a
    /// context, a cluster and a user named postern_HOST_USER into the first file of KUBECONFIG, or
    /// ~/.kube/config. They become the current context, for this command and for kubectl. The
    /// command changes no other entry of the file.
    Login(login::Login),
    /// Log out: remove the entries of `login` from the kubeconfig.
    ///
    /// An access key of type Login is also deleted on the server. Any other access key stays valid for all
    /// its holders; `postern delete accesskey` deletes it.
    Logout(login::Logout),
    /// Print the identity of the access key, or the impersonated identity.
    Whoami(whoami::Whoami),
    /// Print the server, the login, until when the access key is valid, and what is wrong.
    ///
    /// The exit code is 1 if something is wrong: the server cannot be reached, is not ready, or rejects the key.
    Status(status::Status),
    /// Open the web console in the browser, logged in with the access key.
    ///
    /// The server makes a login link for one session, valid for 60 seconds. The key itself does not reach the
    /// browser. Without a browser, or with --print, the link is printed. While the browser starts, other users of
    /// the machine may see the link in the process list: use --print if they must not.
    Console(console::Console),
    /// Print a login link for another user, who needs no access key for it.
    ///
    /// The link begins one session of the console. In it, the user creates access keys, and allows logins of the command line.
    /// You need createkey on the user by a role, and an access key without a scope and without an end.
    Invite(invite::Invite),
    /// Check whether you, or another user, have a permission: yes or no.
    ///
    /// The answer is the server's own decision, with the scope of the access key. The exit code is 0 for yes
    /// and 1 for no. To ask about another user, you need `create` on subjectaccessreviews.
    CanI(Box<access_reviews::CanI>),
    /// List the users, teams and access keys that have a permission, and the rule that grants it.
    ///
    /// Groups, and * for all users, have one row with their size. If the list is incomplete, a note says so.
    WhoCan(Box<access_reviews::WhoCan>),
    /// List what a user, a team or an access key reaches, and why: teams, roles and objects.
    ///
    /// The server decides about each object that you can list, at most 500. You need `create` on
    /// subjectaccessreviews.
    Access(Box<access::Access>),
    /// List who read the values of a shared secret lately, by which access key, and how often.
    ///
    /// The server keeps the last readers of each secret. This is no audit log: the audit log of the server has each read.
    /// You need `get` on the secret and on sharedsecrets/readers; the owner has both.
    Readers(Box<readers::Readers>),
    /// Print objects: all of a kind, or those that are named.
    ///
    /// Kinds are named as in kubectl: users, user, users.management.platform.sh, or a short name. A table has
    /// no secret values. -o json, yaml and jsonpath print whole objects, values included.
    ///
    /// `get secret NAME.KEY` prints one value, decoded, byte for byte. On a terminal a line break follows; into
    /// a pipe or a file nothing is added. `get secret NAME` lists the keys with their sizes, and without values
    /// unless --all is given. NAME ends at the first dot. If this secret or its key does not exist, the command
    /// tries longer names. For a.b.c, these are the secret a.b.c, and the key c of a.b. With --key or --whole,
    /// NAME is the whole name.
    Get(Box<get::Get>),
    /// Describe objects for people, with their events. Of secret values, only the sizes are printed.
    Describe(describe::Describe),
    /// Edit objects in the editor of KUBE_EDITOR or EDITOR.
    ///
    /// If the server does not accept the object, the editor is opened again with the reason. If it is saved
    /// without a change then, the command fails, and the file is kept. If another writer changed the object
    /// meanwhile, nothing is written, and the file is kept, too.
    Edit(edit::Edit),
    /// Set values.
    #[command(subcommand)]
    Set(secret_write::Set),
    /// Remove values.
    #[command(subcommand)]
    Unset(secret_write::Unset),
    /// List objects.
    #[command(subcommand)]
    List(ByKind<list::List>),
    /// Create objects, from files or from arguments.
    ///
    /// Files are YAML, also with several documents, or JSON. The kind and the apiVersion come from each
    /// document. After an error, the command continues with the other documents, and exits with 1.
    Create(Box<create::Create>),
    /// Apply objects from files: create them, or change the fields that the files have.
    ///
    /// This is server-side apply, with the field manager `postern`. After an error, the command continues with
    /// the other objects, and exits with 1.
    Apply(Box<apply::Apply>),
    /// Run a command with the values of secrets in its environment, and nowhere else.
    ///
    /// Each key becomes a variable of the same name. The exit code is that of the command. With
    /// --on-change=restart the command gets SIGTERM when a value changes, and starts again with the new values.
    /// The variable POSTERN_ACCESS_KEY is not passed on.
    Run(Box<run::Run>),
    /// Delete objects.
    Delete(Box<delete::DeleteCommand>),
    /// Give users and teams access to an object.
    #[command(subcommand)]
    Share(ByKind<share::Share>),
    /// Revoke access to an object.
    #[command(subcommand)]
    Unshare(ByKind<share::Unshare>),
    /// Add a member to a project.
    #[command(subcommand)]
    Add(projects::Add),
    /// Remove a member from a project.
    #[command(subcommand)]
    Remove(projects::Remove),
    /// Give a role to a user or a team.
    ///
    /// Without --project and --namespace, the role counts everywhere. The command creates an ordinary binding, or with
    /// --project adds a member to the project. You need the permissions of the role yourself, or `bind` on it.
    Grant(Box<grant::Grant>),
    /// Take a role from a user or a team.
    ///
    /// The command removes the user or team from every binding of the role in that place, and prints which. Other
    /// subjects of the bindings stay. A binding without subjects is deleted.
    Revoke(Box<grant::Revoke>),
    /// List who has which role, and the binding that gives it.
    ///
    /// Access rules of objects (`postern share`) are no roles: `postern who-can` lists them, too.
    Roles(roles::Roles),
    /// Disable a user that leaves, and move what the user owns.
    ///
    /// The command prints what stops: access keys, sessions, memberships, roles. It prints the objects that the user
    /// owns, and with --transfer-to gives them to another owner. Then it disables the user. `enable user` undoes this,
    /// but does not move the objects back.
    Offboard(Box<offboard::Offboard>),
    /// Move an object to another project.
    #[command(subcommand)]
    Migrate(migrate::Migrate),
    /// Write a context for kubectl: for a connected cluster, a virtual cluster or a space.
    #[command(subcommand)]
    Connect(connect::Connect),
    /// Disable an access key or a user.
    #[command(subcommand)]
    Disable(switch::Disable),
    /// Enable an access key or a user again.
    #[command(subcommand)]
    Enable(switch::Enable),
    /// Replace the value of an access key.
    #[command(subcommand)]
    Rotate(OfAccessKey<rotate::Rotate>),
    /// Test the systems that the server depends on.
    #[command(subcommand)]
    Test(test_connector::Test),
    /// Print a token for connected clusters.
    ///
    /// The token is short-lived, and gives at most the access of the access key. As the command of
    /// a credential plugin in a kubeconfig, it prints the output that kubectl expects. It caches
    /// the token until less than a fifth of its lifetime is left.
    Token(Box<token::Token>),
    /// Print the version of this program, and that of the server.
    ///
    /// Without a response of a server, the version of this program is still printed, and the exit code is 1.
    Version(Box<version::Version>),
    /// Print a completion script for a shell.
    Completion(docs::Completion),
    /// Print the manual page, or write them all.
    Man(docs::Man),
    /// Print the candidates for a word, for the scripts of `completion`.
    #[command(name = "__complete", hide = true)]
    Complete(Complete),
}

/// Runs one command.
pub(crate) fn run(
    command: Command,
    root: clap::Command,
    process: &Process,
) -> Result<(), CliError> {
    match command {
        Command::Completion(command) => command.run(process),
        Command::Man(command) => command.run(root, process),
        Command::Complete(command) => {
            command.run(&root, process);
            Ok(())
        }
        command => {
            // In a box without its type: the runtime has several loops, and each would be compiled with all commands.
            let work: Pin<Box<dyn Future<Output = Result<(), CliError>> + '_>> =
                Box::pin(run_with_server(command, process));
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| CliError::new(format!("cannot start: {error}")))?
                .block_on(work)
        }
    }
}

async fn run_with_server(command: Command, process: &Process) -> Result<(), CliError> {
    match command {
        Command::Login(command) => command.run(process).await,
        Command::Logout(command) => command.run(process).await,
        Command::Whoami(command) => command.run(process).await,
        Command::Status(command) => command.run(process).await,
        Command::Access(command) => command.run(process).await,
        Command::Version(command) => command.run(process).await,
        Command::Console(command) => command.run(process).await,
        Command::Invite(command) => command.run(process).await,
        Command::Test(test_connector::Test::Connector(command)) => command.run(process).await,
        Command::CanI(command) => command.run(process).await,
        Command::WhoCan(command) => command.run(process).await,
        Command::Readers(command) => command.run(process).await,
        Command::Get(command) => command.run(process).await,
        Command::Describe(command) => command.run(process).await,
        Command::Edit(command) => command.run(process).await,
        Command::Apply(command) => command.run(process).await,
        Command::Run(command) => command.run(process).await,
        Command::Set(secret_write::Set::Secret(command)) => command.run(process).await,
        Command::Unset(secret_write::Unset::Secret(command)) => command.run(process).await,
        Command::List(ByKind::Generic(command)) => command.run(process).await,
        Command::Create(command) => command.run(process).await,
        Command::Delete(command) => command.run(process).await,
        Command::Share(ByKind::Generic(command)) => command.run(process).await,
        Command::Unshare(ByKind::Generic(command)) => command.run(process).await,
        Command::Add(command) => command.run(process).await,
        Command::Remove(command) => command.run(process).await,
        Command::Grant(command) => command.run(process).await,
        Command::Revoke(command) => command.run(process).await,
        Command::Roles(command) => command.run(process).await,
        Command::Offboard(command) => command.run(process).await,
        Command::Migrate(migrate::Migrate::VirtualCluster(command)) => command.run(process).await,
        Command::Connect(command) => command.run(process).await,
        Command::Disable(command) => command.run(process).await,
        Command::Enable(command) => command.run(process).await,
        Command::Rotate(OfAccessKey::AccessKey(command)) => command.run(process).await,
        Command::Token(command) => command.run(process).await,
        // These commands need no server and are done already.
        Command::Completion(_) | Command::Man(_) | Command::Complete(_) => Ok(()),
    }
}

/// A new object of a kind.
fn new_object<K: Kind>(metadata: ObjectMeta, spec: K::Spec) -> Result<Object, CliError> {
    match serde_json::to_value(Fields::<K::Spec, K::Status>::of(spec)) {
        Ok(Value::Object(fields)) => Ok(Object {
            api_version: K::INFO.version.to_string(),
            kind: K::INFO.kind.to_owned(),
            metadata,
            fields,
        }),
        _ => Err(CliError::new(format!("the {} could not be encoded", K::INFO.kind))),
    }
}
