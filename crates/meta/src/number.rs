//! Numbers of JSON that can be written in two forms, such as `5` and `5.0`.

use serde_json::Number;

/// The integer that equals a float such as `5.0`; `None` for other floats, and for a number that is
/// an integer already. Beyond 2^53 a float does not identify one integer.
pub(crate) fn integer_of_float(number: &Number) -> Option<i64> {
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    if float.fract() != 0.0 || float.abs() > MAX_EXACT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked: integral and within 2^53")]
    let integer = float as i64;
    Some(integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_floats_that_are_exactly_an_integer() {
        for (float, want) in [
            (5.0, Some(5)),
            (-0.0, Some(0)),
            (9_007_199_254_740_992.0, Some(9_007_199_254_740_992)),
            (9_007_199_254_740_994.0, None),
            (5.5, None),
            (1e300, None),
        ] {
            assert_eq!(integer_of_float(&Number::from_f64(float).unwrap()), want, "{float}");
        }
        assert_eq!(integer_of_float(&Number::from(5)), None);
    }
}
