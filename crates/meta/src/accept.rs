//! Content negotiation: the formats that a client accepts and sends. See `docs/reference/api.md#formats`.

use crate::decode::{BodyFormat, Format, PROTOBUF_MEDIA_TYPE};
use crate::status::ApiError;

/// Maximum number of clauses that are read of all `Accept` headers.
const MAX_CLAUSES: usize = 64;

/// The forms that an endpoint offers: JSON always, and:
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// One object: YAML, a table, its metadata. A watch's events hold one object each, too.
    Object,
    /// A list: YAML, a table, a list of metadata.
    List,
    /// A document that is not an object: YAML.
    Document,
    /// A document that exists only in JSON.
    JsonDocument,
}

impl Offered {
    fn has_yaml(self) -> bool {
        self != Self::JsonDocument
    }

    fn has_table(self) -> bool {
        matches!(self, Self::Object | Self::List)
    }
}

/// How an object is transformed before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Not at all.
    None,
    /// To a row of a table.
    Table {
        /// Of `meta.k8s.io`.
        version: &'static str,
    },
    /// To its metadata.
    PartialObjectMetadata {
        /// Of `meta.k8s.io`.
        version: &'static str,
    },
    /// To a list of metadata.
    PartialObjectMetadataList {
        /// Of `meta.k8s.io`.
        version: &'static str,
    },
}

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Representation {
    /// JSON or YAML.
    pub format: Format,
    /// How the object is transformed first.
    pub transform: Transform,
}

impl Representation {
    /// The response's `Content-Type`: without parameters, as upstream.
    pub fn content_type(&self) -> &'static str {
        self.format.media_type()
    }
}

/// One clause of an `Accept` header: a media type that the client accepts.
#[derive(Debug)]
pub struct Clause<'a> {
    /// In lower case; it may have wildcards.
    pub media_type: String,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Whether it accepts plain JSON.
    pub fn takes_json(&self) -> bool {
        matches!(self.media_type.as_str(), "application/json" | "application/*" | "*/*")
    }

    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().filter(|media_type| media_type.contains('/'))?;
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case("q"));
        let quality = quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0));
        let quality = if (0.0..=1.0).contains(&quality) { quality } else { 0.0 };
        Some(Clause { media_type: media_type.to_ascii_lowercase(), parameters, quality })
    }
}

/// The first result of `offer`, which is called with the `Accept` clauses of a request in
/// order of their quality, the highest first. No header means `*/*`.
pub fn choose<T>(headers: &[&str], offer: impl Fn(&Clause<'_>) -> Option<T>) -> Option<T> {
    let clauses = headers.iter().flat_map(|header| header.split(','));
    let mut clauses: Vec<Clause<'_>> =
        clauses.filter_map(Clause::parse).take(MAX_CLAUSES).collect();
    if headers.iter().all(|header| header.trim().is_empty()) {
        clauses.extend(Clause::parse("*/*"));
    }
    // Stable: clauses of one quality stay in the client's order.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.iter().filter(|clause| clause.quality > 0.0).find_map(offer)
}

/// The form of a response from an endpoint with the forms of `offered`: that of the first
/// clause that can be served, in order of quality. No header means JSON.
///
/// # Errors
/// 406 when no clause can be served. A client that accepts only a reduced form never gets the full
/// object: it would not expect the secrets in it.
pub fn negotiate(headers: &[&str], offered: Offered) -> Result<Representation, ApiError> {
    // Most requests ask for nothing else, and each of these clauses accepts plain JSON.
    if let [] | ["application/json" | "*/*" | "application/json, */*"] = headers {
        return Ok(Representation { format: Format::Json, transform: Transform::None });
    }
    choose(headers, |clause| served(clause, offered)).ok_or_else(|| {
        let mut types = vec![Format::Json.media_type()];
        if offered.has_yaml() {
            types.push(Format::Yaml.media_type());
        }
        ApiError::not_acceptable(&types)
    })
}

/// Whether the clause that [`negotiate`] chooses asks for indented text: `pretty=1`.
pub fn asks_for_pretty(headers: &[&str], offered: Offered) -> bool {
    // Hardly any request does.
    let is_named = headers.iter().any(|header| header.contains("pretty"));
    let of_served = |clause: &Clause<'_>| {
        served(clause, offered).map(|_| clause.parameter("pretty") == Some("1"))
    };
    is_named && choose(headers, of_served) == Some(true)
}

fn served(clause: &Clause<'_>, offered: Offered) -> Option<Representation> {
    let format = match clause.media_type.as_str() {
        _ if clause.takes_json() => Format::Json,
        media_type if is_yaml(media_type) && offered.has_yaml() => Format::Yaml,
        _ => return None,
    };
    let Some(kind) = clause.parameter("as").filter(|kind| !kind.is_empty()) else {
        return Some(Representation { format, transform: Transform::None });
    };
    if clause.parameter("g") != Some("meta.k8s.io") {
        return None;
    }
    let version = match clause.parameter("v") {
        Some("v1") => "v1",
        Some("v1beta1") => "v1beta1",
        _ => return None,
    };
    let transform = match kind {
        "Table" if offered.has_table() => Transform::Table { version },
        "PartialObjectMetadata" if offered == Offered::Object => {
            Transform::PartialObjectMetadata { version }
        }
        "PartialObjectMetadataList" if offered == Offered::List => {
            Transform::PartialObjectMetadataList { version }
        }
        _ => return None,
    };
    Some(Representation { format, transform })
}

