//! How long functions are: each by itself, and all together for comparison over time. The
//! limit is in [`super::source`].

use std::fmt;

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::modules::SourceFile;

/// A function that was measured.
pub(super) struct Function {
    pub(super) name: String,
    /// The line of the signature's first word.
    pub(super) line: usize,
    /// Lines from that of the signature's first word to that of the closing brace. Attributes and
    /// documentation are not counted.
    pub(super) length: usize,
    signature: proc_macro2::Span,
}

/// The functions of a file, also those inside of others. Closures are part of the function
/// around them. Functions inside a macro call are not found.
pub(super) fn functions(file: &syn::File) -> Vec<Function> {
    let mut functions = Functions::default();
    functions.visit_file(file);
    functions.found
}

/// The lengths of the functions that are not only built for tests.
pub(super) fn outside_of_tests(file: &SourceFile) -> Vec<usize> {
    functions(&file.syntax)
        .iter()
        .filter(|function| !file.is_for_tests(function.signature))
        .map(|function| function.length)
        .collect()
}

#[derive(Default)]
struct Functions {
    found: Vec<Function>,
}

impl Functions {
    fn measure(&mut self, signature: &syn::Signature, end: proc_macro2::Span) {
        let line = signature.span().start().line;
        self.found.push(Function {
            name: signature.ident.to_string(),
            line,
            length: end.end().line.saturating_sub(line) + 1,
            signature: signature.span(),
        });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig, function.block.span());
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig, function.block.span());
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig, block.span());
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

/// The number of functions and the distribution of their lengths in lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Summary {
    count: usize,
    median: usize,
    percentile_95: usize,
}

impl Summary {
    /// The summary of these lengths.
    pub(super) fn of(mut lengths: Vec<usize>) -> Self {
        lengths.sort_unstable();
        // The nearest rank: the smallest length that is not exceeded by so many percent of all.
        let at = |percent: usize| {
            let rank = (lengths.len() * percent).div_ceil(100);
            lengths.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { count: lengths.len(), median: at(50), percentile_95: at(95) }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} functions, lengths in lines: median {}, 95th percentile {}",
            self.count, self.median, self.percentile_95
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_takes_the_nearest_rank() {
        let hundred = Summary::of((1..=100).rev().collect());
        assert_eq!(hundred, Summary { count: 100, median: 50, percentile_95: 95 });
        let three = Summary::of(vec![70, 1, 4]);
        assert_eq!(three, Summary { count: 3, median: 4, percentile_95: 70 });
        assert_eq!(Summary::of(vec![]), Summary { count: 0, median: 0, percentile_95: 0 });
    }

    #[test]
    fn functions_of_tests_are_left_out_and_methods_are_not() {
        let text = "fn one() {}\n\
                    impl X {\n    fn two() {\n    }\n}\n\
                    trait Y {\n    fn no_body();\n    fn three() {\n        x;\n    }\n}\n\
                    #[test]\nfn four() {}\n\
                    #[cfg(test)]\nmod tests {\n    fn five() {}\n}\n";
        let file = SourceFile::parse("x.rs".into(), Vec::new(), text).unwrap();
        assert_eq!(functions(&file.syntax).len(), 5);
        assert_eq!(outside_of_tests(&file), [1, 2, 3]);
    }
}
