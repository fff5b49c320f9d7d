//! The path of a request, split once into decoded segments.

use percent_encoding::percent_decode_str;
use postern_auth::plain_path::is_plain_byte;
use postern_kinds::access_key;
use postern_meta::status::ApiError;

/// The maximum length of a path: a group, a namespace and a name are much shorter.
pub const MAX_PATH_BYTES: usize = 2048;

/// The maximum number of segments of a path, including the base path.
pub const MAX_PATH_SEGMENTS: usize = 16;

/// The lengths of a path and its segments.
#[derive(Clone, Copy)]
pub(super) struct PathShape {
    slashes: usize,
    bytes: usize,
    pub(super) longest_segment_bytes: usize,
    /// Whether no segment needs decoding, as in nearly all paths.
    pub(super) is_plain: bool,
}

impl PathShape {
    pub(super) fn of(path: &str) -> Self {
        let (mut slashes, mut start, mut longest, mut is_plain) = (0, 0, 0, true);
        for (at, byte) in path.bytes().enumerate() {
            if byte == b'/' {
                longest = longest.max(at - start);
                start = at + 1;
                slashes += 1;
            } else {
                is_plain &= is_plain_byte(byte);
            }
        }
        let longest_segment_bytes = longest.max(path.len() - start);
        Self { slashes, bytes: path.len(), longest_segment_bytes, is_plain }
    }

    /// Whether the path is longer than the path of any object.
    pub(super) fn is_deep(self) -> bool {
        self.bytes > MAX_PATH_BYTES || self.slashes > MAX_PATH_SEGMENTS
    }
}

/// The segments of a decoded path.
pub(super) struct Segments<'p> {
    texts: [&'p str; MAX_PATH_SEGMENTS],
    count: usize,
}

impl<'p> Segments<'p> {
    /// Splits a decoded path.
    ///
    /// # Errors
    /// 400 for an empty segment, `.` and `..`, and for more than [`MAX_PATH_SEGMENTS`] segments.
    pub(super) fn of(path: &'p str) -> Result<Self, ApiError> {
        let mut segments = Self { texts: [""; MAX_PATH_SEGMENTS], count: 0 };
        let mut rest = path;
        for slot in &mut segments.texts {
            let end = memchr::memchr(b'/', rest.as_bytes()).unwrap_or(rest.len());
            let text = &rest[..end];
            if matches!(text, "" | "." | "..") {
                return Err(invalid_segment());
            }
            *slot = text;
            segments.count += 1;
            let Some(after) = rest.get(end + 1..) else { return Ok(segments) };
            rest = after;
        }
        Err(invalid_segment())
    }

    pub(super) fn as_slice(&self) -> &[&'p str] {
        &self.texts[..self.count]
    }
}

/// The path with its segments decoded. No segment has a slash after that, so it is split as before.
///
/// # Errors
/// 400 for a segment that no name or word of the API can be.
pub(super) fn decoded(path: &str) -> Result<String, ApiError> {
    let mut decoded = String::with_capacity(path.len());
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            decoded.push('/');
        }
        let text = percent_decode_str(segment)
            .decode_utf8()
            .map_err(|_| ApiError::bad_request("the path is not UTF-8 after percent-decoding"))?;
        if access_key::is_well_formed(&text) {
            return Err(names_a_key());
        }
        if text.contains(['/', '%', '\\']) || text.chars().any(char::is_control) {
            return Err(invalid_segment());
        }
        decoded.push_str(&text);
    }
    Ok(decoded)
}

fn invalid_segment() -> ApiError {
    ApiError::bad_request(
        "invalid path: a segment must not be empty, '.' or '..', and must not contain '/', '%', a \
         backslash or a control character",
    )
}

/// The 400 for a path that contains the value of an access key. Neither the response nor a log repeats the value.
pub fn names_a_key() -> ApiError {
    ApiError::bad_request(
        "the path contains the value of an access key instead of its name: the value may be in logs \
         of proxies, so replace the key",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_whole_or_not_at_all() {
        let path = |segments: usize| vec!["a"; segments].join("/");
        for segments in [1, 2, MAX_PATH_SEGMENTS] {
            assert_eq!(Segments::of(&path(segments)).unwrap().as_slice(), vec!["a"; segments]);
        }
        for bad in ["", "a//b", "a/", "/a", "a/./b", "..", &path(MAX_PATH_SEGMENTS + 1)] {
            assert!(Segments::of(bad).is_err(), "{bad}");
        }
        assert_eq!(decoded("a%20b/c").unwrap(), "a b/c");
    }
}
