//! The messages that are read: the field numbers of Kubernetes' public definitions.
//!
//! A table is finite and holds no message that holds itself, so a message decoded by it has a depth
//! that the table bounds.

use Type::{
    Bool, Bytes, Explicit, Integer, Integer32, Json, List, Map, Message, MicroTime, Text, Time,
};

use crate::gvk::GroupVersion;

/// The type of a field.
///
/// Go clients write numbers, flags and texts that are not set as well, unless they are pointers.
/// The JSON of the same object leaves them out. So zero and empty values are left out here, too,
/// but for [`Explicit`].
pub(super) enum Type {
    Text,
    /// 64 bits.
    Integer,
    /// 32 bits.
    Integer32,
    Bool,
    /// Base64 in JSON.
    Bytes,
    /// A message of seconds and nanoseconds, to the second; RFC 3339 in JSON. No time is an empty
    /// message, and null in JSON.
    Time,
    /// The same, to the microsecond.
    MicroTime,
    /// A message that holds text in JSON.
    Json,
    /// A message that holds a list of texts: the list in JSON.
    Texts,
    Message(&'static [Field]),
    /// A repeated field.
    List(&'static Type),
    /// A map from texts.
    Map(&'static Type),
    /// A number, flag or text with explicit presence: it means something when it is zero or empty,
    /// as a pointer in Go does, or the JSON always has it.
    Explicit(&'static Type),
}

/// Number, name in JSON, type.
pub(super) type Field = (u64, &'static str, Type);

const TEXTS: Type = List(&Text);

/// `runtime.TypeMeta`, in the envelope of every body.
pub(super) const TYPE_META: &[Field] = &[(1, "apiVersion", Text), (2, "kind", Text)];

/// The options of a deletion, which are sent in the version of any group.
pub(super) const DELETE_OPTIONS: &[Field] = &[
    (1, "gracePeriodSeconds", Explicit(&Integer)),
    (
        2,
        "preconditions",
        Message(&[(1, "uid", Explicit(&Text)), (2, "resourceVersion", Explicit(&Text))]),
    ),
    (3, "orphanDependents", Explicit(&Bool)),
    (4, "propagationPolicy", Explicit(&Text)),
    (5, "dryRun", TEXTS),
    (6, "ignoreStoreReadErrorWithClusterBreakingPotential", Explicit(&Bool)),
];

const CORE: GroupVersion = GroupVersion::new("", "v1");
const AUTHORIZATION: GroupVersion = GroupVersion::new("authorization.k8s.io", "v1");
const AUTHENTICATION: GroupVersion = GroupVersion::new("authentication.k8s.io", "v1");
const AUTHENTICATION_BETA: GroupVersion = GroupVersion::new("authentication.k8s.io", "v1beta1");
const EVENTS: GroupVersion = GroupVersion::new("events.k8s.io", "v1");
const COORDINATION: GroupVersion = GroupVersion::new("coordination.k8s.io", "v1");
const RBAC: GroupVersion = GroupVersion::new("rbac.authorization.k8s.io", "v1");

/// The kinds of objects that are read.
pub(super) const OBJECTS: &[(GroupVersion, &str, &[Field])] = &[
    (CORE, "Namespace", NAMESPACE),
    (CORE, "Secret", SECRET),
    (CORE, "ConfigMap", CONFIG_MAP),
    (CORE, "Event", EVENT),
    (EVENTS, "Event", EVENT_V1),
    (COORDINATION, "Lease", LEASE),
    (AUTHORIZATION, "SelfSubjectAccessReview", SELF_SUBJECT_ACCESS_REVIEW),
    (AUTHORIZATION, "SubjectAccessReview", SUBJECT_ACCESS_REVIEW),
    (AUTHORIZATION, "LocalSubjectAccessReview", SUBJECT_ACCESS_REVIEW),
    (AUTHORIZATION, "SelfSubjectRulesReview", SELF_SUBJECT_RULES_REVIEW),
    (AUTHENTICATION, "SelfSubjectReview", SELF_SUBJECT_REVIEW),
    (AUTHENTICATION_BETA, "SelfSubjectReview", SELF_SUBJECT_REVIEW),
    (AUTHENTICATION, "TokenReview", TOKEN_REVIEW),
    (AUTHENTICATION_BETA, "TokenReview", TOKEN_REVIEW),
    (RBAC, "Role", ROLE),
    (RBAC, "ClusterRole", CLUSTER_ROLE),
    (RBAC, "RoleBinding", BINDING),
    (RBAC, "ClusterRoleBinding", BINDING),
];

const OWNER_REFERENCE: &[Field] = &[
    (1, "kind", Explicit(&Text)),
    (3, "name", Explicit(&Text)),
    (4, "uid", Explicit(&Text)),
    (5, "apiVersion", Explicit(&Text)),
    (6, "controller", Explicit(&Bool)),
    (7, "blockOwnerDeletion", Explicit(&Bool)),
];

const MANAGED_FIELDS_ENTRY: &[Field] = &[
    (1, "manager", Text),
    (2, "operation", Text),
    (3, "apiVersion", Text),
    (4, "time", Time),
    (6, "fieldsType", Text),
    (7, "fieldsV1", Json),
    (8, "subresource", Text),
];

const OBJECT_META: &[Field] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Integer),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", Explicit(&Integer)),
    (11, "labels", Map(&Text)),
    (12, "annotations", Map(&Text)),
    (13, "ownerReferences", List(&Message(OWNER_REFERENCE))),
    (14, "finalizers", TEXTS),
    // Clients of before 1.24 write it, always empty.
    (15, "clusterName", Text),
    (17, "managedFields", List(&Message(MANAGED_FIELDS_ENTRY))),
];

const METADATA: Field = (1, "metadata", Message(OBJECT_META));

const NAMESPACE_CONDITION: &[Field] = &[
    (1, "type", Explicit(&Text)),
    (2, "status", Explicit(&Text)),
    (4, "lastTransitionTime", Time),
    (5, "reason", Text),
    (6, "message", Text),
];

const NAMESPACE: &[Field] = &[
    METADATA,
    (2, "spec", Message(&[(1, "finalizers", TEXTS)])),
    (
        3,
        "status",
        Message(&[(1, "phase", Text), (2, "conditions", List(&Message(NAMESPACE_CONDITION)))]),
    ),
];

const SECRET: &[Field] = &[
    METADATA,
    (2, "data", Map(&Bytes)),
    (3, "type", Text),
    (4, "stringData", Map(&Text)),
    (5, "immutable", Explicit(&Bool)),
];

const CONFIG_MAP: &[Field] = &[
    METADATA,
    (2, "data", Map(&Text)),
    (3, "binaryData", Map(&Bytes)),
    (4, "immutable", Explicit(&Bool)),
];

const OBJECT_REFERENCE: &[Field] = &[
    (1, "kind", Text),
    (2, "namespace", Text),
    (3, "name", Text),
    (4, "uid", Text),
    (5, "apiVersion", Text),
    (6, "resourceVersion", Text),
    (7, "fieldPath", Text),
];

const EVENT_SERIES: &[Field] = &[
    (1, "count", Integer32),
    (2, "lastObservedTime", MicroTime),
    // Clients of before 1.19 write it, empty as a rule.
    (3, "state", Text),
];

const EVENT: &[Field] = &[
    METADATA,
    (2, "involvedObject", Message(OBJECT_REFERENCE)),
    (3, "reason", Text),
    (4, "message", Text),
    (5, "source", Message(&[(1, "component", Text), (2, "host", Text)])),
    (6, "firstTimestamp", Time),
    (7, "lastTimestamp", Time),
    (8, "count", Integer32),
    (9, "type", Text),
    (10, "eventTime", MicroTime),
    (11, "series", Message(EVENT_SERIES)),
    (12, "action", Text),
    (13, "related", Message(OBJECT_REFERENCE)),
    (14, "reportingComponent", Explicit(&Text)),
    (15, "reportingInstance", Explicit(&Text)),
];

const EVENT_V1: &[Field] = &[
    METADATA,
    (2, "eventTime", MicroTime),
    (3, "series", Message(EVENT_SERIES)),
    (4, "reportingController", Text),
    (5, "reportingInstance", Text),
    (6, "action", Text),
    (7, "reason", Text),
    (8, "regarding", Message(OBJECT_REFERENCE)),
    (9, "related", Message(OBJECT_REFERENCE)),
    (10, "note", Text),
    (11, "type", Text),
    (12, "deprecatedSource", Message(&[(1, "component", Text), (2, "host", Text)])),
    (13, "deprecatedFirstTimestamp", Time),
    (14, "deprecatedLastTimestamp", Time),
    (15, "deprecatedCount", Integer32),
];

const LEASE_SPEC: &[Field] = &[
    (1, "holderIdentity", Explicit(&Text)),
    (2, "leaseDurationSeconds", Explicit(&Integer32)),
    (3, "acquireTime", MicroTime),
    (4, "renewTime", MicroTime),
    (5, "leaseTransitions", Explicit(&Integer32)),
    (6, "strategy", Explicit(&Text)),
    (7, "preferredHolder", Explicit(&Text)),
];

const LEASE: &[Field] = &[METADATA, (2, "spec", Message(LEASE_SPEC))];

/// A requirement of a label selector, and of a field selector as well.
const REQUIREMENT: &[Field] =
    &[(1, "key", Explicit(&Text)), (2, "operator", Explicit(&Text)), (3, "values", TEXTS)];

const SELECTOR_ATTRIBUTES: &[Field] =
    &[(1, "rawSelector", Text), (2, "requirements", List(&Message(REQUIREMENT)))];

const RESOURCE_ATTRIBUTES: &[Field] = &[
    (1, "namespace", Text),
    (2, "verb", Text),
    (3, "group", Text),
    (4, "version", Text),
    (5, "resource", Text),
    (6, "subresource", Text),
    (7, "name", Text),
    (8, "fieldSelector", Message(SELECTOR_ATTRIBUTES)),
    (9, "labelSelector", Message(SELECTOR_ATTRIBUTES)),
];

const NON_RESOURCE_ATTRIBUTES: &[Field] = &[(1, "path", Text), (2, "verb", Text)];

const SUBJECT_ACCESS_REVIEW_STATUS: &[Field] = &[
    (1, "allowed", Explicit(&Bool)),
    (2, "reason", Text),
    (3, "evaluationError", Text),
    (4, "denied", Bool),
];

const SELF_SUBJECT_ACCESS_REVIEW: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        Message(&[
            (1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
            (2, "nonResourceAttributes", Message(NON_RESOURCE_ATTRIBUTES)),
        ]),
    ),
    (3, "status", Message(SUBJECT_ACCESS_REVIEW_STATUS)),
];

/// Of a local one, too.
const SUBJECT_ACCESS_REVIEW: &[Field] = &[
    METADATA,
    (
        2,
        "spec",
        Message(&[
            (1, "resourceAttributes", Message(RESOURCE_ATTRIBUTES)),
            (2, "nonResourceAttributes", Message(NON_RESOURCE_ATTRIBUTES)),
            (3, "user", Text),
            (4, "groups", TEXTS),
            (5, "extra", Map(&Type::Texts)),
            (6, "uid", Text),
        ]),
    ),
    (3, "status", Message(SUBJECT_ACCESS_REVIEW_STATUS)),
];

const RESOURCE_RULE: &[Field] = &[
    (1, "verbs", TEXTS),
    (2, "apiGroups", TEXTS),
    (3, "resources", TEXTS),
    (4, "resourceNames", TEXTS),
];

const NON_RESOURCE_RULE: &[Field] = &[(1, "verbs", TEXTS), (2, "nonResourceURLs", TEXTS)];

const SELF_SUBJECT_RULES_REVIEW: &[Field] = &[
    METADATA,
    (2, "spec", Message(&[(1, "namespace", Text)])),
    (
        3,
        "status",
        Message(&[
            (1, "resourceRules", List(&Message(RESOURCE_RULE))),
            (2, "nonResourceRules", List(&Message(NON_RESOURCE_RULE))),
            (3, "incomplete", Explicit(&Bool)),
            (4, "evaluationError", Text),
        ]),
    ),
];

const USER_INFO: &[Field] = &[
    (1, "username", Text),
    (2, "uid", Text),
    (3, "groups", TEXTS),
    (4, "extra", Map(&Type::Texts)),
];

const SELF_SUBJECT_REVIEW: &[Field] =
    &[METADATA, (2, "status", Message(&[(1, "userInfo", Message(USER_INFO))]))];

const TOKEN_REVIEW: &[Field] = &[
    METADATA,
    (2, "spec", Message(&[(1, "token", Text), (2, "audiences", TEXTS)])),
    (
        3,
        "status",
        Message(&[
            (1, "authenticated", Bool),
            (2, "user", Message(USER_INFO)),
            (3, "error", Text),
            (4, "audiences", TEXTS),
        ]),
    ),
];

const POLICY_RULE: &[Field] = &[
    (1, "verbs", TEXTS),
    (2, "apiGroups", TEXTS),
    (3, "resources", TEXTS),
    (4, "resourceNames", TEXTS),
    (5, "nonResourceURLs", TEXTS),
];

const RULES: Field = (2, "rules", List(&Message(POLICY_RULE)));

const ROLE: &[Field] = &[METADATA, RULES];

const LABEL_SELECTOR: &[Field] =
    &[(1, "matchLabels", Map(&Text)), (2, "matchExpressions", List(&Message(REQUIREMENT)))];

const CLUSTER_ROLE: &[Field] = &[
    METADATA,
    RULES,
    (3, "aggregationRule", Message(&[(1, "clusterRoleSelectors", List(&Message(LABEL_SELECTOR)))])),
];

const SUBJECT: &[Field] = &[
    (1, "kind", Explicit(&Text)),
    (2, "apiGroup", Text),
    (3, "name", Explicit(&Text)),
    (4, "namespace", Text),
];

const ROLE_REF: &[Field] =
    &[(1, "apiGroup", Explicit(&Text)), (2, "kind", Explicit(&Text)), (3, "name", Explicit(&Text))];

const BINDING: &[Field] =
    &[METADATA, (2, "subjects", List(&Message(SUBJECT))), (3, "roleRef", Message(ROLE_REF))];
