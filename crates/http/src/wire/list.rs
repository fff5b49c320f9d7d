//! Lists, which are encoded as they are sent: one chunk at a time. So a list of any length needs little memory, and
//! blocks no thread for long.

use std::io::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec::IntoIter;

use bytes::{BufMut as _, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body::SizeHint;
use postern_flow::large::LargeWork;
use postern_kinds::AnyKind;
use postern_meta::decode::{Format, encode_yaml};
use postern_meta::status::ApiError;
use postern_registry::cache::CachedObject;
use postern_registry::registry::observe::Observer;
use postern_registry::registry::read::ObjectPage;
use postern_registry::registry::values::NotedItems;
use serde_json::Value;

use super::encode::{self, Negotiated};

/// The approximate size of a chunk of a body, in bytes. It is large enough that a chunk costs little, and small enough
/// that few bytes wait for a client.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The most bytes of stored objects for one chunk. The encoded chunk may be shorter.
const SOURCE_BYTES_PER_CHUNK: usize = 4 * CHUNK_BYTES;

/// The body of a list: the head, the items with their separators, and the end.
pub struct ListBody {
    head: Option<Bytes>,
    objects: IntoIter<Arc<CachedObject>>,
    items: Items,
    observer: Option<Arc<Observer>>,
    /// Notes the reader of each item, if the items are secrets.
    noted: Option<NotedItems>,
    first: bool,
    /// A second field with the same items, if the list has one.
    again: Option<(&'static str, Vec<Arc<CachedObject>>)>,
    end: Option<&'static str>,
    /// The bytes of all objects in their stored encoding.
    source_bytes: usize,
    /// The length before compression, if it is known from the start.
    plain_bytes: Option<usize>,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

/// How items are encoded.
#[derive(Clone, Copy)]
enum Items {
    /// In their stored encoding.
    Stored,
    /// In another representation.
    Encoded { kind: &'static dyn AnyKind, negotiated: Negotiated, layout: Layout },
}

/// The text around and between the items of a list.
#[derive(Clone, Copy)]
struct Layout {
    before_first: &'static str,
    before_others: &'static str,
    /// The beginning of each line of an item, except for its first line.
    indentation: &'static str,
    end: &'static str,
    /// The end of a list without items.
    end_of_none: &'static str,
}

const JSON: Layout = Layout {
    before_first: "",
    before_others: ",",
    indentation: "",
    end: "]}\n",
    end_of_none: "]}\n",
};

const PRETTY: Layout = Layout {
    before_first: "\n    ",
    before_others: ",\n    ",
    indentation: "    ",
    end: "\n  ]\n}\n",
    end_of_none: "]\n}\n",
};

/// The text of an item ends with a line break, which must not change: it may belong to a value.
const YAML: Layout = Layout {
    before_first: "\n- ",
    before_others: "- ",
    indentation: "  ",
    end: "",
    end_of_none: " []\n",
};

impl Layout {
    const fn of(negotiated: Negotiated) -> Self {
        match (negotiated.representation.format, negotiated.pretty) {
            (Format::Yaml, _) => YAML,
            (Format::Json, true) => PRETTY,
            (Format::Json, false) => JSON,
        }
    }
}

/// A list up to its first item.
fn head_of(frame: &Value, field: &str, negotiated: Negotiated) -> String {
    match (negotiated.representation.format, negotiated.pretty) {
        (Format::Yaml, _) => format!("{}{field}:", encode_yaml(frame)),
        (Format::Json, true) => {
            let frame = format!("{frame:#}");
            format!("{},\n  \"{field}\": [", frame.strip_suffix("\n}").unwrap_or(&frame))
        }
        (Format::Json, false) => {
            let frame = frame.to_string();
            format!("{},\"{field}\":[", frame.strip_suffix('}').unwrap_or(&frame))
        }
    }
}

/// Appends the text of an item, with its lines indented.
fn put_item(chunk: &mut BytesMut, item: &Value, negotiated: Negotiated, layout: Layout) {
    let text = match (negotiated.representation.format, negotiated.pretty) {
        (Format::Yaml, _) => encode_yaml(item),
        (Format::Json, true) => format!("{item:#}"),
        (Format::Json, false) => item.to_string(),
    };
    for (index, line) in text.split_inclusive('\n').enumerate() {
        // An empty line has no indentation, because it may be in a value.
        if index > 0 && line != "\n" {
            chunk.put_slice(layout.indentation.as_bytes());
        }
        chunk.put_slice(line.as_bytes());
    }
}

impl ListBody {
    /// The body of a list in plain JSON.
    pub fn stored(kind: &dyn AnyKind, list: ObjectPage) -> Self {
        let head = encode::list_head(kind, &list);
        let source_bytes = list.objects.iter().map(|object| object.json().len()).sum();
        let commas = list.objects.len().saturating_sub(1);
        // The fields that an observer adds are unknown before each object is encoded.
        let known = list.observer.is_none() && list.also_as.is_none();
        let again = list.also_as.map(|field| (field, list.objects.to_vec()));
        let plain_bytes = known.then_some(head.len() + source_bytes + commas + JSON.end.len());
        Self {
            head: Some(head),
            objects: list.objects.into_iter(),
            items: Items::Stored,
            observer: list.observer,
            noted: None,
            first: true,
            again,
            end: Some(JSON.end),
            source_bytes,
            plain_bytes,
            gzip: None,
        }
    }

    /// The body of a list in another representation.
    pub fn encoded(kind: &'static dyn AnyKind, list: ObjectPage, negotiated: Negotiated) -> Self {
        let (mut frame, field) = encode::list_frame(kind, &list, negotiated);
        if let Value::Object(fields) = &mut frame {
            fields.remove(field);
        }
        let layout = Layout::of(negotiated);
        let end = if list.objects.is_empty() { layout.end_of_none } else { layout.end };
        Self {
            head: Some(head_of(&frame, field, negotiated).into()),
            source_bytes: list.objects.iter().map(|object| object.json().len()).sum(),
            objects: list.objects.into_iter(),
            items: Items::Encoded { kind, negotiated, layout },
            observer: list.observer,
            noted: None,
            first: true,
            again: None,
            end: Some(end),
            plain_bytes: None,
            gzip: None,
        }
    }

    /// The same list, which notes the reader of each item as it is sent.
    #[must_use]
    pub fn noting(self, noted: Option<NotedItems>) -> Self {
        Self { noted, ..self }
    }

    /// The bytes of all objects in their stored encoding.
    pub fn source_bytes(&self) -> usize {
        self.source_bytes
    }

    /// All bytes, before compression.
    ///
    /// # Errors
    /// 500 when an object cannot be decoded.
    pub fn whole(&self) -> Result<Bytes, ApiError> {
        let mut copy = Self {
            head: self.head.clone(),
            objects: self.objects.as_slice().to_vec().into_iter(),
            observer: self.observer.clone(),
            noted: self.noted.clone(),
            again: self.again.clone(),
            gzip: None,
            ..*self
        };
        let mut whole = BytesMut::with_capacity(self.plain_bytes.unwrap_or(self.source_bytes));
        while let Some(chunk) = copy.next_chunk()? {
            whole.put_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    /// The same list, compressed at the fastest level: for lists, the network is the bottleneck.
    #[must_use]
    pub fn gzipped(mut self) -> Self {
        self.gzip = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        self
    }

    /// The bytes that it keeps in memory until it is sent. The objects belong to the cache, and are not counted.
    pub(super) fn held_bytes(&self) -> usize {
        let chunk = CHUNK_BYTES.min(self.plain_bytes.unwrap_or(CHUNK_BYTES));
        self.objects.len() * size_of::<Arc<CachedObject>>() + chunk
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match (&self.gzip, self.plain_bytes) {
            (None, Some(bytes)) => SizeHint::with_exact(bytes as u64),
            _ => SizeHint::default(),
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_none() && self.gzip.is_none()
    }

    /// The next chunk; `None` at the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let plain = self.next_plain()?;
            let Some(gzip) = &mut self.gzip else { return Ok(plain) };
            let Some(plain) = plain else {
                // Writing to memory cannot fail.
                let rest = self.gzip.take().and_then(|gzip| gzip.finish().ok());
                return Ok(rest.map(Bytes::from));
            };
            let written = gzip.write_all(&plain);
            written.map_err(|error| ApiError::internal("cannot compress a list", error))?;
            let ready = std::mem::take(gzip.get_mut());
            if !ready.is_empty() {
                return Ok(Some(Bytes::from(ready)));
            }
        }
    }

    fn next_plain(&mut self) -> Result<Option<Bytes>, ApiError> {
        if self.end.is_none() {
            return Ok(None);
        }
        let mut chunk =
            BytesMut::with_capacity(CHUNK_BYTES.min(self.plain_bytes.unwrap_or(CHUNK_BYTES)));
        if let Some(head) = self.head.take() {
            chunk.put_slice(&head);
        }
        let mut source = 0;
        while chunk.len() < CHUNK_BYTES && source < SOURCE_BYTES_PER_CHUNK {
            let Some(object) = self.objects.next() else {
                if let Some((field, objects)) = self.again.take() {
                    chunk.put_slice(format!("],\"{field}\":[").as_bytes());
                    (self.objects, self.first) = (objects.into_iter(), true);
                    continue;
                }
                chunk.put_slice(self.end.take().unwrap_or_default().as_bytes());
                break;
            };
            source += object.json().len();
            let object = match &self.observer {
                Some(observer) => observer.observed(object),
                None => object,
            };
            self.put(&mut chunk, &object)?;
        }
        Ok(Some(chunk.freeze()))
    }

    fn put(&mut self, chunk: &mut BytesMut, object: &CachedObject) -> Result<(), ApiError> {
        let first = std::mem::take(&mut self.first);
        if let Some(noted) = &self.noted {
            noted.note(object);
        }
        match self.items {
            Items::Stored => {
                if !first {
                    chunk.put_u8(b',');
                }
                chunk.put_slice(&object.json());
            }
            Items::Encoded { kind, negotiated, layout } => {
                let before = if first { layout.before_first } else { layout.before_others };
                chunk.put_slice(before.as_bytes());
                if !encode::write_row(chunk, kind, object, negotiated)? {
                    let item = encode::list_item(kind, object, negotiated)?;
                    put_item(chunk, &item, negotiated, layout);
                }
            }
        }
        Ok(())
    }
}

/// A list that is encoded on the threads for large work. Each chunk is encoded when the chunk
/// before was taken.
pub struct EncodedList {
    large: LargeWork,
    list: Option<Box<ListBody>>,
    next: Option<BoxFuture<'static, Result<Step, ApiError>>>,
    held_bytes: usize,
}

type Step = (Box<ListBody>, Result<Option<Bytes>, ApiError>);

impl EncodedList {
    /// A list that is encoded on the threads for large work.
    pub fn new(list: ListBody, large: LargeWork) -> Self {
        Self { large, held_bytes: list.held_bytes(), list: Some(Box::new(list)), next: None }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ApiError>>> {
        if let Some(mut list) = self.list.take() {
            let large = self.large.clone();
            let step = move || {
                let chunk = list.next_chunk();
                (list, chunk)
            };
            self.next = Some(async move { large.run(step).await }.boxed());
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let step = ready!(next.as_mut().poll(cx));
        self.next = None;
        Poll::Ready(match step {
            Ok((list, Ok(Some(chunk)))) => {
                self.list = Some(list);
                Some(Ok(chunk))
            }
            Ok((_, Ok(None))) => None,
            Ok((_, Err(error))) | Err(error) => Some(Err(error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::decode::decode;
    use serde_json::json;

    use super::*;

    fn negotiated(format: Format, pretty: bool) -> Negotiated {
        let representation = postern_meta::accept::Representation {
            format,
            transform: postern_meta::accept::Transform::None,
        };
        let now = postern_meta::time::Timestamp::from_unix_seconds(0);
        Negotiated {
            representation,
            include: postern_registry::cache::IncludeObject::default(),
            pretty,
            gzip: false,
            now,
            version: None,
            parts: postern_registry::registry::values::ObjectParts::Whole,
        }
    }

    fn text(items: &[Value], negotiated: Negotiated) -> String {
        let layout = Layout::of(negotiated);
        let frame = json!({ "kind": "L", "metadata": { "resourceVersion": "1" } });
        let mut text = BytesMut::from(head_of(&frame, "items", negotiated).as_bytes());
        for (index, item) in items.iter().enumerate() {
            let before = if index == 0 { layout.before_first } else { layout.before_others };
            text.put_slice(before.as_bytes());
            put_item(&mut text, item, negotiated, layout);
        }
        let end = if items.is_empty() { layout.end_of_none } else { layout.end };
        text.put_slice(end.as_bytes());
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[test]
    fn a_list_in_chunks_decodes_to_the_list() {
        let tricky = [
            "",
            " ",
            "a\nb",
            "a\nb\n",
            "\n\n",
            "a\n\n\nb\n\n",
            "  indented\n    more\n",
            "- x",
            "a: b",
            "tab\there",
            "trailing \nspace ",
            "# no comment",
            "---\n",
            "ünïcödé\n",
            "null",
            "1.0",
        ];
        let items: Vec<Value> = tricky
            .iter()
            .map(|text| json!({ "a": text, "list": [text, { "deep": text }], "z": text }))
            .collect();
        for items in [&items[..], &items[..1], &[]] {
            let whole = json!({
                "kind": "L", "metadata": { "resourceVersion": "1" }, "items": items,
            });
            for (format, pretty) in
                [(Format::Json, false), (Format::Json, true), (Format::Yaml, false)]
            {
                let text = text(items, negotiated(format, pretty));
                let decoded = decode(text.as_bytes(), format);
                let decoded = decoded.unwrap_or_else(|error| panic!("{error}: {text}"));
                assert_eq!(decoded.value, whole, "{text}");
                assert!(text.ends_with('\n'));
                assert!(!pretty || text.lines().all(|line| !line.ends_with(' ')));
            }
        }
    }
}
