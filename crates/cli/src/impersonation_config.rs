//! The identity to act as: `--as` and similar flags, or the kubeconfig's fields if there is no
//! flag, as with kubectl. The client makes the headers.
//!
//! A part that cannot be used is an error: without it, the request would be made with more rights
//! than the user wanted.

use std::collections::BTreeMap;

use postern_kinds::Impersonation;
use serde_json::Value;

use crate::error::CliError;
use crate::flags::ImpersonationFlags;
use crate::kubeconfig::ResolvedContext;

/// The impersonation to request, chosen field by field; `None` is as the key's own bearer.
pub(crate) fn choose(
    flags: &ImpersonationFlags,
    resolved: Option<&ResolvedContext<'_>>,
) -> Result<Option<Impersonation>, CliError> {
    let mut wanted = resolved.map(of_kubeconfig).transpose()?.unwrap_or_default();
    if let Some(user) = &flags.user {
        wanted.user.clone_from(user);
    }
    if !flags.groups.is_empty() {
        wanted.groups.clone_from(&flags.groups);
    }
    if let Some(uid) = &flags.uid {
        wanted.uid.clone_from(uid);
    }
    if !wanted.user.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted == Impersonation::default() {
        return Ok(None);
    }
    Err(without_user(flags, &wanted, resolved.map_or("", |resolved| resolved.name)))
}

/// The error for groups, a uid or extra fields without a user.
fn without_user(flags: &ImpersonationFlags, wanted: &Impersonation, context: &str) -> CliError {
    let flag = if !flags.groups.is_empty() {
        Some("--as-group")
    } else if flags.uid.is_some() {
        Some("--as-uid")
    } else {
        None
    };
    if let Some(flag) = flag {
        return CliError::usage(format!("{flag} requires --as USER"))
            .hint("name the user, too: --as USER");
    }
    let field = if !wanted.groups.is_empty() {
        "as-groups"
    } else if !wanted.uid.is_empty() {
        "as-uid"
    } else {
        "as-user-extra"
    };
    let message = format!("the user of the context {context:?} has {field}, but no user to act as");
    CliError::new(message).hint(format!(
        "give --as USER, or put `as` next to {field} in the kubeconfig, or take {field} out"
    ))
}

/// The impersonation in the kubeconfig. As for kubectl, an empty field counts as absent.
fn of_kubeconfig(resolved: &ResolvedContext<'_>) -> Result<Impersonation, CliError> {
    let field = |name: &str| Some(&resolved.user[name]).filter(|value| !value.is_null());
    let wrong = |name: &str, form: &str| {
        CliError::new(format!("the user of the context {:?}: {name} must be {form}", resolved.name))
            .hint("correct it in the kubeconfig: it sets the identity of all requests")
    };
    let one = |name: &str| match field(name) {
        Some(value) => text(value).ok_or_else(|| wrong(name, "a string")),
        None => Ok(String::new()),
    };
    let groups = match field("as-groups") {
        Some(value) => texts(value).ok_or_else(|| wrong("as-groups", "a list of strings"))?,
        None => Vec::new(),
    };
    let extra = match field("as-user-extra") {
        Some(value) => lists(value)
            .ok_or_else(|| wrong("as-user-extra", "a mapping of keys to lists of strings"))?,
        None => BTreeMap::new(),
    };
    Ok(Impersonation { user: one("as")?, groups, uid: one("as-uid")?, extra })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(text).collect()
}

