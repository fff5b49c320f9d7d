//! The form of a generated access key. The kind is in `owned_access_key`. See
//! `docs/reference/access-keys.md#key-value`.
//!
//! `pst_` + 8 characters of public id + `_` + 43 characters of secret + `_` + 6 characters of
//! checksum, all in base62, so that a secret scanner recognizes a leaked key and verifies it
//! without a server. The checksum is the CRC-32 (as in gzip) of everything before its own
//! `_`, written in base62 with leading zeros.

use crate::secret_text::SecretText;

/// The prefix of every generated key.
pub const PREFIX: &str = "pst_";

const ID_CHARS: usize = 8;
/// 43 base62 characters hold 256 bits: 62^43 > 2^256.
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;

/// Digits, upper case, lower case: the usual order of base62.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Random bytes from this on are rejected, so that each character is equally likely: 248 is the
/// largest multiple of 62 in a byte.
const REJECT_FROM: u8 = 248;

/// A new key. It calls `random` for each random byte.
pub fn generate(random: &mut dyn FnMut() -> u8) -> SecretText {
    let mut text = String::with_capacity(PREFIX.len() + ID_CHARS + SECRET_CHARS + 8);
    text.push_str(PREFIX);
    push_random(&mut text, ID_CHARS, random);
    text.push('_');
    push_random(&mut text, SECRET_CHARS, random);
    let checksum = checksum(text.as_bytes());
    text.push('_');
    text.push_str(&checksum);
    SecretText::from(text)
}

/// Whether the text is a well-formed generated key. Whether a server has such a key is not checked.
pub fn is_well_formed(text: &str) -> bool {
    let Some((body, check)) = text.rsplit_once('_') else { return false };
    let Some((id, secret)) = body.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    let base62 = |part: &str, chars| {
        part.len() == chars && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    base62(id, ID_CHARS)
        && base62(secret, SECRET_CHARS)
        && base62(check, CHECKSUM_CHARS)
        && checksum(body.as_bytes()) == check
}

fn push_random(text: &mut String, chars: usize, random: &mut dyn FnMut() -> u8) {
    for _ in 0..chars {
        let byte = loop {
            let byte = random();
            if byte < REJECT_FROM {
                break byte;
            }
        };
        text.push(char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]));
    }
}

fn checksum(bytes: &[u8]) -> String {
    let mut rest = crc32(bytes);
    let mut digits = [b'0'; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().copied().map(char::from).collect()
}

/// The CRC-32 with the polynomial of gzip and zip, computed bit by bit: 60 bytes need no
/// table.
fn crc32(bytes: &[u8]) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0xEDB8_8320;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (REVERSED_POLYNOMIAL * low);
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the documentation, for authors of secret scanners.
    const GOLDEN: &str = "pst_01234567_89ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmno_2dbcmK";

    fn counting() -> impl FnMut() -> u8 {
        let mut next = 0u8;
        move || {
            let byte = next;
            next = next.wrapping_add(1);
            byte
        }
    }

    #[test]
    fn crc_of_the_standard_check_text() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn generated_key_is_the_golden_vector() {
        let key = generate(&mut counting());
        assert_eq!(key.expose(), GOLDEN);
        assert!(is_well_formed(GOLDEN));
    }

    #[test]
    fn any_change_makes_the_checksum_wrong() {
        for at in PREFIX.len()..GOLDEN.len() {
            let mut bytes = GOLDEN.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(!is_well_formed(&changed), "{changed}");
        }
    }

    #[test]
    fn bytes_that_would_favour_some_characters_are_rejected() {
        let mut bytes = [250u8, 255, 248, 61].into_iter().chain(std::iter::repeat(0));
        let key = generate(&mut || bytes.next().unwrap());
        assert!(key.expose().starts_with("pst_z0000000_"));
    }
}
