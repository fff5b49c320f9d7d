//! A plugin of Kubernetes' KMS v2 protocol: gRPC over a Unix socket, written out byte by byte.
//!
//! Its encryption is a mask for each key: enough to see which key was used, and that nothing is stored in plain text.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// The annotation that the plugin returns, and wants to get back.
const ANNOTATION: &str = "mask.kms.example.com";

/// How the plugin behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// The number of the key that encrypts.
    pub key: u8,
    /// Its reported health.
    pub health: &'static str,
    /// Whether it returns other bytes than the encrypted ones.
    pub is_wrong: bool,
}

/// A plugin. Dropping it ends it.
#[derive(Debug)]
pub struct KmsPlugin {
    socket: PathBuf,
    behaviour: Arc<Mutex<Behaviour>>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    task: JoinHandle<()>,
}

impl KmsPlugin {
    /// Starts a plugin at a socket. An older socket is replaced.
    #[must_use]
    pub fn start(socket: &Path) -> Self {
        drop(std::fs::remove_file(socket));
        let listener = UnixListener::bind(socket).unwrap();
        let behaviour = Behaviour { key: 1, health: "ok", is_wrong: false };
        let behaviour = Arc::new(Mutex::new(behaviour));
        let calls = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let (of_task, counted) = (behaviour.clone(), calls.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (behaviour, calls) = (of_task.clone(), counted.clone());
                let answer = service_fn(move |request| {
                    let (behaviour, calls) = (behaviour.clone(), calls.clone());
                    async move { Ok::<_, Infallible>(answer(request, &behaviour, &calls).await) }
                });
                let connection = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { socket: socket.to_owned(), behaviour, calls, task }
    }

    /// The value of `--keyring`.
    #[must_use]
    pub fn keyring(&self) -> String {
        format!("kms-v2:unix://{}", self.socket.display())
    }

    /// Changes how it behaves.
    pub fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// How often a method was called.
    #[must_use]
    pub fn calls(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or_default()
    }
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        self.task.abort();
        drop(std::fs::remove_file(&self.socket));
    }
}

async fn answer(
    request: Request<Incoming>,
    behaviour: &Mutex<Behaviour>,
    calls: &Mutex<BTreeMap<String, usize>>,
) -> Response<BoxBody<Bytes, Infallible>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let behaviour = behaviour.lock().unwrap().clone();
    let method = path.strip_prefix("/v2.KeyManagementService/").unwrap_or_default();
    *calls.lock().unwrap().entry(method.to_owned()).or_default() += 1;
    // A frame is a flag, the length, and the message.
    let message = fields(&body[5..]);
    let bytes = |number: u8| message.get(&number).cloned().unwrap_or_default();
    let done = match method {
        "Status" => {
            Ok([field(1, b"v2"), field(2, behaviour.health.as_bytes()), field(3, b"key")].concat())
        }
        "Encrypt" => Ok(encrypt(&bytes(1), behaviour.key)),
        "Decrypt" => {
            decrypt(&bytes(1), &bytes(3), &bytes(4), &behaviour).map(|plain| field(1, &plain))
        }
        _ => Err("no such method"),
    };
    respond(done)
}

fn encrypt(plain: &[u8], key: u8) -> Vec<u8> {
    let masked: Vec<u8> = plain.iter().map(|byte| byte ^ key).collect();
    let annotation = [field(1, ANNOTATION.as_bytes()), field(2, &[key])].concat();
    [field(1, &masked), field(2, format!("key-{key}").as_bytes()), field(3, &annotation)].concat()
}

/// Decrypts with the key that the caller names, which must be the key that has encrypted.
fn decrypt(
    masked: &[u8],
    key_id: &[u8],
    annotation: &[u8],
    behaviour: &Behaviour,
) -> Result<Vec<u8>, &'static str> {
    let annotation = fields(annotation);
    let [key] = annotation.get(&2).ok_or("the annotation is missing")?[..] else {
        return Err("the annotation is another one");
    };
    if annotation.get(&1).is_none_or(|name| name != ANNOTATION.as_bytes()) {
        return Err("the annotation has another name");
    }
    if key_id != format!("key-{key}").as_bytes() {
        return Err("the key is another one");
    }
    let mask = if behaviour.is_wrong { !key } else { key };
    Ok(masked.iter().map(|byte| byte ^ mask).collect())
}

fn respond(done: Result<Vec<u8>, &'static str>) -> Response<BoxBody<Bytes, Infallible>> {
    let (mut frames, mut trailers) = (Vec::new(), HeaderMap::new());
    match done {
        Ok(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            let frame = [&[0], &length[..], &message].concat();
            frames.push(Frame::data(Bytes::from(frame)));
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(why) => {
            trailers.insert("grpc-status", HeaderValue::from_static("2"));
            trailers.insert("grpc-message", HeaderValue::from_static(why));
        }
    }
    frames.push(Frame::trailers(trailers));
    let body = StreamBody::new(futures_util::stream::iter(frames.into_iter().map(Ok)));
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body.boxed()).unwrap()
}

/// A field of bytes. All fields of the protocol are strings, bytes or messages.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3) | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(bytes);
    out
}

/// The fields of a message.
fn fields(mut message: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut found = BTreeMap::new();
    while let Some((tag, mut rest)) = message.split_first() {
        assert_eq!(tag & 7, 2, "a field of bytes");
        let (mut length, mut shift) = (0, 0);
        loop {
            let (byte, after) = rest.split_first().unwrap();
            rest = after;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (value, after) = rest.split_at(length);
        found.insert(tag >> 3, value.to_vec());
        message = after;
    }
    found
}
