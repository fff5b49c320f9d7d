//! Base64 as people and their programs write it: with line breaks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The begin of a file in PEM.
const PEM_BEGIN: &[u8] = b"-----BEGIN ";

/// The bytes of a text in base64, which may have line breaks and blanks; `None` if it is something else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let text: Zeroizing<Vec<u8>> =
        Zeroizing::new(text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect());
    STANDARD.decode(&*text).ok()
}

/// The PEM of a field such as `certificate-authority-data`. A program that writes the field as `!!binary` encodes it twice,
/// and kubectl reads it so.
pub(crate) fn decode_pem(text: &str) -> Option<Vec<u8>> {
    let bytes = decode(text)?;
    if bytes.trim_ascii_start().starts_with(PEM_BEGIN) {
        return Some(bytes);
    }
    let inner = std::str::from_utf8(&bytes).ok().and_then(decode);
    Some(inner.filter(|inner| inner.trim_ascii_start().starts_with(PEM_BEGIN)).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_a_second_encoding_do_not_matter() {
        let pem = b"-----BEGIN CERTIFICATE-----\nQUE=\n-----END CERTIFICATE-----\n";
        let once = STANDARD.encode(pem);
        let lines = once.as_bytes().chunks(20).map(|line| std::str::from_utf8(line).unwrap());
        let broken = lines.collect::<Vec<_>>().join("\r\n  ");
        for text in [&once, &broken, &STANDARD.encode(&once), &STANDARD.encode(&broken)] {
            assert_eq!(decode_pem(text).unwrap(), pem, "{text}");
        }
        assert_eq!(decode(&broken).unwrap(), pem);
        assert_eq!(decode_pem("aGk=").unwrap(), b"hi", "what it is, is for the caller to say");
        assert!(decode("a-b").is_none() && decode_pem("abc").is_none());
    }
}
