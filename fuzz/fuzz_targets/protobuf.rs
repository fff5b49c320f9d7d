//! A body in protobuf: any bytes, and any object in the envelope of each kind.
#![no_main]

use postern_meta::decode::{BodyFormat, decode_body};

/// The kinds that are read, and the options of a deletion.
const KINDS: &[(&str, &str)] = &[
    ("v1", "DeleteOptions"),
    ("v1", "Namespace"),
    ("v1", "Secret"),
    ("v1", "Event"),
    ("coordination.k8s.io/v1", "Lease"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SubjectAccessReview"),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
    ("authentication.k8s.io/v1", "SelfSubjectReview"),
    ("authentication.k8s.io/v1", "TokenReview"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
];

/// Writes a field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = decode_body(bytes, BodyFormat::Protobuf);
    let Some((first, object)) = bytes.split_first() else { return };
    let (version, kind) = KINDS[usize::from(*first) % KINDS.len()];
    let r#type = [field(1, version.as_bytes()), field(2, kind.as_bytes())].concat();
    let body = [b"k8s\0".to_vec(), field(1, &r#type), field(2, object)].concat();
    if let Ok(decoded) = decode_body(&body, BodyFormat::Protobuf) {
        // The decoded value is within the limits of JSON.
        assert!(
            postern_meta::decode(decoded.value.to_string().as_bytes(), postern_meta::Format::Json)
                .is_ok()
        );
    }
});
