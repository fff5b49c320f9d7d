//! What a client accepts, for documents that come in forms no object has: protobuf with a media
//! type of its own, and JSON with parameters that name its kind.
//!
//! Objects are negotiated by `postern_meta::accept`, which knows their forms.

/// Clauses of all `Accept` headers that are looked at.
const MAX_CLAUSES: usize = 64;

/// One acceptable form.
pub(crate) struct Clause<'a> {
    /// In small letters.
    pub(crate) media_type: String,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// The value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Does plain JSON satisfy it?
    pub(crate) fn takes_json(&self) -> bool {
        matches!(self.media_type.as_str(), "application/json" | "application/*" | "*/*")
    }
}

/// The first thing that `choose` offers, asked for the best clause first. No header means `*/*`.
pub(crate) fn choose<T>(headers: &[&str], offer: impl Fn(&Clause<'_>) -> Option<T>) -> Option<T> {
    let clauses = headers.iter().flat_map(|header| header.split(','));
    let mut clauses: Vec<Clause<'_>> = clauses.filter_map(clause).take(MAX_CLAUSES).collect();
    if headers.iter().all(|header| header.trim().is_empty()) {
        clauses.extend(clause("*/*"));
    }
    // Stable: clauses of one quality stay in the client's order.
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.iter().filter(|clause| clause.quality > 0.0).find_map(offer)
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media_type = parts.next().filter(|media_type| media_type.contains('/'))?;
    let parameters: Vec<(&str, &str)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim(), value.trim().trim_matches('"')))
        .collect();
    let quality = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case("q"));
    let quality = quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0));
    Some(Clause { media_type: media_type.to_ascii_lowercase(), parameters, quality })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_is_offered() {
        let chosen = |headers: &[&str]| {
            choose(headers, |clause| match clause.media_type.as_str() {
                "application/special" => Some(clause.parameter("v").unwrap_or("none").to_owned()),
                _ => clause.takes_json().then(|| "json".to_owned()),
            })
        };
        for (headers, want) in [
            (&[][..], Some("json")),
            (&[""], Some("json")),
            (&["*/*"], Some("json")),
            (&["application/special;v=1,application/json"], Some("1")),
            (&["application/special;q=0.1", "application/json"], Some("json")),
            (&["application/special;q=0"], None),
            (&["APPLICATION/Special; v=\"2\""], Some("2")),
            (&["text/html"], None),
            (&["nonsense"], None),
        ] {
            assert_eq!(chosen(headers).as_deref(), want, "{headers:?}");
        }
    }
}
