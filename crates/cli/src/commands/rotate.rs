//! `postern rotate accesskey`: a new value for an access key. With `--overlap` it is the value of a new key, the
//! successor. Both keys are valid meanwhile, so that the users of the old key can be given the new one.

use std::time::Duration;

use clap::Args;
use postern_client::decode_fields;
use postern_kinds::owned_access_key::{Fields, OwnedAccessKey, Spec};
use postern_kinds::team::Team;
use postern_kinds::user::User;
use postern_kinds::{Kind as _, SecretText, access_key};
use postern_meta::Timestamp;
use postern_meta::object::{Object, ObjectMeta, OwnerReference};
use serde_json::json;

use super::access_keys::{self, AccessKeyArgs, describe, keys, value_lost};
use super::lockout::{self, ForceFlag};
use super::new_object;
use super::ways_in::{Change, Effect};
use crate::duration::display_duration;
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output::escape;
use crate::process::Process;
use crate::session::Session;
use crate::{key_list, parse};

/// A key to rotate.
#[derive(Args, Debug)]
pub struct Rotate {
    /// The name of the key
    #[arg(value_parser = parse::name)]
    name: String,

    /// Create a successor, and keep this key valid for this time, such as 24h, 30m, 7d, or seconds
    #[arg(long, value_name = "DURATION", value_parser = parse::overlap, allow_hyphen_values = true)]
    overlap: Option<Duration>,

    /// The name of the successor [default: NAME- and five generated characters]
    #[arg(long, value_name = "NAME", value_parser = parse::name, requires = "overlap")]
    new_name: Option<String>,

    #[command(flatten)]
    force: ForceFlag,

    #[command(flatten)]
    connection: ConnectionFlags,
}

impl AccessKeyArgs for Rotate {
    const ABOUT: &'static str =
        "Rotate the value of an access key, and print the new key, alone, on the standard output";

    const LONG_ABOUT: Option<&'static str> = Some(
        "Rotate the value of an access key, and print the new key, alone, on the standard output.\n\n\
         The old value stops working at once. The new one is shown this once.\n\n\
         With --overlap the key is left as it is, and gets a successor: a new access key of the same \
         owner, with the same groups, scope, type and time to live. The old key ends when the time has \
         passed.",
    );
}

impl Rotate {
    /// Replaces the value, or makes a successor.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        process.require_stdout()?;
        let mut session = Session::open(&self.connection, process)?;
        // Asked first: the session's own key may be the one that is replaced.
        let own = session.ask_self().await;
        let own = own.is_ok_and(|(_, status)| status.access_key == self.name);
        match self.overlap {
            None => replace_value(&mut session, &self.name, process).await?,
            Some(overlap) => {
                self.with_overlap(&mut session, overlap, process).await?;
            }
        }
        if own {
            let server = session.client.server();
            process.print_note(&format!(
                "this key belongs to the current login: log in again with the new key, `postern \
                 login {server} --access-key -`"
            ));
        }
        Ok(())
    }
}

/// Makes the new value on this machine, so that it is in no answer.
async fn replace_value(
    session: &mut Session,
    name: &str,
    process: &Process,
) -> Result<(), CliError> {
    let key = access_key::generate(&mut || process.random());
    let patch = json!({ "spec": { "key": key.expose() } });
    if let Err(error) = session.client.merge_patch(keys(), name, &patch).await {
        let explained = session.explain_named(keys(), name, &error).await;
        return Err(explained.hint_if(
            error.is_uncertain(),
            "run the command again: the value of this attempt was not printed",
        ));
    }
    process.print_value(&key).map_err(|error| value_lost(error, name))?;
    process.print_status(&format!("access key {name} rotated; its old value is no longer valid"));
    process.print_note("no later command can print this key: store it now");
    Ok(())
}

/// A successor that was created.
struct Successor {
    name: String,
    key: SecretText,
    spec: Spec,
    /// `None` if the server does not say.
    created_unix_seconds: Option<i64>,
}

/// How the old key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The key has ended already.
    Ended,
    /// Without a change, and in time.
    ByItself,
    /// By this time to live in seconds, counted from its creation.
    ByTtl(i64),
}

