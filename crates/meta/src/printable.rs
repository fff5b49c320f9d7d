//! Text that people can tell apart: printable characters, in one form.

use unicode_normalization::char::is_public_assigned;

/// Whether a text is in Unicode's normalization form C: of the many ways to write `é`, the
/// one of a single character. Texts that look the same are then the same bytes, as far as
/// normalization goes.
pub fn is_nfc(text: &str) -> bool {
    unicode_normalization::is_nfc(text)
}

/// Whether a character can be seen and means the same to everyone: it is the space, or is
/// assigned, not for private use, and no control, no other blank, and not invisible.
pub fn is_printable(c: char) -> bool {
    c == ' ' || (is_public_assigned(c) && !c.is_control() && !c.is_whitespace() && !is_invisible(c))
}

/// Whether the character is invisible: Unicode's property `Default_Ignorable_Code_Point` (soft
/// hyphens, joiners, direction marks, variation selectors, tags), annotation marks, and the blank
/// pattern of Braille.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2060}'..='\u{206F}' | '\u{2800}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}'
        | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{1BCA0}'..='\u{1BCA3}'
        | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_of_each_text() {
        for same in ["", "jane", "Jos\u{e9}", "\u{d55c}\u{ad6d}", "\u{1e9b}\u{323}"] {
            assert!(is_nfc(same), "{same:?}");
        }
        // Decomposed, singletons, and marks out of order.
        for other in ["Jose\u{301}", "\u{212b}", "\u{2126}", "a\u{301}\u{323}", "\u{1112}\u{1161}"]
        {
            assert!(!is_nfc(other), "{other:?}");
        }
    }

    #[test]
    fn what_can_be_seen() {
        for c in "aZ9 .:*/@+_-|éßЖ漢한अ😀".chars() {
            assert!(is_printable(c), "{c:?}");
        }
        for c in [
            '\0',
            '\n',
            '\t',
            '\u{7f}',
            '\u{85}',
            '\u{a0}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{1160}',
            '\u{180e}',
            '\u{2003}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{202f}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{e000}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fffa}',
            '\u{ffff}',
            '\u{378}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{10ffff}',
        ] {
            assert!(!is_printable(c), "{c:?}");
        }
    }
}
