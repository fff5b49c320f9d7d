//! One client of the fleet: it sends a request to a server that may be gone, and records the
//! outcome.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postern_tests::http::{Client, Connection, Request, Response};
use postern_tests::objects::{name_of, secret, secret_path, secrets, value_of, version_of};
use postern_tests::rights::{binding, rbac};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::checker::GUARDED;
use super::history::{Action, Item, Operation, Outcome, Recorder};

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "platform";

/// The role that lets a user read the guarded object.
pub(crate) const ROLE: &str = "vault-readers";

/// A client gives up after that. A server resolves outcomes within less.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where the servers are at the moment.
#[derive(Debug)]
pub(crate) struct Addresses(Vec<Mutex<Option<Client>>>);

impl Addresses {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Mutex::new(None)).collect())
    }

    pub(crate) fn set(&self, server: usize, client: Option<Client>) {
        *self.0[server].lock().unwrap() = client;
    }

    /// The administrator's client of a server, unless it is down.
    pub(crate) fn of(&self, server: usize) -> Option<Client> {
        self.0[server].lock().unwrap().clone()
    }
}

/// Why there is no answer.
enum Lost {
    /// Nothing was sent.
    NotSent,
    /// The request may have arrived.
    Sent(String),
}

/// A client with a connection to each server.
pub(crate) struct Asker {
    pub(crate) name: String,
    /// The user's key; none for the administrator.
    pub(crate) token: Option<String>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) recorder: Recorder,
    connections: Vec<Option<(String, Connection)>>,
}

impl Asker {
    pub(crate) fn new(name: &str, addresses: &Arc<Addresses>, recorder: &Recorder) -> Self {
        Self {
            name: name.to_owned(),
            token: None,
            addresses: Arc::clone(addresses),
            recorder: recorder.clone(),
            connections: addresses.0.iter().map(|_| None).collect(),
        }
    }

    /// The number of servers.
    pub(crate) fn servers(&self) -> u64 {
        self.connections.len() as u64
    }

    /// A server's client with the key of this one.
    pub(crate) fn client(&self, server: usize) -> Option<Client> {
        let client = self.addresses.of(server)?;
        Some(match &self.token {
            Some(token) => client.with_token(token),
            None => client,
        })
    }

    /// Does an action at a server. `None` if the server is down and nothing was sent.
    pub(crate) async fn ask(&mut self, server: usize, action: Action) -> Option<Outcome> {
        let invoked = self.recorder.now();
        let answer = self.send(server, &action).await;
        let completed = self.recorder.now();
        let outcome = match answer {
            Ok(response) => outcome(&action, &response),
            Err(Lost::NotSent) => return None,
            Err(Lost::Sent(why)) => Outcome::Unknown(why),
        };
        self.recorder.operation(Operation {
            client: self.name.clone(),
            server,
            invoked,
            completed,
            action,
            outcome: outcome.clone(),
        });
        Some(outcome)
    }

    async fn send(&mut self, server: usize, action: &Action) -> Result<Response, Lost> {
        let client = self.client(server).ok_or(Lost::NotSent)?;
        let open =
            self.connections[server].take().filter(|(address, _)| address == client.address());
        let mut connection = match open {
            Some((_, connection)) => connection,
            None => timeout(CONNECT_TIMEOUT, client.connect())
                .await
                .map_err(|_| Lost::NotSent)?
                .map_err(|_| Lost::NotSent)?,
        };
        let sent = request(&client, action).try_send_on(&mut connection);
        let response = timeout(ANSWER_TIMEOUT, Box::pin(sent))
            .await
            .map_err(|_| Lost::Sent("no answer in time".to_owned()))?
            .map_err(Lost::Sent)?;
        self.connections[server] = Some((client.address().to_owned(), connection));
        Ok(response)
    }
}

fn request<'a>(client: &'a Client, action: &Action) -> Request<'a> {
    let grant = |user: &str| format!("grant-{user}");
    match action {
        Action::Create { name, value } => {
            client.post(&secrets(NAMESPACE)).json(&secret(name, value))
        }
        Action::Update { name, value, from: Some(from) } => {
            let mut object = secret(name, value);
            object["metadata"]["resourceVersion"] = from.to_string().into();
            client.put(&secret_path(name)).json(&object)
        }
        Action::Update { name, value, from: None } => {
            let changes = json!({ "spec": { "data": secret(name, value)["spec"]["data"] } });
            client.patch(&secret_path(name), "merge-patch", &changes)
        }
        Action::Delete { name, from } => {
            let options = json!({ "preconditions": { "resourceVersion": from.to_string() } });
            client.delete(&secret_path(name)).json(&options)
        }
        Action::Get { name } => client.get(&secret_path(name)),
        Action::GetAs { .. } => client.get(&secret_path(GUARDED)),
        Action::List => client.get(&secrets(NAMESPACE)),
        Action::Grant { user } => {
            let group = format!("platform:user:{user}");
            let object = binding(&grant(user), Some(NAMESPACE), ROLE, &group);
            client.post(&rbac(Some(NAMESPACE), "rolebinding")).json(&object)
        }
        Action::Withdraw { user } => {
            client.delete(&format!("{}/{}", rbac(Some(NAMESPACE), "rolebinding"), grant(user)))
        }
    }
}

/// The outcome that a response reports.
fn outcome(action: &Action, response: &Response) -> Outcome {
    let is_read = matches!(action, Action::Get { .. } | Action::GetAs { .. } | Action::List);
    match response.status {
        200 | 201 => success(action, response),
        404 if matches!(action, Action::Get { .. }) => Outcome::Absent,
        403 | 404 if matches!(action, Action::GetAs { .. }) => Outcome::Absent,
        // An earlier attempt has removed it, and the response to that attempt was lost.
        404 if matches!(action, Action::Withdraw { .. }) => Outcome::Done,
        code @ 400..=499 => Outcome::Refused(code),
        // A request with this header can be repeated. It is never sent when the outcome of a write is unknown.
        code if is_read || response.header("retry-after").is_some() => Outcome::Refused(code),
        code => Outcome::Unknown(format!("{code} {}", response.text())),
    }
}

fn success(action: &Action, response: &Response) -> Outcome {
    let body = response.json();
    match action {
        Action::Delete { .. } | Action::Withdraw { .. } => Outcome::Done,
        Action::Get { .. } | Action::GetAs { .. } => {
            Outcome::Found { version: version_of(&body), value: value_of(&body) }
        }
        Action::List => listed(&body),
        Action::Create { .. } | Action::Update { .. } | Action::Grant { .. } => {
            Outcome::Written(version_of(&body))
        }
    }
}

/// The outcome of a list.
pub(crate) fn listed(body: &Value) -> Outcome {
    let items = body["items"].as_array().expect("a list has items").iter().map(|item| Item {
        name: name_of(item).to_owned(),
        version: version_of(item),
        value: value_of(item),
    });
    Outcome::Listed { version: version_of(body), items: items.collect() }
}
