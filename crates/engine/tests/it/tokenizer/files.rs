//! What is read from a model's files: pre-tokenizer types, damaged metadata, digests,
//! `tokenizer.json`.

use std::collections::BTreeSet;

use candle_core::quantized::gguf_file::Value;
use engine::prompt::PromptTemplate;
use engine::tokenizer::{Tokenizer, TokenizerError};
use serde_json::json;

use super::{LOADED, Metadata, awkward, small, special_tokens, tokens};

#[test]
fn digits_are_cut_by_pre_tokenizer_type() {
    // A vocabulary with the merges "1 2" and "12 3", under each type.
    let pieces = |pre: &str| {
        let mut metadata = small(pre);
        let mut edit = |key: &str, more: &[&str]| {
            let Some(Value::Array(list)) = metadata.get_mut(key) else {
                panic!("{key}")
            };
            list.extend(more.iter().map(|t| Value::String((*t).into())));
        };
        edit("tokenizer.ggml.tokens", &["12", "123"]);
        edit("tokenizer.ggml.merges", &["1 2", "12 3"]);
        let Some(Value::Array(types)) = metadata.get_mut("tokenizer.ggml.token_type") else {
            panic!()
        };
        types.extend([Value::I32(1), Value::I32(1)]);
        let tokenizer = Tokenizer::from_gguf(&metadata).unwrap();
        let ids = tokenizer.encode_text("1231 12").unwrap();
        ids.iter()
            .map(|&id| tokenizer.decode(&[id]))
            .collect::<Vec<_>>()
    };
    assert_eq!(pieces("smollm"), ["1", "2", "3", "1", " ", "1", "2"]);
    assert_eq!(pieces("qwen2"), ["1", "2", "3", "1", " ", "1", "2"]);
    assert_eq!(pieces("llama-bpe"), ["123", "1", " ", "12"]);
    assert_eq!(pieces("gpt-2"), ["123", "1", " ", "12"]);
}

#[test]
fn damaged_metadata_is_refused_by_name() {
    let fail = |edit: &dyn Fn(&mut Metadata)| {
        let mut metadata = small("gpt-2");
        edit(&mut metadata);
        Tokenizer::from_gguf(&metadata).err().unwrap().to_string()
    };
    let set = |key: &'static str, value: Value| {
        move |m: &mut Metadata| {
            m.insert(format!("tokenizer.ggml.{key}"), value.clone());
        }
    };
    let list = |text: &str| Value::Array(vec![Value::String(text.into())]);
    let cases: [(String, &[&str]); 8] = [
        (
            fail(&set("pre", Value::String("default".into()))),
            &["tokenizer.ggml.pre", "default", "smollm"],
        ),
        (
            fail(&set("model", Value::String("llama".into()))),
            &["tokenizer.ggml.model", "llama", "gpt2"],
        ),
        (
            fail(&|m| drop(m.remove("tokenizer.ggml.pre"))),
            &["tokenizer.ggml.pre", "GGUF"],
        ),
        (
            fail(&set("tokens", Value::U32(1))),
            &["tokenizer.ggml.tokens", "list", "U32"],
        ),
        (
            fail(&set("token_type", Value::Array(vec![Value::I32(1)]))),
            &["token_type", "100 tokens", "1 entries"],
        ),
        (
            fail(&set("eos_token_id", Value::U32(100))),
            &["eos_token_id", "is 100", "100 tokens"],
        ),
        (fail(&set("merges", list("a"))), &["merge 0", "`a`"]),
        (fail(&set("merges", list("a c"))), &["do not fit together"]),
    ];
    for (message, expected) in cases {
        for part in expected {
            assert!(message.contains(part), "{message}: no {part}");
        }
    }
}

#[test]
fn blank_added_tokens_are_refused() {
    let mut metadata = small("gpt-2");
    let Some(Value::Array(list)) = metadata.get_mut("tokenizer.ggml.tokens") else {
        panic!()
    };
    list.push(Value::String("    ".into()));
    let Some(Value::Array(types)) = metadata.get_mut("tokenizer.ggml.token_type") else {
        panic!()
    };
    types.push(Value::I32(4));
    let error = Tokenizer::from_gguf(&metadata).err().unwrap();
    assert!(
        matches!(error, TokenizerError::Unsupported { .. }),
        "{error}"
    );
}

