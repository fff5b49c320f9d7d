//! Which lists of claims are accepted, and which tokens (JWTs) match them.

use serde_json::{Map, Value, json};

use super::*;

fn list(entries: &[(&str, &[&str])]) -> Vec<ClaimMatch> {
    let entry = |(claim, values): &(&str, &[&str])| ClaimMatch {
        claim: (*claim).to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    entries.iter().map(entry).collect()
}

fn of(claims: Value) -> Map<String, Value> {
    match claims {
        Value::Object(claims) => claims,
        other => panic!("{other} is no object"),
    }
}

fn texts(of: IssuerType, entries: &[(&str, &[&str])]) -> Vec<String> {
    problems(of, &list(entries)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_list_needs_the_claims_that_name_one_source() {
    use IssuerType::{Generic, GitHubActions, GitLab, Kubernetes};
    let main: &[&str] = &["refs/heads/main"];
    for (of, entries, expected) in [
        (GitHubActions, &[("repository_id", &["1"][..]), ("ref", main)][..], &[][..]),
        (GitHubActions, &[("repository_id", &["1"]), ("environment", &["prod"])], &[]),
        (GitHubActions, &[("repository_id", &["1"])], &["one of the claims ref, environment"]),
        (GitHubActions, &[("ref", main)], &["must match the claim repository_id"]),
        (GitHubActions, &[], &["repository_id", "job_workflow_ref"]),
        (
            GitHubActions,
            &[("repository_id", &["1"]), ("ref", main), ("sub", &["repo:a/b"])],
            &["the claim sub cannot be matched: its form changed"],
        ),
        (GitLab, &[("project_id", &["1"]), ("ref", &["main"])], &["the claim ref_protected"]),
        (GitLab, &[("project_id", &["1"]), ("ref", &["main"]), ("ref_protected", &["true"])], &[]),
        (Kubernetes, &[("namespace", &["ci"])], &["the claim serviceaccount"]),
        (Kubernetes, &[("namespace", &["ci"]), ("serviceaccount", &["deploy"])], &[]),
        (Generic, &[("sub", &["a"])], &[]),
        (Generic, &[("x", &["a"])], &["the claim sub"]),
        (Generic, &[("sub", &["a"]), ("sub", &["b"])], &["the claim sub is there twice"]),
        (Generic, &[("sub", &["a"]), ("", &["b"])], &["has no name"]),
        (Generic, &[("sub", &["a"]), ("aud", &["b"])], &["it is checked for each token"]),
        (Generic, &[("sub", &[])], &["between 1 and 50 values"]),
        (Generic, &[("sub", &["a", ""])], &["a value is empty"]),
        (Generic, &[("sub", &["a*"])], &["only a value of ref can have *"]),
        (Generic, &[("sub", &["a"]), ("ref", &["refs/heads/*"])], &[]),
        (Generic, &[("sub", &["a"]), ("ref", &["*"])], &["matches every ref"]),
        (Generic, &[("sub", &["a"]), ("ref", &["refs/*/main"])], &["only at its end"]),
    ] {
        let found = texts(of, entries);
        assert_eq!(found.len(), expected.len(), "{of:?} {entries:?}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} / {expected}");
        }
    }
    let many = vec![list(&[("x", &["1"])]).remove(0); MAX_CLAIMS + 5];
    assert!(problems(IssuerType::Generic, &many).len() < 30);
    for of in IssuerType::ALL {
        assert_eq!(IssuerType::named(of.name()), Some(of));
    }
}

/// The claims of a run of GitHub Actions on a branch.
fn github() -> Value {
    json!({
        "repository": "corp/shop", "repository_id": "42", "ref": "refs/heads/main",
        "event_name": "push", "environment": "prod", "sub": "repo:corp/shop:ref:refs/heads/main"
    })
}

fn changed(mut claims: Value, name: &str, value: Value) -> Map<String, Value> {
    claims[name] = value;
    of(claims)
}

#[test]
fn a_run_of_github_is_that_of_a_repository_id() {
    let main = list(&[("repository_id", &["42"]), ("ref", &["refs/heads/main"])]);
    let check = |list: &[ClaimMatch], claims: &Map<String, Value>| {
        super::check(IssuerType::GitHubActions, list, claims)
    };
    let refused = |claims: &Map<String, Value>| check(&main, claims).unwrap_err().to_string();
    assert_eq!(check(&main, &of(github())), Ok(()));
    // A renamed repository keeps its id. Another one that takes its name does not get it.
    assert_eq!(check(&main, &changed(github(), "repository", json!("corp/store"))), Ok(()));
    assert_eq!(
        refused(&changed(github(), "repository_id", json!("43"))),
        "the claim repository_id has another value"
    );
    // Both forms of the subject.
    for subject in ["repo:corp/shop:ref:refs/heads/main", "repo:corp@7/shop@42:ref:refs/heads/main"]
    {
        assert_eq!(check(&main, &changed(github(), "sub", json!(subject))), Ok(()));
    }
    assert!(refused(&changed(github(), "ref", json!("refs/heads/main2"))).contains("ref has"));
    // A pull request, which may come from a fork.
    for event in ["pull_request", "pull_request_target", "pull_request_review"] {
        let run = changed(github(), "event_name", json!(event));
        assert_eq!(refused(&run), "the claim event_name has another value");
        let named = list(&[
            ("repository_id", &["42"]),
            ("ref", &["refs/heads/main"]),
            ("event_name", &["push", event]),
        ]);
        assert_eq!(check(&named, &run), Ok(()));
    }
    assert_eq!(
        refused(&changed(github(), "event_name", Value::Null)),
        "the claim event_name is missing"
    );
    let branches = list(&[("repository_id", &["42"]), ("ref", &["refs/heads/release-*"])]);
    let of_ref = |name: &str| check(&branches, &changed(github(), "ref", json!(name))).is_ok();
    assert!(of_ref("refs/heads/release-1") && of_ref("refs/heads/release-"));
    assert!(!of_ref("refs/heads/release") && !of_ref("refs/heads/main"));
    // A star is a star anywhere else, and such a list matches nothing.
    let star = list(&[("repository_id", &["4*"]), ("ref", &["refs/heads/main"])]);
    assert!(check(&star, &of(github())).is_err());
    assert!(check(&[], &of(github())).is_err());
}

#[test]
fn claims_of_other_platforms_are_compared_as_texts() {
    let gitlab = list(&[("project_id", &["22"]), ("ref", &["main"]), ("ref_protected", &["true"])]);
    let claims = json!({ "project_id": 22, "ref": "main", "ref_protected": true });
    let check =
        |claims: &Map<String, Value>| super::check(IssuerType::GitLab, &gitlab, claims).is_ok();
    assert!(check(&of(claims.clone())));
    assert!(check(&changed(claims.clone(), "ref_protected", json!("true"))));
    assert!(!check(&changed(claims.clone(), "ref_protected", json!("True"))));
    assert!(!check(&changed(claims.clone(), "project_id", json!([22]))));
    assert!(!check(&changed(claims.clone(), "project_id", json!(22.0))));
    assert!(!check(&changed(claims, "ref", json!("Main"))));

    let kubernetes = list(&[("namespace", &["ci"]), ("serviceaccount", &["deploy"])]);
    let claims = json!({
        "sub": "system:serviceaccount:ci:deploy",
        "kubernetes.io": { "namespace": "ci", "serviceaccount": { "name": "deploy", "uid": "u" } }
    });
    let check =
        |claims: &Map<String, Value>| super::check(IssuerType::Kubernetes, &kubernetes, claims);
    assert_eq!(check(&of(claims.clone())), Ok(()));
    let flat = json!({ "namespace": "ci", "serviceaccount": "deploy" });
    assert_eq!(check(&of(flat)).unwrap_err().to_string(), "the claim namespace is missing");
    let other = json!({ "namespace": "ci", "serviceaccount": { "name": "other" } });
    let refused = check(&changed(claims, "kubernetes.io", other)).unwrap_err();
    assert_eq!(refused, Mismatch { claim: "serviceaccount".to_owned(), what: Wrong::Value });
}

mod properties {
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use super::*;

    /// The same rules once more, for GitHub and for texts, as a reader would write them down.
    fn naive(list: &[(String, Vec<String>)], claims: &[(String, String)]) -> bool {
        let claim =
            |name: &str| claims.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        let names: Vec<&str> = list.iter().map(|(name, _)| name.as_str()).collect();
        let has = |name| names.contains(&name);
        if !has("repository_id") || !(has("ref") || has("environment") || has("job_workflow_ref")) {
            return false;
        }
        for (name, values) in list {
            let Some(found) = claim(name) else { return false };
            let mut is_one = false;
            for value in values {
                is_one |= value == found
                    || (name == "ref"
                        && value.ends_with('*')
                        && found.starts_with(&value[..value.len() - 1]));
            }
            if !is_one {
                return false;
            }
        }
        has("event_name")
            || claim("event_name").is_some_and(|event| !event.starts_with("pull_request"))
    }

    /// Values that often match.
    fn values(claim: &str) -> Vec<String> {
        let values: &[&str] = match claim {
            "ref" => &["refs/heads/main", "refs/heads/release-1", "refs/tags/v1"],
            "repository_id" => &["1", "2"],
            "event_name" => &["push", "pull_request", "schedule"],
            _ => &["prod", "test"],
        };
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    const CLAIMS: [&str; 5] =
        ["repository_id", "ref", "environment", "job_workflow_ref", "event_name"];

    fn expected() -> impl Strategy<Value = Vec<(String, Vec<String>)>> {
        let names = (subsequence(CLAIMS[1..].to_vec(), 1..=2), prop::bool::weighted(0.95));
        let names = names.prop_map(|(mut names, has_id)| {
            if has_id {
                names.insert(0, CLAIMS[0]);
            }
            names
        });
        names.prop_flat_map(|names| {
            let entry = |name: &'static str| {
                let mut all = values(name);
                if name == "ref" {
                    all.extend(["refs/heads/*", "refs/heads/rel*"].map(str::to_owned));
                }
                // Most values of most claims, so that many tokens match.
                let count = all.len().div_ceil(2)..=all.len();
                subsequence(all, count).prop_map(move |values| (name.to_owned(), values))
            };
            names.into_iter().map(entry).collect::<Vec<_>>()
        })
    }

    fn presented() -> impl Strategy<Value = Vec<(String, String)>> {
        let claim = |name: &'static str| {
            let value = select(values(name)).prop_map(move |value| (name.to_owned(), value));
            prop::option::weighted(0.98, value)
        };
        CLAIMS.map(claim).to_vec().prop_map(|claims| claims.into_iter().flatten().collect())
    }

    #[test]
    fn lists_match_as_the_naive_rules_say_and_often() {
        use std::cell::Cell;
        let pairs: u32 =
            std::env::var("POSTERN_TEST_PAIRS").map_or(20_000, |count| count.parse().unwrap());
        let (allowed, all) = (Cell::new(0_u32), Cell::new(0_u32));
        let config =
            ProptestConfig { cases: pairs, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(list in expected(), claims in presented())| {
            let wanted = naive(&list, &claims);
            let matches: Vec<ClaimMatch> = list
                .into_iter()
                .map(|(claim, values)| ClaimMatch { claim, values })
                .collect();
            let presented = claims.into_iter().map(|(name, value)| (name, json!(value))).collect();
            let found = check(IssuerType::GitHubActions, &matches, &presented).is_ok();
            all.set(all.get() + 1);
            allowed.set(allowed.get() + u32::from(found));
            prop_assert_eq!(found, wanted);
        });
        assert!(allowed.get() * 100 >= all.get() * 30, "{} of {} match", allowed.get(), all.get());
    }
}
