//! The characters of a path that every parser reads as they are. Nearly all paths have no others.

static PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        plain[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
        byte += 1;
    }
    plain
};

/// Whether a byte of a segment needs no decoding and no check. An access key has other bytes as well.
pub fn is_plain_byte(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// Whether a segment as it was sent is also the decoded one, and is neither empty, nor `.` or `..`.
pub fn is_plain_segment(raw: &str) -> bool {
    raw.bytes().all(is_plain_byte) && !matches!(raw, "" | "." | "..")
}