/// The format of a body, from its `Content-Type`; no header means JSON.
///
/// # Errors
/// 415 for a media type that is not supported.
pub fn content_type_of_body(header: Option<&str>) -> Result<BodyFormat, ApiError> {
    match media_type(header).as_str() {
        "" | "application/json" => Ok(BodyFormat::Text(Format::Json)),
        yaml if is_yaml(yaml) => Ok(BodyFormat::Text(Format::Yaml)),
        PROTOBUF_MEDIA_TYPE => Ok(BodyFormat::Protobuf),
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            PROTOBUF_MEDIA_TYPE,
        ])),
    }
}

/// The types of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' strategic merge patch, which merges lists by their keys.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The type of a patch, from its `Content-Type`.
///
/// # Errors
/// 415 with the media types of `served`, when it is none of them.
pub fn patch_type(header: Option<&str>, served: &[PatchType]) -> Result<PatchType, ApiError> {
    let requested = media_type(header);
    let matching = served.iter().copied().find(|known| known.media_type() == requested);
    matching.ok_or_else(|| {
        let types: Vec<&str> = served.iter().map(|known| known.media_type()).collect();
        ApiError::unsupported_media_type(&types)
    })
}

/// Whether it is one of the media types that clients use for YAML.
fn is_yaml(media_type: &str) -> bool {
    matches!(media_type, "application/yaml" | "application/x-yaml" | "text/yaml")
}

fn media_type(header: Option<&str>) -> String {
    let header = header.unwrap_or_default();
    header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;\
                         v=v1beta1;g=meta.k8s.io,application/json";

    #[test]
    fn negotiated_forms() {
        let json = |transform| Some(Representation { format: Format::Json, transform });
        let plain = json(Transform::None);
        let yaml = Some(Representation { format: Format::Yaml, transform: Transform::None });
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;\
                       g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;\
                       g=meta.k8s.io;v=v1";
        for (header, offered, want) in [
            ("", Offered::Object, plain),
            ("*/*", Offered::Object, plain),
            ("application/yaml", Offered::Object, yaml),
            ("application/yaml", Offered::JsonDocument, None),
            ("application/json;q=0.5,application/yaml", Offered::Object, yaml),
            ("application/json;q=0", Offered::Object, None),
            ("application/vnd.kubernetes.protobuf", Offered::Object, None),
            ("application/vnd.kubernetes.protobuf,application/json", Offered::Object, plain),
            ("application/cbor,application/json", Offered::List, plain),
            (TABLE, Offered::List, json(Transform::Table { version: "v1" })),
            (TABLE, Offered::Document, plain),
            (partial, Offered::Object, json(Transform::PartialObjectMetadata { version: "v1" })),
            // The singular form of a list is refused: the response would be whole objects.
            (partial, Offered::List, None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", Offered::List, None),
            ("application/json;stream=watch", Offered::Object, plain),
            ("text/html", Offered::Object, None),
            ("nonsense", Offered::Object, None),
        ] {
            let got = negotiate(&[header], offered);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{header}");
            if let Err(error) = got {
                assert_eq!(error.code(), 406);
            }
        }
    }

    #[test]
    fn indented_text_is_asked_for_by_the_clause_that_is_served() {
        for (header, want) in [
            ("application/json", false),
            ("application/json;pretty=1", true),
            ("application/json; pretty=1; charset=utf-8", true),
            ("application/json;pretty=0", false),
            ("application/json;pretty=true", false),
            ("text/html;pretty=1,application/json", false),
            ("text/html,application/json;pretty=1", true),
            ("application/json,application/yaml;pretty=1", false),
            ("text/html;pretty=1", false),
        ] {
            assert_eq!(asks_for_pretty(&[header], Offered::Object), want, "{header}");
        }
    }

    #[test]
    fn the_clause_of_the_highest_quality_that_is_offered() {
        let chosen = |headers: &[&str]| {
            choose(headers, |clause| match clause.media_type.as_str() {
                "application/special" => Some(clause.parameter("v").unwrap_or("none").to_owned()),
                _ => clause.takes_json().then(|| "json".to_owned()),
            })
        };
        for (headers, want) in [
            (&[][..], Some("json")),
            (&[""], Some("json")),
            (&["*/*"], Some("json")),
            (&["application/special;v=1,application/json"], Some("1")),
            (&["application/special;q=0.1", "application/json"], Some("json")),
            (&["application/special;q=0"], None),
            (&["APPLICATION/Special; v=\"2\""], Some("2")),
            (&["text/html"], None),
            (&["nonsense"], None),
        ] {
            assert_eq!(chosen(headers).as_deref(), want, "{headers:?}");
        }
    }

    #[test]
    fn bodies_and_patches() {
        assert_eq!(content_type_of_body(None).unwrap(), BodyFormat::Text(Format::Json));
        let with_charset = Some("application/yaml; charset=utf-8");
        assert_eq!(content_type_of_body(with_charset).unwrap(), BodyFormat::Text(Format::Yaml));
        assert_eq!(content_type_of_body(Some("text/plain")).unwrap_err().code(), 415);
        let served = [PatchType::Json, PatchType::Merge];
        let header = Some("application/merge-patch+json; charset=utf-8");
        assert_eq!(patch_type(header, &served).unwrap(), PatchType::Merge);
        for refused in [None, Some("application/json"), Some("application/apply-patch+yaml")] {
            assert_eq!(patch_type(refused, &served).unwrap_err().code(), 415);
        }
    }

    proptest! {
        #[test]
        fn never_panics(header in ".{0,100}", second in "[a-z*/;=,q.0-9 ]{0,60}") {
            if let Err(error) = negotiate(&[&header, &second], Offered::List) {
                prop_assert_eq!(error.code(), 406);
            }
        }
    }
}