#[test]
fn a_digest_changes_with_everything_that_changes_ids() {
    let digest = |edit: &dyn Fn(&mut Metadata)| {
        let mut metadata = small("gpt-2");
        edit(&mut metadata);
        Tokenizer::from_gguf(&metadata).unwrap().digest()
    };
    let put = |m: &mut Metadata, key: &str, at: usize, value: Value| {
        let Some(Value::Array(list)) = m.get_mut(key) else {
            panic!("{key}")
        };
        list[at] = value;
    };
    let digests = [
        digest(&|_| {}),
        digest(&|m| put(m, "tokenizer.ggml.token_type", 99, Value::I32(1))),
        digest(&|m| put(m, "tokenizer.ggml.tokens", 99, Value::String("<c>".into()))),
        digest(&|m| drop(m.insert("tokenizer.ggml.merges".into(), Value::Array(vec![])))),
        digest(&|m| drop(m.insert("tokenizer.ggml.pre".into(), Value::String("smollm".into())))),
        digest(&|m| drop(m.insert("tokenizer.ggml.eos_token_id".into(), Value::U32(97)))),
        digest(&|m| drop(m.insert("tokenizer.ggml.bos_token_id".into(), Value::U32(98)))),
        digest(&|m| drop(m.insert("tokenizer.ggml.add_bos_token".into(), Value::Bool(true)))),
    ];
    assert_eq!(digests.iter().collect::<BTreeSet<_>>().len(), digests.len());
    assert_eq!(digest(&|_| {}), digests[0]);
    let other = |m: &mut Metadata| drop(m.insert("general.name".into(), Value::String("x".into())));
    assert_eq!(digest(&other), digests[0]);
}

#[test]
fn tokenizer_json_gives_the_same_ids() {
    let metadata = &LOADED[0].metadata;
    let special = special_tokens(metadata);
    let vocab: serde_json::Map<String, serde_json::Value> = (0u32..)
        .zip(tokens(metadata))
        .map(|(id, t)| (t.to_string().unwrap().clone(), json!(id)))
        .collect();
    let merges: Vec<&String> = metadata["tokenizer.ggml.merges"]
        .to_vec()
        .unwrap()
        .iter()
        .map(|m| m.to_string().unwrap())
        .collect();
    let mut file = json!({
        "version": "1.0",
        "added_tokens": special.iter().map(|(text, id)| json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
             "use_regex": true},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
            "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": vocab,
            "merges": merges},
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let write = |name: &str, value: &serde_json::Value| {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    };
    write("tokenizer.json", &file);
    let template = metadata["tokenizer.chat_template"].to_string().unwrap();
    write(
        "tokenizer_config.json",
        &json!({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>",
                "chat_template": template}),
    );
    write("generation_config.json", &json!({"eos_token_id": [2, 0]}));

    let from_file = Tokenizer::from_file(&path).unwrap();
    let from_gguf = &LOADED[0].tokenizer;
    for text in awkward() {
        assert_eq!(
            from_file.encode_text(&text).unwrap(),
            from_gguf.encode_text(&text).unwrap(),
            "{text:?}"
        );
    }
    assert_eq!(
        (from_file.bos(), from_file.eos_ids()),
        (from_gguf.bos(), from_gguf.eos_ids())
    );
    let prompt = |template: PromptTemplate, tokenizer| template.split(tokenizer, "Sort.").unwrap();
    assert_eq!(
        prompt(
            PromptTemplate::from_folder(folder.path()).unwrap(),
            &from_file
        ),
        prompt(PromptTemplate::from_gguf(metadata).unwrap(), from_gguf)
    );

    file["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = json!(true);
    write("tokenizer.json", &file);
    let error = Tokenizer::from_file(&path).err().unwrap();
    assert!(error.to_string().contains("add_prefix_space"), "{error}");
    std::fs::write(&path, "{").unwrap();
    let error = Tokenizer::from_file(&path).err().unwrap();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
    let error = Tokenizer::from_file(&folder.path().join("none.json"))
        .err()
        .unwrap();
    assert!(matches!(error, TokenizerError::Read { .. }), "{error}");
}
