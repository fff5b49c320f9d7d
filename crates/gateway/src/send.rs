//! Forwards an authorized request, and returns the response as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};
use postern_flow::budget::Charge;
use postern_flow::too_many_requests;
use postern_meta::status::ApiError;

use super::forward::{SendContext, forward};
use super::review;
use super::target_state::TargetState;
use postern_http::stages::authorize::GatewayPermit;
use postern_http::wire::body::{Body, Guards};
use postern_http::wire::incoming::IncomingBody;
use postern_http::wire::input::RequestBody;
use postern_http::wire::respond;

/// Forwards a request.
///
/// # Errors
/// - 503 when the target cannot be reached, or does not respond
/// - 502 for a response that is not returned to the client
/// - 400, 413 and 415 for an invalid review
/// - 429 when the bytes of the owner's requests are too many
pub async fn send(
    context: SendContext<'_>,
    permit: GatewayPermit,
    target: TargetState,
    body: RequestBody,
) -> Result<Response<Body>, ApiError> {
    if let Some(asked) = review::of(&permit, &target) {
        let charge = context.bodies.open(&context.requester);
        return review::answer(context, permit, target, asked, body, charge).await;
    }
    let no_room = Arc::new(AtomicBool::new(false));
    let body = CountedBody {
        incoming: body.into_incoming(),
        charge: Box::new({
            let (bodies, requester) = (context.bodies.clone(), context.requester.clone());
            move || bodies.open(&requester)
        }),
        no_room: no_room.clone(),
    };
    let request = permit.request().clone();
    let guards = Guards::default();
    let answer = forward(context, permit, target, |_| body, &guards).await;
    match answer {
        Err(_) if no_room.load(Ordering::Relaxed) => Err(too_many_requests()),
        answer => Ok(respond::proxied(answer?, &request.kube, guards)),
    }
}

/// The body of a forwarded request. Each part is counted until it is sent.
struct CountedBody {
    incoming: IncomingBody,
    charge: Box<dyn Fn() -> Charge + Send>,
    /// Whether the byte budget was exceeded.
    no_room: Arc<AtomicBool>,
}

/// A part of a body, which is counted until it is dropped.
struct CountedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = postern_proxy::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        frame.map(|frame| {
            let frame = match frame? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error.into())),
            };
            let bytes = match frame.into_data() {
                Ok(bytes) => bytes,
                Err(other) => return Some(Ok(other)),
            };
            let mut charge = (self.charge)();
            if !charge.grow(bytes.len()) {
                self.no_room.store(true, Ordering::Relaxed);
                return Some(Err(
                    "too many bytes of this owner's requests wait for their targets".into()
                ));
            }
            let counted = CountedBytes { bytes, _charge: charge };
            Some(Ok(Frame::data(Bytes::from_owner(counted))))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
