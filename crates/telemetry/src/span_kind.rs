//! `SpanKind`: the operation that a span measures.

/// The operation that a span measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// A request that this process sends.
    Client,
    /// A step within this process.
    Internal,
}
