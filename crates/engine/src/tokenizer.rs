//! Text to token ids and back, from the tokenizer of a GGUF file or of a `tokenizer.json`. Keeps
//! text that anyone may have written apart from markup that the engine wrote. Must not know chat
//! templates or models.

mod error;
mod gguf;
mod json;
mod markup;
mod pipeline;
mod vocabulary;

use std::collections::HashMap;
use std::path::Path;

use candle_core::quantized::gguf_file::Value;
use tokenizers::models::bpe::{BPE, Vocab};

pub use error::TokenizerError;
pub(crate) use json::read_object;
use markup::{Markup, Piece};
use vocabulary::{Kind, Token, Vocabulary};

/// The longest text, in bytes, that is encoded as one piece.
///
/// Far beyond any context window (four bytes a token make it 128 Ki tokens); it keeps the
/// backtracking of the pre-tokenizer's regular expression on long runs of blanks within its own
/// limit, past which it would cut text in other places.
pub const MAX_TEXT_BYTES: usize = 512 * 1024;

/// A part of a prompt, by who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Written by the chat template: the text of a special token is that token.
    Markup(&'a str),
    /// Written by anyone else: every character is a character.
    Text(&'a str),
}

/// A byte-level BPE tokenizer.
///
/// # Trusted and untrusted text
///
/// [`encode_text`](Self::encode_text) matches **no added token at all**: neither control tokens
/// (`<|im_end|>`, GGUF token type 3, `special` in `tokenizer.json`) nor user-defined ones
/// (`<tool_call>`, type 4). Their text is cut into ordinary tokens, so that nothing in a record or
/// in a rubric can open or close a turn or pose as a tool call. The reference implementations, told
/// not to match special tokens (`split_special_tokens` of `transformers`, `parse_special = false`
/// of llama.cpp), still match user-defined ones in any text. The ids equal theirs for every text
/// that holds no user-defined token's text.
///
/// [`encode_markup`](Self::encode_markup) matches both kinds, leftmost first and longest first.
///
/// Neither adds a token at the beginning or the end.
///
/// # Bytes without a token
///
/// A vocabulary may lack a token for some bytes (SmolLM2 has none for six control characters). Such
/// a byte is dropped, as in the reference implementations; an unknown-token is never put in its
/// place, since that is a control token. [`unencodable_bytes`](Self::unencodable_bytes) lists them.
///
/// # Normalisation
///
/// Qwen2 text is normalised to NFC first, so that decoding gives the NFC form.
///
/// Methods take `&self` and may be called from several threads.
pub struct Tokenizer {
    /// Without added tokens, so that it cannot produce one.
    inner: tokenizers::Tokenizer,
    markup: Markup,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// End of each token in `bytes`, by id.
    ends: Vec<u32>,
    /// Text of the bos token.
    bos: Option<(u32, String)>,
    add_bos: bool,
    stops: Vec<u32>,
    unencodable: Vec<u8>,
    digest: [u8; 32],
}

impl Tokenizer {
    /// Builds the tokenizer that the metadata of a GGUF file describes.
    ///
    /// Reads `tokenizer.ggml.model` (`gpt2` only), `.pre`, `.tokens`, `.token_type`, `.merges`,
    /// `.bos_token_id`, `.eos_token_id`, `.eot_token_id` and `.add_bos_token`.
    ///
    /// # Errors
    ///
    /// A key is missing or has another type, the kind of model or the pre-tokenizer type is not
    /// supported, or the lists do not fit together.
    pub fn from_gguf(metadata: &HashMap<String, Value>) -> Result<Self, TokenizerError> {
        Self::build(gguf::read_vocabulary(metadata)?)
    }

    /// Builds the tokenizer of a `tokenizer.json`, with the bos and stop tokens of the
    /// `tokenizer_config.json` and `generation_config.json` beside it, where there are any.
    ///
    /// # Errors
    ///
    /// The file cannot be read or parsed, is not a byte-level BPE, or uses an option that is not
    /// supported; the error names it.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        Self::build(json::read_vocabulary(path)?)
    }

    fn build(mut vocabulary: Vocabulary) -> Result<Self, TokenizerError> {
        vocabulary.check_markup()?;
        vocabulary.add_end_marks();
        let digest = vocabulary.digest();
        let Vocabulary {
            tokens,
            merges,
            pipeline,
            bos,
            add_bos,
            stops,
        } = vocabulary;

        let by_kind = |wanted: Kind| {
            (0u32..)
                .zip(&tokens)
                .filter(move |(_, t)| t.kind == wanted)
                .map(|(id, t)| (&t.text, id))
        };
        // Markup stays out of the BPE vocabulary: with `ignore_merges`, a piece of text that is
        // spelled like a token would become that token.
        let vocab: Vocab = by_kind(Kind::Text)
            .map(|(text, id)| (text.clone(), id))
            .collect();
        let markup = Markup::new(by_kind(Kind::Markup).map(|(text, id)| (text.as_str(), id)));
        let unencodable = unencodable_bytes(&vocab);
        let (bytes, ends) = spell(&tokens);
        let bos = bos.map(|id| (id, tokens[id as usize].text.clone()));

        let fail = |e: tokenizers::Error| TokenizerError::Build {
            detail: e.to_string(),
        };
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .ignore_merges(pipeline.ignore_merges)
            .build()
            .map_err(fail)?;
        let mut inner = tokenizers::Tokenizer::new(bpe);
        inner.with_normalizer(pipeline.normalizer).map_err(fail)?;
        inner.with_pre_tokenizer(Some(pipeline.pre_tokenizer));
        Ok(Self {
            inner,
            markup,
            bytes,
            ends,
            bos,
            add_bos,
            stops,
            unencodable,
            digest,
        })
    }

    /// Encodes text that anyone may have written; see [Trusted and untrusted text](Self).
    ///
    /// # Errors
    ///
    /// The text is longer than [`MAX_TEXT_BYTES`], or the tokenizer library fails on it.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = text.len() as u64;
        if text.len() > MAX_TEXT_BYTES {
            return Err(TokenizerError::TooLong {
                bytes,
                limit: MAX_TEXT_BYTES as u64,
            });
        }
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => Err(TokenizerError::Encode {
                bytes,
                detail: e.to_string(),
            }),
        }
    }

    /// Encodes trusted markup: the text of a special token becomes that token.
    ///
    /// # Errors
    ///
    /// As [`encode_text`](Self::encode_text), for a stretch between two special tokens.
    pub fn encode_markup(&self, markup: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_parts(&[Part::Markup(markup)])
    }

    /// Encodes parts that follow each other as one text.
    ///
    /// Special tokens are matched inside each markup part alone, never across parts. The text
    /// between two special tokens is encoded in one piece even where it comes from several parts,
    /// so that the ids are those of the joined text.
    ///
    /// # Errors
    ///
    /// As [`encode_text`](Self::encode_text), for a stretch between two special tokens.
    pub fn encode_parts(&self, parts: &[Part<'_>]) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::new();
        let mut pending = String::new();
        for part in parts {
            match *part {
                Part::Text(text) => pending.push_str(text),
                Part::Markup(markup) => {
                    for piece in self.markup.split(markup) {
                        match piece {
                            Piece::Text(text) => pending.push_str(text),
                            Piece::Special(id) => {
                                ids.extend(self.encode_text(&pending)?);
                                pending.clear();
                                ids.push(id);
                            }
                        }
                    }
                }
            }
        }
        ids.extend(self.encode_text(&pending)?);
        Ok(ids)
    }

    /// The text of the ids, special tokens included. Bytes that are not UTF-8 become U+FFFD; unused
    /// ids and ids outside the vocabulary give nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| self.token_bytes(id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that a token stands for, which need not be whole characters. Empty for unused ids
    /// and ids outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        let Some(&end) = self.ends.get(id as usize) else {
            return &[];
        };
        let start = id
            .checked_sub(1)
            .map_or(0, |before| self.ends[before as usize]);
        &self.bytes[start as usize..end as usize]
    }

    /// The number of ids, unused ones included. A model's output may have more rows.
    pub fn vocab_size(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The id of the special token with exactly this text.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.markup.id(text)
    }

    /// Whether the id is a special token, which text never gives.
    pub fn is_special(&self, id: u32) -> bool {
        let text = std::str::from_utf8(self.token_bytes(id));
        text.is_ok_and(|text| self.special(text) == Some(id))
    }

    /// The ids that end an answer: end of sequence, first where the file names it, and the
    /// end-of-turn marks that the vocabulary holds.
    pub fn eos_ids(&self) -> &[u32] {
        &self.stops
    }

    /// The token of the beginning of a text, where the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.bos.as_ref().map(|(id, _)| *id)
    }

    /// The text of the bos token.
    pub fn bos_text(&self) -> Option<&str> {
        self.bos.as_ref().map(|(_, text)| text.as_str())
    }

    /// Whether the file asks for a bos token before a text. No method here adds one; a chat
    /// template writes its own.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// The bytes that occur in UTF-8 but have no token; a text loses them on encoding.
    pub fn unencodable_bytes(&self) -> &[u8] {
        &self.unencodable
    }

    /// blake3 over all that decides which ids a text gets and where an answer stops: tokens, kinds,
    /// merges, pipeline, bos and stop ids. A GGUF file and a `tokenizer.json` of one model differ
    /// here.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

