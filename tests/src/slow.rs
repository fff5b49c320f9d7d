//! Requests with a slow body.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::oneshot;

use crate::http::Body;

/// A body of two halves, and a sender. The second half is sent when the sender is used.
#[must_use]
pub fn slow_body(object: &serde_json::Value) -> (oneshot::Sender<()>, Body) {
    let (finish, finished) = oneshot::channel::<()>();
    let text = object.to_string();
    let (one, two) = text.split_at(text.len() / 2);
    let (one, two) = (Bytes::from(one.to_owned()), Bytes::from(two.to_owned()));
    let frames = stream::unfold((0, Some(finished)), move |(step, mut finished)| {
        let (one, two) = (one.clone(), two.clone());
        async move {
            let frame = match step {
                0 => one,
                1 => {
                    // A dropped sender counts as used.
                    drop(finished.take()?.await);
                    two
                }
                _ => return None,
            };
            Some((Ok::<_, Infallible>(Frame::data(frame)), (step + 1, finished)))
        }
    });
    (finish, StreamBody::new(frames).boxed_unsync())
}
