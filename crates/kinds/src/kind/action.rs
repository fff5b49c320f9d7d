//! The table of actions: the operations of a kind besides create, read, update, delete and watch.
//! There is one row for each subresource and verb, with the right that it requires, its handler and
//! its bodies. Routing, authorization, discovery and OpenAPI all read this table.

use postern_meta::object::Object;
use postern_meta::status::ApiError;

use super::AnyKind;
use crate::context::Context;
use crate::verb::Verb;

/// One row of a kind's table of actions.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The subresource; empty for the kind's own path, for a kind that is not stored.
    pub subresource: &'static str,
    /// The verb.
    pub verb: Verb,
    /// The right that it requires.
    pub right: ActionRight,
    /// The handler of the action.
    pub handler: Handler,
    /// The kind of the request's body, if it is another one. It need not be in the list of kinds.
    pub request: Option<&'static dyn AnyKind>,
    /// The response's body.
    pub response: Response,
    /// One sentence about it, for OpenAPI.
    pub description: &'static str,
}

/// The right that an action requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionRight {
    /// Its verb on `PLURAL/SUBRESOURCE`, as in Kubernetes.
    OnSubresource,
    /// This verb on `PLURAL/SUBRESOURCE`.
    OnSubresourceAs(&'static str),
    /// This verb on the object itself: the keys of an owner require `getkey` on the owner.
    OnObject(&'static str),
    /// `get` on the object itself, for roles and for the scopes of keys alike: the response is a part of the object.
    GetObject,
}

/// The handler of an action.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// The registry, which needs the objects and the request alone.
    Registry(RegistryAction),
    /// The server, which also needs the connection, the audit log or an identity provider.
    Server(ServerAction),
}

/// The handler of an action that returns one part of an object.
#[derive(Debug)]
pub struct PartHandler {
    /// The query parameter with the name of the part.
    pub parameter: &'static str,
    /// One sentence about the parameter, for OpenAPI.
    pub description: &'static str,
    /// The annotation of the audit record with the name of the part that was returned.
    pub annotation: &'static str,
    /// The part of an object with a name.
    pub handle: fn(&Object, Option<&str>) -> Result<Object, ApiError>,
}

