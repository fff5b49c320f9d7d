//! The harness of the black-box tests.
