//! The names that the command line has for the served kinds. All of them come from the kinds
//! themselves. `commands/` uses the kinds.

use postern_kinds::cluster::Cluster;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::write_only::AtRest;
use postern_kinds::{AnyKind, Info, Kind as _, Verb};
use serde_json::Value;

/// The kinds that serve a verb, in the order in which they are listed everywhere.
pub(crate) fn served(verb: Verb) -> impl Iterator<Item = &'static Info> {
    served_where(verb, |_| true)
}

/// The same, for the kinds of which a condition holds.
pub(crate) fn served_where(
    verb: Verb,
    condition: impl Fn(&dyn AnyKind) -> bool,
) -> impl Iterator<Item = &'static Info> {
    let kinds: &'static [&'static dyn AnyKind] = postern_kinds::all();
    let infos = kinds.iter().filter(move |kind| condition(**kind)).map(|kind| kind.info());
    infos.filter(move |info| info.on_command_line && info.serves(verb))
}

/// The hint that lists the kinds that serve a verb.
pub(crate) fn hint(verb: Verb) -> String {
    let names: Vec<_> = served(verb).map(plural_name).collect();
    format!("the kinds are {}", names.join(", "))
}

/// All kinds. Kinds with their own commands come first, so a name of two kinds means the one with
/// commands.
pub(crate) fn all() -> impl Iterator<Item = &'static Info> {
    let all = || postern_kinds::all().iter().map(|kind| kind.info());
    let others = all().filter(|info| !info.on_command_line);
    all().filter(|info| info.on_command_line).chain(others)
}

/// The first of the kinds that has this name: one of [`names`], alone or with the group as kubectl has it, as in
/// `roles.rbac.authorization.k8s.io` and `secrets.v1.`.
pub(crate) fn find(
    name: &str,
    mut kinds: impl Iterator<Item = &'static Info>,
) -> Option<&'static Info> {
    let (word, suffix) = match name.split_once('.') {
        None => (name, None),
        Some((word, suffix)) => (word, Some(suffix)),
    };
    kinds.find(|info| {
        let version = info.version;
        let in_group = suffix.is_none_or(|suffix| {
            suffix == version.group
                || suffix.strip_prefix(version.version).and_then(|rest| rest.strip_prefix('.'))
                    == Some(version.group)
        });
        in_group && names(info).contains(&word)
    })
}

/// All that is known of a kind.
fn any_kind(info: &Info) -> Option<&'static dyn AnyKind> {
    let mut kinds = postern_kinds::all().iter().copied();
    kinds.find(|kind| kind.info().kind == info.kind && kind.info().version == info.version)
}

/// The fields of the kind's objects that have secret values, by their paths.
pub(crate) fn secret_fields(info: &Info) -> impl Iterator<Item = &'static [&'static str]> {
    any_kind(info).into_iter().flat_map(|kind| {
        let written = kind.info().write_only.iter().map(|field| field.path);
        kind.info().read_protected.iter().copied().chain(written)
    })
}

/// The fields of an object's metadata that no object has, by their paths.
pub(crate) fn unknown_metadata(info: &Info, object: &Value) -> Vec<String> {
    any_kind(info).map_or_else(Vec::new, |kind| kind.schema().unknown_below(object, "metadata"))
}

/// A path of fields as a JSON pointer (RFC 6901).
pub(crate) fn json_pointer(path: &[&str]) -> String {
    path.iter().flat_map(|name| ["/", name]).collect()
}

/// Whether the response to a create has a credential that is never shown again. This is so if the
/// server stores only the digest of a field.
pub(crate) fn answers_with_credential(info: &Info) -> bool {
    let kinds = postern_kinds::all().iter();
    let mut same = kinds.filter(|kind| kind.info().kind == info.kind);
    same.any(|kind| kind.info().write_only.iter().any(|field| field.at_rest == AtRest::Digest))
}

/// Whether callers with `use` on an object of the kind send requests to the cluster or space that
/// it stands for.
pub(crate) fn is_target(info: &Info) -> bool {
    [Cluster::INFO.kind, VirtualClusterInstance::INFO.kind, SpaceInstance::INFO.kind]
        .contains(&info.kind)
}

/// The name of one object of the kind: `secret`.
pub(crate) fn name(info: &Info) -> &'static str {
    info.aliases.first().copied().unwrap_or(info.singular)
}

/// The name of several objects of the kind: `secrets`. Of a kind's aliases, the second is the plural of the first.
pub(crate) fn plural_name(info: &Info) -> &'static str {
    info.aliases.get(1).copied().unwrap_or(info.plural)
}

/// All names of the kind, each once. The first two are [`name`] and [`plural_name`].
pub(crate) fn names(info: &Info) -> Vec<&'static str> {
    let mut names = vec![name(info), plural_name(info)];
    let others = [info.singular, info.plural].into_iter();
    for other in others.chain(info.short.iter().copied()).chain(info.aliases.iter().copied()) {
        if !names.contains(&other) {
            names.push(other);
        }
    }
    names
}

/// The names that help shows next to [`name`]: abbreviations, and aliases that are other
/// words.
pub(crate) fn visible_aliases(info: &Info) -> Vec<&'static str> {
    info.short.iter().chain(info.aliases.iter().skip(2)).copied().collect()
}

/// The other names of the kind, which help does not show.
pub(crate) fn hidden_aliases(info: &Info) -> Vec<&'static str> {
    let visible = visible_aliases(info);
    names(info).into_iter().skip(1).filter(|name| !visible.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use postern_kinds::namespace::Namespace;
    use postern_kinds::owned_access_key::OwnedAccessKey;
    use postern_kinds::shared_secret::SharedSecret;

    use super::*;

    #[test]
    fn names_come_from_the_kind() {
        let of = |info| (name(info), plural_name(info), visible_aliases(info).join(" "));
        assert_eq!(of(&SharedSecret::INFO), ("secret", "secrets", "ss".to_owned()));
        assert_eq!(of(&OwnedAccessKey::INFO), ("accesskey", "accesskeys", "key keys".to_owned()));
        assert_eq!(of(&Namespace::INFO), ("namespace", "namespaces", "ns".to_owned()));
        let all = ["secret", "secrets", "sharedsecret", "sharedsecrets", "ss"];
        assert_eq!(names(&SharedSecret::INFO), all);
    }

    #[test]
    fn only_what_is_kept_as_a_digest_is_a_credential_in_the_answer() {
        let kinds: Vec<_> =
            served(Verb::Create).filter(|info| answers_with_credential(info)).collect();
        assert_eq!(kinds.iter().map(|info| info.kind).collect::<Vec<_>>(), ["OwnedAccessKey"]);
        assert!(!answers_with_credential(&SharedSecret::INFO));
    }

    #[test]
    fn secret_fields_are_those_that_are_protected_and_those_that_are_only_written() {
        let of = |info: &Info| secret_fields(info).map(|path| path.join(".")).collect::<Vec<_>>();
        assert_eq!(of(&SharedSecret::INFO), ["spec.data", "spec.stringData"]);
        assert!(of(&OwnedAccessKey::INFO).contains(&"spec.key".to_owned()));
        assert_eq!(of(&Namespace::INFO), [""; 0]);
    }

    #[test]
    fn no_two_kinds_have_the_same_name() {
        let mut all: Vec<_> = served(Verb::Get).flat_map(names).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "{all:?}");
    }
}
