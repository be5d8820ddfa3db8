//! The chat template: from a rubric to the shared prefix of all units and the close after each.
//! Must not know models, caches or where a unit came from.

mod jinja;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::Value as GgufValue;
use minijinja::{Environment, Value, context};
use thiserror::Error as ThisError;

use crate::tokenizer::{Part, Tokenizer, TokenizerError};

/// The template used where a model's file has none: ChatML, without a default system prompt.
pub const CHATML: &str = concat!(
    "{% if add_bos_token %}{{ bos_token }}{% endif %}",
    "{% for message in messages %}",
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}",
    "{% endfor %}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
);

/// Name of the one template in the environment.
const TEMPLATE: &str = "chat";

/// Stand-ins for rubric and unit while the template is rendered: letters and digits alone, so that
/// no filter of a template changes them.
const RUBRIC_MARK: &str = "RubricGoesHere7c1f0e92";
const UNIT_MARK: &str = "UnitGoesHere5d83ab46";

/// Between rubric and unit where a template takes no system message.
const PARAGRAPH: &str = "\n\n";

/// Why a chat template cannot be used.
#[derive(Debug, ThisError)]
pub enum PromptError {
    /// The template does not parse.
    #[error("the chat template does not parse: {detail}")]
    Parse {
        /// What the template engine said, with the line.
        detail: String,
    },
    /// The template raised an error or ran out of fuel.
    #[error("the chat template cannot be rendered: {detail}")]
    Render {
        /// What the template engine said, with the line.
        detail: String,
    },
    /// The rendered prompt does not hold a message exactly once, and in order.
    #[error("the chat template renders the {message} {found} times or out of order, not once")]
    Layout {
        /// `rubric` or `unit`.
        message: &'static str,
        /// How often it was found.
        found: u64,
    },
    /// Text before a unit merges with the unit's first letters.
    #[error(
        "the chat template puts `{before}` right before a message, which tokenizes differently \
         together with it; a shared prefix needs a template that ends a line or a token there"
    )]
    Seam {
        /// The end of the text before the unit.
        before: String,
    },
    /// No special token follows a unit, so that its last characters merge with the template's.
    #[error(
        "the chat template puts `{after}` right after a message; a special token must follow it"
    )]
    Close {
        /// The beginning of the text after the unit.
        after: String,
    },
    /// The metadata or the configuration holds something else than a template.
    #[error("`{key}` is not a chat template; it should be a string")]
    NotText {
        /// The key.
        key: String,
    },
    /// A configuration file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: TokenizerError,
    },
    /// A piece of the prompt could not be encoded.
    #[error("the prompt cannot be encoded")]
    Encode(#[from] TokenizerError),
}

/// The prompt of every unit of one rubric: `prefix`, the unit's text, `close`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitPrompt {
    /// Ids of everything before the unit's text; the same for every unit.
    pub prefix: Vec<u32>,
    /// Ids of everything after it, up to where the answer begins. Starts with a special token.
    pub close: Vec<u32>,
}

/// A chat template, checked to parse.
///
/// Rendered as `transformers` renders it: `trim_blocks`, `lstrip_blocks`, lenient undefined values,
/// Python's string methods, `raise_exception`, `strftime_now` and a `tojson` that does not escape
/// HTML.
/// `{% generation %}` tags are taken for plain blocks. `enable_thinking` is false, since an answer
/// is scored at its first token. The clock is not read: `strftime_now` gives 26 July 2024.
pub struct PromptTemplate {
    environment: Environment<'static>,
    source: String,
}