impl Rotate {
    /// Creates the successor of the key, prints it, and lets the old key end after `overlap`.
    async fn with_overlap(
        &self,
        session: &mut Session,
        overlap: Duration,
        process: &Process,
    ) -> Result<(), CliError> {
        let name = self.name.as_str();
        let old = session.client.get(keys(), name).await;
        let old = session.answer(keys(), name, old).await?;
        let fields = session.fields::<OwnedAccessKey>(&old)?;
        let spec = &fields.spec;
        if spec.disabled {
            let message = format!(
                "the access key {name} is disabled, but its successor would be \
                                   enabled"
            );
            return Err(CliError::new(message)
                .hint(format!("nothing was changed; `postern enable accesskey {name}` enables it"))
                .hint("`postern create accesskey` makes a new key"));
        }
        let new = successor_of(&old.metadata, &fields, self.new_name.as_deref())?;
        check_end_of_old(session, old, &new, overlap, self.force, process).await?;
        let successor = create(session, &new).await?;
        process.print_value(&successor.key).map_err(|error| value_lost(error, &successor.name))?;
        let new_name = escape(&successor.name);
        let what = describe(&successor.spec);
        process.print_status(&format!(
            "access key {new_name} created as the successor of {name},{what}"
        ));
        process.print_note("no later command can print this key: store it now");
        if spec.identity.is_some() || spec.oidc_provider.is_some() || spec.oidc_login.is_some() {
            process.print_note("the successor has no single sign-on data of the old key");
        }
        let end = end_old(session, name, &successor, overlap).await.map_err(|mut error| {
            error.message = format!(
                "{new_name} was created, but the end of {name} could not be set: {}",
                error.message
            );
            error.hint(format!("`postern disable accesskey {name}` ends it at once"))
        })?;
        let when = match end {
            End::Ended => "had ended already".to_owned(),
            End::ByItself => "expires before that".to_owned(),
            End::ByTtl(_) => format!("ends in {}", display_duration(overlap)),
        };
        process.print_status(&format!("the old access key {name} {when}"));
        Ok(())
    }
}

/// Checks that the old key can get its end, and that an access key with every permission is left after it. The server says
/// which successor it would create: its lifetime can be shorter.
async fn check_end_of_old(
    session: &mut Session,
    mut old: Object,
    new: &Object,
    overlap: Duration,
    force: ForceFlag,
    process: &Process,
) -> Result<(), CliError> {
    let successor = access_keys::create_dry_run(session, new).await?;
    let now = created_unix_seconds(&successor).unwrap_or_else(|| process.now_unix_seconds());
    let Some(end @ End::ByTtl(ttl)) = end_of(&old, now, overlap) else { return Ok(()) };
    set_end(&mut old, end);
    let patch = json!({ "spec": { "ttl": ttl, "ttlAfterLastActivity": false } });
    let tried = session.client.merge_patch_dry_run(keys(), &old.metadata.name, &patch).await;
    tried.map_err(|error| {
        let explained = session.explain_by_flags(&error, &[("spec.ttl", "--overlap")]);
        explained.hint("nothing was changed: the old key could not get its end")
    })?;
    let changes = [successor, old].map(|object| Change {
        info: &OwnedAccessKey::INFO,
        name: object.metadata.name.clone(),
        effect: Effect::Write(Box::new(object)),
    });
    lockout::check_changes(session, changes.into(), force, process).await
}

async fn create(session: &mut Session, new: &Object) -> Result<Successor, CliError> {
    let (created, spec) = access_keys::create(session, new).await?;
    if spec.key.expose().is_empty() {
        return Err(CliError::new("the response of the server has no access key"));
    }
    let created_unix_seconds = created_unix_seconds(&created);
    let (name, key) = (created.metadata.name, spec.key.clone());
    Ok(Successor { name, key, spec, created_unix_seconds })
}

fn created_unix_seconds(key: &Object) -> Option<i64> {
    key.metadata.creation_timestamp.map(Timestamp::unix_seconds)
}

