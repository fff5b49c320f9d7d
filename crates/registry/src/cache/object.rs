//! An object in memory: one copy of its bytes, ready to be sent.
//!
//! The store has the JSON of an object without its resourceVersion, which is known only at commit. If the object has
//! an owner, a line with the uid of the owner follows, which is not part of the object. The cache adds the version,
//! and keeps the object as the watch event of its change: `{"type":"ADDED","object":{…}}\n`. A get or a list returns
//! the slice with the object, and a watch returns the whole line. Neither encodes nor copies.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem::Finder;
use postern_kinds::{Cell, Info, OwnedBy};
use postern_meta::decode::{self, DecodeError};
use postern_meta::event::WatchEventType;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::Position;
use serde::Deserialize;
use serde::de::DeserializeOwned;

const FRAME_HEAD: &str = "{\"type\":\"";
const FRAME_MIDDLE: &str = "\",\"object\":";
const FRAME_TAIL: &str = "}\n";
const VERSION_FIELD: &str = "\"resourceVersion\":\"";
const VERSION_DIGITS: usize = 20;

/// The byte between the JSON of an object and the uid of its owner. JSON without spaces does not contain it.
const OWNER_MARK: u8 = b'\n';

/// The first bytes of the stored JSON of a kind: everything before `resourceVersion`.
pub fn stored_head(info: &Info) -> String {
    format!("{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{{", info.version, info.kind)
}

/// The stored bytes of an object: its JSON without a resourceVersion.
pub fn to_stored(mut object: Object) -> Bytes {
    object.metadata.resource_version.clear();
    Bytes::from(object.to_json_bytes())
}

/// The stored bytes of an object with the uid of its owner, and its JSON alone, without a copy.
pub(crate) fn to_stored_of(mut object: Object, owner_uid: Option<&str>) -> (Bytes, Bytes) {
    object.metadata.resource_version.clear();
    let mut stored = object.to_json_bytes();
    let json_len = stored.len();
    // Only a uid can be told from the JSON. With any other text, the object has no owner.
    if let Some(uid) = owner_uid.filter(|uid| is_uid(uid)) {
        stored.push(OWNER_MARK);
        stored.extend_from_slice(uid.as_bytes());
    }
    let stored = Bytes::from(stored);
    (stored.clone(), stored.slice(..json_len))
}

/// The JSON in the stored bytes of an object, and the uid of its owner, if it has one.
pub(crate) fn split_stored(stored: &[u8]) -> (&[u8], Option<&str>) {
    // JSON ends with a brace, and a uid does not.
    if stored.last() == Some(&b'}') {
        return (stored, None);
    }
    let Some(mark) = memchr::memrchr(OWNER_MARK, stored) else { return (stored, None) };
    let uid = std::str::from_utf8(&stored[mark + 1..]).ok();
    (&stored[..mark], uid.filter(|uid| is_uid(uid)))
}

/// Finds owner references in the bytes of an object, and few other texts.
static OWNER_REFERENCES: LazyLock<Finder<'_>> =
    LazyLock::new(|| Finder::new("\"ownerReferences\":"));

/// Finds the time of the deletion in the bytes of an object, and few other texts.
static DELETION_TIMESTAMP: LazyLock<Finder<'_>> =
    LazyLock::new(|| Finder::new("\"deletionTimestamp\":"));

/// Whether an object can have owner references, by a search in its bytes.
pub(super) fn may_have_owners(json: &[u8]) -> bool {
    OWNER_REFERENCES.find(json).is_some()
}

/// Whether the deletion of an object has begun. A search in the bytes avoids the decoding of nearly all objects.
fn is_deleting(json: &[u8]) -> bool {
    DELETION_TIMESTAMP.find(json).is_some()
        && decode::decode_typed::<Marked>(json)
            .is_ok_and(|object| object.metadata.deletion_timestamp.is_some())
}

