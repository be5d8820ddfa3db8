//! What can go wrong between a model's tokenizer files and token ids. Knows nothing of prompts or
//! models.

use std::path::PathBuf;

use thiserror::Error;

/// Why a tokenizer could not be built, or a text not encoded.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// A metadata key or a field that the tokenizer needs is absent.
    #[error("{place} has no `{key}`; the tokenizer cannot be built without it")]
    Missing {
        /// The file or section that was read.
        place: String,
        /// The absent key.
        key: String,
    },
    /// A value is there but of another type.
    #[error("`{key}` should be {expected}, found {found}")]
    WrongType {
        /// The key, with the index for an entry of a list.
        key: String,
        /// The type that was needed.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// The kind of tokenizer, or an option of it, is not supported.
    #[error("`{key}` is `{found}`; supported: {supported}")]
    Unsupported {
        /// The key that names the kind.
        key: String,
        /// What the file says.
        found: String,
        /// The values that would work, separated by commas.
        supported: String,
    },
    /// Two lists that describe the same tokens differ in length.
    #[error("`{key}` has {found} entries but there are {expected} tokens")]
    LengthMismatch {
        /// The key of the shorter or longer list.
        key: String,
        /// The number of tokens.
        expected: u64,
        /// The number of entries found.
        found: u64,
    },
    /// A token id lies outside the vocabulary.
    #[error("`{key}` is {id} but the vocabulary has {size} tokens")]
    IdOutOfRange {
        /// The key that names the id.
        key: String,
        /// The id found.
        id: u64,
        /// The number of tokens.
        size: u64,
    },
    /// A merge is not two tokens separated by one space.
    #[error("merge {index} is `{merge}`, not two tokens separated by a space")]
    BadMerge {
        /// Its place in the list, from 0.
        index: u64,
        /// The merge as written.
        merge: String,
    },
    /// The BPE model refused the vocabulary or the merges.
    #[error("the vocabulary and the merges do not fit together: {detail}")]
    Build {
        /// What the tokenizer library said.
        detail: String,
    },
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is not the JSON it should be.
    #[error("{} is not valid tokenizer JSON", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause, with line and column.
        #[source]
        source: serde_json::Error,
    },
    /// A text is too long to be encoded as one piece.
    #[error("text of {bytes} bytes exceeds the limit of {limit}; split or shorten it first")]
    TooLong {
        /// Its length in bytes.
        bytes: u64,
        /// The most that is taken.
        limit: u64,
    },
    /// The tokenizer library failed on a text.
    #[error("cannot encode a text of {bytes} bytes: {detail}")]
    Encode {
        /// The text's length in bytes.
        bytes: u64,
        /// What the tokenizer library said.
        detail: String,
    },
}
