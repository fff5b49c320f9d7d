//! The objects that requests are about, of each kind, and the bodies of requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Our own API group.
pub(crate) const OURS: &str = "management.platform.sh";

const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// An object that requests are about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Target {
    /// The object of the user `owner`.
    Own,
    /// An object that has been shared with the team `red`.
    Shared,
    /// An object without a relation to the ordinary identities.
    Theirs,
    /// As `Theirs`, in another namespace.
    Elsewhere,
    /// An object that does not exist.
    Absent,
    /// As `Absent`, in the other namespace.
    AbsentElsewhere,
}

impl Target {
    /// The word in the tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::Theirs => "theirs",
            Self::Elsewhere => "elsewhere",
            Self::Absent => "absent",
            Self::AbsentElsewhere => "absent elsewhere",
        }
    }

    /// Whether it is in the other namespace.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::Elsewhere | Self::AbsentElsewhere)
    }

    /// The target in the same namespace that does not exist.
    pub(crate) fn nothing_there(self) -> Self {
        if self.is_elsewhere() { Self::AbsentElsewhere } else { Self::Absent }
    }
}

/// A kind, and its objects.
pub(crate) struct Fixture {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    /// The namespace of its objects, and another one; `None` for kinds that are not namespaced.
    pub(crate) namespaces: Option<(&'static str, &'static str)>,
    /// The names of [`Target::Own`], [`Target::Shared`] and [`Target::Theirs`].
    names: [Option<&'static str>; 3],
    /// Whether its objects can be deleted and made again, any number of times.
    pub(crate) can_be_remade: bool,
}

const NAMES: [Option<&str>; 3] = [Some("mine"), Some("ours"), Some("theirs")];
const WITHOUT_OWNER: [Option<&str>; 3] = [None, Some("ours"), Some("theirs")];
const NOTHING_STORED: [Option<&str>; 3] = [None, None, None];
const PROJECT: Option<(&str, &str)> = Some(("p-alpha", "p-beta"));
const PLATFORM: Option<(&str, &str)> = Some(("platform", "apart"));

/// The other group of Events.
const EVENTS: &str = "events.k8s.io";

/// The reviews that are in two groups.
const PLATFORM_REVIEWS: [&str; 2] = ["selfsubjectaccessreviews", "subjectaccessreviews"];

impl Fixture {
    fn new(
        group: &'static str,
        plural: &'static str,
        namespaces: Option<(&'static str, &'static str)>,
        names: [Option<&'static str>; 3],
    ) -> Self {
        let can_be_remade = !["users", "teams", "projects", "namespaces"].contains(&plural);
        Self { group, plural, namespaces, names, can_be_remade }
    }

    /// The fixture of a kind.
    pub(crate) fn of(plural: &str) -> Self {
        let all = Self::all();
        let found = all.into_iter().find(|fixture| fixture.plural == plural);
        found.unwrap_or_else(|| panic!("{plural} is served, and has no fixture"))
    }

    /// The fixtures of all kinds.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![
            Self::new(OURS, "sharedsecrets", PLATFORM, NAMES),
            Self::new(OURS, "projectsecrets", PROJECT, NAMES),
            Self::new(OURS, "virtualclusterinstances", PROJECT, NAMES),
            Self::new(OURS, "spaceinstances", PROJECT, NAMES),
            Self::new(OURS, "projects", None, [Some("mine"), Some("ours"), Some("alpha")]),
            Self::new(OURS, "clusters", None, NAMES),
            Self::new(OURS, "connectors", None, WITHOUT_OWNER),
            Self::new(OURS, "trustedissuers", None, WITHOUT_OWNER),
            Self::new(OURS, "workloadidentities", None, WITHOUT_OWNER),
            Self::new(OURS, "users", None, [Some("owner"), Some("ours"), Some("host")]),
            Self::new(OURS, "teams", None, [Some("violet"), Some("ours"), Some("theirs")]),
            Self::new(OURS, "ownedaccesskeys", None, NAMES),
            Self::new(OURS, "selves", None, NOTHING_STORED),
            Self::new(OURS, "directclusterendpointtokens", None, NOTHING_STORED),
            Self::new(OURS, "resourceaccessreviews", None, NOTHING_STORED),
            Self::new(OURS, "accesspreviews", None, NOTHING_STORED),
            Self::new("", "namespaces", None, [None, Some("ours"), Some("apart")]),
            Self::new("", "secrets", PLATFORM, WITHOUT_OWNER),
            Self::new("", "configmaps", PLATFORM, WITHOUT_OWNER),
            Self::new("", "events", PLATFORM, WITHOUT_OWNER),
            Self::new(EVENTS, "events", PLATFORM, WITHOUT_OWNER),
            Self::new("coordination.k8s.io", "leases", PLATFORM, WITHOUT_OWNER),
            Self::new("apiextensions.k8s.io", "customresourcedefinitions", None, NOTHING_STORED),
            Self::new(RBAC, "roles", PLATFORM, WITHOUT_OWNER),
            Self::new(RBAC, "rolebindings", PLATFORM, WITHOUT_OWNER),
            Self::new(RBAC, "clusterroles", None, WITHOUT_OWNER),
            Self::new(RBAC, "clusterrolebindings", None, WITHOUT_OWNER),
            Self::new(AUTHORIZATION, "localsubjectaccessreviews", PLATFORM, NOTHING_STORED),
        ];
        let reviews =
            ["selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"];
        all.extend(reviews.map(|plural| Self::new(AUTHORIZATION, plural, None, NOTHING_STORED)));
        let reviews = ["selfsubjectreviews", "tokenreviews"];
        all.extend(reviews.map(|plural| Self::new(AUTHENTICATION, plural, None, NOTHING_STORED)));
        // The same questions as in Kubernetes' group.
        all.extend(PLATFORM_REVIEWS.map(|plural| Self::new(OURS, plural, None, NOTHING_STORED)));
        all
    }