fn is_uid(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The maximum length of the text of cells that are kept with an object, in bytes. A message of an Event may be longer.
const KEPT_CELLS_BYTES: usize = 512;

/// The largest object that keeps a decoded part of it, in bytes.
const KEPT_PART_BYTES: usize = 16 * 1024;

/// Whether an object has the value of a secret, and which secret it is. Each is searched for on first use, once for all
/// responses.
#[derive(Clone, Default)]
pub(crate) struct FoundValues {
    pub(crate) in_metadata: OnceLock<bool>,
    pub(crate) in_all_parts: OnceLock<bool>,
    /// The uid; `None` if it has none.
    pub(crate) uid: OnceLock<Option<Box<str>>>,
}

/// An object as it was after one change.
pub struct CachedObject {
    key: Arc<str>,
    position: Position,
    event_type: WatchEventType,
    frame: Bytes,
    /// Length of [`stored_head`]; the version follows it.
    head_len: usize,
    /// Whether its deletion has begun.
    is_deleting: bool,
    labels: OnceLock<BTreeMap<String, String>>,
    /// The cells of its row in a table.
    cells: OnceLock<Box<[Cell]>>,
    /// The part of the object that decisions read with each request.
    part: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Whether it has the value of a secret.
    found_values: FoundValues,
    /// The object's owner, for kinds with delegated rights. It is read once, when the object enters the cache.
    owner: Option<Box<OwnedBy>>,
    /// The uid of the user or team that the object belongs to, for kinds with access rules.
    owner_uid: Option<Box<str>>,
}

/// The part of an object that label selectors need.
#[derive(Deserialize)]
struct Labelled {
    metadata: LabelsOnly,
}

/// The part of an object that tells whether its deletion has begun.
#[derive(Deserialize)]
struct Marked {
    metadata: DeletionMark,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeletionMark {
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct LabelsOnly {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl std::fmt::Debug for CachedObject {
    /// Prints the key and the position, and nothing of the content, which may be secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedObject")
            .field("key", &self.key)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl CachedObject {
    /// A stored object as the cache keeps it; `None` if its first bytes are not those of its kind, so it is corrupt.
    pub fn from_stored(
        head: &str,
        key: Arc<str>,
        position: Position,
        event_type: WatchEventType,
        stored: &[u8],
    ) -> Option<Self> {
        let (json, owner_uid) = split_stored(stored);
        let rest = json.strip_prefix(head.as_bytes())?;
        let frame = frame(event_type, head.as_bytes(), position, rest);
        Some(Self {
            key,
            position,
            event_type,
            frame,
            head_len: head.len(),
            is_deleting: is_deleting(json),
            labels: OnceLock::new(),
            cells: OnceLock::new(),
            part: OnceLock::new(),
            found_values: FoundValues::default(),
            owner: None,
            owner_uid: owner_uid.map(Box::from),
        })
    }

    /// The same state with another event type and version. A deletion has the last state with the version of the
    /// deletion.
    pub(crate) fn restated(&self, position: Position, event_type: WatchEventType) -> Self {
        let json = self.json();
        // `"resourceVersion":"N",` follows the head and is replaced.
        let version_len = VERSION_FIELD.len() + decimal(self.position).len() + "\",".len();
        let rest = &json[self.head_len + version_len..];
        Self {
            key: self.key.clone(),
            position,
            event_type,
            frame: frame(event_type, &json[..self.head_len], position, rest),
            head_len: self.head_len,
            is_deleting: self.is_deleting,
            labels: self.labels.clone(),
            cells: OnceLock::new(),
            part: OnceLock::new(),
            found_values: self.found_values.clone(),
            owner: self.owner.clone(),
            owner_uid: self.owner_uid.clone(),
        }
    }

    /// The same object with other JSON. The bytes up to the version must be the same.
    pub(crate) fn with_json(&self, json: &[u8]) -> Self {
        Self {
            key: self.key.clone(),
            position: self.position,
            event_type: self.event_type,
            frame: event_line(self.event_type, json),
            head_len: self.head_len,
            is_deleting: self.is_deleting,
            labels: self.labels.clone(),
            cells: OnceLock::new(),
            part: OnceLock::new(),
            found_values: FoundValues::default(),
            owner: self.owner.clone(),
            owner_uid: self.owner_uid.clone(),
        }
    }

    /// The same object with an owner.
    pub(super) fn owned_by(mut self, owner: Option<OwnedBy>) -> Self {
        self.owner = owner.map(Box::new);
        self
    }

    /// The object's owner, for kinds with delegated rights.
    pub(crate) fn owner(&self) -> Option<&OwnedBy> {
        self.owner.as_deref()
    }

    /// The uid of the user or team that the object belongs to, for kinds with access rules.
    pub(crate) fn owner_uid(&self) -> Option<&str> {
        self.owner_uid.as_deref()
    }

    /// The storage key.
    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The position of the change that led to this state.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The object's JSON with its resourceVersion, without a copy.
    pub fn json(&self) -> Bytes {
        let start = FRAME_HEAD.len() + self.event_type.as_str().len() + FRAME_MIDDLE.len();
        self.frame.slice(start..self.frame.len() - FRAME_TAIL.len())
    }

    /// The type of the event in which this object is kept.
    pub fn event_type(&self) -> WatchEventType {
        self.event_type
    }

    /// The memory of its bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.frame.len()
    }

    /// The whole event as one line, without a copy.
    pub fn frame(&self) -> Bytes {
        self.frame.clone()
    }

    /// The decoded object.
    ///
    /// # Errors
    /// 500 if the stored bytes are not an object. Their encryption was intact, so this is a bug.
    pub fn decode(&self) -> Result<Object, ApiError> {
        decode::decode_typed(&self.json()).map_err(|reason| {
            ApiError::internal(
                "a stored object cannot be decoded",
                format!("{}: {reason}", self.key),
            )
        })
    }

    /// A part of the object without secret values. It is decoded on first use, and kept for readers of the same type,
    /// unless the object is large: memory of parts is not counted.
    ///
    /// # Errors
    /// Those of the decoder, which may quote stored content.
    pub(crate) fn kept_part<T>(&self) -> Result<Arc<T>, DecodeError>
    where
        T: DeserializeOwned + Send + Sync + 'static,
    {
        let kept = self.part.get().and_then(|part| part.clone().downcast().ok());
        if let Some(part) = kept {
            return Ok(part);
        }
        let part: Arc<T> = Arc::new(decode::decode_typed(&self.json())?);
        if self.bytes() <= KEPT_PART_BYTES {
            let _ = self.part.set(part.clone());
        }
        Ok(part)
    }

    /// The cells of its row in a table. They are made on first use, and kept if their text is short.
    ///
    /// # Errors
    /// As for [`CachedObject::decode`].
    pub fn cells(
        &self,
        make: impl FnOnce(&Object) -> Vec<Cell>,
    ) -> Result<Cow<'_, [Cell]>, ApiError> {
        if let Some(cells) = self.cells.get() {
            return Ok(Cow::Borrowed(cells));
        }
        let cells = make(&self.decode()?);
        let text_bytes = |cell: &Cell| if let Cell::Text(text) = cell { text.len() } else { 0 };
        if cells.iter().map(text_bytes).sum::<usize>() > KEPT_CELLS_BYTES {
            return Ok(Cow::Owned(cells));
        }
        Ok(Cow::Borrowed(self.cells.get_or_init(|| cells.into_boxed_slice())))
    }

    /// Whether it has the value of a secret. All searches must be the same.
    pub(crate) fn found_values(&self) -> &FoundValues {
        &self.found_values
    }

    /// The JSON of its metadata, without a copy; `None` if its end is not found.
    pub fn metadata_json(&self) -> Option<Bytes> {
        let json = self.json();
        let start = self.head_len.checked_sub(1)?;
        let len = object_len(json.get(start..)?)?;
        Some(json.slice(start..start + len))
    }

    /// Whether its deletion has begun.
    pub(crate) fn is_deleting(&self) -> bool {
        self.is_deleting
    }

    /// Whether it can have owner references or ties. True for every object with one, and for few others.
    pub(crate) fn may_have_owners(&self) -> bool {
        self.owner.is_some() || may_have_owners(&self.frame)
    }

    /// The labels. They are decoded on first use.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.get_or_init(|| {
            decode::decode_typed::<Labelled>(&self.json())
                .map(|object| object.metadata.labels)
                .unwrap_or_default()
        })
    }
}

