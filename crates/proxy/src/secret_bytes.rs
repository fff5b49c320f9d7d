//! Bytes that cannot be printed: keys and credentials.

use std::fmt;

use zeroize::Zeroizing;

/// A secret: a private key in PEM, or the value of a header. It has no `Display`, `Debug` does not show
/// it, and its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// The bytes as a secret.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. The name is long so that its uses can be found.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_show() {
        let secret = SecretBytes::new(b"hunter2".to_vec());
        assert_eq!(format!("{secret:?}"), "SecretBytes(…)");
        assert_eq!(secret.expose(), b"hunter2");
    }
}
