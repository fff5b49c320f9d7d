//! The bugs of others that a decision can show, one test each; the cases are in `corpus/`.

use crate::reference_model::corpus::run;

#[test]
fn cve_2019_11247_cluster_scoped_in_a_namespace() {
    run("cve-2019-11247-cluster-scoped-in-a-namespace");
}

#[test]
fn cve_2021_25318_rule_without_a_group() {
    run("cve-2021-25318-rule-without-a-group");
}

#[test]
fn cve_2021_36775_binding_outlives_the_membership() {
    run("cve-2021-36775-binding-outlives-the-membership");
}

#[test]
fn cve_2022_3162_other_kind_of_the_group() {
    run("cve-2022-3162-other-kind-of-the-group");
}

#[test]
fn cve_2023_2727_subresource_is_checked() {
    run("cve-2023-2727-subresource-is-checked");
}

#[test]
fn cve_2023_32194_group_of_namespaces() {
    run("cve-2023-32194-group-of-namespaces");
}

#[test]
fn cve_2024_22031_project_named_like_a_namespace() {
    run("cve-2024-22031-project-named-like-a-namespace");
}

#[test]
fn cve_2025_4563_create_is_checked() {
    run("cve-2025-4563-create-is-checked");
}

#[test]
fn cve_2025_55190_details_of_a_kind() {
    run("cve-2025-55190-details-of-a-kind");
}

#[test]
fn cve_2025_6004_case_and_blanks() {
    run("cve-2025-6004-case-and-blanks");
}

#[test]
fn cve_2026_22806_scope_on_every_way_in() {
    run("cve-2026-22806-scope-on-every-way-in");
}

#[test]
fn cve_2026_3605_delete_without_a_right() {
    run("cve-2026-3605-delete-without-a-right");
}

#[test]
fn cve_2026_55775_namespace_is_no_parent() {
    run("cve-2026-55775-namespace-is-no-parent");
}

#[test]
fn kep_4006_upgrades_are_not_reads() {
    run("kep-4006-upgrades-are-not-reads");
}

#[test]
fn every_case_named_after_a_bug_has_its_test() {
    let tests = include_str!("known_bugs.rs");
    for name in crate::reference_model::corpus::names() {
        let is_bug = name.starts_with("cve-") || name.starts_with("kep-");
        assert!(!is_bug || tests.contains(&format!("run(\"{name}\")")), "{name}");
    }
}