/// The length of the JSON object at the start of valid JSON; `None` if there is none.
fn object_len(json: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        at += memchr::memchr3(b'"', b'{', b'}', json.get(at..)?)?;
        match json[at] {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => at = string_end(json, at)?,
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The index of the quotation mark that ends the string that begins at `start`.
fn string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += memchr::memchr2(b'"', b'\\', json.get(at..)?)?;
        if json[at] == b'"' {
            return Some(at);
        }
        // The escaped character may be a quotation mark.
        at += 2;
    }
}

/// The JSON of an object for the response to the write that stored it.
pub fn with_version(head: &str, stored: &[u8], position: Option<Position>) -> Bytes {
    let Some(position) = position else { return Bytes::copy_from_slice(stored) };
    let mut json = BytesMut::with_capacity(stored.len() + VERSION_FIELD.len() + VERSION_DIGITS);
    put_versioned(&mut json, head.as_bytes(), position, &stored[head.len().min(stored.len())..]);
    json.freeze()
}

fn frame(event_type: WatchEventType, head: &[u8], position: Position, rest: &[u8]) -> Bytes {
    let mut frame =
        BytesMut::with_capacity(frame_len(head.len(), position, rest.len(), event_type));
    frame.put_slice(FRAME_HEAD.as_bytes());
    frame.put_slice(event_type.as_str().as_bytes());
    frame.put_slice(FRAME_MIDDLE.as_bytes());
    put_versioned(&mut frame, head, position, rest);
    frame.put_slice(FRAME_TAIL.as_bytes());
    frame.freeze()
}