/// The new key. It copies every field of the old key that decides its access.
fn successor_of(
    old: &ObjectMeta,
    Fields { spec, status }: &Fields,
    new_name: Option<&str>,
) -> Result<Object, CliError> {
    let generate_name = match (new_name, old.generate_name.as_str()) {
        (Some(_), _) => String::new(),
        (None, "") => format!("{}-", old.name),
        // A successor's successor does not have a longer and longer name.
        (None, prefix) => prefix.to_owned(),
    };
    // A key that ends with another object, such as an agent's with its cluster, must have no successor that goes on. The
    // owner of a key is in its spec. A server of version 0.2 names the maker in an owner reference alone.
    let ends_with =
        |one: &&OwnerReference| one.kind != User::INFO.kind && one.kind != Team::INFO.kind;
    let parents = old.owner_references.iter().filter(ends_with).cloned();
    let mut parents: Vec<OwnerReference> =
        parents.map(|one| OwnerReference { block_owner_deletion: None, ..one }).collect();
    if let Some(maker) = &status.maker
        && !parents.iter().any(|one| one.uid == maker.uid)
    {
        parents.push(OwnerReference {
            api_version: OwnedAccessKey::INFO.version.to_string(),
            kind: OwnedAccessKey::INFO.kind.to_owned(),
            name: maker.name.clone(),
            uid: maker.uid.clone(),
            ..OwnerReference::default()
        });
    }
    let metadata = ObjectMeta {
        name: new_name.unwrap_or_default().to_owned(),
        generate_name,
        owner_references: parents,
        ..ObjectMeta::default()
    };
    let has_parent = !status.parent_uid.is_empty();
    let spec = Spec {
        display_name: spec.display_name.clone(),
        description: spec.description.clone(),
        user: spec.user.clone(),
        team: spec.team.clone(),
        subject: spec.subject.clone(),
        groups: spec.groups.clone(),
        ttl: spec.ttl,
        ttl_after_last_activity: spec.ttl_after_last_activity,
        scope: spec.scope.clone(),
        r#type: spec.r#type.clone(),
        // Without the uid, it is a label from before keys ended with their parents.
        parent: if has_parent { spec.parent.clone() } else { String::new() },
        ..Spec::default()
    };
    new_object::<OwnedAccessKey>(metadata, spec)
}

/// Sets the old key's time to live. The time comes from the server: it is the time of the
/// successor's creation.
async fn end_old(
    session: &mut Session,
    name: &str,
    successor: &Successor,
    overlap: Duration,
) -> Result<End, CliError> {
    let mut end = None;
    let edited = session.client.edit(keys(), name, |object| {
        end = successor.created_unix_seconds.and_then(|now| end_of(object, now, overlap));
        end.is_some_and(|end| set_end(object, end))
    });
    edited.await.map_err(|error| session.explain(&error))?;
    end.ok_or_else(|| CliError::new("the server did not say when the two keys were created"))
}

/// Sets the end of a key. Returns whether that changes the key.
fn set_end(object: &mut Object, end: End) -> bool {
    let End::ByTtl(ttl) = end else { return false };
    let spec = object.fields.entry("spec").or_insert_with(|| json!({}));
    spec["ttl"] = json!(ttl);
    spec["ttlAfterLastActivity"] = json!(false);
    true
}

/// How a key ends that should end after `overlap`, or before. `None` for an object that is no key.
fn end_of(object: &Object, now_unix_seconds: i64, overlap: Duration) -> Option<End> {
    let fields = decode_fields::<OwnedAccessKey>(object).ok()?;
    let created = created_unix_seconds(object)?;
    let overlap = i64::try_from(overlap.as_secs()).unwrap_or(i64::MAX);
    let wanted = now_unix_seconds.saturating_add(overlap);
    Some(match key_list::end_of(object, &fields) {
        Some(own) if own <= now_unix_seconds => End::Ended,
        // Each use of the others makes them end later.
        Some(own) if own <= wanted && !fields.spec.ttl_after_last_activity => End::ByItself,
        _ => End::ByTtl(wanted.saturating_sub(created).max(1)),
    })
}

#[cfg(test)]
mod tests {
    use postern_kinds::owned_access_key::Status;
    use postern_kinds::principal::Maker;
    use postern_kinds::scope::Scope;

    use super::*;

