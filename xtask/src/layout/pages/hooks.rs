//! The hooks of a kind. The page has a row for each item that the trait of kinds provides, and for no
//! other.

use super::{Finding, Named, SourceFile, Sources, code_spans, differences};

pub(super) const PAGE: &str = "docs/concepts/adding-a-kind.md";

/// The trait, and its file.
const TRAIT: (&str, &str) = ("crates/kinds/src/kind/mod.rs", "Kind");

/// The head of the table of the page.
const HEAD: &str = "| hook |";

/// Compares the page with the trait.
pub(super) fn check(page: &str, sources: &Sources<'_>) -> Vec<Finding> {
    let of_code: Vec<_> = sources.below(TRAIT.0).flat_map(of_trait).collect();
    differences("hook", PAGE, &of_page(page), &of_code)
}

fn of_trait(file: &SourceFile) -> Vec<Named> {
    let traits = file.syntax.items.iter().filter_map(|item| match item {
        syn::Item::Trait(item) if item.ident == TRAIT.1 => Some(item),
        _ => None,
    });
    let names = traits.flat_map(|item| &item.items).filter_map(|item| match item {
        syn::TraitItem::Const(item) => Some(&item.ident),
        syn::TraitItem::Fn(item) => Some(&item.sig.ident),
        _ => None,
    });
    let of_item = |name: &syn::Ident| Named {
        name: name.to_string(),
        path: file.path.clone(),
        line: name.span().start().line,
    };
    names.map(of_item).collect()
}

/// The names in the first cells of the table. Of `INFO.actions`, the hook is `INFO`.
fn of_page(page: &str) -> Vec<Named> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| !line.starts_with(HEAD));
    let rows = lines.take_while(|(_, line)| line.starts_with('|'));
    let names = rows.flat_map(|(index, row)| {
        let cell = row.split(" | ").next().unwrap_or_default();
        code_spans(cell).map(move |(_, name)| (index + 1, name.split('.').next().unwrap_or(name)))
    });
    names.map(|(line, name)| Named { name: name.to_owned(), path: PAGE.into(), line }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn hooks_are_items_of_the_trait_and_first_cells_of_rows() {
        let text = "trait Kind {\n    type Spec;\n    const INFO: Info;\n    fn check();\n}\n\
                    trait Other { fn other(); }\n";
        let found = of_trait(&source("x.rs", text));
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str())).collect();
        assert_eq!(found, [(3, "INFO"), (4, "check")]);
        let page = "`before`\n\n| hook | declares |\n|---|---|\n| `INFO.actions`, `a` | `b` |\n\
                    | `c` | |\n\n| `after` |\n";
        let found = of_page(page);
        let found: Vec<_> = found.iter().map(|one| (one.line, one.name.as_str())).collect();
        assert_eq!(found, [(5, "INFO"), (5, "a"), (6, "c")]);
    }
}
