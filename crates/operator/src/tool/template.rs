//! Texts with `{placeholders}` that are filled from arguments, each filling escaped by the caller.

use super::request::Arguments;
use crate::canonical::Canonical;

/// A parsed template; `{{` and `}}` stand for braces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Argument(String),
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// What is wrong with its braces.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(doubled) = rest.strip_prefix(brace) {
                literal.push_str(brace);
                rest = doubled;
                continue;
            }
            let Some((name, after)) = rest.split_once('}').filter(|_| brace == "{") else {
                return Err(format!(
                    "{text:?} has a single {brace:?}; write {{name}} for an argument, or {brace}{brace} for a brace"
                ));
            };
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        Ok(Self {
            text: text.to_owned(),
            pieces,
        })
    }

    /// The template as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Names of the arguments, in order of use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Literal(_) => None,
        })
    }

    /// What stands before the first argument.
    pub fn head(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Literal(text)) => text,
            Some(Piece::Argument(_)) | None => "",
        }
    }

    /// Fills the template; every argument passes through `escape`.
    pub fn render(&self, arguments: &Arguments, escape: impl Fn(&str) -> String) -> String {
        let filled = self.pieces.iter().map(|piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Argument(name) => escape(&arguments.text(name)),
        });
        filled.collect()
    }

    pub(crate) fn encode(&self, canonical: &mut Canonical) {
        canonical.text(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ArgumentValue;

    #[test]
    fn placeholders_are_filled_escaped_and_braces_are_doubled() {
        let template = Template::parse("{{a}}/{name}/{name}x").unwrap();
        let arguments = Arguments::from_iter([("name".to_owned(), ArgumentValue::Integer(7))]);
        let filled = template.render(&arguments, |text| format!("<{text}>"));
        assert_eq!(filled, "{a}/<7>/<7>x");
        assert_eq!(template.names().collect::<Vec<_>>(), ["name", "name"]);
        assert_eq!(template.head(), "{a}/");
    }

    #[test]
    fn a_value_is_never_read_as_a_template() {
        let template = Template::parse("{a}{b}").unwrap();
        let arguments = Arguments::from_iter([
            ("a".to_owned(), ArgumentValue::Text("{b}".to_owned())),
            ("b".to_owned(), ArgumentValue::Text("x".to_owned())),
        ]);
        assert_eq!(template.render(&arguments, str::to_owned), "{b}x");
    }

    #[test]
    fn single_braces_are_refused() {
        for text in ["{", "a}", "{a", "{{a}"] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }
}