/// The character that stands for each byte in a byte-level vocabulary: printable Latin-1 for
/// itself, the other 68 bytes as the characters from U+0100 on, in order.
///
/// Source: `bytes_to_unicode` of GPT-2's encoder.
fn byte_alphabet() -> [char; 256] {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            return char::from(byte);
        }
        next += 1;
        char::from_u32(next - 1).unwrap_or_default()
    })
}

fn unencodable_bytes(vocab: &Vocab) -> Vec<u8> {
    let alphabet = byte_alphabet();
    let in_utf8 = |byte: &u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff);
    (0..=255)
        .filter(in_utf8)
        .filter(|&b| !vocab.contains_key(alphabet[b as usize].to_string().as_str()))
        .collect()
}

/// The bytes of all tokens and the end of each. A token that is not spelled in the byte-level
/// alphabet stands for its own text.
fn spell(tokens: &[Token]) -> (Vec<u8>, Vec<u32>) {
    let bytes_of: HashMap<char, u8> = byte_alphabet().into_iter().zip(0..=255).collect();
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(tokens.len());
    for token in tokens {
        let spelled: Option<Vec<u8>> = match token.kind {
            Kind::Text => token
                .text
                .chars()
                .map(|c| bytes_of.get(&c).copied())
                .collect(),
            Kind::Markup => None,
            Kind::Unused => Some(Vec::new()),
        };
        match spelled {
            Some(spelled) => bytes.extend(spelled),
            None => bytes.extend(token.text.as_bytes()),
        }
        ends.push(bytes.len() as u32);
    }
    (bytes, ends)
}

#[cfg(test)]
mod tests {
    use super::byte_alphabet;

    #[test]
    fn the_byte_alphabet_has_the_known_spellings() {
        let alphabet = byte_alphabet();
        assert_eq!(alphabet[b' ' as usize], '\u{120}');
        assert_eq!(alphabet[b'\n' as usize], '\u{10a}');
        assert_eq!(alphabet[0xad], '\u{143}');
        assert_eq!(alphabet[b'a' as usize], 'a');
        let distinct: std::collections::BTreeSet<char> = alphabet.into_iter().collect();
        assert_eq!(distinct.len(), 256);
    }
}
