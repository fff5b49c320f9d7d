//! The text format of Prometheus (version 0.0.4), as far as `postern top` needs it: names, labels and values.

use std::collections::HashMap;

/// The most samples that one answer can have.
const SAMPLES_MAX: usize = 200_000;
/// The most labels that one sample can have.
const LABELS_MAX: usize = 32;

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    labels: Labels,
    /// The value.
    pub(super) value: f64,
}

/// Names and values, in the order of the server.
type Labels = Vec<(String, String)>;

impl Sample {
    /// The value of a label; empty if the sample has no such label.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
    }
}

/// The samples of one answer, by the names of the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scrape(HashMap<String, Vec<Sample>>);

impl Scrape {
    /// Parses an answer.
    ///
    /// # Errors
    /// The number of the line that is invalid, or that there are too many samples.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut metrics: HashMap<String, Vec<Sample>> = HashMap::new();
        let lines = (1..).zip(text.lines());
        let samples = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        for (count, (number, line)) in samples.enumerate() {
            if count >= SAMPLES_MAX {
                return Err(format!("the metrics have more than {SAMPLES_MAX} samples"));
            }
            let (name, sample) = parse_sample(line)
                .ok_or_else(|| format!("line {number} of the metrics is invalid"))?;
            metrics.entry(name.to_owned()).or_default().push(sample);
        }
        Ok(Self(metrics))
    }

    /// The samples of a metric.
    pub(super) fn samples(&self, name: &str) -> &[Sample] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of the samples of a metric; `None` if the server does not report the metric.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let samples = self.samples(name);
        (!samples.is_empty()).then(|| samples.iter().map(|sample| sample.value).sum())
    }

    /// The sum of the samples in which a label has a value; `None` if there are none.
    pub(super) fn sum_where(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let samples = self.samples(name).iter().filter(|sample| sample.label(label) == value);
        samples.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// How much each sample of a counter has grown since an earlier scrape. A counter that went back was reset, and has
    /// grown from 0. `None` stands for a sample that the earlier scrape did not have.
    pub(super) fn growth<'a>(
        &'a self,
        before: &'a Self,
        name: &str,
    ) -> impl Iterator<Item = (&'a Sample, Option<f64>)> + use<'a> {
        let old: HashMap<&Labels, f64> =
            before.samples(name).iter().map(|sample| (&sample.labels, sample.value)).collect();
        self.samples(name).iter().map(move |sample| {
            let growth = |old: &f64| {
                if sample.value >= *old { sample.value - old } else { sample.value }
            };
            (sample, old.get(&sample.labels).map(growth))
        })
    }
}

/// Parses `NAME{LABEL="VALUE",…} VALUE [TIMESTAMP]`.
fn parse_sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest)?,
        None => (Labels::new(), rest),
    };
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    let timestamp = words.next();
    let is_whole = words.next().is_none() && timestamp.is_none_or(|at| at.parse::<i64>().is_ok());
    (is_name(name) && is_whole).then_some((name, Sample { labels, value }))
}

/// Parses what is behind the opening brace. Returns also what is behind the closing one.
fn parse_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = rest.trim_start();
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        if labels.len() >= LABELS_MAX {
            return None;
        }
        let (name, behind) = rest.split_once('=')?;
        let (value, behind) = parse_quoted(behind.trim_start())?;
        let name = name.trim();
        if !is_name(name) {
            return None;
        }
        labels.push((name.to_owned(), value));
        rest = behind.trim_start();
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
}

/// Parses a text in quotation marks. Returns also what is behind it.
fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn is_name(text: &str) -> bool {
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':');
    text.bytes().next().is_some_and(is_start)
        && text.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parsed() {
        let labels = |of: &[(&str, &str)]| -> Labels {
            of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (line, name, want, value) in [
            ("up 1", "up", labels(&[]), 1.0),
            ("up{} 1.5e3", "up", labels(&[]), 1500.0),
            ("a:b_c\t-0.5 1700000000000", "a:b_c", labels(&[]), -0.5),
            ("x{le=\"+Inf\"} +Inf", "x", labels(&[("le", "+Inf")]), f64::INFINITY),
            ("x{a=\"1\",b=\"\"} 2", "x", labels(&[("a", "1"), ("b", "")]), 2.0),
            ("x{ a = \"1\" , b=\"2\", } 2", "x", labels(&[("a", "1"), ("b", "2")]), 2.0),
            (r#"x{a="q\"b\\c\nd}, e"} 2"#, "x", labels(&[("a", "q\"b\\c\nd}, e")]), 2.0),
            ("x{a=\"é\"} 2", "x", labels(&[("a", "é")]), 2.0),
        ] {
            let scrape = Scrape::parse(&format!("# HELP x y\n\n{line}\n")).expect(line);
            assert_eq!(scrape.samples(name), [Sample { labels: want, value }], "{line}");
        }
        assert!(Scrape::parse("x NaN").unwrap().samples("x")[0].value.is_nan());
        assert_eq!(Scrape::parse("# only comments\n"), Ok(Scrape::default()));
    }

    #[test]
    fn invalid_lines_are_errors_with_their_number() {
        for line in [
            "up",
            "up ",
            "up one",
            "up 1 2 3",
            "up 1 now",
            "1up 1",
            "{a=\"b\"} 1",
            "x{a=\"b\" 1",
            "x{a=\"b} 1",
            "x{a=b} 1",
            "x{a} 1",
            "x{a-b=\"c\"} 1",
            "x{a=\"\\t\"} 1",
            "x{a=\"b\" c=\"d\"} 1",
            "x{,} 1",
            "<html>",
        ] {
            let error = Scrape::parse(&format!("ok 1\n{line}\n")).expect_err(line);
            assert_eq!(error, "line 2 of the metrics is invalid", "{line}");
        }
    }

    #[test]
    fn the_size_is_bounded() {
        let labels: Vec<String> = (0..=LABELS_MAX).map(|n| format!("l{n}=\"\"")).collect();
        let line = |labels: &[String]| format!("x{{{}}} 1", labels.join(","));
        assert!(Scrape::parse(&line(&labels)).is_err());
        assert!(Scrape::parse(&line(&labels[1..])).is_ok());
        let error = Scrape::parse(&"x 1\n".repeat(SAMPLES_MAX + 1)).unwrap_err();
        assert!(error.contains("more than 200000 samples"), "{error}");
    }

    #[test]
    fn sums_are_of_what_is_there() {
        let scrape = Scrape::parse("x{k=\"a\"} 1\nx{k=\"b\"} 2\nx{k=\"b\",l=\"c\"} 4\n").unwrap();
        assert_eq!(scrape.sum("x"), Some(7.0));
        assert_eq!(scrape.sum_where("x", "k", "b"), Some(6.0));
        assert_eq!((scrape.sum("y"), scrape.sum_where("x", "k", "c")), (None, None));
    }

    #[test]
    fn a_counter_never_shrinks() {
        let before = Scrape::parse("x{k=\"a\"} 10\nx{k=\"b\"} 10\n").unwrap();
        let after = Scrape::parse("x{k=\"a\"} 12\nx{k=\"b\"} 3\nx{k=\"c\"} 5\n").unwrap();
        let growth: Vec<_> = after
            .growth(&before, "x")
            .map(|(sample, growth)| (sample.label("k"), growth))
            .collect();
        assert_eq!(growth, [("a", Some(2.0)), ("b", Some(3.0)), ("c", None)]);
    }
}
