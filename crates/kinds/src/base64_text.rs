//! Base64 in kubeconfigs, certificates and annotations. Many tools wrap it after 64 or 76 characters.

use std::borrow::Cow;

use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine as _};
use zeroize::Zeroizing;

/// Decodes standard base64 with padding. Line breaks in it are skipped, as Go's decoder does in kubectl.
///
/// # Errors
/// When a character is not of base64, or the padding is wrong.
pub fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, DecodeError> {
    STANDARD.decode(without_line_breaks(text).as_bytes()).map(Zeroizing::new)
}

/// The text without line breaks: one form for all readers.
pub fn without_line_breaks(text: &str) -> Cow<'_, str> {
    if text.contains(['\r', '\n']) {
        Cow::Owned(text.replace(['\r', '\n'], ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Whether a text is base64 of PEM with a whole certificate in it.
pub fn has_certificate(text: &str) -> bool {
    decode(text)
        .is_ok_and(|pem| std::str::from_utf8(&pem).is_ok_and(|pem| has_section(pem, "CERTIFICATE")))
}

/// Whether there is a whole section with base64 in it and a label that ends so, such as
/// `RSA PRIVATE KEY`.
pub(crate) fn has_section(pem: &str, label: &str) -> bool {
    let mut begun: Option<(&str, String)> = None;
    for line in pem.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("-----BEGIN ").and_then(|it| it.strip_suffix("-----"))
        {
            begun = name.ends_with(label).then(|| (name, String::new()));
        } else if let Some(name) =
            line.strip_prefix("-----END ").and_then(|it| it.strip_suffix("-----"))
        {
            let whole = begun.take().filter(|(of, _)| *of == name).map(|(_, text)| text);
            if whole.is_some_and(|text| !text.is_empty() && STANDARD.decode(text).is_ok()) {
                return true;
            }
        } else if let Some((_, text)) = &mut begun {
            text.push_str(line);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_skipped_and_nothing_else() {
        for text in ["aGVsbG8=", "aGVs\nbG8=\n", "aGVs\r\nbG8=\r\n", "\naGVsbG8\n="] {
            assert_eq!(decode(text).unwrap().as_slice(), b"hello", "{text:?}");
            assert_eq!(without_line_breaks(text), "aGVsbG8=");
        }
        for text in ["aGVs bG8=", "aGVsbG8", "aGVsbG8=\t", "aGVs_G8="] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }
}