fn lists(value: &Value) -> Option<BTreeMap<String, Vec<String>>> {
    value.as_object()?.iter().map(|(key, value)| Some((key.clone(), texts(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn chosen(flags: &ImpersonationFlags, user: &Value) -> Result<Option<Impersonation>, CliError> {
        let (nothing, dir) = (Value::Null, Path::new(""));
        let resolved = ResolvedContext {
            name: "work",
            context: &nothing,
            cluster_name: "",
            cluster: &nothing,
            user_name: "",
            user,
            cluster_dir: dir,
            user_dir: dir,
        };
        choose(flags, Some(&resolved))
    }

    fn flags(user: &str, groups: &[&str], uid: &str) -> ImpersonationFlags {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        ImpersonationFlags { user: given(user), groups, uid: given(uid) }
    }

    fn wanted(user: &str, groups: &[&str], uid: &str) -> Impersonation {
        Impersonation {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            uid: uid.to_owned(),
            extra: BTreeMap::new(),
        }
    }

    #[test]
    fn a_flag_wins_over_the_field_and_leaves_the_others() {
        let user = json!({
            "token": "hush",
            "as": "bob",
            "as-groups": ["ops", "dev"],
            "as-uid": "u-7",
            "as-user-extra": { "example.com/Why": ["a", "b"], "none": [] },
        });
        let extra = [("example.com/Why", &["a", "b"][..]), ("none", &[])].map(|(key, values)| {
            (key.to_owned(), values.iter().map(|&value| value.to_owned()).collect())
        });
        for (flags, want) in [
            (flags("", &[], ""), wanted("bob", &["ops", "dev"], "u-7")),
            (flags("ada", &[], ""), wanted("ada", &["ops", "dev"], "u-7")),
            (flags("", &["a", "b"], ""), wanted("bob", &["a", "b"], "u-7")),
            (flags("", &[], "u-8"), wanted("bob", &["ops", "dev"], "u-8")),
        ] {
            let want = Impersonation { extra: BTreeMap::from(extra.clone()), ..want };
            assert_eq!(chosen(&flags, &user), Ok(Some(want)), "{flags:?}");
        }
        let whole = flags("ada", &["a"], "u-8");
        assert_eq!(choose(&whole, None), Ok(Some(wanted("ada", &["a"], "u-8"))));
    }

    #[test]
    fn nobody_is_acted_as_without_being_asked() {
        let nobody = flags("", &[], "");
        assert_eq!(choose(&nobody, None), Ok(None));
        for user in [
            json!(null),
            json!({ "token": "hush" }),
            json!({ "as": null, "as-groups": null, "as-uid": null, "as-user-extra": null }),
            json!({ "as": "", "as-groups": [], "as-uid": "", "as-user-extra": {} }),
        ] {
            assert_eq!(chosen(&nobody, &user), Ok(None), "{user}");
        }
    }

    #[test]
    fn what_is_malformed_is_an_error_and_not_left_out() {
        for (user, field) in [
            (json!({ "as": 7 }), "as must be a string"),
            (json!({ "as": ["bob"] }), "as must be a string"),
            (json!({ "as": "bob", "as-uid": 1000 }), "as-uid must be a string"),
            (json!({ "as": "bob", "as-groups": "ops" }), "as-groups must be a list"),
            (json!({ "as": "bob", "as-groups": ["ops", 1] }), "as-groups must be a list"),
            (json!({ "as": "bob", "as-user-extra": ["a"] }), "as-user-extra must be a mapping"),
            (json!({ "as": "bob", "as-user-extra": { "a": "b" } }), "as-user-extra must be"),
            (json!({ "as": "bob", "as-user-extra": { "a": [null] } }), "as-user-extra must be"),
        ] {
            for flags in [flags("", &[], ""), flags("ada", &["a"], "u-8")] {
                let error = chosen(&flags, &user).expect_err(field);
                assert!(error.message.contains("context \"work\""), "{error:?}");
                assert!(error.message.contains(field), "{error:?}");
            }
        }
    }

    #[test]
    fn groups_and_uids_need_a_user() {
        for (flags, wanted) in
            [(flags("", &["a"], "u"), "--as-group"), (flags("", &[], "u"), "--as-uid")]
        {
            for error in [choose(&flags, None), chosen(&flags, &json!({ "as-uid": "u-7" }))] {
                let error = error.unwrap_err();
                assert!(error.message.contains(wanted), "{error:?}");
                assert_eq!(error, CliError::usage(&error.message).hint(&error.hints[0]));
            }
            assert!(chosen(&flags, &json!({ "as": "bob" })).is_ok());
        }
        for (user, field) in [
            (json!({ "as-groups": ["a"] }), "as-groups"),
            (json!({ "as": "", "as-uid": "u-7" }), "as-uid"),
            (json!({ "as-user-extra": { "a": [] } }), "as-user-extra"),
        ] {
            let error = chosen(&flags("", &[], ""), &user).expect_err(field);
            assert!(error.message.contains(field), "{error:?}");
            assert!(error.message.contains("context \"work\""), "{error:?}");
            assert!(chosen(&flags("bob", &[], ""), &user).is_ok());
        }
    }
}
