//! Parts of the requests to etcd: operations of transactions, their conditions and their results.

use bytes::Bytes;

use crate::proto::{
    Compare, CompareTo, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, Request,
    RequestOp, Response, TxnResponse,
};

pub(crate) fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

/// The range of one key.
pub(crate) fn one(key: Bytes) -> RangeRequest {
    RangeRequest { key, ..RangeRequest::default() }
}

/// The condition that a key was changed last at a revision of etcd; 0 means that it does not exist.
pub(crate) fn is_at(key: Bytes, revision: i64) -> Compare {
    let to = Some(CompareTo::ModRevision(revision));
    Compare { result: 0, target: 2, key, to, range_end: Bytes::new() }
}

/// The condition that a key was changed last at a revision of etcd, or later.
pub(crate) fn is_at_least(key: Bytes, revision: i64) -> Compare {
    let to = Some(CompareTo::ModRevision(revision - 1));
    Compare { result: 1, target: 2, key, to, range_end: Bytes::new() }
}

/// The condition that a key exists.
pub(crate) fn exists(key: Bytes) -> Compare {
    let to = Some(CompareTo::Version(0));
    Compare { result: 1, target: 0, key, to, range_end: Bytes::new() }
}

/// The responses to the ranges of a transaction.
pub(crate) fn ranges_of(response: TxnResponse) -> Vec<RangeResponse> {
    let range = |response| match response {
        Some(Response::Range(range)) => Some(range),
        _ => None,
    };
    response.responses.into_iter().filter_map(|one| range(one.response)).collect()
}

pub(crate) fn put(key: Bytes, value: Bytes) -> RequestOp {
    op(Request::Put(PutRequest { key, value, lease: 0 }))
}

pub(crate) fn delete(key: Bytes, range_end: Bytes) -> RequestOp {
    op(Request::DeleteRange(DeleteRangeRequest { key, range_end }))
}
