//! Protobuf's wire format: fields of a number and a value, without their meaning.

use crate::decode::DecodeError;

/// The largest number of a field.
const MAX_FIELD_NUMBER: u64 = (1 << 29) - 1;

/// A field's value.
#[derive(Clone, Copy)]
pub(super) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Numbers of a fixed size: no known field has them.
    Fixed,
}

/// Why a body is refused. `why` holds no part of it.
pub(super) fn error(why: &str) -> DecodeError {
    DecodeError::new(format!("the protobuf body cannot be read: {why}"))
}

/// Takes the next field, if there is one. Returns its number and value.
pub(super) fn next_field<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, Wire<'a>)>, DecodeError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let tag = varint(rest)?;
    let number = tag >> 3;
    if !(1..=MAX_FIELD_NUMBER).contains(&number) {
        return Err(error("a field's number is out of range"));
    }
    let wire = match tag & 7 {
        0 => Wire::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Wire::Fixed)?,
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| error("a length is wrong"))?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Wire::Fixed)?,
        _ => return Err(error("a field has an unknown wire type")),
    };
    Ok(Some((number, wire)))
}

fn varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(error("a number is too long"))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, left) = rest.split_at_checked(length).ok_or_else(|| error("it ends too early"))?;
    *rest = left;
    Ok(taken)
}
