//! Creating users and teams from arguments. Everything else about them is as for other kinds.

use clap::Args;
use postern_client::Collection;
use postern_kinds::{Kind, Verb, team, user};
use postern_meta::object::ObjectMeta;
use serde_json::{Value, json};

use super::access_reviews::may;
use super::grant::{NamedRole, check_may_bind, give, named_role};
use super::invite::Validity;
use super::new_object;
use crate::error::CliError;
use crate::flags::{ConnectionFlags, ObjectFormat};
use crate::process::Process;
use crate::role_bindings::{Location, Who};
use crate::session::Session;
use crate::{output, parse};

/// The arguments that users and teams have in common.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The name
    #[arg(value_parser = parse::name)]
    name: String,

    /// The display name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    display_name: String,

    /// Groups, separated by commas
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = not_empty)]
    groups: Vec<String>,

    /// How to print the created object [default: not at all]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ObjectFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// Create a user: a person that can hold access keys.
#[derive(Args, Debug)]
pub(crate) struct CreateUser {
    /// The e-mail address
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true)]
    email: String,

    /// Teams to add the user to, separated by commas
    #[arg(long = "team", value_name = "TEAM", value_delimiter = ',', value_parser = parse::name)]
    teams: Vec<String>,

    /// A role to give to the user everywhere, as `postern grant` does; may be repeated
    #[arg(long = "role", value_name = "ROLE", value_parser = named_role)]
    roles: Vec<NamedRole>,

    /// Print a login link for the user on the standard output, as `postern invite` does
    #[arg(long, conflicts_with = "output")]
    invite: bool,

    #[command(flatten)]
    validity: Validity,

    #[command(flatten)]
    common: Common,
}

/// Create a team: users that share permissions.
#[derive(Args, Debug)]
pub(crate) struct CreateTeam {
    /// The users in the team, separated by commas
    #[arg(long, value_name = "USER", value_delimiter = ',', value_parser = parse::name)]
    users: Vec<String>,

    #[command(flatten)]
    common: Common,
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { Ok(text.to_owned()) }
}

impl CreateUser {
    /// Creates.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let spec = user::Spec {
            display_name: self.common.display_name.clone(),
            email: self.email,
            groups: self.common.groups.clone(),
            ..user::Spec::default()
        };
        if self.invite {
            process.require_stdout()?;
        } else if self.validity.is_given() {
            return Err(CliError::usage("--valid-for is for a login link: pass --invite, too"));
        }
        self.roles.iter().try_for_each(NamedRole::check_everywhere)?;
        let name = self.common.name.clone();
        let mut session = Session::open(&self.common.connection, process)?;
        for team in &self.teams {
            Who::Team(team.clone()).check(&mut session, "--team").await?;
            for verb in [Verb::Update.as_str(), "bind"] {
                if !may(&mut session, verb, &team::Team::INFO, team).await? {
                    let text = format!("--team: you may not add users to the team {team}");
                    return Err(CliError::new(text)
                        .hint(format!("nothing was done; it needs the verb {verb} on the team")));
                }
            }
        }
        if self.invite && !may(&mut session, "createkey", &user::User::INFO, &name).await? {
            return Err(CliError::new("--invite: you may not make login links for this user")
                .hint("nothing was done; it needs the verb createkey on users"));
        }
        if self.invite {
            self.validity.check(&mut session, &name).await?;
        }
        let mut roles = Vec::new();
        for role in &self.roles {
            roles.push(role.find(&mut session, &Location::Everywhere).await?);
        }
        if !roles.is_empty() {
            check_may_bind(&mut session, "--role").await?;
        }
        self.common.create::<user::User>(&mut session, spec, process).await?;
        let invite = format!("the user {name} was created; a login link: postern invite {name}");
        for (index, team) in self.teams.iter().enumerate() {
            add_to_team(&mut session, team, &name, process).await.map_err(|error| {
                let left = self.teams[index..].join(", ");
                let error = error.hint(format!("the user {name} is not in: {left}"));
                error.hint_if(self.invite, &invite)
            })?;
        }
        let who = Who::User(name.clone());
        for role in &roles {
            let given = give(&mut session, role, &who, &Location::Everywhere, process).await;
            given.map_err(|error| {
                let error = error.hint(format!("the user {name} was created without this role"));
                error.hint_if(self.invite, &invite)
            })?;
        }
        if self.invite {
            let invited = self.validity.invite(&mut session, &name, process).await;
            invited.map_err(|error| error.hint(invite))?;
        }
        Ok(())
    }
}

impl CreateTeam {
    /// Creates.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let spec = team::Spec {
            display_name: self.common.display_name.clone(),
            users: self.users,
            groups: self.common.groups.clone(),
            ..team::Spec::default()
        };
        let mut session = Session::open(&self.common.connection, process)?;
        self.common.create::<team::Team>(&mut session, spec, process).await
    }
}

impl Common {
    async fn create<K: Kind>(
        self,
        session: &mut Session,
        spec: K::Spec,
        process: &Process,
    ) -> Result<(), CliError> {
        let metadata = ObjectMeta { name: self.name.clone(), ..ObjectMeta::default() };
        let new = new_object::<K>(metadata, spec)?;
        let created = session.client.create(Collection::of::<K>(None), &new).await;
        let flags = [
            ("spec.users", "--users"),
            ("spec.groups", "--groups"),
            ("spec.email", "--email"),
            ("spec.displayName", "--display-name"),
        ];
        let created = created.map_err(|error| session.explain_by_flags(&error, &flags))?;
        process.print_status(&format!("{} {} created", K::INFO.singular, self.name));
        output::print_object(created, &K::INFO, self.output, process)
    }
}

/// Adds a user to a team, unless the user is in it.
async fn add_to_team(
    session: &mut Session,
    team: &str,
    user: &str,
    process: &Process,
) -> Result<(), CliError> {
    let of = Collection::of::<team::Team>(None);
    let edited = session.client.edit(of, team, |object| {
        let spec = object.fields.entry("spec").or_insert_with(|| json!({}));
        let users = spec.as_object_mut().map(|spec| spec.entry("users").or_insert(json!([])));
        match users.and_then(Value::as_array_mut) {
            Some(users) if !users.iter().any(|one| one == user) => {
                users.push(user.into());
                true
            }
            _ => false,
        }
    });
    if let Err(error) = edited.await {
        return Err(session.explain_named(of, team, &error).await.at("--team"));
    }
    process.print_status(&format!("user {user} added to team {team}"));
    Ok(())
}
