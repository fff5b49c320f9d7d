//! Quantiles of a histogram with cumulative buckets.

use std::collections::BTreeMap;

/// The buckets of a histogram: upper bounds, and how many values are at most so large. Several histograms with the same
/// bounds can be added up.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets(BTreeMap<Bound, f64>);

/// The upper bound of a bucket, ordered by its size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Buckets {
    /// Adds to the count of a bucket. `bound` is its label `le`; what is no number is left out.
    pub(super) fn add(&mut self, bound: &str, count: f64) {
        if let Ok(bound) = bound.parse()
            && count.is_finite()
        {
            *self.0.entry(Bound(bound)).or_default() += count;
        }
    }

    /// The value that a part of all values do not exceed, interpolated within its bucket. For a value above the last
    /// finite bound, that bound is returned. `None` if there are no values.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        let (_, all) = self.0.last_key_value()?;
        if *all <= 0.0 {
            return None;
        }
        let rank = part * all;
        let (mut lower, mut below) = (0.0, 0.0);
        for (Bound(upper), count) in &self.0 {
            if *count >= rank && count > &below {
                let is_finite = upper.is_finite();
                let within = (rank - below) / (count - below);
                return Some(if is_finite { lower + (upper - lower) * within } else { lower });
            }
            (lower, below) = (*upper, *count);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(of: &[(&str, f64)]) -> Buckets {
        let mut buckets = Buckets::default();
        for (bound, count) in of {
            buckets.add(bound, *count);
        }
        buckets
    }

    #[test]
    fn quantiles_are_interpolated() {
        let half = buckets(&[("0.1", 5.0), ("0.3", 10.0), ("+Inf", 10.0)]);
        let above = buckets(&[("0.1", 1.0), ("60", 1.0), ("+Inf", 100.0)]);
        let none = buckets(&[("0.1", 0.0), ("+Inf", 0.0)]);
        for (buckets, part, want) in [
            (&half, 0.5, Some(0.1)),
            (&half, 0.25, Some(0.05)),
            (&half, 0.75, Some(0.2)),
            (&half, 1.0, Some(0.3)),
            (&half, 0.0, Some(0.0)),
            (&above, 0.99, Some(60.0)),
            (&none, 0.5, None),
            (&Buckets::default(), 0.5, None),
        ] {
            let found = buckets.quantile(part);
            let is_near = match (found, want) {
                (Some(found), Some(want)) => (found - want).abs() < 1e-9,
                (found, want) => found == want,
            };
            assert!(is_near, "{part} of {buckets:?}: {found:?}, not {want:?}");
        }
    }

    #[test]
    fn histograms_add_up_in_the_order_of_their_bounds() {
        let mut sum = buckets(&[("+Inf", 2.0), ("10", 2.0), ("9", 0.0)]);
        sum.add("9", 2.0);
        sum.add("10", 2.0);
        sum.add("+Inf", 2.0);
        sum.add("no number", 100.0);
        assert_eq!(sum.quantile(0.5), Some(9.0));
    }
}