fn frame_len(head: usize, position: Position, rest: usize, event_type: WatchEventType) -> usize {
    FRAME_HEAD.len()
        + event_type.as_str().len()
        + FRAME_MIDDLE.len()
        + head
        + VERSION_FIELD.len()
        + decimal(position).len()
        + "\",".len()
        + rest
        + FRAME_TAIL.len()
}

fn put_versioned(out: &mut BytesMut, head: &[u8], position: Position, rest: &[u8]) {
    out.put_slice(head);
    out.put_slice(VERSION_FIELD.as_bytes());
    out.put_slice(decimal(position).as_bytes());
    // Metadata always has a name, so a comma always follows.
    out.put_slice(b"\",");
    out.put_slice(rest);
}

fn decimal(position: Position) -> String {
    position.packed().to_string()
}

/// A watch event with the JSON of an object.
pub fn event_line(event_type: WatchEventType, object_json: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object_json.len() + 40);
    line.put_slice(FRAME_HEAD.as_bytes());
    line.put_slice(event_type.as_str().as_bytes());
    line.put_slice(FRAME_MIDDLE.as_bytes());
    line.put_slice(object_json);
    line.put_slice(FRAME_TAIL.as_bytes());
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "{\"apiVersion\":\"v1\",\"kind\":\"K\",\"metadata\":{";

    fn cached(position: Position) -> CachedObject {
        let stored = format!("{HEAD}\"name\":\"a\",\"labels\":{{\"x\":\"y\"}}}},\"spec\":{{}}}}");
        CachedObject::from_stored(
            HEAD,
            "/k/a".into(),
            position,
            WatchEventType::Added,
            stored.as_bytes(),
        )
        .unwrap()
    }

    #[test]
    fn the_metadata_ends_with_its_object() {
        for (metadata, rest) in [
            ("{}", ",\"spec\":{}}"),
            (r#"{"name":"a","labels":{"x":"}\"{"}}"#, r#","spec":{"a":"b"}}"#),
            (r#"{"a":"\\","b":[{"c":"{"},{}]}"#, "}"),
        ] {
            let json = format!("{metadata}{rest}");
            assert_eq!(object_len(json.as_bytes()), Some(metadata.len()), "{json}");
        }
        for broken in ["", "{", "{\"a", "{\"a\\", "}"] {
            assert_eq!(object_len(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn the_frame_has_the_object_and_its_version() {
        let object = cached(Position::new(3, 1));
        let want = "{\"apiVersion\":\"v1\",\"kind\":\"K\",\"metadata\":{\"resourceVersion\":\"769\",\
                    \"name\":\"a\",\"labels\":{\"x\":\"y\"}},\"spec\":{}}";
        assert_eq!(object.json(), want);
        assert_eq!(object.frame(), format!("{{\"type\":\"ADDED\",\"object\":{want}}}\n"));
        assert_eq!(object.labels().get("x").map(String::as_str), Some("y"));
    }

    #[test]
    fn a_restated_object_has_the_new_version_and_type() {
        let deleted =
            cached(Position::new(3, 1)).restated(Position::new(1000, 0), WatchEventType::Deleted);
        let json = deleted.json();
        assert_eq!(
            json,
            "{\"apiVersion\":\"v1\",\"kind\":\"K\",\"metadata\":{\"resourceVersion\":\"256000\",\
             \"name\":\"a\",\"labels\":{\"x\":\"y\"}},\"spec\":{}}"
        );
        assert!(deleted.frame().starts_with(b"{\"type\":\"DELETED\","));
    }

    #[test]
    fn a_kept_part_is_that_of_its_type_and_its_state() {
        #[derive(Deserialize)]
        struct Versioned {
            metadata: Version,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            resource_version: String,
        }
        let object = cached(Position::new(3, 1));
        let part = object.kept_part::<Versioned>().unwrap();
        assert!(Arc::ptr_eq(&part, &object.kept_part::<Versioned>().unwrap()));
        assert_eq!(object.kept_part::<Labelled>().unwrap().metadata.labels["x"], "y");
        assert_eq!(part.metadata.resource_version, "769");
        let later = object.restated(Position::new(1000, 0), WatchEventType::Modified);
        assert_eq!(later.kept_part::<Versioned>().unwrap().metadata.resource_version, "256000");
        assert!(later.kept_part::<String>().is_err());
    }

    #[test]
    fn the_uid_of_the_owner_is_next_to_the_object() {
        let object = |uid: &str| {
            let value = serde_json::json!({
                "apiVersion": "v1", "kind": "K", "metadata": { "name": "a", "annotations": { "n": "x\ny}" } },
            });
            to_stored_of(
                Object::from_value(value).unwrap(),
                Some(uid).filter(|uid| *uid != "-none"),
            )
        };
        let position = Position::new(3, 1);
        for (uid, read) in [
            ("0b3e6a12-8f", Some("0b3e6a12-8f")),
            ("-none", None),
            ("", None),
            ("a}", None),
            ("a\nb", None),
        ] {
            let (stored, json) = object(uid);
            assert_eq!(split_stored(&stored), (&*json, read), "{uid:?}");
            assert!(json.ends_with(b"}") && !json.contains(&b'\n'));
            let added = WatchEventType::Added;
            let cached = CachedObject::from_stored(HEAD, "/k/a".into(), position, added, &stored);
            let cached = cached.unwrap();
            assert_eq!(cached.owner_uid(), read);
            let later = cached.restated(Position::new(9, 0), WatchEventType::Deleted);
            assert_eq!(later.owner_uid(), read);
            assert_eq!(cached.with_json(b"{}").owner_uid(), read);
            let text = String::from_utf8(cached.frame().to_vec()).unwrap();
            assert!(!text.contains("0b3e6a12"), "{text}");
        }
    }

    #[test]
    fn debug_prints_no_content() {
        let text = format!("{:?}", cached(Position::new(3, 1)));
        assert!(text.contains("/k/a") && !text.contains("labels"), "{text}");
    }

    #[test]
    fn an_annotation_of_that_name_is_no_deletion() {
        let object = |metadata: &str| {
            let stored = format!("{HEAD}{metadata}}},\"spec\":{{}}}}");
            let position = Position::new(1, 0);
            let added = WatchEventType::Added;
            CachedObject::from_stored(HEAD, "/k/a".into(), position, added, stored.as_bytes())
        };
        for (metadata, deleting) in [
            ("\"name\":\"a\"", false),
            ("\"annotations\":{\"deletionTimestamp\":\"x\"},\"name\":\"a\"", false),
            ("\"deletionTimestamp\":\"2026-01-01T00:00:00Z\",\"name\":\"a\"", true),
        ] {
            assert_eq!(object(metadata).unwrap().is_deleting(), deleting, "{metadata}");
        }
    }

    #[test]
    fn bytes_of_another_kind_are_corrupt() {
        let object = CachedObject::from_stored(
            HEAD,
            "/k/a".into(),
            Position::new(1, 0),
            WatchEventType::Added,
            b"{}",
        );
        assert!(object.is_none());
    }
}