/// Actions that the registry handles. It matches on all of them in one place, so none can be forgotten.
#[derive(Clone, Copy, Debug)]
pub enum RegistryAction {
    /// A pure function of the object and the request, which the kind has.
    Object(fn(&ActionRequest<'_>) -> Result<ActionResult, ApiError>),
    /// A pure function of the object and of the name of one of its parts, which the kind has.
    Part(&'static PartHandler),
    /// A review of permissions or of an identity.
    Review(Review),
    /// The identity of the caller.
    WhoAmI,
    /// The access keys of the object, which is a user or a team.
    AccessKeysOfOwner,
    /// A code for a login link of the object, which is a user.
    LoginCode,
    /// A token for connected clusters, for the caller.
    IssueEndpointToken,
    /// Whether the caller may send each of several requests.
    AccessPreview,
    /// The members of the object, which is a project.
    ProjectMembers,
    /// The members of the object, which is a team.
    TeamMembers,
    /// The readers of the object, which is a secret.
    Readers,
    /// Where the data of the object, which is a project secret, is used.
    SecretUsage,
    /// The clusters that the object, which is a project, may use.
    ProjectClusters,
    /// Move a virtual cluster instance into the object, which is a project.
    MigrateVirtualClusterInstance,
}

/// The reviews.
#[derive(Clone, Copy, Debug)]
pub enum Review {
    /// Whether the caller has a permission.
    SelfSubjectAccess,
    /// Whether a given user has a permission, anywhere or in the namespace.
    SubjectAccess,
    /// The permissions of the caller in a namespace.
    SelfSubjectRules,
    /// The identity of the caller, in Kubernetes' form.
    SelfSubject,
    /// The owner of a token.
    Token,
    /// The subjects that hold a permission.
    ResourceAccess,
}

/// Actions that the server handles. It matches on all of them in one place, so none can be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerAction {
    /// Read or change the object's status, and nothing else of it.
    Status,
    /// Begin, read or end a session of the console.
    ConsoleSession,
    /// Make a code for a login link.
    ConsoleLoginCode,
    /// Describe, allow or deny a login of the command line.
    CommandLineConsent,
    /// The configuration of the cluster's agent.
    AgentConfig,
    /// Write the decisions of the cluster's agent into the audit log.
    ReportAuditEvents,
    /// Subscribe the cluster's agent to project secrets.
    SubscribeSecrets,
    /// Open a tunnel to the agent of the cluster.
    Tunnel,
    /// Whether the object, which is a connector, can be used.
    TestConnector,
}

/// The input of an action that its kind handles.
#[derive(Debug)]
pub struct ActionRequest<'a> {
    /// The stored object.
    pub object: &'a Object,
    /// The request's body.
    pub body: &'a Object,
    /// The caller, the time, the principals.
    pub context: &'a Context<'a>,
}

/// The result of an action that its kind handles.
#[derive(Debug)]
pub enum ActionResult {
    /// A response; nothing is stored.
    Respond(Object),
    /// A new state of the object. It is admitted as any update is, stored and returned.
    Update(Object),
}

/// The body of a response.
#[derive(Clone, Copy, Debug)]
pub enum Response {
    /// An object of the kind itself.
    Same,
    /// An object of another kind, which need not be in the list of kinds.
    Object(&'static dyn AnyKind),
    /// A list of objects of another kind, by its name in CamelCase.
    ListOf(&'static str),
}

impl Action {
    /// An action on the own path of a kind that is not stored. It takes and returns objects of the kind.
    pub const fn on_own_path(verb: Verb, handler: Handler, description: &'static str) -> Self {
        Self {
            subresource: "",
            verb,
            right: ActionRight::OnSubresource,
            handler,
            request: None,
            response: Response::Same,
            description,
        }
    }

    /// Reads the object by its status, as in Kubernetes.
    pub const GET_STATUS: Self = Self {
        subresource: "status",
        verb: Verb::Get,
        right: ActionRight::OnSubresource,
        handler: Handler::Server(ServerAction::Status),
        request: None,
        response: Response::Same,
        description: "Reads the object, for those who may read its status.",
    };

    /// Replaces the status, and nothing else.
    pub const UPDATE_STATUS: Self = Self {
        verb: Verb::Update,
        description: "Replaces the status of the object, and nothing else of it.",
        ..Self::GET_STATUS
    };

    /// Changes parts of the status, and nothing else.
    pub const PATCH_STATUS: Self = Self {
        verb: Verb::Patch,
        description: "Changes parts of the status of the object, and nothing else of it.",
        ..Self::GET_STATUS
    };

    /// Lists the access keys of a user or a team.
    pub const GET_ACCESS_KEYS: Self = Self {
        subresource: "accesskeys",
        verb: Verb::Get,
        right: ActionRight::OnObject("getkey"),
        handler: Handler::Registry(RegistryAction::AccessKeysOfOwner),
        request: None,
        response: Response::ListOf("OwnedAccessKey"),
        description: "Lists the access keys of one owner.",
    };

    /// The part of an object that it returns; `None` for an action with another response.
    pub fn part(&self) -> Option<&'static PartHandler> {
        match self.handler {
            Handler::Registry(RegistryAction::Part(part)) => Some(part),
            Handler::Registry(_) | Handler::Server(_) => None,
        }
    }

    /// Whether it lists the access keys of the object.
    pub fn lists_access_keys(&self) -> bool {
        matches!(self.handler, Handler::Registry(RegistryAction::AccessKeysOfOwner))
    }

    /// Whether it returns the readers of the object.
    pub(super) fn returns_readers(&self) -> bool {
        matches!(self.handler, Handler::Registry(RegistryAction::Readers))
    }

    /// Whether its bodies have more or other content than the object itself.
    pub fn has_other_bodies(&self) -> bool {
        !self.is_of_server(ServerAction::Status)
    }

    /// Whether its request can become a WebSocket.
    pub fn can_switch_protocol(&self) -> bool {
        self.is_of_server(ServerAction::Tunnel)
    }

    /// Whether it has query parameters that no other action has. Agents poll it, and get no warnings about them.
    pub fn has_own_parameters(&self) -> bool {
        self.is_of_server(ServerAction::AgentConfig)
    }

    fn is_of_server(&self, action: ServerAction) -> bool {
        matches!(self.handler, Handler::Server(of_server) if of_server == action)
    }
}
