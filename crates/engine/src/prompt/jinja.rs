//! The Jinja environment in which chat templates are rendered. Must not know prompts or tokens.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use minijinja_contrib::pycompat;

/// Work that one rendering may do, in minijinja's units (about an instruction, or 64 bytes of
/// output). Published templates need a few hundred for two messages; a hostile one stops here.
const FUEL: u64 = 200_000;

/// The date that templates see: a prompt must not change overnight, for facts are remembered under
/// its digest. It is the one that the templates of Llama 3 fall back to.
const DATE: [(char, &str); 9] = [
    ('d', "26"),
    ('b', "Jul"),
    ('B', "July"),
    ('Y', "2024"),
    ('m', "07"),
    ('y', "24"),
    ('H', "00"),
    ('M', "00"),
    ('S', "00"),
];

/// An environment that renders as `transformers` does, holding one template.
pub(super) fn environment(name: &'static str, source: &str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.build()?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    environment.add_template_owned(name, plain_generation_tags(source))?;
    Ok(environment)
}

/// Turns `{% generation %}` into `{% if true %}`, and its end likewise. The tags mark which tokens
/// an assistant wrote, which matters in training alone; whitespace control is kept.
fn plain_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        let Some((tag, tail)) = after.split_once("%}") else {
            break;
        };
        let name = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(before);
        out.push_str("{%");
        match name {
            "generation" => out.push_str(&tag.replace(name, " if true ")),
            "endgeneration" => out.push_str(&tag.replace(name, " endif ")),
            _ => out.push_str(tag),
        }
        out.push_str("%}");
        rest = tail;
    }
    out.push_str(rest);
    out
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> Result<String, Error> {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('%')) => out.push('%'),
            ('%', code) => {
                let value = code.and_then(|code| DATE.iter().find(|(known, _)| *known == code));
                let Some((_, text)) = value else {
                    let message = format!("strftime_now does not know the format {format}");
                    return Err(Error::new(ErrorKind::InvalidOperation, message));
                };
                out.push_str(text);
            }
            (c, _) => out.push(c),
        }
    }
    Ok(out)
}

/// JSON as Python writes it with `ensure_ascii=False`: the four characters that minijinja escapes
/// for HTML stand for themselves. Takes `indent`; other options would change the output and are
/// refused.
fn tojson(value: &Value, indent: Option<Value>, args: Kwargs) -> Result<String, Error> {
    if args.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        let message = "tojson with ensure_ascii is not supported";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let indent = indent.or(args.get::<Option<Value>>("indent")?);
    args.assert_all_used()?;
    let none = Kwargs::from_iter(std::iter::empty::<(String, Value)>());
    let escaped = minijinja::filters::tojson(value, indent, none)?.to_string();
    let mut out = String::with_capacity(escaped.len());
    let mut rest = escaped.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        let plain = ["\\u003c", "\\u003e", "\\u0026", "\\u0027"]
            .iter()
            .position(|e| escape.starts_with(e));
        let (text, length) = match plain {
            Some(which) => (["<", ">", "&", "'"][which], 6),
            // A backslash and what it escapes, which is ASCII, move together.
            None => (&escape[..2], 2),
        };
        out.push_str(text);
        rest = &escape[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The message and the line of a template's error.
pub(super) fn describe(error: &Error) -> String {
    let line = error
        .line()
        .map_or(String::new(), |line| format!(" (line {line})"));
    format!(
        "{}{line}",
        error
            .detail()
            .map_or_else(|| error.kind().to_string(), String::from)
    )
}

#[cfg(test)]
mod tests {
    use minijinja::{Error, Value, context};

    fn render(source: &str, values: Value) -> Result<String, Error> {
        super::environment("t", source)?
            .get_template("t")?
            .render(values)
    }

    #[test]
    fn json_is_not_escaped_for_html() {
        let value = context! { v => vec!["<a href='x'>&", "\\u003c\\", "\u{e9}\n\""] };
        let json = "[\"<a href='x'>&\", \"\\\\u003c\\\\\", \"\u{e9}\\n\\\"\"]";
        assert_eq!(render("{{ v | tojson }}", value.clone()).unwrap(), json);
        let parsed: Vec<String> = serde_json::from_str(json).unwrap();
        assert_eq!(parsed[1], "\\u003c\\");
        assert_eq!(
            render("{{ v[:0] | tojson(ensure_ascii=false) }}", value.clone()).unwrap(),
            "[]"
        );
        assert!(render("{{ v | tojson(sort_keys=true) }}", value).is_err());
    }

    #[test]
    fn python_methods_and_the_usual_globals_work() {
        let source = "{{ ' a '.strip() }}|{{ strftime_now('%d %b %Y %%') }}|{{ none_such }}|\
                      {{ 'a,b'.split(',')[1] }}";
        assert_eq!(render(source, context! {}).unwrap(), "a|26 Jul 2024 %||b");
        let raised = render("{{ raise_exception('no system role') }}", context! {}).unwrap_err();
        assert!(super::describe(&raised).contains("no system role"));
        assert!(render("{{ strftime_now('%Q') }}", context! {}).is_err());
    }

    #[test]
    fn generation_tags_are_plain_blocks_and_keep_their_whitespace_control() {
        let source = "a {%- generation -%} b {%- endgeneration %} {% if generation %}x{% endif %}c";
        assert_eq!(render(source, context! {}).unwrap(), "ab c");
        assert!(render("a {% raw %}{% b", context! {}).is_err());
    }

    #[test]
    fn blocks_leave_no_blank_lines() {
        let source = "a\n  {% if true %}\nb\n  {% endif %}\nc\n";
        assert_eq!(render(source, context! {}).unwrap(), "a\nb\nc");
    }

    #[test]
    fn a_template_that_does_not_end_runs_out_of_fuel() {
        let source =
            "{% for i in range(10000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}";
        let error = render(source, context! {}).unwrap_err();
        assert_eq!(error.kind(), minijinja::ErrorKind::OutOfFuel);
    }
}
