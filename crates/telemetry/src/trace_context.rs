//! The header `traceparent`: which trace a request belongs to, and which span it came from.
//!
//! Format and rules: W3C Trace Context, level 1.

use std::fmt;

/// The length of a header of version 00.
const LENGTH: usize = 55;

/// The longest header that is read. A later version may append fields.
const MAX_LENGTH: usize = 512;

/// The content of a valid `traceparent` header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// The trace. It is not zero.
    pub trace_id: u128,
    /// The span from which the request came. It is not zero.
    pub parent_id: u64,
    /// Bit 0: the sender may have recorded its span.
    pub flags: u8,
}

impl TraceContext {
    /// Reads the header's value. `None` if it is invalid: it is then as if there was no header.
    pub fn parse(value: &str) -> Option<Self> {
        let bytes = value.as_bytes();
        if bytes.len() < LENGTH || bytes.len() > MAX_LENGTH {
            return None;
        }
        let version = hex(value.get(0..2)?)?;
        // A later version begins with the same fields, and separates further ones by a hyphen.
        let is_complete = match version {
            0xff => false,
            0 => bytes.len() == LENGTH,
            _ => bytes.len() == LENGTH || bytes.get(LENGTH) == Some(&b'-'),
        };
        let has_hyphens = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        if !is_complete || !has_hyphens {
            return None;
        }
        let read = Self {
            trace_id: hex(value.get(3..35)?)?,
            parent_id: u64::try_from(hex(value.get(36..52)?)?).ok()?,
            flags: u8::try_from(hex(value.get(53..55)?)?).ok()?,
        };
        (read.trace_id != 0 && read.parent_id != 0).then_some(read)
    }

    /// Whether the sender may have recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }
}

impl fmt::Display for TraceContext {
    /// As a header of version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Of the flags, version 00 defines only the first.
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags & 1)
    }
}

/// A number in lower-case hexadecimal digits.
fn hex(digits: &str) -> Option<u128> {
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_header_is_read_and_written() {
        let read = TraceContext::parse(VALID).unwrap();
        assert_eq!(read.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((read.parent_id, read.is_sampled()), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(read.to_string(), VALID);
    }

    #[test]
    fn a_later_version_may_have_more_fields() {
        let with = |version: &str, rest: &str| format!("{version}{}{rest}", &VALID[2..]);
        assert!(TraceContext::parse(&with("01", "")).is_some());
        assert!(TraceContext::parse(&with("cc", "-what-comes-later")).is_some());
        for (version, rest) in [("00", "-more"), ("01", "more"), ("ff", ""), ("0x", ""), ("A0", "")]
        {
            assert_eq!(TraceContext::parse(&with(version, rest)), None, "{version} {rest}");
        }
    }

    #[test]
    fn an_invalid_header_is_no_header() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let upper = VALID.to_uppercase();
        let long = format!("01{}-{}", &VALID[2..], "x".repeat(MAX_LENGTH));
        let signed = VALID.replace("-00f067aa0ba902b7-", "-+0f067aa0ba902b7-");
        let other = VALID.replace("-01", "_01");
        for value in
            ["", "00", zero_trace, zero_parent, &upper, &long, &signed, &other, &VALID[..54]]
        {
            assert_eq!(TraceContext::parse(value), None, "{value}");
        }
    }
}
