//! What a kind serves besides create, read, update, delete and watch: one row for each (kind,
//! subresource, verb), with the right that it takes, its handler and its bodies. Routing,
//! authorisation, discovery and OpenAPI all read this table.

use postern_meta::object::Object;
use postern_meta::status::ApiError;

use super::AnyKind;
use crate::context::Context;
use crate::verb::Verb;

/// One row of a kind's table.
#[derive(Clone, Copy, Debug)]
pub struct Action {
    /// The step behind the object's name; empty for the kind's own path, where a kind is asked and
    /// answered and nothing is stored.
    pub subresource: &'static str,
    /// What is done.
    pub verb: Verb,
    /// The right that it takes.
    pub right: ActionRight,
    /// Who does it.
    pub handler: Handler,
    /// What is sent, where that is not the kind itself: a kind that need not be in the list of kinds.
    pub request: Option<&'static dyn AnyKind>,
    /// What is answered.
    pub response: Response,
    /// One sentence about it, for OpenAPI.
    pub description: &'static str,
}

/// The right that an action takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionRight {
    /// Its verb on `PLURAL/SUBRESOURCE`, as in Kubernetes.
    OnSubresource,
    /// This verb on the object itself: the keys of an owner take `getkey` on the owner.
    OnObject(&'static str),
}

/// Who does what an action asks for.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// The server reads or changes the object's status, and nothing else of it.
    Status,
    /// The server does it by itself, since it takes more than the object.
    Server(ServerAction),
    /// The kind does it: a pure function of the object and what was sent.
    Object(fn(&ActionRequest<'_>) -> Result<ActionResult, ApiError>),
}

/// Actions that the server does by itself. The server handles every one, or does not compile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServerAction {
    /// Who is the caller?
    WhoAmI,
    /// The access keys of the object, which is a user or a team.
    AccessKeysOfOwner,
}

/// What an action of a kind looks at.
#[derive(Debug)]
pub struct ActionRequest<'a> {
    /// The object that it is asked of, as it is stored.
    pub object: &'a Object,
    /// What was sent.
    pub body: &'a Object,
    /// The caller, the time, the principals.
    pub context: &'a Context<'a>,
}

/// What an action of a kind comes to.
#[derive(Debug)]
pub enum ActionResult {
    /// An answer; nothing is stored.
    Respond(Object),
    /// A new state of the object. It is admitted as any change is, stored and answered.
    Update(Object),
}

/// What is answered.
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
    /// Reads the status: the whole object, as in Kubernetes.
    pub const GET_STATUS: Self = Self {
        subresource: "status",
        verb: Verb::Get,
        right: ActionRight::OnSubresource,
        handler: Handler::Status,
        request: None,
        response: Response::Same,
        description: "Reads the object, for those who may read its status.",
    };

    /// Replaces the status alone.
    pub const UPDATE_STATUS: Self = Self {
        verb: Verb::Update,
        description: "Replaces the status of the object, and nothing else of it.",
        ..Self::GET_STATUS
    };

    /// Changes parts of the status alone.
    pub const PATCH_STATUS: Self = Self {
        verb: Verb::Patch,
        description: "Changes parts of the status of the object, and nothing else of it.",
        ..Self::GET_STATUS
    };

    /// The access keys of a user or a team, as a list.
    pub const GET_ACCESS_KEYS: Self = Self {
        subresource: "accesskeys",
        verb: Verb::Get,
        right: ActionRight::OnObject("getkey"),
        handler: Handler::Server(ServerAction::AccessKeysOfOwner),
        request: None,
        response: Response::ListOf("OwnedAccessKey"),
        description: "Lists the access keys of one owner.",
    };
}
