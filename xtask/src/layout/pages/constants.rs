//! The values of constants, read from the source of a file.

use std::collections::HashMap;

use syn::visit::Visit;

/// A constant can refer to a constant, so often.
const MAX_DEPTH: usize = 8;

/// The expressions of a file that have a name: its constants, `NAME`; the fields of constants,
/// `NAME.field` and `NAME.0`; and the default values of fields, `Type.field`.
#[derive(Default)]
pub(super) struct Constants<'a> {
    expressions: HashMap<String, &'a syn::Expr>,
    /// The type that the visited `Default` belongs to.
    default_of: Option<String>,
}

impl<'a> Constants<'a> {
    /// The constants of a file.
    pub(super) fn of(file: &'a syn::File) -> Self {
        let mut constants = Self::default();
        constants.visit_file(file);
        constants
    }

    /// The value of an expression over these constants; a duration is in milliseconds. `None` if a
    /// name in it has no value here.
    pub(super) fn value(&self, expression: &str) -> Option<u64> {
        self.evaluate(&syn::parse_str(expression).ok()?, 0)
    }

    fn evaluate(&self, expression: &syn::Expr, depth: usize) -> Option<u64> {
        match expression {
            syn::Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Int(number) => number.base10_parse().ok(),
                _ => None,
            },
            syn::Expr::Paren(inner) => self.evaluate(&inner.expr, depth),
            syn::Expr::Cast(cast) => self.evaluate(&cast.expr, depth),
            syn::Expr::Binary(binary) => {
                let left = self.evaluate(&binary.left, depth)?;
                let right = self.evaluate(&binary.right, depth)?;
                combine(&binary.op, left, right)
            }
            syn::Expr::Call(call) => {
                let milliseconds = milliseconds_of(&call.func)?;
                self.evaluate(call.args.first()?, depth)?.checked_mul(milliseconds)
            }
            syn::Expr::Path(_) | syn::Expr::Field(_) if depth < MAX_DEPTH => {
                self.evaluate(self.expressions.get(&name_of(expression)?)?, depth + 1)
            }
            _ => None,
        }
    }

    fn add_fields(&mut self, name: &str, expression: &'a syn::ExprStruct) {
        for field in &expression.fields {
            if let syn::Member::Named(member) = &field.member {
                let name = format!("{name}.{member}");
                self.expressions.entry(name).or_insert(&field.expr);
            }
        }
    }
}

impl<'a> Visit<'a> for Constants<'a> {
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        let name = item.ident.to_string();
        match &*item.expr {
            syn::Expr::Struct(expression) => self.add_fields(&name, expression),
            syn::Expr::Tuple(tuple) => {
                for (index, element) in tuple.elems.iter().enumerate() {
                    self.expressions.entry(format!("{name}.{index}")).or_insert(element);
                }
            }
            _ => {}
        }
        self.expressions.entry(name).or_insert(&item.expr);
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let is_default = item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Default"));
        if is_default && let syn::Type::Path(of) = &*item.self_ty {
            self.default_of = of.path.get_ident().map(ToString::to_string);
        }
        syn::visit::visit_item_impl(self, item);
        self.default_of = None;
    }

    fn visit_expr_struct(&mut self, expression: &'a syn::ExprStruct) {
        if let Some(name) = self.default_of.clone()
            && expression.path.is_ident("Self")
        {
            self.add_fields(&name, expression);
        }
    }
}

/// `NAME`, `module::NAME` or `NAME.field`.
fn name_of(expression: &syn::Expr) -> Option<String> {
    match expression {
        syn::Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        syn::Expr::Field(field) => match &field.member {
            syn::Member::Named(member) => Some(format!("{}.{member}", name_of(&field.base)?)),
            syn::Member::Unnamed(member) => {
                Some(format!("{}.{}", name_of(&field.base)?, member.index))
            }
        },
        _ => None,
    }
}

fn combine(operator: &syn::BinOp, left: u64, right: u64) -> Option<u64> {
    match operator {
        syn::BinOp::Add(_) => left.checked_add(right),
        syn::BinOp::Sub(_) => left.checked_sub(right),
        syn::BinOp::Mul(_) => left.checked_mul(right),
        syn::BinOp::Div(_) => left.checked_div(right),
        syn::BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
        _ => None,
    }
}

/// The milliseconds of the unit that a constructor of `Duration` takes.
fn milliseconds_of(constructor: &syn::Expr) -> Option<u64> {
    let syn::Expr::Path(path) = constructor else { return None };
    let names: Vec<_> = path.path.segments.iter().map(|one| one.ident.to_string()).collect();
    let [.., class, name] = names.as_slice() else { return None };
    match (class.as_str(), name.as_str()) {
        ("Duration", "from_millis") => Some(1),
        ("Duration", "from_secs") => Some(1000),
        ("Duration", "from_mins") => Some(60 * 1000),
        ("Duration", "from_hours") => Some(60 * 60 * 1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_evaluated() {
        let text = "const A: usize = 3 * 1024;\nconst B: u32 = A as u32 + 1;\n\
                    const C: Duration = Duration::from_secs(34);\n\
                    const D: Limits = Limits { total: 96, parts: 3 };\n\
                    const QUARTER: (u64, u64) = (1, 4);\n\
                    const LOOP: usize = LOOP;\nconst OTHER: usize = f(1);\n\
                    mod limits { pub const E: usize = 1 << 4; }\n\
                    impl Default for Limits { fn default() -> Self { Self { reads: 64 } } }\n\
                    impl Other { fn new() -> Self { Self { writes: 2 } } }\n";
        let file = syn::parse_file(text).unwrap();
        let constants = Constants::of(&file);
        for (expression, value) in [
            ("A", Some(3072)),
            ("B", Some(3073)),
            ("C", Some(34_000)),
            ("D.total / (D.parts + 1)", Some(24)),
            ("QUARTER.1", Some(4)),
            ("E - 1", Some(15)),
            ("Limits.reads", Some(64)),
            ("Limits.writes", None),
            ("LOOP", None),
            ("OTHER", None),
            ("NONE", None),
        ] {
            assert_eq!(constants.value(expression), value, "{expression}");
        }
    }
}