    /// The fixture of Events in their other group.
    pub(crate) fn of_events_v1() -> Self {
        Self::all().into_iter().find(|fixture| fixture.group == EVENTS).unwrap()
    }

    /// The fixture of a review in our own group that is also in Kubernetes' one.
    pub(crate) fn of_platform(plural: &str) -> Self {
        let mut all = Self::all().into_iter();
        all.find(|fixture| fixture.group == OURS && fixture.plural == plural).unwrap()
    }

    /// The name of its golden file.
    pub(crate) fn file(&self) -> String {
        let is_double = PLATFORM_REVIEWS.contains(&self.plural);
        match self.group {
            OURS if is_double => format!("platform-{}", self.plural),
            EVENTS => format!("{EVENTS}-{}", self.plural),
            _ => self.plural.to_owned(),
        }
    }

    /// The targets of requests about single objects.
    pub(crate) fn targets(&self) -> Vec<Target> {
        use Target::{Absent, AbsentElsewhere, Elsewhere, Own, Shared, Theirs};
        let all = [Own, Shared, Theirs, Elsewhere, Absent, AbsentElsewhere];
        let asked = |target| match target {
            Absent => true,
            AbsentElsewhere => self.has(Elsewhere),
            target => self.has(target),
        };
        all.into_iter().filter(|&target| asked(target)).collect()
    }

    /// Whether an object of this sort exists.
    pub(crate) fn has(&self, target: Target) -> bool {
        match target {
            Target::Own => self.names[0].is_some(),
            Target::Shared => self.names[1].is_some(),
            Target::Theirs => self.names[2].is_some(),
            Target::Elsewhere => self.names[2].is_some() && self.namespaces.is_some(),
            Target::Absent | Target::AbsentElsewhere => false,
        }
    }

