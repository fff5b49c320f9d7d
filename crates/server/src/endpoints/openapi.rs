//! The OpenAPI documents that are served. They are made on first use, with their hashes.

use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA512, digest};
use postern_kinds::versions;
use postern_meta::gvk::GroupVersion;
use postern_openapi::{v2, v3};
use serde_json::Value;

use super::fixed::Fixed;

/// One document in all its formats.
pub(crate) struct OpenApi {
    /// The document in JSON.
    pub(crate) json: Fixed,
    /// The document in protobuf.
    pub(crate) protobuf: Fixed,
}

/// The documents of version 3, each with its group and version.
pub(crate) fn documents() -> &'static [(GroupVersion, OpenApi)] {
    static DOCUMENTS: OnceLock<Vec<(GroupVersion, OpenApi)>> = OnceLock::new();
    DOCUMENTS.get_or_init(|| {
        let document = |version| {
            let value = v3::document(&version);
            let protobuf = Fixed::new(v3::PROTOBUF_TYPES[0], v3::protobuf(&value));
            (version, OpenApi { json: json(&value), protobuf })
        };
        versions().into_iter().map(document).collect()
    })
}

/// The document of version 2.
pub(crate) fn document_v2() -> &'static OpenApi {
    static DOCUMENT: OnceLock<OpenApi> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let documents: Vec<Value> = versions().iter().map(v3::document).collect();
        let value = v2::document(&documents);
        let protobuf = Fixed::new(v2::PROTOBUF_TYPES[0], v2::protobuf(&value));
        OpenApi { json: json(&value), protobuf }
    })
}

/// The index of the documents of version 3.
pub(crate) fn index() -> Value {
    v3::index(documents().iter().map(|(version, document)| (version, document.json.hash())))
}

/// The hash of the index.
pub(crate) fn index_hash() -> String {
    hex::encode_upper(digest(&SHA512, index().to_string().as_bytes()))
}

fn json(value: &Value) -> Fixed {
    Fixed::new("application/json", value.to_string())
}
