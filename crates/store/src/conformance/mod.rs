//! The suite that every engine passes. Its cases follow.
