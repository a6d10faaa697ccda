//! Lists of pairs of numbers: no key of the fleet file has one, files of its manner do.

use toml::Spanned;
use toml::de::DeValue;

use super::section::{At, Section};

/// Two numbers and their place.
pub type NumberPair = At<(f64, f64)>;

impl Section<'_> {
    /// A list of pairs of numbers, whole or not: `[[0.95, 3000], [0.99, 5000]]`. Pairs that are none are noted and left out.
    pub fn pairs(&self, key: &'static str) -> Option<At<Vec<NumberPair>>> {
        let (_, value) = self.get(key)?;
        let DeValue::Array(array) = value.get_ref() else {
            self.wrong_type(key, value, "a list of pairs in brackets");
            return None;
        };
        let pair = |item: &Spanned<DeValue<'_>>| {
            let numbers = match item.get_ref() {
                DeValue::Array(pair) => pair.iter().map(number).collect::<Option<Vec<f64>>>(),
                _ => None,
            };
            match numbers.as_deref() {
                Some([first, second]) => Some(At { value: (*first, *second), span: item.span() }),
                _ => {
                    let help = format!("for example: {}", self.example(key));
                    self.wrong(&item.span(), format!("`{key}` holds something that is not a pair of numbers"), help);
                    None
                }
            }
        };
        Some(At { value: array.iter().filter_map(pair).collect(), span: value.span() })
    }
}

/// A number as it is written; one that no limit admits where it is none of ten digits.
fn number(value: &Spanned<DeValue<'_>>) -> Option<f64> {
    match value.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}
