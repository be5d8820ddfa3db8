//! The tokenizer against the reference data of `fixtures/reference`.

mod files;
mod prompt;

use std::collections::{BTreeSet, HashMap};
use std::io::{Cursor, Read};
use std::path::PathBuf;
use std::sync::LazyLock;

use candle_core::quantized::gguf_file::{Content, Value};
use engine::prompt::PromptTemplate;
use engine::tokenizer::{MAX_TEXT_BYTES, Tokenizer, TokenizerError};

type Metadata = HashMap<String, Value>;

/// A model's tokenizer, template and reference data.
struct Loaded {
    name: &'static str,
    metadata: Metadata,
    tokenizer: Tokenizer,
    template: PromptTemplate,
    reference: serde_json::Value,
}

/// Both models, loaded once for all tests.
static LOADED: LazyLock<[Loaded; 2]> = LazyLock::new(|| {
    ["smollm2", "qwen2"].map(|name| {
        let metadata = metadata(name);
        let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
        let template = PromptTemplate::from_gguf(&metadata).unwrap();
        Loaded {
            name,
            metadata,
            tokenizer,
            template,
            reference: read_json(&format!("{name}-ids.json")),
        }
    })
});

fn reference(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/reference")
        .join(name)
}

fn read_json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(reference(name)).unwrap()).unwrap()
}

fn awkward() -> Vec<String> {
    serde_json::from_value(read_json("awkward.json")).unwrap()
}

/// The metadata of a model's GGUF file, its merges restored from the places of their cuts.
pub fn metadata(model: &str) -> Metadata {
    let archive = std::fs::File::open(reference(&format!("{model}-tokenizer.zip"))).unwrap();
    let mut bytes = Vec::new();
    let mut archive = zip::ZipArchive::new(archive).unwrap();
    archive
        .by_name("tokenizer.gguf")
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    let mut metadata = Content::read(&mut Cursor::new(bytes)).unwrap().metadata;
    let first = metadata["reference.first_merged_token"].to_u32().unwrap() as usize;
    let cuts = metadata["reference.merge_splits"].to_vec().unwrap();
    let merge = |(offset, cut): (usize, &Value)| {
        let token = tokens(&metadata)[first + offset].to_string().unwrap();
        let mut characters = token.chars();
        let left: String = characters
            .by_ref()
            .take(cut.to_u8().unwrap().into())
            .collect();
        Value::String(format!("{left} {}", characters.as_str()))
    };
    let merges = cuts.iter().enumerate().map(merge).collect();
    metadata.insert("tokenizer.ggml.merges".into(), Value::Array(merges));
    metadata
}

fn tokens(metadata: &Metadata) -> &Vec<Value> {
    metadata["tokenizer.ggml.tokens"].to_vec().unwrap()
}

/// Text and id of every token that is not ordinary text.
fn special_tokens(metadata: &Metadata) -> Vec<(String, u32)> {
    let types = metadata["tokenizer.ggml.token_type"].to_vec().unwrap();
    let text = |token: &Value| token.to_string().unwrap().clone();
    let pairs = (0u32..).zip(tokens(metadata)).zip(types);
    pairs
        .filter(|(_, t)| t.to_i32().unwrap() != 1)
        .map(|((id, t), _)| (text(t), id))
        .collect()
}

fn is_special(metadata: &Metadata) -> BTreeSet<u32> {
    special_tokens(metadata)
        .into_iter()
        .map(|(_, id)| id)
        .collect()
}