    /// The name of a target.
    pub(crate) fn name(&self, target: Target) -> &'static str {
        let name = match target {
            Target::Own => self.names[0],
            Target::Shared => self.names[1],
            Target::Theirs | Target::Elsewhere => self.names[2],
            Target::Absent | Target::AbsentElsewhere => None,
        };
        name.unwrap_or("absent")
    }

    /// The name of the object that no ordinary identity has been given.
    pub(crate) fn theirs(&self) -> &'static str {
        self.names[2].unwrap_or("theirs")
    }

    /// The namespace of a target; empty for kinds without.
    pub(crate) fn namespace(&self, target: Target) -> &'static str {
        match self.namespaces {
            None => "",
            Some((_, other)) if target.is_elsewhere() => other,
            Some((here, _)) => here,
        }
    }

    /// Whether it has `owner` and `access`.
    pub(crate) fn has_access_rules(&self) -> bool {
        let with = ["sharedsecrets", "projectsecrets", "virtualclusterinstances", "spaceinstances"];
        with.contains(&self.plural) || ["projects", "clusters"].contains(&self.plural)
    }

    /// The path of the API group below the base path.
    pub(crate) fn prefix(&self) -> String {
        match self.group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        }
    }

    /// The path of a collection below the base path.
    pub(crate) fn collection(&self, namespace: &str) -> String {
        match namespace {
            "" => format!("{}/{}", self.prefix(), self.plural),
            some => format!("{}/namespaces/{some}/{}", self.prefix(), self.plural),
        }
    }

    /// The path of a target below the base path.
    pub(crate) fn path(&self, target: Target) -> String {
        format!("{}/{}", self.collection(self.namespace(target)), self.name(target))
    }

    /// The object for a target, under a name.
    pub(crate) fn object(&self, target: Target, name: &str) -> Value {
        let mut object = self.fields(target);
        // A review of access has no metadata.
        let is_review = (self.group == AUTHORIZATION && self.plural.ends_with("accessreviews"))
            || self.plural == "accesspreviews"
            || PLATFORM_REVIEWS.contains(&self.plural);
        object["metadata"] = if is_review { json!({}) } else { json!({ "name": name }) };
        if !self.has_access_rules() {
            return object;
        }
        let owner = if target == Target::Own { "owner" } else { "host" };
        object["spec"]["owner"] = json!({ "user": owner });
        if target == Target::Shared {
            let verbs = ["get", "list", "watch", "update"];
            object["spec"]["access"] =
                json!([{ "name": "red", "teams": ["red"], "verbs": verbs, "subresources": ["*"] }]);
        }
        object
    }

    /// The secret value of a target of a confidential kind, in base64. It may be in no response to
    /// callers that may not get the target.
    pub(crate) fn canary(&self, target: Target) -> String {
        STANDARD.encode(format!("canary-of-{}-{:?}-0123456789", self.plural, target))
    }

    /// Whether every caller can make and delete objects without a delay.
    pub(crate) fn ends_at_once(&self) -> bool {
        !["projects", "namespaces"].contains(&self.plural)
    }

    /// Whether an object can have an owner.
    pub(crate) fn has_owner(&self) -> bool {
        self.has_access_rules() || ["ownedaccesskeys", "workloadidentities"].contains(&self.plural)
    }

    /// An object as one makes it for oneself.
    pub(crate) fn without_owner(&self, name: &str) -> Value {
        let mut object = self.object(Target::Theirs, name);
        if self.has_owner() {
            let spec = object["spec"].as_object_mut().expect("what has an owner has a spec");
            spec.retain(|field, _| field != "owner" && field != "user");
        }
        object
    }

    fn fields(&self, target: Target) -> Value {
        let role = json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": "platform-user" });
        let events = json!([{ "apiGroups": [""], "resources": ["events"], "verbs": ["get"] }]);
        match self.plural {
            "sharedsecrets" | "projectsecrets" => {
                json!({ "spec": { "data": { "value": self.canary(target) } } })
            }
            "users" | "namespaces" | "leases" | "projects" => json!({}),
            "teams" if target == Target::Own => {
                json!({ "spec": { "users": ["owner"] } })
            }
            "ownedaccesskeys" if target == Target::Own => json!({ "spec": { "user": "owner" } }),
            "ownedaccesskeys" => json!({ "spec": { "user": "host" } }),
            "connectors" => json!({ "spec": {
                "issuer": "https://127.0.0.1:1", "clientId": "postern",
                "allow": { "everyone": true },
            } }),
            "trustedissuers" => json!({ "spec": {
                "type": "Generic", "issuer": "https://ci.example.com",
            } }),
            "workloadidentities" => json!({ "spec": {
                "issuer": "ci", "owner": { "user": "host" }, "scope": {},
                "match": [{ "claim": "sub", "values": ["build"] }],
            } }),
            "secrets" | "configmaps" => json!({ "data": { "value": self.canary(target) } }),
            "events" if self.group == EVENTS => json!({
                "regarding": { "namespace": self.namespace(target), "name": "thing" },
                "reason": "Tested", "note": "An event", "type": "Normal",
            }),
            "events" => json!({
                "involvedObject": { "namespace": self.namespace(target), "name": "thing" },
                "reason": "Tested", "message": "An event", "type": "Normal",
            }),
            "roles" | "clusterroles" => json!({ "rules": events }),
            "rolebindings" | "clusterrolebindings" => json!({ "roleRef": role, "subjects": [] }),
            _ => self.question(),
        }
    }

    /// The body of a request that stores nothing.
    fn question(&self) -> Value {
        let asked = json!({ "verb": "get", "resource": "secrets", "namespace": "platform" });
        match self.plural {
            "selfsubjectaccessreviews" => json!({ "spec": { "resourceAttributes": asked } }),
            "subjectaccessreviews" | "localsubjectaccessreviews" => {
                json!({ "spec": { "user": "other", "resourceAttributes": asked } })
            }
            "accesspreviews" => json!({ "spec": { "requests": [asked], "scope": {} } }),
            "resourceaccessreviews" => json!({ "spec": { "verb": "get", "resource": "secrets" } }),
            "selfsubjectrulesreviews" => json!({ "spec": { "namespace": "platform" } }),
            "tokenreviews" => json!({ "spec": { "token": "of-nobody" } }),
            _ => json!({ "spec": {} }),
        }
    }

    /// The verbs and the names of the role that shares *shared* with the team, for kinds without
    /// access rules, and of the role of `maker`.
    pub(crate) fn rules(&self) -> [(&'static str, Value, Value); 2] {
        let verbs = json!(["get", "list", "watch", "update"]);
        let rule = |verbs: Value, names: Value| {
            json!([{
                "apiGroups": [self.group], "resources": [self.plural], "verbs": verbs,
                "resourceNames": names,
            }])
        };
        let team = json!({ "kind": "Group", "apiGroup": RBAC, "name": "platform:team:red" });
        let maker = json!({ "kind": "User", "apiGroup": RBAC, "name": "maker" });
        [
            ("to-red", rule(verbs, json!([self.name(Target::Shared)])), team),
            ("to-maker", rule(json!(["create"]), json!([])), maker),
        ]
    }
}