    fn key(spec: &serde_json::Value, last_activity: Option<&str>) -> Object {
        let object = json!({
            "metadata": { "name": "ci", "creationTimestamp": "1970-01-01T00:16:40Z" },
            "spec": spec,
            "status": { "lastActivity": last_activity },
        });
        Object::from_value(object).unwrap()
    }

    #[test]
    fn the_old_key_ends_when_the_overlap_has_passed_and_never_later_than_by_itself() {
        let used_at_1500 = Some("1970-01-01T00:25:00Z");
        for (spec, last_activity, now, wanted) in [
            (json!({}), None, 2000, End::ByTtl(1100)),
            (json!({ "ttl": 5000 }), None, 2000, End::ByTtl(1100)),
            (json!({ "ttl": 1100 }), None, 2000, End::ByItself),
            (json!({ "ttl": 1000 }), None, 2000, End::Ended),
            (
                json!({ "ttl": 550, "ttlAfterLastActivity": true }),
                used_at_1500,
                2000,
                End::ByTtl(1100),
            ),
            (json!({ "ttl": 400, "ttlAfterLastActivity": true }), used_at_1500, 2000, End::Ended),
            (json!({}), None, 0, End::ByTtl(1)),
        ] {
            let object = key(&spec, last_activity);
            let end = end_of(&object, now, Duration::from_secs(100));
            assert_eq!(end, Some(wanted), "{spec} {now}");
        }
    }

    #[test]
    fn the_successor_gives_access_to_the_same_and_stops_with_the_same_parent() {
        let reference = |kind: &str| OwnerReference {
            kind: kind.to_owned(),
            uid: format!("uid of the {kind}"),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        };
        let old = ObjectMeta {
            name: "ci".to_owned(),
            owner_references: vec![
                reference("User"),
                reference("OwnedAccessKey"),
                reference("Cluster"),
            ],
            ..ObjectMeta::default()
        };
        let spec = Spec {
            user: "ada".to_owned(),
            groups: vec!["ops".to_owned()],
            ttl: 3600,
            ttl_after_last_activity: true,
            scope: Some(Scope { allow_platform_cli: true, ..Scope::default() }),
            r#type: "Other".to_owned(),
            parent: "team-key".to_owned(),
            ..Spec::default()
        };
        let maker = Maker { name: "laptop".to_owned(), uid: "m1".to_owned(), ..Maker::default() };
        let parent_uid = "p1".to_owned();
        let status = Status { maker: Some(maker), parent_uid, ..Status::default() };
        let fields = Fields { spec, status };
        let new = successor_of(&old, &fields, None).unwrap();
        assert_eq!((new.metadata.name.as_str(), new.metadata.generate_name.as_str()), ("", "ci-"));
        let given = |kind| OwnerReference { block_owner_deletion: None, ..reference(kind) };
        let given = [given("OwnedAccessKey"), given("Cluster")];
        let maker = OwnerReference {
            api_version: "management.platform.sh/v1".to_owned(),
            kind: "OwnedAccessKey".to_owned(),
            name: "laptop".to_owned(),
            uid: "m1".to_owned(),
            ..OwnerReference::default()
        };
        let [of_key, of_cluster] = given;
        assert_eq!(new.metadata.owner_references, [of_key, of_cluster, maker.clone()]);
        assert_eq!(
            new.fields["spec"],
            json!({
                "user": "ada", "groups": ["ops"], "ttl": 3600, "ttlAfterLastActivity": true,
                "scope": { "allowPlatformCli": true }, "type": "Other", "parent": "team-key",
            })
        );
        let again = ObjectMeta { name: "ci-x7k2p".to_owned(), ..new.metadata };
        assert_eq!(successor_of(&again, &fields, None).unwrap().metadata.generate_name, "ci-");
        let named = successor_of(&again, &fields, Some("ci-2027")).unwrap().metadata;
        assert_eq!((named.name.as_str(), named.generate_name.as_str()), ("ci-2027", ""));
        // A server of version 0.2 shows the maker in both places.
        let old = ObjectMeta { owner_references: vec![maker.clone()], ..old };
        let new = successor_of(&old, &fields, None).unwrap();
        assert_eq!(new.metadata.owner_references, [maker]);
    }
}