/// A vocabulary of ASCII characters and one merge, for templates and vocabularies made up in a
/// test.
pub fn small(pre: &str) -> Metadata {
    let strings =
        |texts: &[&str]| Value::Array(texts.iter().map(|t| Value::String((*t).into())).collect());
    let mut texts: Vec<String> = (b'!'..=b'~').map(|b| char::from(b).to_string()).collect();
    texts.extend(
        [
            "\u{120}",
            "\u{10a}",
            "ab",
            "<|im_start|>",
            "<|im_end|>",
            "<b>",
        ]
        .map(String::from),
    );
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let types = texts.iter().map(|t| {
        if t.contains("<|") || *t == "<b>" {
            3
        } else {
            1
        }
    });
    let types = types.map(Value::I32).collect();
    HashMap::from(
        [
            ("tokenizer.ggml.model", Value::String("gpt2".into())),
            ("tokenizer.ggml.pre", Value::String(pre.into())),
            ("tokenizer.ggml.tokens", strings(&texts)),
            ("tokenizer.ggml.token_type", Value::Array(types)),
            ("tokenizer.ggml.merges", strings(&["a b"])),
            (
                "tokenizer.ggml.bos_token_id",
                Value::U32(texts.len() as u32 - 1),
            ),
            (
                "tokenizer.ggml.eos_token_id",
                Value::U32(texts.len() as u32 - 2),
            ),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    )
}

#[test]
fn ids_equal_the_reference() {
    let texts = awkward();
    assert_eq!(texts.len(), 1000);
    for Loaded {
        name: model,
        tokenizer,
        reference,
        ..
    } in &*LOADED
    {
        let ids: Vec<Vec<u32>> = serde_json::from_value(reference["ids"].clone()).unwrap();
        assert_eq!(ids.len(), texts.len());
        for (index, (text, expected)) in texts.iter().zip(&ids).enumerate() {
            let got = tokenizer.encode_text(text).unwrap();
            assert_eq!(&got, expected, "{model}, string {index}: {text:?}");
            let decoded = reference["decoded"][index.to_string()]
                .as_str()
                .unwrap_or(text);
            assert_eq!(
                tokenizer.decode(&got),
                decoded,
                "{model}, string {index}: {text:?}"
            );
        }
    }
}

#[test]
fn text_comes_back_unless_normalised_or_without_a_token() {
    for model in &*LOADED {
        let lost = model.tokenizer.unencodable_bytes();
        let decoded = &model.reference["decoded"];
        let mut same = 0;
        for (index, text) in awkward().iter().enumerate() {
            let ids = model.tokenizer.encode_text(text).unwrap();
            if model.tokenizer.decode(&ids) == *text {
                same += 1;
                continue;
            }
            let normalised = model.name == "qwen2" && !text.is_ascii();
            assert!(
                normalised || text.bytes().any(|b| lost.contains(&b)),
                "{}: {text:?}",
                model.name
            );
            assert!(decoded[index.to_string()].is_string());
        }
        assert!(same > 850, "{}: only {same} strings came back", model.name);
    }
    let [smollm2, qwen2] = &*LOADED;
    assert_eq!(
        smollm2.tokenizer.unencodable_bytes(),
        [4, 6, 0x13, 0x14, 0x16, 0x1d, 0xf1, 0xf2]
    );
    assert!(qwen2.tokenizer.unencodable_bytes().is_empty());
}

#[test]
fn untrusted_text_never_becomes_a_special_token() {
    for Loaded {
        name: model,
        metadata,
        tokenizer,
        ..
    } in &*LOADED
    {
        let special = is_special(metadata);
        assert!(special.len() >= 17);
        let mut texts = awkward();
        for (text, _) in special_tokens(metadata) {
            texts.extend([format!("a{text}b"), format!("{text}{text}"), text]);
        }
        for text in texts {
            let ids = tokenizer.encode_text(&text).unwrap();
            assert!(
                ids.iter().all(|id| !special.contains(id)),
                "{model}: {text:?}"
            );
        }
    }
}

#[test]
fn trusted_markup_becomes_special_tokens() {
    for Loaded {
        name: model,
        metadata,
        tokenizer,
        ..
    } in &*LOADED
    {
        let mut found = 0;
        for (text, id) in special_tokens(metadata) {
            // Padding of the vocabulary has no meaning, so that it is not markup either.
            let expected = if text.starts_with("[PAD") {
                None
            } else {
                Some(id)
            };
            assert_eq!(tokenizer.special(&text), expected, "{model}: {text}");
            let Some(id) = expected else { continue };
            found += 1;
            let [a, b] = ["a", "b"].map(|letter| tokenizer.encode_text(letter).unwrap());
            let ids = tokenizer.encode_markup(&format!("a{text}{text}b")).unwrap();
            assert_eq!(ids, [&a[..], &[id, id], &b[..]].concat(), "{model}: {text}");
            assert_eq!(tokenizer.token_bytes(id), text.as_bytes());
        }
        assert!(found >= 17, "{model}: {found} special tokens");
    }
}

#[test]
fn special_ids_are_those_of_the_model() {
    let [smollm2, qwen2] = LOADED.each_ref().map(|model| &model.tokenizer);
    assert_eq!(
        (smollm2.vocab_size(), smollm2.bos(), smollm2.eos_ids()),
        (49152, Some(1), &[2, 0][..])
    );
    assert_eq!(qwen2.vocab_size(), 151_936);
    assert_eq!(qwen2.bos_text(), Some("<|endoftext|>"));
    assert_eq!(qwen2.eos_ids(), [151_645, 151_643]);
    assert!(!qwen2.add_bos());
    assert_eq!(qwen2.token_bytes(u32::MAX), b"");
    assert_eq!(qwen2.decode(&[151_936, 151_935]), "");
}

/// The digests are those of the published model files: the trimmed files here lose nothing that
/// counts, and a changed encoding of the digest would show, which would make remembered facts
/// stale.
#[test]
fn digests_are_those_of_the_published_files() {
    let hex = |digest: [u8; 32]| digest.map(|byte| format!("{byte:02x}")).concat();
    let expected = [
        (
            "12737c1fbe37866315c954993001263d43fcce65e9d3d05e434fc960739614e1",
            "1a99534a4d799ae71c629b1337b3c2f0fc8bbd2cad6a320dfdf20bdb020a2177",
        ),
        (
            "9e4158e0c78c4fab9d4124c0d4d62abb169c45213495684c5cacd0c2caae1f6e",
            "fecf7dc75890cfbb73210155ea0a3dffab3c5ec4bf9d06891107e48c0863e19a",
        ),
    ];
    for (model, (tokenizer, template)) in LOADED.iter().zip(expected) {
        assert_eq!(hex(model.tokenizer.digest()), tokenizer, "{}", model.name);
        assert_eq!(hex(model.template.digest()), template, "{}", model.name);
    }
}

#[test]
fn long_runs_are_cut_as_short_ones() {
    for Loaded {
        name: model,
        tokenizer,
        ..
    } in &*LOADED
    {
        let word = tokenizer.encode_text(" x").unwrap();
        let run = " ".repeat(MAX_TEXT_BYTES - 2);
        let ids = tokenizer.encode_text(&format!("{run} x")).unwrap();
        assert_eq!(
            ids,
            [tokenizer.encode_text(&run).unwrap(), word].concat(),
            "{model}"
        );
        let error = tokenizer.encode_text(&format!("{run} xy")).unwrap_err();
        assert!(matches!(error, TokenizerError::TooLong { .. }), "{error}");
    }
}

#[test]
fn threads_get_the_same_ids() {
    let tokenizer = &LOADED[0].tokenizer;
    let texts = awkward();
    let encode = || {
        texts
            .iter()
            .map(|t| tokenizer.encode_text(t).unwrap())
            .collect::<Vec<_>>()
    };
    let expected = encode();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(encode)).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), expected);
        }
    });
}