impl fmt::Debug for PromptTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptTemplate")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl PromptTemplate {
    /// Takes a template as text.
    ///
    /// # Errors
    ///
    /// It does not parse.
    pub fn new(source: &str) -> Result<Self, PromptError> {
        let environment = jinja::environment(TEMPLATE, source).map_err(|e| PromptError::Parse {
            detail: jinja::describe(&e),
        })?;
        Ok(Self {
            environment,
            source: source.to_owned(),
        })
    }

    /// Takes `tokenizer.chat_template` of a GGUF file, or [`CHATML`] where there is none.
    ///
    /// # Errors
    ///
    /// The template is not text or does not parse.
    pub fn from_gguf(metadata: &HashMap<String, GgufValue>) -> Result<Self, PromptError> {
        let key = "tokenizer.chat_template";
        match metadata.get(key) {
            None => Self::new(CHATML),
            Some(GgufValue::String(source)) => Self::new(source),
            Some(_) => Err(PromptError::NotText { key: key.into() }),
        }
    }

    /// Takes the template of a safetensors folder: `chat_template.jinja`, else `chat_template` of
    /// `tokenizer_config.json` (of several, the one named `default`), else [`CHATML`].
    ///
    /// # Errors
    ///
    /// A file cannot be read, or the template is not text or does not parse.
    pub fn from_folder(folder: &Path) -> Result<Self, PromptError> {
        let read = |path: PathBuf, source| PromptError::Read { path, source };
        let path = folder.join("chat_template.jinja");
        match std::fs::read_to_string(&path) {
            Ok(source) => return Self::new(&source),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => {
                let source = TokenizerError::Read {
                    path: path.clone(),
                    source,
                };
                return Err(read(path, source));
            }
        }
        let path = folder.join("tokenizer_config.json");
        let settings = crate::tokenizer::read_object(&path).map_err(|e| read(path, e))?;
        let Some(template) = settings.as_ref().and_then(|s| s.get("chat_template")) else {
            return Self::new(CHATML);
        };
        let default = |list: &Vec<serde_json::Value>| {
            list.iter()
                .find(|t| t["name"] == "default")
                .and_then(|t| t["template"].as_str().map(String::from))
        };
        let source = template
            .as_str()
            .map(String::from)
            .or_else(|| default(template.as_array()?));
        Self::new(&source.ok_or(PromptError::NotText {
            key: "chat_template".into(),
        })?)
    }

    /// Renders a conversation of (role, content) pairs, ending where the assistant's answer begins.
    ///
    /// The result mixes markup and content: encode it as markup only if every content is trusted.
    ///
    /// # Errors
    ///
    /// The template raises an error, or runs out of fuel.
    pub fn render(
        &self,
        tokenizer: &Tokenizer,
        messages: &[(&str, &str)],
    ) -> Result<String, PromptError> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|&(role, content)| context! { role, content })
            .collect();
        let text = |id: Option<&u32>| id.map_or(String::new(), |&id| tokenizer.decode(&[id]));
        let render = |template: minijinja::Template<'_, '_>| {
            template.render(context! {
                messages,
                add_generation_prompt => true,
                enable_thinking => false,
                add_bos_token => tokenizer.add_bos(),
                bos_token => tokenizer.bos_text().unwrap_or_default(),
                eos_token => text(tokenizer.eos_ids().first()),
            })
        };
        self.environment
            .get_template(TEMPLATE)
            .and_then(render)
            .map_err(|e| PromptError::Render {
                detail: jinja::describe(&e),
            })
    }

    /// Splits the prompt of a rubric at the unit: the prompt of a unit is `prefix`, then
    /// [`Tokenizer::encode_text`] of the unit, then `close`.
    ///
    /// The rubric is the system message, or the head of the user message where the template takes
    /// no system message. It stands in the prompt as it is given, even where the template would
    /// trim it, and the text of a special token in it is plain text.
    ///
    /// The ids equal those of the whole prompt encoded at once for units that begin with an ASCII
    /// letter, which is checked on every first letter.
    ///
    /// # Errors
    ///
    /// The template fails, repeats or drops a message, or the seam before or after a unit does not
    /// fall on a token boundary.
    pub fn split(&self, tokenizer: &Tokenizer, rubric: &str) -> Result<SplitPrompt, PromptError> {
        let (head, middle, close) = self.frame(tokenizer)?;
        let parts = [
            Part::Markup(&head),
            Part::Text(rubric),
            Part::Markup(&middle),
        ];
        let prefix = tokenizer.encode_parts(&parts)?;
        check_seam(tokenizer, &parts, &middle)?;

        let close_ids = tokenizer.encode_markup(&close)?;
        if !close_ids
            .first()
            .is_some_and(|&id| tokenizer.is_special(id))
        {
            return Err(PromptError::Close {
                after: close.chars().take(20).collect(),
            });
        }
        Ok(SplitPrompt {
            prefix,
            close: close_ids,
        })
    }

    /// blake3 over the template and everything that rendering adds to it.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for part in ["engine.prompt.v1", &self.source] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// The markup before the rubric, between rubric and unit, and after the unit.
    fn frame(&self, tokenizer: &Tokenizer) -> Result<(String, String, String), PromptError> {
        let system = [("system", RUBRIC_MARK), ("user", UNIT_MARK)];
        let with_system = self.render(tokenizer, &system);
        // A template without system messages refuses them or leaves them out.
        let rendered = match with_system {
            Ok(rendered) if rendered.contains(RUBRIC_MARK) => rendered,
            _ => {
                let user = format!("{RUBRIC_MARK}{PARAGRAPH}{UNIT_MARK}");
                self.render(tokenizer, &[("user", &user)])?
            }
        };
        let (head, rest) = cut(&rendered, RUBRIC_MARK, "rubric")?;
        let (middle, close) = cut(rest, UNIT_MARK, "unit")?;
        Ok((head.into(), middle.into(), close.into()))
    }
}

/// Checks that what stands before a unit ends a token whatever ASCII letter the unit begins with.
/// `middle` is the text of the last of the parts.
fn check_seam(
    tokenizer: &Tokenizer,
    parts: &[Part<'_>; 3],
    middle: &str,
) -> Result<(), PromptError> {
    let middle_ids = tokenizer.encode_markup(middle)?;
    // Nothing before a special token has a say in how the text after it is cut.
    let closed = middle_ids.iter().any(|&id| tokenizer.is_special(id));
    let before = if closed { &parts[2..] } else { &parts[..] };
    let before_ids = tokenizer.encode_parts(before)?;
    for letter in ('A'..='Z').chain('a'..='z') {
        let unit = format!("{letter}ecord: a\n");
        let whole = tokenizer.encode_parts(&[before, &[Part::Text(&unit)]].concat())?;
        if whole != [&before_ids[..], &tokenizer.encode_text(&unit)?].concat() {
            let tail = middle.char_indices().rev().nth(19).map_or(0, |(at, _)| at);
            return Err(PromptError::Seam {
                before: middle[tail..].into(),
            });
        }
    }
    Ok(())
}

/// Cuts `text` around `mark`, which must occur once.
fn cut<'a>(
    text: &'a str,
    mark: &str,
    message: &'static str,
) -> Result<(&'a str, &'a str), PromptError> {
    let found = text.matches(mark).count() as u64;
    match text.split_once(mark) {
        Some(halves) if found == 1 => Ok(halves),
        _ => Err(PromptError::Layout { message, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::{CHATML, PromptTemplate};

    #[test]
    fn a_digest_names_the_template() {
        let digest = |source| PromptTemplate::new(source).unwrap().digest();
        assert_eq!(digest(CHATML), digest(CHATML));
        assert_ne!(digest(CHATML), digest("{{ messages[0].content }}"));
    }

    #[test]
    fn a_broken_template_is_refused_with_its_line() {
        let error = PromptTemplate::new("{% for m in messages %}\n{{ m.content }").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
